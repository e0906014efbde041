"""Pairs of pictures that look alike: all pairs of hashes that differ in few bits."""

import logging
import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from plmcl.errors import PlmclError

logger = logging.getLogger(__name__)

# Measured on 3,348 photos (photos5, clothing26, coco160), copies of 1,223 of them. Found within 12
# (within 8; 10): JPEG at quality 50 and 75, WebP, PNG, half the size 100 % (99.7; 99.9); 10 %
# brighter 99.8 % (99.5; 99.8); 2 % cropped all round 99.8 % (97.6; 99.1), at two sides 94.7 %
# (67; 86). Of the 5.6 million pairs of the photos themselves 1 is within 12, and shows the same
# thing; of the 5 within 16, 3 do not.
MAX_DISTANCE = 12
MAX_PAIRS = 1_000_000

_BLOCK = 1 << 20  # pairs that are compared at a time

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def near_duplicates(dhashes: Sequence[str], max_distance: int = MAX_DISTANCE) -> Integers:
    """Find all pairs of hashes within a Hamming distance.

    The bits are dealt out to so many bands that two hashes within the distance differ in at most
    one bit of at least one band: only hashes that do are compared, and no pair is missed.

    Args:
        dhashes: N hashes of 32 hex digits; an empty one is like no other.
        max_distance: Largest number of bits in which two hashes may differ.

    Returns:
        (P, 3): i, j and the distance, i < j, sorted. Beyond `MAX_PAIRS` (frames of one film, say)
        the search stops, with a warning: then some pairs are missing.

    Raises:
        PlmclError: A hash is something else.
    """
    positions = np.array([i for i, text in enumerate(dhashes) if text], dtype=np.int64)
    words = _to_words([text for text in dhashes if text])
    number = max(2, max_distance // 2 + 1)
    codes, unmerged, size = np.zeros(0, np.int64), [], 0
    for i, j in _candidates(words, number, flip=max_distance >= number):
        near = _distances(words, i, j) <= max_distance
        if near.any():
            first, second = np.minimum(i[near], j[near]), np.maximum(i[near], j[near])
            unmerged.append(first * len(words) + second)
            size += len(first)
        if size > MAX_PAIRS:
            codes, unmerged, size = np.unique(np.concatenate([codes, *unmerged])), [], 0
            if len(codes) > MAX_PAIRS:
                logger.warning("more than %d pairs look alike; not all are listed", MAX_PAIRS)
                break
    codes = np.unique(np.concatenate([codes, *unmerged]))[:MAX_PAIRS]
    first, second = np.divmod(codes, max(1, len(words)))
    distances = _distances(words, first, second)
    return np.stack([positions[first], positions[second], distances], axis=1)


def _to_words(dhashes: list[str]) -> Words:
    for text in dhashes:
        if not re.fullmatch("[0-9a-f]{32}", text):
            raise PlmclError(f"dhash: expected 32 hex digits, found {text!r}")
    words = np.frombuffer(bytes.fromhex("".join(dhashes)), dtype=">u8").reshape(-1, 2)
    return words.astype(np.uint64)


def _distances(words: Words, i: Integers, j: Integers) -> Integers:
    bits: Integers = np.bitwise_count(words[i] ^ words[j]).sum(axis=1, dtype=np.int64)
    return bits


def _candidates(words: Words, number: int, *, flip: bool) -> Iterator[tuple[Integers, Integers]]:
    """Pairs that are equal in a band or, with `flip`, differ there in one bit; maybe repeatedly."""
    for band in range(number):
        bits = range(band, 128, number)
        keys = _keys(words, bits)
        order = np.argsort(keys, kind="stable")
        buckets, start, size = np.unique(keys[order], return_index=True, return_counts=True)
        places = np.arange(len(order))
        # A bucket with itself: each place with those behind it.
        yield from _pairs(order, places, places + 1, np.repeat(start + size, size))
        for bit in range(len(bits) if flip else 0):
            mask = np.uint64(1 << bit)
            other = np.searchsorted(buckets, buckets | mask)
            # Of two buckets that differ in this bit, the one without it looks for the other.
            found = (buckets & mask == 0) & (buckets[other % len(buckets)] == buckets | mask)
            if not found.any():
                continue
            here = np.repeat(found, size)
            other = np.repeat(other[found], size[found])
            yield from _pairs(order, places[here], start[other], start[other] + size[other])


def _keys(words: Words, bits: range) -> Words:
    # Neighbouring bits go together in pictures: a band of distant ones has more different keys.
    keys = np.zeros(len(words), np.uint64)
    for bit in bits:
        keys = keys << np.uint64(1) | words[:, bit // 64] >> np.uint64(bit % 64) & np.uint64(1)
    return keys


def _pairs(
    order: Integers, left: Integers, first: Integers, end: Integers
) -> Iterator[tuple[Integers, Integers]]:
    """Each place of `left` with all places first ... end - 1 of its own, in blocks."""
    counts = end - first
    block = np.cumsum(counts) // _BLOCK
    for rows in np.split(np.arange(len(left)), np.flatnonzero(np.diff(block)) + 1):
        count = counts[rows]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        yield order[np.repeat(left[rows], count)], order[np.repeat(first[rows], count) + within]
