import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score

from plmcl.errors import PlmclError
from plmcl.evaluation import average_precision
from plmcl.retraining import resampling
from plmcl.retraining.resampling import bootstrap_gains, interval


def made_up(seed: int, images: int, labels: int) -> tuple[np.ndarray, ...]:
    """Targets, observed (four in five) and two models' probabilities, with many equal scores."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((images, labels)) < 0.3).astype(np.uint8)
    observed = generator.random(targets.shape) < 0.8
    noise = generator.random((2, *targets.shape))
    first, second = (0.7 * noise + 0.3 * targets).round(1).astype(np.float32)
    return targets, observed, first, second


def slow_gain(
    targets: np.ndarray, observed: np.ndarray, first: np.ndarray, second: np.ndarray
) -> float:
    """The gain in mAP of rows that were really drawn, label by label, by scikit-learn."""
    gains = []
    for label in range(targets.shape[1]):
        known = observed[:, label]
        truth = targets[known, label]
        if 0 < truth.sum() < len(truth):
            before, after = (
                average_precision_score(truth, probs[known, label]) for probs in (first, second)
            )
            gains.append(after - before)
    return float(np.mean(gains)) if gains else np.nan


@pytest.mark.parametrize(("seed", "images", "labels"), [(0, 40, 5), (1, 12, 3), (5, 5, 2)])
def test_it_is_the_gain_of_rows_that_are_really_drawn(seed, images, labels):
    cells = made_up(seed, images, labels)
    generator = np.random.default_rng(seed)
    expected = []
    for _ in range(25):
        rows = generator.integers(0, images, images)
        expected.append(slow_gain(*(values[rows] for values in cells)))
    found = bootstrap_gains(*cells, resamples=25, seed=seed)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, equal_nan=True)
    assert np.isnan(found).any() == (images == 5)


def test_two_images_by_hand():
    # Of two draws of two images only one of each has a positive and a negative; there the first
    # model is right (AP 1) and the second wrong (AP 1/2).
    targets = np.array([[1], [0]], dtype=np.uint8)
    observed = np.ones((2, 1), dtype=bool)
    first, second = np.array([[0.9], [0.1]]), np.array([[0.1], [0.9]])
    gains = bootstrap_gains(targets, observed, first, second, resamples=400, seed=0)
    defined = gains[~np.isnan(gains)]
    assert set(defined) == {-0.5}
    assert 160 < len(defined) < 240  # half of the four equally likely draws
    assert interval(gains) == (-0.5, -0.5)


def test_a_label_counts_only_where_it_has_a_positive_and_a_negative():
    # Label 1 is positive on image 0 alone; without image 0 the mAP is label 0's.
    targets = np.array([[1, 1], [0, 0], [1, 0], [0, 0]], dtype=np.uint8)
    observed = np.ones((4, 2), dtype=bool)
    first = np.array([[0.9, 0.1], [0.2, 0.9], [0.8, 0.9], [0.1, 0.9]])
    second = np.array([[0.9, 0.9], [0.2, 0.1], [0.8, 0.1], [0.1, 0.1]])
    gains = bootstrap_gains(targets, observed, first, second, resamples=100, seed=3)
    generator = np.random.default_rng(3)
    for gain in gains:
        weights = np.bincount(generator.integers(0, 4, 4), minlength=4)
        has = [
            weights[0] + weights[2] > 0 and weights[1] + weights[3] > 0,
            0 < weights[0] < 4,
        ]
        # Label 0 is the same in both; of label 1 the first AP is weight / 4, the second 1.
        both = [0.0, 1 - weights[0] / 4]
        expected = [value for value, counts in zip(both, has, strict=True) if counts]
        assert gain == pytest.approx(np.mean(expected)) if expected else np.isnan(gain)


def test_equal_models_gain_exactly_nothing():
    targets, observed, first, _ = made_up(4, 30, 3)
    gains = bootstrap_gains(targets, observed, first, first.copy(), resamples=50, seed=0)
    assert (gains == 0).all()


def test_the_memory_that_is_taken_changes_no_figure(monkeypatch):
    cells = made_up(5, 30, 3)
    whole = bootstrap_gains(*cells, resamples=20, seed=7)
    monkeypatch.setattr(resampling, "BLOCK_WEIGHTS", 90)  # three resamples at a time
    assert (bootstrap_gains(*cells, resamples=20, seed=7) == whole).all()
    assert (bootstrap_gains(*cells, resamples=8, seed=7) == whole[:8]).all()
    assert (bootstrap_gains(*cells, resamples=20, seed=8) != whole).any()


def test_the_interval_is_scipys():
    targets, _, first, second = made_up(6, 120, 2)
    observed = np.ones(targets.shape, dtype=bool)

    def gain(rows: np.ndarray) -> float:
        before, after = (
            average_precision(targets[rows], observed[rows], probs[rows]).mean()
            for probs in (first, second)
        )
        return after - before

    expected = stats.bootstrap(
        (np.arange(120),), gain, n_resamples=1000, method="percentile", vectorized=False, rng=1
    ).confidence_interval
    found = interval(bootstrap_gains(targets, observed, first, second, resamples=1000, seed=0))
    # Both are random: the deviation of a bound is about a twentieth of the interval.
    width = expected.high - expected.low
    assert found == pytest.approx((expected.low, expected.high), abs=0.15 * width)


def test_interval():
    assert interval(np.append(np.arange(101.0), np.nan)) == (2.5, 97.5)
    assert interval(np.full(3, np.nan)) is None


def test_scores_that_are_no_probabilities_are_refused():
    targets, observed, first, second = made_up(0, 10, 2)
    with pytest.raises(PlmclError, match=r"probs: must be in \[0, 1\]"):
        bootstrap_gains(targets, observed, first, second + 2, resamples=1, seed=0)
