"""Tests of ordering: the rule against hashlib, and what an order must not depend on."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plmcl import ordering
from plmcl.ordering import positions, rank_keys

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_a_key_is_the_head_of_its_sha256():
    # From `printf '0|test|a.jpg' | sha256sum`: the first 16 digits.
    assert rank_keys(0, "test", ["a.jpg"]) == [0x1A3EB5AEECF24F28]
    assert rank_keys(7, "positive", ["été/😀.jpg|no"]) == [0xE4AFEFAE36DF2C22]


def test_three_ids_stand_in_the_order_of_their_hashes():
    ids = ["a.jpg", "b.jpg", "c.jpg"]
    digests = [hashlib.sha256(f"3|test|{i}".encode()).hexdigest() for i in ids]
    keys = rank_keys(3, "test", ids)
    assert keys.dtype == np.uint64
    assert [f"{key:016x}" for key in keys.tolist()] == [digest[:16] for digest in digests]
    by_hash = sorted(range(3), key=lambda i: digests[i])
    assert np.argsort(keys).tolist() == by_hash


def test_no_keys_give_no_ranks():
    assert rank_keys(0, "test", []).shape == (0,)


@settings(max_examples=40, deadline=None)
@given(st.lists(texts, max_size=20), texts)
def test_a_rank_does_not_depend_on_the_other_keys(keys, later):
    assert rank_keys(1, "val", [*keys, later]).tolist()[:-1] == rank_keys(1, "val", keys).tolist()
    alone = [rank_keys(1, "val", [key])[0] for key in keys]
    assert rank_keys(1, "val", iter(keys)).tolist() == alone


def test_seed_and_purpose_draw_independent_orders():
    keys = [f"{i}.jpg" for i in range(2000)]
    draws = [rank_keys(0, "test", keys), rank_keys(1, "test", keys), rank_keys(0, "val", keys)]
    halves = [draw < np.uint64(2**63) for draw in draws]
    for half in halves:
        assert abs(half.mean() - 0.5) < 0.05  # 4.5 standard deviations
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs((halves[one] & halves[other]).mean() - 0.25) < 0.05


@pytest.mark.parametrize("dtype", ["str", object])
def test_texts_at_places_are_those_of_plain_indexing_in_every_block(monkeypatch, dtype):
    monkeypatch.setattr(ordering, "BLOCK", 3)
    ids = ["a", "NA", "", "d", "😀"]
    rows = np.array([4, 0, 0, 3, 1, 2, 4])
    # An index of its own: places count, not names.
    column = pd.Series(ids, dtype=dtype, index=[9, 8, 7, 6, 5])
    assert list(ordering.texts_at(column, rows)) == [ids[row] for row in rows]


@settings(max_examples=40, deadline=None)
@given(st.lists(texts, max_size=20), st.lists(texts, max_size=20))
def test_positions_are_those_of_list_index(values, among):
    expected = [among.index(value) if value in among else -1 for value in values]
    assert positions(values, among).tolist() == expected
    series = pd.Series(values, dtype="str"), pd.Series(among, dtype="str")
    assert positions(*series).tolist() == expected


@pytest.mark.parametrize("dtype", ["str", object])
def test_positions_read_a_filtered_and_a_joined_column(dtype):
    column = pd.concat([pd.Series(["a", "b"], dtype=dtype), pd.Series(["c", "a"], dtype=dtype)])
    assert positions(column, column[column != "b"]).tolist() == [0, -1, 1, 0]
    assert positions(column[column != "a"], ["c", "b"]).tolist() == [1, 0]
