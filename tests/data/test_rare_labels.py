"""Tests of the exchange: sizes, coverage against a plain count, and groups."""

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from plmcl.data.rare_labels import exchange_for_rare_labels


def exchange(split, positives, num_labels, first=None):
    """`positives` are (image, label); images are tried in their order."""
    split = np.array(split, dtype=object)
    first = np.arange(len(split)) if first is None else np.array(first)
    rows, columns = np.array(sorted(positives), dtype=np.int64).reshape(-1, 2).T
    count = exchange_for_rare_labels(
        split, first, rows, columns, num_labels, lambda images, purpose: np.sort(images)
    )
    return split.tolist(), count


def covered(split, positives):
    return {(split[image], label) for image, label in positives}


def test_an_exchange_worked_out_by_hand_case_31():
    """Case 31: label 1 is on images 2 and 3, both in training; test gives image 0 back."""
    split = ["test", "test", "train", "train"]
    positives = {(0, 0), (1, 0), (2, 1), (3, 1), (3, 0)}
    assert exchange(split, positives, 2) == (["train", "test", "test", "train"], 1)


def test_nothing_is_exchanged_that_would_cost_another_label_case_31():
    """Case 31: test's only image has its only label 0; training's only label 1 stays."""
    split = ["test", "train", "train"]
    assert exchange(split, {(0, 0), (1, 0), (1, 1), (2, 1)}, 2) == (split, 0)
    assert exchange(["test", "test", "train"], {(2, 1)}, 2) == (["test", "test", "train"], 0)


def test_a_group_goes_as_one_and_for_a_group_of_its_size():
    split = ["test", "test", "train", "train", "train"]
    positives = {(2, 0), (3, 0), (4, 0)}
    # 2 and 3 have the same bytes, and so have 0 and 1
    pairs = exchange(split, positives, 1, first=[0, 0, 2, 2, 4])
    assert pairs == (["train", "train", "test", "test", "train"], 1)
    # test has single images only, so no pair can come, and a single one does not have to
    found, _ = exchange(split, {(2, 0), (3, 0)}, 1, first=[0, 1, 2, 2, 4])
    assert found == split


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_sizes_stay_and_no_split_loses_a_label(data):
    names = ["test", "val", "train", ""]
    split = data.draw(st.lists(st.sampled_from(names), min_size=4, max_size=14))
    cells = st.tuples(st.integers(0, len(split) - 1), st.integers(0, 4))
    positives = data.draw(st.sets(cells, min_size=1))
    found, count = exchange(split, positives, 5)
    assert sorted(found) == sorted(split)
    assert {cell for cell in covered(split, positives) if cell[0]} <= covered(found, positives)
    assert [i for i, name in enumerate(found) if name == ""] == [
        i for i, name in enumerate(split) if name == ""
    ]
    assert sum(f != s for f, s in zip(found, split, strict=True)) <= 2 * count


def test_many_rare_labels_take_seconds_and_change_no_size():
    rng = np.random.default_rng(0)
    split = ["test"] * 2000 + ["val"] * 1600 + ["train"] * 6400
    rng.shuffle(split)
    positives = {
        (int(image), label)
        for label in range(2000)
        for image in rng.choice(10000, rng.integers(2, 6), replace=False)
    }
    start = time.monotonic()
    found, count = exchange(split, positives, 2000)
    assert time.monotonic() - start < 30
    assert count > 100
    assert sorted(found) == sorted(split)
    assert len(covered(found, positives)) > len(covered(split, positives))
