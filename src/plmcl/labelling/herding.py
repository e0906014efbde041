"""Which images to label next, so that what is labeled looks like all there is: kernel herding.

A greedy choice after Chen, Welling and Smola (2010): each next image brings the mean of the
labeled images, in the space of a Gaussian kernel on features, closest to the mean of all.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plmcl.ordering import rank_keys

Vectors = NDArray[np.float32]

# The kernel is exp((cosine - 1) / WIDTH). Chosen on validation splits, see docs/labelling.md.
WIDTH = 0.3
# The mean of all is estimated on so many of them: the cost is linear in their number.
REFERENCE = 4096
_BLOCK = 2048


def unit_vectors(features: NDArray[Any], parts: Sequence[int]) -> Vectors:
    """Features (N, D) minus their mean, each part of them with the same length, of length 1.

    Args:
        features: Of all N images.
        parts: Widths of the parts that D is made of.
    """
    centred = (features - features.mean(axis=0)).astype(np.float32)
    pieces = np.split(centred, np.cumsum(parts)[:-1], axis=1)
    lengths = [np.linalg.norm(piece, axis=1, keepdims=True) for piece in pieces]
    scaled = [
        piece / np.maximum(length, 1e-12) for piece, length in zip(pieces, lengths, strict=True)
    ]
    vectors: Vectors = np.concatenate(scaled, axis=1) * np.float32(len(parts) ** -0.5)
    return vectors


def herd(
    vectors: Vectors,
    labeled: NDArray[np.bool_],
    candidates: NDArray[np.bool_],
    budget: int,
    *,
    keys: Sequence[str],
) -> list[int]:
    """Rows of the images to label next, the first first.

    Args:
        vectors: (N, D), of length 1.
        labeled: (N,), images that are labeled already.
        candidates: (N,), images that may be chosen.
        budget: How many are chosen; fewer if there are fewer candidates.
        keys: N texts that name the images; equal ones are one image, which is chosen once.
    """
    order = np.argsort(rank_keys(0, "herding", keys), kind="stable")
    reference = vectors[order[:REFERENCE]]
    mean = np.concatenate([kernel.mean(axis=1) for kernel in _kernels(vectors, reference)])
    total = np.zeros(len(vectors))
    rows = np.flatnonzero(labeled)
    for start in range(0, len(rows), REFERENCE):
        some = vectors[rows[start : start + REFERENCE]]
        total += np.concatenate([kernel.sum(axis=1) for kernel in _kernels(vectors, some)])
    free = candidates.copy()
    groups: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    chosen: list[int] = []
    while len(chosen) < budget and free.any():
        number = len(rows) + len(chosen) + 1
        # What adding a row takes from the squared distance of the two means; its own kernel is 1.
        gain = 2 * mean / number - (2 * total + 1) / number**2
        row = int(np.where(free, gain, -np.inf).argmax())
        chosen.append(row)
        free[groups[keys[row]]] = False
        total += np.concatenate([k[:, 0] for k in _kernels(vectors, vectors[[row]])])
    return chosen


def _kernels(vectors: Vectors, others: Vectors) -> Iterator[NDArray[np.float64]]:
    """The kernel of blocks of rows (M, D) with all others (K, D): (M, K) each."""
    for start in range(0, len(vectors), _BLOCK):
        cosine = vectors[start : start + _BLOCK] @ others.T
        yield np.exp((cosine.astype(np.float64) - 1) / WIDTH)
