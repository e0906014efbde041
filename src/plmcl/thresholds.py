"""Thresholds: from which score on a label is given to an image."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmcl.errors import PlmclError
from plmcl.ranking import Bools, Ranking, blocks, check_cells

F1_RULE = "best F1 on known cells"


@dataclass(frozen=True)
class Thresholds:
    """Per label, the cut and the rule that gave it; the decision is `score >= threshold`.

    Attributes:
        values: (L,) float32.
        rules: L short texts.
    """

    values: NDArray[np.float32]
    rules: list[str]


def fit_thresholds(
    targets: NDArray[Any], observed: Bools, probs: NDArray[Any], positives_per_image: float
) -> Thresholds:
    """A cut for each label, from known cells where they suffice.

    A label with both kinds of known cells gets the cut with the best F1 on them; of equal ones
    the highest. The other labels share one cut, above which an image has about
    `positives_per_image` of all L labels on average; of equally near cuts the highest. Candidate
    cuts lie midway between neighbouring distinct scores, and midway between the lowest and 0.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool.
        probs: (N, L) in [0, 1]; cuts are made between their float32 values, which are served.
        positives_per_image: k > 0.

    Raises:
        PlmclError: As `average_precision`, or k is not a positive number.
    """
    check_cells(targets, observed, probs)
    if not 0 < positives_per_image < np.inf:
        raise PlmclError(f"positives_per_image: must be above 0, found {positives_per_image!r}")
    scores = probs.astype(np.float32)
    positive = observed & (targets == 1)
    best = np.zeros(scores.shape[1], dtype=np.float32)
    for block in blocks(*scores.T.shape):
        best[block] = _best_f1_cuts(scores.T[block], positive.T[block], observed.T[block])
    positives = positive.sum(axis=0)
    fitted = (positives > 0) & (positives < observed.sum(axis=0))
    if fitted.all():
        return Thresholds(best, [F1_RULE] * len(best))
    rule = f"common cut: {positives_per_image:.3g} labels an image on average"
    return Thresholds(
        np.where(fitted, best, _common_cut(scores, positives_per_image)),
        [F1_RULE if own else rule for own in fitted],
    )


def _best_f1_cuts(
    scores: NDArray[np.float32], positive: Bools, known: Bools
) -> NDArray[np.float32]:
    ranking = Ranking(scores, positive, known)
    # F1 = 2 TP / (predicted + positives), equal fractions giving equal floats. Behind the known
    # cells it only falls, so the cells that do not count need no mask.
    f1 = 2 * ranking.hits / (ranking.rank + ranking.hits[:, -1:])
    f1[~ranking.is_last] = -1
    best = f1.argmax(axis=1)
    rows = np.arange(len(best))
    following = np.pad(ranking.scores, ((0, 0), (0, 1)))[rows, best + 1]
    return _midway(np.maximum(following, 0), ranking.scores[rows, best])


def _common_cut(scores: NDArray[np.float32], positives_per_image: float) -> NDArray[np.float32]:
    values, counts = np.unique(scores, return_counts=True)
    above = counts[::-1].cumsum() / len(scores)
    nearest = len(values) - 1 - int(np.abs(above - positives_per_image).argmin())
    lower = values[nearest - 1 : nearest] if nearest else np.zeros(1, dtype=np.float32)
    return _midway(lower, values[nearest : nearest + 1])


def _midway(lower: NDArray[np.float32], upper: NDArray[np.float32]) -> NDArray[np.float32]:
    middle = ((lower.astype(np.float64) + upper) / 2).astype(np.float32)
    # Between adjacent floats the middle may round down to the score that it must exclude.
    return np.where(middle > lower, middle, upper)
