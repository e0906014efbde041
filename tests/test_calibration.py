"""Platt scaling against scikit-learn, and what is calibrated at all."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from plmcl.calibration import ENOUGH, Calibration, brier, fit_calibration, fit_platt, sigmoid
from plmcl.errors import PlmclError
from plmcl.evaluation import average_precision
from plmcl.thresholds import fit_thresholds


def drawn(seed, images=300, labels=4, *, slope=0.4, intercept=-1.0):
    """Logits, and truth that has each label with probability sigmoid(slope * logit + intercept)."""
    generator = np.random.default_rng(seed)
    logits = (4 * generator.standard_normal((images, labels)) - 2).astype(np.float32)
    truth = generator.random((images, labels)) < sigmoid(slope * logits + intercept)
    return logits, truth.astype(np.uint8)


def platt_of_sklearn(logits, positive):
    """Each cell twice, as a positive and as a negative, weighted by Platt's targets."""
    hits, misses = positive.sum(), (~positive).sum()
    wanted = np.where(positive, (hits + 1) / (hits + 2), 1 / (misses + 2))
    inputs = np.concatenate([logits, logits])[:, None].astype(np.float64)
    classes = np.repeat([1, 0], len(logits))
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    model.fit(inputs, classes, sample_weight=np.concatenate([wanted, 1 - wanted]))
    return model.coef_[0, 0], model.intercept_[0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_platt_scaling_is_scikit_learns(seed, scale):
    logits, truth = drawn(seed, images=40)
    found = fit_platt(logits[:, 0] * np.float32(scale), truth[:, 0] == 1)
    slope, intercept = platt_of_sklearn(logits[:, 0], truth[:, 0] == 1)
    assert found == pytest.approx((slope / scale, intercept), rel=1e-4, abs=1e-5)


def test_platt_scaling_of_two_scores_by_hand():
    # Two scores, two numbers: the fit is exact. Three of four, and one of four, are positives;
    # Platt's targets are 5/6 and 1/6, so the means wanted are (3 * 5/6 + 1/6) / 4 = 2/3 and 1/3.
    logits = np.float32([1] * 4 + [-1] * 4)
    positive = np.array([1, 1, 1, 0, 1, 0, 0, 0], dtype=bool)
    assert fit_platt(logits, positive) == pytest.approx((np.log(2), 0))


def test_labels_that_a_score_tells_apart_at_once_get_no_certainty():
    logits = np.float32([3] * 10 + [-3] * 10)
    slope, intercept = fit_platt(logits, logits > 0)
    assert intercept == pytest.approx(0)
    assert slope * 3 == pytest.approx(np.log(11))  # (10 + 1) / (10 + 2) = 11/12


def test_scores_that_are_all_equal_or_the_wrong_way_round_are_left_alone():
    logits, truth = drawn(0, labels=2)
    logits[:, 0], truth[:, 1] = 1.5, 1 - truth[:, 1]
    result = fit_calibration(truth, np.ones_like(truth, dtype=bool), logits)
    assert result.slopes.tolist() == [1, 1]
    assert result.intercepts.tolist() == [0, 0]
    assert result.count == 0
    assert all(rule.endswith("higher scores are no sign of the label") for rule in result.rules)


def test_a_label_needs_enough_known_cells_of_both_values():
    logits, _ = drawn(1, images=60, labels=5)
    truth = np.zeros((60, 5), dtype=np.uint8)
    observed = np.ones((60, 5), dtype=bool)
    truth[:ENOUGH], logits[:ENOUGH] = 1, 3  # enough
    truth[ENOUGH - 1, 1] = 0
    observed[2 * ENOUGH - 1 :, 2] = False
    observed[truth[:, 3] == 0, 3] = False
    observed[:, 4] = False
    result = fit_calibration(truth, observed, logits)
    assert result.rules == [
        "Platt scaling on 10 known positives and 50 known negatives",
        "none: 9 known positives and 51 known negatives, 10 of each are needed",
        "none: 10 known positives and 9 known negatives, 10 of each are needed",
        "none: only positives are known",
        "none: 0 known positives and 0 known negatives, 10 of each are needed",
    ]
    assert result.count == 1
    assert result.slopes[1:].tolist() == [1] * 4
    np.testing.assert_array_equal(result.probabilities(logits)[:, 1:], sigmoid(logits)[:, 1:])


def test_only_known_cells_count():
    logits, truth = drawn(2)
    observed = np.random.default_rng(3).random(truth.shape) < 0.5
    spoilt = fit_calibration(np.where(observed, truth, 1 - truth), observed, logits)
    for label in range(truth.shape[1]):
        known = observed[:, label]
        expected = fit_platt(logits[known, label], truth[known, label] == 1)
        assert (spoilt.slopes[label], spoilt.intercepts[label]) == pytest.approx(expected)


def test_the_numbers_that_truth_was_drawn_with_are_found_and_average_precision_stays():
    logits, truth = drawn(4, images=5000)
    observed = np.ones_like(truth, dtype=bool)
    fitted = fit_calibration(truth, observed, logits)
    np.testing.assert_allclose(fitted.slopes, 0.4, atol=0.05)
    np.testing.assert_allclose(fitted.intercepts, -1, atol=0.15)
    logits, truth = drawn(5, images=5000)
    raw, probs = sigmoid(logits), fitted.probabilities(logits)
    assert (brier(truth, observed, probs) < brier(truth, observed, raw) - 0.01).all()
    assert np.abs(probs - sigmoid(0.4 * logits - 1)).mean() < 0.01
    # But for neighbours among 5,000 whose scores round to one float32.
    np.testing.assert_allclose(
        average_precision(truth, observed, probs),
        average_precision(truth, observed, raw),
        atol=1e-5,
    )


def test_thresholds_of_calibrated_scores_give_the_same_labels_where_f1_chooses_them():
    logits, truth = drawn(6)
    observed = np.ones_like(truth, dtype=bool)
    raw, probs = sigmoid(logits), fit_calibration(truth, observed, logits).probabilities(logits)
    given = [
        scores >= fit_thresholds(truth, observed, scores, 1.0).values for scores in (raw, probs)
    ]
    np.testing.assert_array_equal(*given)


def test_brier_is_scikit_learns_on_known_cells_of_labels_with_both_values():
    logits, truth = drawn(7)
    probs = sigmoid(logits)
    observed = np.random.default_rng(8).random(truth.shape) < 0.5
    observed[:, 1] &= truth[:, 1] == 1
    observed[:, 2] = False
    found = brier(truth, observed, probs)
    assert np.isnan(found[[1, 2]]).all()
    for label in (0, 3):
        known = observed[:, label]
        expected = brier_score_loss(truth[known, label], probs[known, label])
        assert found[label] == pytest.approx(expected)


def test_sigmoid_is_exact_at_its_ends():
    found = sigmoid(np.float32([-1e30, -100, -10, 0, 10, 100, 1e30]))
    expected = [0, 3.783506e-44, 4.539787e-05, 0.5, 0.9999546, 1, 1]
    np.testing.assert_allclose(found, np.float32(expected), rtol=1e-6)


def test_arrays_that_break_a_rule_are_refused():
    logits, truth = drawn(9)
    observed = np.ones_like(truth, dtype=bool)
    with pytest.raises(PlmclError, match="must have one shape"):
        fit_calibration(truth[:-1], observed, logits)
    logits[3, 2] = np.nan
    with pytest.raises(PlmclError, match="logits: must be finite"):
        fit_calibration(truth, observed, logits)


def test_none_leaves_every_score():
    logits, _ = drawn(10)
    none = Calibration.none(4, "not asked for")
    np.testing.assert_array_equal(none.probabilities(logits), sigmoid(logits))
    assert none.rules == ["none: not asked for"] * 4
