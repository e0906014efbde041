import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torch import nn

from plmcl.errors import PlmclError
from plmcl.evaluation import (
    average_precision,
    difficult_both_ways,
    evaluate,
    predict,
    selection_score,
)


def column(targets: list[int], scores: list[float], observed: list[bool] | None = None) -> float:
    """AP of one label."""
    known = np.ones(len(targets), dtype=bool) if observed is None else np.array(observed)
    result = average_precision(
        np.array(targets)[:, None], known[:, None], np.array(scores, dtype=np.float64)[:, None]
    )
    assert result.shape == (1,)
    return float(result[0])


def test_who_compares_figures_alone_needs_no_torch() -> None:
    code = "import sys, plmcl.evaluation; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def everything(shape: tuple[int, int]) -> np.ndarray:
    return np.ones(shape, dtype=bool)


# ---------------------------------------------------------------------------- average precision


def test_a_hand_worked_label() -> None:
    # From high to low 1 0 1 1 0: precision at the hits 1/1, 2/3, 3/4.
    value = column([0, 1, 1, 0, 1], [0.1, 0.9, 0.6, 0.8, 0.4])
    assert value == pytest.approx((1 + 2 / 3 + 3 / 4) / 3, abs=1e-15)


def test_it_is_the_step_wise_average_precision() -> None:
    """Case 59: interpolated and 11-point AP of the same five rows are other numbers."""
    # 0 1 1 0 1: precision at the hits 1/2, 2/3, 3/5.
    value = column([0, 1, 1, 0, 1], [0.9, 0.8, 0.7, 0.6, 0.5])
    assert value == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 3, abs=1e-15)
    interpolated = (2 / 3 + 2 / 3 + 3 / 5) / 3
    eleven_point = (7 * 2 / 3 + 4 * 3 / 5) / 11
    assert abs(value - interpolated) > 0.05
    assert abs(value - eleven_point) > 0.05


def test_tied_scores_are_one_step() -> None:
    """Case 52."""
    assert column([1, 0], [0.5, 0.5]) == column([0, 1], [0.5, 0.5]) == 0.5
    assert column([1] + [0] * 9999, [0.5] * 10000) == pytest.approx(0.0001, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 10, 1000]))
def test_the_order_of_the_rows_does_not_matter(seed: int, levels: int) -> None:
    """Case 52: to the last digit."""
    generator = np.random.default_rng(seed)
    shape = (int(generator.integers(1, 60)), 4)
    targets = generator.integers(0, 2, shape)
    probs = (generator.integers(0, levels, shape) + 0.5) / levels
    observed = generator.random(shape) < 0.8
    shuffled = generator.permutation(shape[0])
    np.testing.assert_array_equal(
        average_precision(targets, observed, probs),
        average_precision(targets[shuffled], observed[shuffled], probs[shuffled]),
    )


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 80),
    st.integers(1, 6),
    st.sampled_from([1, 2, 3, 10, 10**6]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([0.3, 0.9, 1.0]),
)
def test_it_equals_sklearn_label_by_label(
    seed: int, images: int, labels: int, levels: int, dtype: type, known: float
) -> None:
    """Case 57: unknown cells enter neither a label's AP nor the mean."""
    generator = np.random.default_rng(seed)
    shape = (images, labels)
    targets = (generator.random(shape) < generator.random()).astype(np.uint8)
    observed = generator.random(shape) < known
    probs = (generator.integers(0, levels, shape) / levels).astype(dtype)
    expected = np.full(labels, np.nan)
    for j in range(labels):
        seen = observed[:, j]
        if len(set(targets[seen, j])) == 2:
            expected[j] = average_precision_score(targets[seen, j], probs[seen, j])
    result = average_precision(targets, observed, probs)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, atol=1e-12, rtol=0)


def test_it_equals_sklearn_when_the_labels_take_several_passes(monkeypatch) -> None:
    monkeypatch.setattr("plmcl.ranking.BLOCK_CELLS", 500)
    generator = np.random.default_rng(5)
    targets = generator.integers(0, 2, (200, 7))
    probs = np.round(generator.random((200, 7)), 2) * 0.98 + 0.01
    result = average_precision(targets, everything((200, 7)), probs)
    expected = average_precision_score(targets, probs, average=None)
    np.testing.assert_allclose(result, expected, atol=1e-12, rtol=0)
    ranks = evaluate(targets, everything((200, 7)), probs).metrics["mean_reciprocal_rank"]
    assert ranks == pytest.approx(reciprocal_rank_oracle(targets == 1, probs), abs=1e-12)


def test_a_label_without_both_kinds_of_known_cells_has_no_average_precision() -> None:
    """Case 49: neither 0 nor 1 nor an average of them."""
    assert np.isnan(column([0, 0], [0.2, 0.4]))
    assert np.isnan(column([1, 1], [0.2, 0.4]))
    assert np.isnan(column([1, 0], [0.2, 0.4], [True, False]))
    assert np.isnan(column([1, 0], [0.2, 0.4], [False, False]))


def test_probabilities_give_one_figure_whatever_the_batches() -> None:
    """Case 51: nothing here guesses, and raw logits are refused."""
    logits = np.array([-1.0, 0.0, 1.0])
    # 1 0 1 from low to high: hits at ranks 1 and 3.
    assert column([1, 0, 1], list(1 / (1 + np.exp(-logits)))) == pytest.approx((1 + 2 / 3) / 2)
    with pytest.raises(PlmclError, match=r"probs: must be in \[0, 1\].*found -1\.0 at image 0"):
        column([1, 0, 1], list(logits))


@pytest.mark.slow
def test_sixty_thousand_images_of_81_labels_take_about_a_second() -> None:
    generator = np.random.default_rng(0)
    targets = (generator.random((60_000, 81)) < 0.03).astype(np.uint8)
    probs = generator.random(targets.shape, dtype=np.float32)
    start = time.process_time()
    average_precision(targets, everything(targets.shape), probs)
    assert time.process_time() - start < 3


# ---------------------------------------------------------------------------- refusals


GOOD = np.array([[0.2, 0.7]])


@pytest.mark.parametrize(
    ("targets", "observed", "probs", "message"),
    [
        ([[0, 1]], [[True, True]], [[0.2, np.nan]], r"probs: must be in \[0, 1\].*nan at image 0"),
        ([[0, 1]], [[True, True]], [[0.2, np.inf]], r"probs: .*found inf at image 0, label 1"),
        ([[0, 1]], [[True, True]], [[0.2, 1.5]], r"probs: .*found 1\.5 at image 0, label 1"),
        ([[0, 1]], [[1, 1]], [[0.2, 0.7]], r"observed: must be bool, found int64"),
        ([[0, 2]], [[True, True]], [[0.2, 0.7]], r"targets: must be 0 or 1.*found 2"),
        ([[0, 0.5]], [[True, True]], [[0.2, 0.7]], r"targets: must be 0 or 1.*found 0\.5"),
        ([[0, np.nan]], [[True, False]], [[0.2, 0.7]], r"targets: must be 0 or 1.*found nan"),
        ([[0, 1]], [[True, True]], [[0, 1]], r"probs: must be floats, found int64"),
        ([[0, 1, 1]], [[True, True]], [[0.2, 0.7]], r"one shape.*\(1, 3\), \(1, 2\), \(1, 2\)"),
        ([[0, 1]], [[True]], [[0.2, 0.7]], r"one shape"),
        ([0, 1], [True, True], [0.2, 0.7], r"one shape \(images, labels\)"),
        ([[]], [[]], [[]], r"neither of them 0; found \(1, 0\)"),
    ],
)
def test_arrays_that_break_a_rule_are_refused(targets, observed, probs, message: str) -> None:
    arrays = np.array(targets), np.array(observed), np.array(probs)
    for function in (average_precision, evaluate):
        with pytest.raises(PlmclError, match=message):
            function(*arrays)


def test_coded_unknowns_are_refused_also_where_they_are_not_observed() -> None:
    """Case 58: -1 is never silently a negative."""
    with pytest.raises(PlmclError, match="unknown is in `observed`; found -1 at image 1, label 0"):
        column([1, -1, -1], [0.9, 0.8, 0.7])
    with pytest.raises(PlmclError, match="found -1 at image 0, label 1"):
        average_precision(
            np.array([[1, -1], [0, 1]]),
            np.array([[True, False], [True, True]]),
            np.array([[0.9, 0.8], [0.3, 0.4]]),
        )


def test_thresholded_decisions_are_refused() -> None:
    """Case 56: the scores give AP 1, the decisions made from them at one half 2/3."""
    targets, scores = [1, 0, 1, 0], np.array([0.9, 0.6, 0.7, 0.1])
    assert column(targets, list(scores)) == 1.0
    decisions = (scores >= 0.5).astype(float)
    assert average_precision_score(targets, decisions) == pytest.approx(0.667, abs=1e-3)
    with pytest.raises(PlmclError, match="pass scores, not thresholded decisions"):
        column(targets, list(decisions))
    # A model that says the same of everything is useless, but not thresholded.
    assert column(targets, [1.0] * 4) == column(targets, [0.0] * 4) == 0.5


# ---------------------------------------------------------------------------- evaluate


def reciprocal_rank_oracle(positive: np.ndarray, probs: np.ndarray) -> float:
    ranks = []
    for i in range(len(probs)):
        for j in range(probs.shape[1]):
            if positive[i, j]:
                above = sum(score > probs[i, j] for score in probs[i])
                equal = sum(score == probs[i, j] for score in probs[i])
                ranks.append(above + (equal + 1) / 2)
    return sum(1 / rank for rank in ranks) / len(ranks)


# Four images, four labels; ? is unknown (its target is 0).
#   targets    1 0 ? 1     scores  .9 .2 .6 .8
#              0 ? ? 1             .4 .8 .3 .7
#              1 ? 0 1             .3 .8 .2 .6
#              ? ? 0 1             .6 .1 .1 .5
TARGETS = np.array([[1, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]], dtype=np.uint8)
OBSERVED = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 1, 1], [0, 0, 1, 1]], dtype=bool)
PROBS = np.array(
    [[0.9, 0.2, 0.6, 0.8], [0.4, 0.8, 0.3, 0.7], [0.3, 0.8, 0.2, 0.6], [0.6, 0.1, 0.1, 0.5]]
)


def test_the_figures_of_a_hand_worked_split() -> None:
    """Cases 35, 49 and 57."""
    result = evaluate(TARGETS, OBSERVED, PROBS)
    # Label 0, known cells: .9 yes, .4 no, .3 yes: (1 + 2/3) / 2. The others lack a kind.
    np.testing.assert_allclose(result.average_precision, [5 / 6, np.nan, np.nan, np.nan])
    assert result.positives.tolist() == [2, 0, 0, 4]
    assert result.negatives.tolist() == [1, 1, 2, 0]
    assert result.unknown.tolist() == [1, 3, 2, 0]
    # Ranks of the six known positives: 1, 2 / 2 / 3, 2 / 2.
    assert result.metrics == {
        "mAP": pytest.approx(5 / 6),
        # Labels 1 and 2 as 0; label 3 has no negative and stays out.
        "mAP_empty_as_zero": pytest.approx(5 / 6 / 3),
        # Label 0 with its unknown .6 as a negative: hits at ranks 1 and 4.
        "mAP_unknown_as_negative": pytest.approx((1 + 2 / 4) / 2),
        "labels": 4,
        "labels_averaged": 1,
        "labels_without_positives": 2,
        "labels_without_negatives": 1,
        "images_scored": 4,
        "images_known": 4,
        "mean_reciprocal_rank": pytest.approx((1 + 4 / 2 + 1 / 3) / 6),
        "known_cells": 10,
    }


def test_unknown_cells_taken_for_negatives_make_a_good_model_look_bad() -> None:
    """Case 35: a perfect ranking scored at a fifth of its worth, under its own name."""
    generator = np.random.default_rng(2)
    truth = generator.random((400, 10)) < 0.3
    probs = np.where(truth, 0.6, 0.2) + 0.1 * generator.random(truth.shape)
    observed = generator.random(truth.shape) < 0.15
    metrics = evaluate((truth & observed).astype(np.uint8), observed, probs).metrics
    assert metrics["mAP"] == 1.0
    closed = metrics["mAP_unknown_as_negative"]
    assert closed is not None
    assert closed < 0.35


def test_what_targets_hold_where_nothing_is_observed_does_not_matter() -> None:
    spoilt = np.where(OBSERVED, TARGETS, 1 - TARGETS)
    assert evaluate(spoilt, OBSERVED, PROBS).metrics == evaluate(TARGETS, OBSERVED, PROBS).metrics


def test_a_perfect_label_beside_an_empty_one() -> None:
    """Case 49: 1.0 over one label, not one half; the reference code's half has its own name."""
    targets = np.array([[1, 0], [0, 0]])
    metrics = evaluate(targets, everything((2, 2)), np.array([[0.9, 0.5], [0.1, 0.4]])).metrics
    assert (metrics["mAP"], metrics["labels_averaged"], metrics["labels"]) == (1.0, 1, 2)
    assert metrics["mAP_empty_as_zero"] == 0.5


def test_no_label_with_an_average_precision_is_none_and_not_0() -> None:
    """Case 49."""
    metrics = evaluate(np.zeros((3, 2)), everything((3, 2)), np.full((3, 2), 0.3)).metrics
    assert metrics["mAP"] is None
    assert metrics["mAP_empty_as_zero"] is None
    assert metrics["mAP_unknown_as_negative"] is None
    assert metrics["mean_reciprocal_rank"] is None


def test_with_everything_known_the_three_figures_agree() -> None:
    generator = np.random.default_rng(4)
    targets = generator.integers(0, 2, (30, 5))
    metrics = evaluate(targets, everything((30, 5)), generator.random((30, 5))).metrics
    assert metrics["mAP"] == metrics["mAP_empty_as_zero"] == metrics["mAP_unknown_as_negative"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4, 10**6]))
def test_reciprocal_ranks_equal_counting(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    shape = (int(generator.integers(1, 20)), int(generator.integers(1, 8)))
    targets = generator.integers(0, 2, shape)
    observed = generator.random(shape) < 0.5
    probs = (generator.integers(0, levels, shape) + 0.5) / levels
    value = evaluate(targets, observed, probs).metrics["mean_reciprocal_rank"]
    positive = observed & (targets == 1)
    if positive.any():
        assert value == pytest.approx(reciprocal_rank_oracle(positive, probs), abs=1e-12)
    else:
        assert value is None


def test_tied_ranks_take_the_middle() -> None:
    targets = np.array([[1, 0, 0]])
    metrics = evaluate(targets, targets == 1, np.array([[0.5, 0.5, 0.5]])).metrics
    assert metrics["mean_reciprocal_rank"] == 0.5


def test_the_selection_score_is_map_wherever_there_is_one() -> None:
    assert selection_score(evaluate(TARGETS, OBSERVED, PROBS)) == ("mAP", pytest.approx(5 / 6))


def test_with_positives_only_the_selection_score_is_the_mean_reciprocal_rank() -> None:
    result = evaluate(TARGETS, OBSERVED & (TARGETS == 1), PROBS)
    assert np.isnan(result.average_precision).all()
    expected = (1 + 4 / 2 + 1 / 3) / 6
    assert selection_score(result) == ("mean_reciprocal_rank", pytest.approx(expected))


def test_without_a_known_positive_there_is_no_selection_score() -> None:
    with pytest.raises(PlmclError, match="no known positive label on the 4 images"):
        selection_score(evaluate(TARGETS, OBSERVED & (TARGETS == 0), PROBS))


def test_difficult_objects_both_ways_case_27() -> None:
    """Case 27: the best score is a difficult object, and the label has one real positive."""
    probs = np.array([[0.9], [0.8], [0.1]])
    targets = np.array([[0], [1], [0]])
    difficult = np.array([[True], [False], [False]])
    expected = {"mAP_difficult_negative": 1 / 2, "mAP_difficult_ignored": 1.0}
    for observed in (everything((3, 1)), ~difficult):  # however the labels are taken in training
        assert difficult_both_ways(targets, observed, difficult, probs) == expected


# ---------------------------------------------------------------------------- predict


class Model(nn.Module):
    """Logits that dropout and batch normalisation would change in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(3, 2)
        nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.norm(inputs)))


INPUTS = torch.linspace(-2, 2, 15).view(5, 3)


def batches(size: int, rows: list[int] | None = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    order = torch.tensor(list(range(5)) if rows is None else rows)
    return [(part, INPUTS[part]) for part in order.split(size)]


def test_predictions_are_the_models_probabilities_in_evaluation_mode() -> None:
    model = Model()
    result = predict(model, batches(2), 5)
    weight, bias = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    logits = INPUTS.numpy() / np.sqrt(1 + model.norm.eps) @ weight.T + bias
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, 1 / (1 + np.exp(-logits)), atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 4, 5, 100])
def test_predictions_do_not_depend_on_the_batches_or_their_order(size: int) -> None:
    """Cases 51 and 55: no row is dropped, whatever the last batch holds."""
    model = Model()
    result = predict(model, batches(size, [3, 0, 4, 1, 2]), 5)
    np.testing.assert_allclose(result, predict(model, batches(5), 5), atol=1e-7)


def test_a_row_that_comes_twice_is_refused() -> None:
    """Case 54: two ranks of three rows each for five images."""
    with pytest.raises(PlmclError, match="exactly once; 1 did not, row 0 came 2 times"):
        predict(Model(), batches(3, [0, 1, 2, 3, 4, 0]), 5)
    with pytest.raises(PlmclError, match="row 1 came 2 times"):
        predict(Model(), batches(6, [0, 1, 1, 2, 3, 4]), 5)


def test_a_row_that_never_comes_is_refused() -> None:
    """Case 55: drop_last with five rows in batches of four."""
    with pytest.raises(PlmclError, match=r"each of the 5 rows .* 1 did not, row 4 came 0 times"):
        predict(Model(), batches(4)[:1], 5)
    with pytest.raises(PlmclError, match="5 did not"):
        predict(Model(), [], 5)


@pytest.mark.parametrize("row", [-1, 5])
def test_a_row_outside_the_result_is_refused(row: int) -> None:
    with pytest.raises(PlmclError, match=rf"row {row} is outside 0\.\.4"):
        predict(Model(), [(torch.tensor([0, row]), INPUTS[:2])], 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_output_that_is_not_finite_is_refused_with_its_row(value: float) -> None:
    inputs = INPUTS.clone()
    inputs[3, 1] = value
    with pytest.raises(PlmclError, match="output for row 3 is not finite"):
        predict(Model(), [(torch.arange(5), inputs)], 5)


def test_every_modules_mode_is_restored_also_after_an_error() -> None:
    model = Model().train()
    model.norm.eval()
    predict(model, batches(2), 5)
    assert (model.training, model.dropout.training, model.norm.training) == (True, True, False)
    with pytest.raises(PlmclError):
        predict(model, batches(2)[:1], 5)
    assert (model.training, model.dropout.training, model.norm.training) == (True, True, False)


def test_an_autocast_outside_changes_nothing() -> None:
    model = Model()
    plain = predict(model, batches(2), 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(plain, predict(model, batches(2), 5))


def test_prediction_leaves_parameters_and_buffers_as_they_were() -> None:
    model = Model()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    predict(model, batches(2), 5)
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
