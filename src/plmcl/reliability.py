"""Whether scores are probabilities, and what a threshold does: known cells of all labels together.

Arrays are (N, L), as in `plmcl.evaluation`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmcl.ranking import Bools

Floats = NDArray[np.float64]

BINS = 10


@dataclass(frozen=True)
class Reliability:
    """Cells in bins of equal width of their score; only bins that hold a cell.

    Attributes:
        scores: Mean score of each bin.
        shares: Share of positives of each bin.
        cells: How many each bin holds.
    """

    scores: Floats
    shares: Floats
    cells: NDArray[np.int64]

    @property
    def error(self) -> float:
        """The expected calibration error, in [0, 1].

        The mean over cells of |share - mean score| of their bin (Naeini et al. 2015; Guo et al.,
        arXiv 1706.04599, eq. 3), of the probability that a label is present.
        """
        return float(np.average(np.abs(self.shares - self.scores), weights=self.cells))


@dataclass(frozen=True)
class Decisions:
    """How well decisions agree with the truth: of all cells together (micro), one entry a cut.

    Attributes:
        precision: Of what is said to be present, the share that is; NaN where nothing is said.
        recall: Of what is present, the share that is said.
        f1: 2 TP / (said + present).
    """

    precision: Floats
    recall: Floats
    f1: Floats


def both_known(targets: NDArray[Any], observed: Bools) -> bool:
    """Whether there are known positives and known negatives: else none of this says anything."""
    known = targets[observed]
    return bool((known == 1).any() and (known == 0).any())


def reliability(targets: NDArray[Any], observed: Bools, probs: NDArray[Any]) -> Reliability:
    """Share of positives against mean score.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool, with at least one known cell.
        probs: (N, L) in [0, 1].
    """
    scores = probs[observed].astype(np.float64)
    place = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    cells = np.bincount(place, minlength=BINS)
    positives = np.bincount(place, targets[observed] == 1, BINS)
    held = cells > 0
    total = np.bincount(place, scores, BINS)
    return Reliability(total[held] / cells[held], positives[held] / cells[held], cells[held])


def decide_at(
    targets: NDArray[Any], observed: Bools, probs: NDArray[Any], cuts: Floats
) -> Decisions:
    """Decisions `score >= cut`, with one cut for all labels.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool, with a known positive.
        probs: (N, L) in [0, 1].
        cuts: (C,).
    """
    scores, positive = probs[observed], targets[observed] == 1
    order = np.argsort(scores, kind="stable")
    first = np.searchsorted(scores[order], cuts)
    hits = np.concatenate([positive[order][::-1].cumsum()[::-1], [0]])[first]
    return _decisions(hits, len(scores) - first, positive.sum())


def decide_by_label(
    targets: NDArray[Any], observed: Bools, probs: NDArray[Any], thresholds: NDArray[np.float32]
) -> Decisions:
    """Decisions `score >= threshold` of each label's own; one entry.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool, with a known positive.
        probs: (N, L) in [0, 1].
        thresholds: (L,).
    """
    said = (probs >= thresholds) & observed
    positive = observed & (targets == 1)
    counts = [np.array([cells.sum()]) for cells in (said & positive, said, positive)]
    return _decisions(*counts)


def _decisions(hits: NDArray[Any], said: NDArray[Any], positives: NDArray[Any]) -> Decisions:
    with np.errstate(invalid="ignore"):  # 0 of 0
        return Decisions(hits / said, hits / positives, 2 * hits / (said + positives))
