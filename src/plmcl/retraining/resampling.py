"""Whether a gain in mAP may be chance: a paired bootstrap over the images of a test split.

Arrays are (N, L), as in `plmcl.evaluation`. A resample draws N of the N images with replacement,
the same ones for both models (Efron & Tibshirani 1993). Nothing is copied for it: an image that
was drawn three times weighs three.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from plmcl.ranking import Bools, check_cells

Floats = NDArray[np.float64]
Weights = NDArray[np.float32]  # whole numbers; exact, as their sums stay below 2**24 images

# Of images by resamples, held at a time: 4 megabytes.
BLOCK_WEIGHTS = 2**20
PERCENTILES = (2.5, 97.5)


def bootstrap_gains(
    targets: NDArray[Any],
    observed: Bools,
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    resamples: int,
    seed: int,
) -> Floats:
    """The gain in mAP, second - first, on each resample of the images.

    The mAP of a resample is over the labels that have a known positive and a known negative in
    it, which are the same for both models.

    Args:
        targets: (N, L) in {0, 1}; counts where `observed`.
        observed: (N, L) bool.
        first: (N, L), probabilities of one model.
        second: (N, L), of the other.
        resamples: How many.
        seed: Of the draws; they depend on it and on N alone.

    Returns:
        (resamples,), NaN where no label has both.

    Raises:
        PlmclError: As `plmcl.ranking.check_cells`.
    """
    maps = bootstrap_maps(targets, observed, [first, second], resamples=resamples, seed=seed)
    gains: Floats = maps[1] - maps[0]
    return gains


def bootstrap_maps(
    targets: NDArray[Any],
    observed: Bools,
    models: Sequence[NDArray[Any]],
    *,
    resamples: int,
    seed: int,
) -> Floats:
    """The mAP of each model on each resample of the images.

    Args:
        targets: As in `bootstrap_gains`, and so are the others.
        observed: (N, L) bool.
        models: M times (N, L), probabilities.
        resamples: How many.
        seed: Of the draws.

    Returns:
        (M, resamples), NaN where no label has both.

    Raises:
        PlmclError: As `plmcl.ranking.check_cells`.
    """
    for probs in models:
        check_cells(targets, observed, probs)
    positive = observed & (targets == 1)
    columns = np.flatnonzero(positive.any(axis=0) & (observed & ~positive).any(axis=0))
    positive, observed = positive[:, columns], observed[:, columns]
    rankings = [
        [_WeightedRanking(positive[:, i], observed[:, i], probs[:, c]) for probs in models]
        for i, c in enumerate(columns)
    ]
    # (L, N), to weigh all labels' images at once.
    sides = [cells.T.astype(np.float32) for cells in (positive, observed & ~positive)]
    means = []
    for weights in _draw(len(targets), resamples, seed):
        defined = np.logical_and(*((side @ weights > 0) for side in sides))
        totals = np.zeros((len(models), weights.shape[1]))
        for ranked, counts in zip(rankings, defined, strict=True):
            for total, ranking in zip(totals, ranked, strict=True):
                total += np.where(counts, ranking.average_precision(weights), 0)
        number = defined.sum(axis=0)
        means.append(np.where(number > 0, totals / np.maximum(number, 1), np.nan))
    return np.concatenate(means, axis=1)


def interval(values: Floats) -> tuple[float, float] | None:
    """The 95 % percentile interval of the resamples that have a value; None if none has."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.percentile(defined, PERCENTILES)
    return float(low), float(high)


class _WeightedRanking:
    """The known images of one label, sorted by score once, for any weights of the images.

    Precision counts only where a group of equal scores holds a positive. So of the images between
    two such places nothing but the sum of their weights is needed: a row of a sparse matrix.

    Args:
        positive: (N,) bool, with at least one.
        observed: (N,) bool.
        scores: (N,).
    """

    def __init__(self, positive: Bools, observed: Bools, scores: NDArray[Any]) -> None:
        known = np.flatnonzero(observed)
        images = known[np.argsort(-scores[known])].astype(np.int32)
        ordered, hit = scores[images], positive[images]
        last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
        hits = hit.cumsum()[last]
        gains = np.diff(hits, prepend=0) > 0
        ends, hits = last[gains] + 1, hits[gains]
        self._all = _sums(images[: ends[-1]], ends, len(positive))
        self._positives = _sums(images[hit], hits, len(positive))

    def average_precision(self, weights: Weights) -> Floats:
        """AP for each column of weights (N, B): (B,), 0 where no positive has weight."""
        gained = (self._positives @ weights).astype(np.float64)
        hits = gained.cumsum(axis=0)
        ranks = (self._all @ weights).cumsum(axis=0, dtype=np.float64)
        precision = hits / np.maximum(ranks, 1)
        result: Floats = (gained * precision).sum(axis=0) / np.maximum(hits[-1], 1)
        return result


def _sums(images: NDArray[np.int32], ends: NDArray[Any], num_images: int) -> sparse.csr_matrix:
    """(G, N), whose product with weights (N, B) sums the weights of G stretches of `images`."""
    starts = np.concatenate([[0], ends]).astype(np.int32)
    ones = np.ones(len(images), dtype=np.float32)
    return sparse.csr_matrix((ones, images, starts), (len(ends), num_images))


def _draw(num_images: int, resamples: int, seed: int) -> Iterator[Weights]:
    """Weights (N, B) of one block of resamples after the other."""
    generator = np.random.default_rng(seed)
    step = max(1, BLOCK_WEIGHTS // num_images)
    for start in range(0, resamples, step):
        weights = np.empty((num_images, min(step, resamples - start)), dtype=np.float32)
        for column in range(weights.shape[1]):
            drawn = generator.integers(0, num_images, num_images)
            weights[:, column] = np.bincount(drawn, minlength=num_images)
        yield weights
