"""Thresholds: the best cut of each label where its cells say so, else a common one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plmcl.errors import PlmclError
from plmcl.thresholds import fit_thresholds

TARGETS = np.array([[1, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]], dtype=np.uint8)
OBSERVED = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [1, 0, 1, 1], [0, 0, 1, 1]], dtype=bool)
PROBS = np.array(
    [[0.9, 0.2, 0.6, 0.8], [0.4, 0.8, 0.3, 0.7], [0.3, 0.8, 0.2, 0.6], [0.6, 0.1, 0.1, 0.5]]
)


def one_threshold(targets: list[int], scores: list[float], observed: list[bool]) -> float:
    result = fit_thresholds(
        np.array(targets)[:, None], np.array(observed)[:, None], np.array(scores)[:, None], 1.0
    )
    assert result.rules == ["best F1 on known cells"]
    assert result.values.dtype == np.float32
    return float(result.values[0])


def test_the_threshold_of_a_hand_worked_label() -> None:
    # From high to low 1 1 0 1 0: F1 of the first n: 2/4, 4/5, 4/6, 6/7, 6/8. Best: four.
    known = [True] * 5
    assert one_threshold([1, 1, 0, 1, 0], [0.9, 0.8, 0.6, 0.5, 0.1], known) == pytest.approx(0.3)
    # An unknown cell between them moves nothing.
    value = one_threshold([1, 1, 0, 1, 0, 0], [0.9, 0.8, 0.6, 0.5, 0.1, 0.3], [*known, False])
    assert value == pytest.approx(0.3)


def test_of_equally_good_cuts_the_highest_is_taken() -> None:
    # 1 0 0 1: F1 of the first n: 2/3, 2/4, 2/5, 4/6.
    assert one_threshold([1, 0, 0, 1], [0.9, 0.7, 0.5, 0.2], [True] * 4) == pytest.approx(0.8)


def test_tied_scores_are_not_cut_apart() -> None:
    # .8 holds a yes and a no: the cut above it (F1 2/3) equals the one below (4/6).
    assert one_threshold([1, 1, 0], [0.9, 0.8, 0.8], [True] * 3) == pytest.approx(0.4)


def test_a_label_that_is_best_always_given_is_cut_between_its_lowest_score_and_0() -> None:
    assert one_threshold([0, 1, 1], [0.9, 0.7, 0.6], [True] * 3) == pytest.approx(0.3)
    assert one_threshold([0, 1], [0.5, 0.5], [True] * 2) == pytest.approx(0.25)
    assert one_threshold([0, 1, 1], [0.9, 0.7, 0.0], [True] * 3) == 0.0


def test_neighbouring_floats_are_still_separated_as_served() -> None:
    low = np.float32(0.7)
    for _ in range(2):  # of two neighbouring pairs, the middle of one rounds down
        high = np.nextafter(low, np.float32(1))
        value = np.float32(one_threshold([1, 0], [float(high), float(low)], [True] * 2))
        assert low < value <= high
        low = high


def test_scores_that_are_equal_as_served_are_not_cut_apart() -> None:
    assert one_threshold([1, 0], [0.5 + 1e-12, 0.5], [True] * 2) == 0.25


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 20, 10**6]))
def test_no_other_cut_has_a_better_f1(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    images = int(generator.integers(2, 30))
    targets = generator.integers(0, 2, images)
    targets[:2] = [0, 1]
    scores = ((generator.integers(0, levels, images) + 0.5) / levels).astype(np.float32)
    threshold = one_threshold(list(targets), list(scores), [True] * images)

    def f1(cut: float) -> float:
        kept = scores >= cut
        return 2 * int((kept & (targets == 1)).sum()) / int(kept.sum() + targets.sum())

    best = max(f1(score) for score in scores)
    assert f1(threshold) == best
    assert scores[scores >= threshold].min() == max(s for s in scores if f1(s) == best)


def test_labels_without_both_kinds_share_the_cut_that_leaves_k_labels_an_image() -> None:
    # All sixteen scores from high to low: .9 | .8 .8 .8 | .7 | .6 .6 .6 | .5 ...; k = 1.25: five.
    # Label 0 has both kinds, 1 0 1 from high to low: F1 2/3, 2/4, 4/5, so all three: .3 / 2.
    result = fit_thresholds(TARGETS, OBSERVED, PROBS, 1.25)
    assert result.values.tolist() == pytest.approx([0.15, 0.65, 0.65, 0.65])
    common = "common cut: 1.25 labels an image on average"
    assert result.rules == ["best F1 on known cells", common, common, common]
    assert (PROBS >= 0.65).sum() / 4 == 1.25


def test_the_common_cut_is_the_nearest_that_ties_allow_and_of_equals_the_highest() -> None:
    targets = np.ones((2, 2), dtype=np.uint8)
    observed = np.ones((2, 2), dtype=bool)
    probs = np.array([[0.8, 0.4], [0.6, 0.6]])  # counts above a cut: 1, 3, 4 = .5, 1.5, 2 an image
    for k, cut in ((0.1, 0.7), (0.5, 0.7), (1.0, 0.7), (1.1, 0.5), (1.9, 0.2), (9.0, 0.2)):
        values = fit_thresholds(targets, observed, probs, k).values
        assert values.tolist() == pytest.approx([cut, cut]), k


def test_with_positives_only_every_label_gets_the_common_cut() -> None:
    result = fit_thresholds(TARGETS, OBSERVED & (TARGETS == 1), PROBS, 1.25)
    assert result.values.tolist() == pytest.approx([0.65] * 4)


@pytest.mark.parametrize("k", [0.0, -1.0, float("nan"), float("inf")])
def test_k_must_be_a_positive_number(k: float) -> None:
    with pytest.raises(PlmclError, match="positives_per_image: must be above 0"):
        fit_thresholds(TARGETS, OBSERVED, PROBS, k)


def test_thresholds_do_not_depend_on_how_many_labels_a_pass_takes(monkeypatch) -> None:
    generator = np.random.default_rng(6)
    arrays = generator.integers(0, 2, (50, 9)), generator.random((50, 9)) < 0.7
    probs = generator.random((50, 9))
    whole = fit_thresholds(*arrays, probs, 2.0).values
    monkeypatch.setattr("plmcl.ranking.BLOCK_CELLS", 100)
    assert np.array_equal(whole, fit_thresholds(*arrays, probs, 2.0).values)


def test_what_targets_hold_where_nothing_is_observed_does_not_matter() -> None:
    spoilt = np.where(OBSERVED, TARGETS, 1 - TARGETS)
    np.testing.assert_array_equal(
        fit_thresholds(spoilt, OBSERVED, PROBS, 1.0).values,
        fit_thresholds(TARGETS, OBSERVED, PROBS, 1.0).values,
    )


def test_arrays_that_break_a_rule_are_refused() -> None:
    with pytest.raises(PlmclError, match=r"probs: must be in \[0, 1\]"):
        fit_thresholds(TARGETS, OBSERVED, PROBS * 2, 1.0)
