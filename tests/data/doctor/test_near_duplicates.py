import logging
import tracemalloc

import numpy as np
import pytest

from plmcl.data.doctor import near_duplicates as module
from plmcl.data.doctor.near_duplicates import near_duplicates
from plmcl.errors import PlmclError

ZERO, ONE, THREE = "0" * 32, "0" * 31 + "1", "0" * 31 + "7"


def clusters(number, size, flips, seed=0):
    """Hashes in groups: each is its group's with up to `flips` bits turned."""
    rng = np.random.default_rng(seed)
    hashes = np.repeat(rng.integers(0, 256, (number, 16), dtype=np.uint8), size, axis=0)
    for _ in range(flips):
        bit = rng.integers(0, 128, len(hashes))
        hashes[np.arange(len(hashes)), bit // 8] ^= (1 << bit % 8).astype(np.uint8)
    return [row.tobytes().hex() for row in rng.permutation(hashes)]


def every_pair(dhashes, max_distance):
    numbers = [int(text, 16) for text in dhashes]
    return [
        (i, j, (numbers[i] ^ numbers[j]).bit_count())
        for i in range(len(numbers))
        for j in range(i + 1, len(numbers))
        if (numbers[i] ^ numbers[j]).bit_count() <= max_distance
    ]


def test_worked_by_hand():
    assert near_duplicates([ONE, THREE, ZERO], 2).tolist() == [[0, 1, 2], [0, 2, 1]]
    assert near_duplicates([ONE, THREE, ZERO], 0).tolist() == []
    assert near_duplicates([ONE, ZERO, ONE], 0).tolist() == [[0, 2, 0]]


@pytest.mark.parametrize("max_distance", [0, 1, 2, 3, 4, 5, 9, 10, 11, 16, 30])
def test_it_finds_the_pairs_that_a_double_loop_finds(max_distance):
    dhashes = [text for flips in range(1, 8) for text in clusters(20, 3, flips, seed=flips)]
    dhashes += dhashes[:5]
    expected = every_pair(dhashes, max_distance)
    assert len(expected) >= 5 + 10 * (max_distance // 2)
    found = near_duplicates(dhashes, max_distance)
    assert found.dtype == np.int64
    assert [tuple(row) for row in found.tolist()] == expected


def test_pairs_at_exactly_the_distance_are_found_wherever_the_bits_are():
    rng = np.random.default_rng(0)
    for _ in range(50):
        bits = rng.choice(128, 11, replace=False).tolist()
        near = f"{sum(1 << bit for bit in bits[:10]):032x}"
        far = f"{sum(1 << bit for bit in bits):032x}"
        assert near_duplicates([near, ZERO], 10).tolist() == [[0, 1, 10]]
        assert near_duplicates([far, ZERO], 10).tolist() == []


def test_an_empty_hash_is_like_no_other():
    assert near_duplicates(["", ONE, "", ZERO, ""], 1).tolist() == [[1, 3, 1]]


@pytest.mark.parametrize("dhashes", [[], [""], [ONE]])
def test_too_few_for_a_pair(dhashes):
    assert near_duplicates(dhashes).shape == (0, 3)


@pytest.mark.parametrize("text", ["0" * 31, "0" * 33, "G" * 32, "0" * 31 + "\n", " " * 32])
def test_what_is_no_hash_is_refused(text):
    with pytest.raises(PlmclError, match="32 hex digits"):
        near_duplicates([ZERO, text], 1)


def test_very_many_that_look_alike_end_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", 1000)
    dhashes = clusters(1, 200, flips=2)
    with caplog.at_level(logging.WARNING):
        found = near_duplicates(dhashes, 10)
    assert len(found) == 1000
    assert {tuple(row) for row in found.tolist()} < set(every_pair(dhashes, 10))
    assert "more than 1000 pairs" in caplog.text


def test_a_band_that_all_share_takes_no_memory(monkeypatch):
    # 3,000 hashes whose first half is equal: 4.5 million pairs to be compared, none alike.
    monkeypatch.setattr(module, "_BLOCK", 1 << 12)
    rng = np.random.default_rng(0)
    dhashes = ["0" * 16 + row.tobytes().hex() for row in rng.integers(0, 256, (3000, 8), np.uint8)]
    tracemalloc.start()
    assert len(near_duplicates(dhashes, 1)) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
