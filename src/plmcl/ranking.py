"""Scores of known cells, checked and sorted: what average precision, ranks and thresholds share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmcl.errors import PlmclError

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

# Cells sorted at a time; bounds the memory of one pass to some tens of megabytes.
BLOCK_CELLS = 2**20


class Ranking:
    """Rows of scores, each sorted from high to low with the cells that do not count at its end.

    Attributes:
        scores: Sorted; -1 for a cell that does not count.
        rank: (C,) 1, 2, ... C.
        hits: Positives up to each place.
        is_last: Whether the place ends a group of equal scores.
    """

    def __init__(self, scores: NDArray[Any], positive: Bools, counted: Bools) -> None:
        # Contiguous, so that a row's sums do not depend on which rows share its block.
        scores = np.ascontiguousarray(np.where(counted, scores, -1))
        order = np.argsort(-scores, axis=1)
        self.scores = np.take_along_axis(scores, order, axis=1)
        self.rank = np.arange(1, scores.shape[1] + 1)
        self.hits = np.take_along_axis(positive, order, axis=1).cumsum(axis=1)
        self.is_last = np.ones(scores.shape, dtype=np.bool_)
        self.is_last[:, :-1] = self.scores[:, :-1] != self.scores[:, 1:]

    def gains(self) -> Ints:
        """Positives of a group of equal scores, at its last place; 0 elsewhere."""
        return np.where(self.is_last, self.hits - self.before(self.hits), 0)

    def before(self, values: Ints) -> Ints:
        """The value at the end of the previous group; 0 for the first group."""
        result = np.zeros(self.is_last.shape, dtype=np.int64)
        at_ends = np.where(self.is_last, values, 0)
        # Values never fall along a row, so the largest so far is the latest.
        result[:, 1:] = np.maximum.accumulate(at_ends, axis=1)[:, :-1]
        return result


def blocks(num_rows: int, row_length: int) -> Iterator[slice]:
    """Slices of rows, each about BLOCK_CELLS cells."""
    step = max(1, BLOCK_CELLS // row_length)
    for start in range(0, num_rows, step):
        yield slice(start, start + step)


def check_cells(targets: NDArray[Any], observed: Bools, probs: NDArray[Any]) -> None:
    """Refuse arrays that are not (N, L) known cells and their probabilities.

    Raises:
        PlmclError: Shapes differ or are empty; `observed` is not bool; a target is neither 0 nor 1
            (a coded unknown, say); a score is no probability, or all of them are decisions.
    """
    if not (probs.ndim == 2 and probs.size and targets.shape == observed.shape == probs.shape):
        raise PlmclError(
            "targets, observed and probs must have one shape (images, labels), neither of them 0; "
            f"found {targets.shape}, {observed.shape}, {probs.shape}"
        )
    if observed.dtype != np.bool_:
        raise PlmclError(f"observed: must be bool, found {observed.dtype}")
    _refuse(
        targets, (targets != 0) & (targets != 1), "targets", "be 0 or 1; unknown is in `observed`"
    )
    if not np.issubdtype(probs.dtype, np.floating):
        raise PlmclError(f"probs: must be floats, found {probs.dtype}; pass scores, not decisions")
    # NaN compares false, so "not inside" also finds what is not a number.
    _refuse(probs, ~((probs >= 0) & (probs <= 1)), "probs", "be in [0, 1]; pass probabilities")
    if probs.min() == 0 and probs.max() == 1 and ((probs == 0) | (probs == 1)).all():
        raise PlmclError("probs: only the values 0 and 1; pass scores, not thresholded decisions")


def _refuse(values: NDArray[Any], wrong: Bools, name: str, rule: str) -> None:
    if wrong.any():
        row, column = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise PlmclError(
            f"{name}: must {rule}; found {values[row, column]} at image {row}, label {column}"
        )
