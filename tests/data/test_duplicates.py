"""Tests of what crosses splits, on a hand-made manifest."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from tables import manifest

from plmcl.data.duplicates import alike_across, refuse_if_drawn_apart, same_bytes_across
from plmcl.errors import PlmclError


def splits(**split):
    return pd.DataFrame({"image_id": list(split), "split": list(split.values())}, dtype="str")


WORLD = dataclasses.replace(
    manifest(
        ["a", "b", "c", "d", "e", "x"],
        sha256=["1", "1", "2", "2", "3", "1"],
        split=["train", "test", "train", "train", "test", "test"],
        status=["ok", "converted", "ok", "ok", "ok", "truncated"],
    ),
    near_duplicates=pd.DataFrame(
        {"image_id": ["a", "a", "d"], "other_id": ["c", "e", "e"], "distance": [1, 5, 2]}
    ).astype({"image_id": "str", "other_id": "str", "distance": np.int32}),
)
SPLITS = splits(a="train", b="test", c="train", d="train", e="test")


def rows(frame):
    return list(frame.itertuples(index=False, name=None))


def test_same_bytes_in_two_official_splits_are_found_and_allowed_case_30():
    """Case 30: x cannot be used, and c and d are both in train."""
    crossing = same_bytes_across(WORLD, SPLITS)
    assert rows(crossing) == [("1", "a", "train", "train"), ("1", "b", "test", "test")]
    refuse_if_drawn_apart(crossing)


def test_a_draw_that_parts_the_same_bytes_is_refused_case_30():
    """Case 30: the source has c and d in train, and one of them became val."""
    crossing = same_bytes_across(WORLD, splits(a="train", b="test", c="train", d="val", e="test"))
    with pytest.raises(PlmclError, match=r"same bytes into two splits: 2 images, such as 'c', 'd'"):
        refuse_if_drawn_apart(crossing)


def test_pairs_that_look_alike_across_splits_the_most_alike_first():
    assert rows(alike_across(WORLD, SPLITS)) == [
        ("d", "e", 2, "train", "test"),
        ("a", "e", 5, "train", "test"),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_what_crosses_is_what_a_loop_over_groups_finds(seed):
    rng = np.random.default_rng(seed)
    ids = [f"{number:02d}" for number in range(60)]
    content = dict(zip(ids, rng.choice(list("pqrstuvwxyz"), 60).tolist(), strict=True))
    # Another order than the manifest's, and not all of its images.
    split = {i: rng.choice(["train", "train", "train", "test"]) for i in rng.permutation(ids)[:25]}
    crossing = same_bytes_across(manifest(ids, sha256=list(content.values())), splits(**split))
    found = {one: {split[i] for i in split if content[i] == one} for one in content.values()}
    expected = [(content[i], i, split[i], "") for i in split if len(found[content[i]]) > 1]
    assert rows(crossing) == sorted(expected)
    assert expected


def test_nothing_crosses():
    lone = manifest(["a", "b"], sha256=["1", "2"])
    assert same_bytes_across(lone, splits(a="train", b="test")).empty
    assert alike_across(lone, splits(a="train", b="test")).empty
