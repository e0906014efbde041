"""Tests of make_splits: against a plain sort of hashes, and what later images must not change."""

import dataclasses
import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import manifest

from plmcl import schemas
from plmcl.data.splits import make_splits
from plmcl.errors import PlmclError

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def images(image_ids, split="", delivery=0, values=None, **columns):
    # The ids as contents: no two images are the same.
    columns = {"sha256": image_ids, "split": split, "delivery": delivery} | columns
    return manifest(image_ids, values, **columns)


def split(world, *, seed=0, val=0.2, test=0.2, protocol="holdout", draw="hash"):
    return make_splits(world, seed=seed, val=val, test=test, protocol=protocol, draw=draw)


def as_dict(splits):
    return dict(zip(splits["image_id"], splits["split"], strict=True))


def by_hash(seed, purpose, image_ids):
    return sorted(
        image_ids, key=lambda i: hashlib.sha256(f"{seed}|{purpose}|{i}".encode()).digest()
    )


@given(st.sets(texts, min_size=10, max_size=30), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_the_held_out_images_are_the_first_by_hash(image_ids, seed):
    test = by_hash(seed, "test", image_ids)[: round(0.3 * len(image_ids))]
    rest = image_ids - set(test)
    val = by_hash(seed, "val", rest)[: round(0.2 * len(rest))]
    found = as_dict(split(images(list(image_ids)), seed=seed, val=0.2, test=0.3))
    assert {i for i in found if found[i] == "test"} == set(test)
    assert {i for i in found if found[i] == "val"} == set(val)
    assert {i for i in found if found[i] == "train"} == rest - set(val)


@pytest.mark.parametrize(("num_images", "counts"), [(10, (6, 2, 2)), (101, (65, 16, 20))])
def test_counts_are_exact(num_images, counts):
    found = split(images([f"{i}" for i in range(num_images)]))["split"].value_counts()
    assert (found["train"], found["val"], found["test"]) == counts


@given(st.sets(texts, min_size=12, max_size=30), st.data())
@settings(max_examples=30, deadline=None)
def test_images_that_arrive_later_join_train_and_change_no_earlier_row(image_ids, data):
    image_ids = data.draw(st.permutations(sorted(image_ids)))
    later = data.draw(st.integers(0, 2))
    before = as_dict(split(images(image_ids[later:])))
    claims = ["test"] * later + [""] * (len(image_ids) - later)
    deliveries = [1] * later + [0] * (len(image_ids) - later)
    after = as_dict(split(images(image_ids, claims, deliveries)))
    assert {i: after[i] for i in before} == before
    assert [after[i] for i in image_ids[:later]] == ["train"] * later


@given(st.permutations([f"{i}.jpg" for i in range(12)]))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_rows_does_not_matter(image_ids):
    expected = split(images(sorted(image_ids)))
    pd.testing.assert_frame_equal(split(images(image_ids)), expected)
    assert expected["image_id"].tolist() == sorted(image_ids)


def test_the_result_keeps_its_contract(tmp_path):
    schemas.write_table(split(images([f"{i}" for i in range(20)])), tmp_path / "splits.parquet")
    schemas.read_table(tmp_path / "splits.parquet", schemas.Splits)


def test_official_splits_are_kept_and_an_image_without_one_is_for_training():
    frame = images(["a", "b", "c", "d"], ["train", "val", "test", ""])
    assert as_dict(split(frame)) == {"a": "train", "b": "val", "c": "test", "d": "train"}


def test_an_official_test_split_alone_gets_a_val_split_beside_it():
    ids = [f"{i}" for i in range(12)]
    found = as_dict(split(images(ids, ["test"] * 2 + ["train"] * 10)))
    val = by_hash(0, "val", ids[2:])[:2]
    assert {i for i in found if found[i] == "val"} == set(val)
    assert {i for i in found if found[i] == "test"} == {"0", "1"}


def test_an_official_val_split_alone_gets_a_test_split_out_of_train():
    ids = [f"{i}" for i in range(10)]
    found = as_dict(split(images(ids, ["val"] * 3 + ["train"] * 7)))
    assert {i for i in found if found[i] == "val"} == {"0", "1", "2"}
    assert {i for i in found if found[i] == "test"} == set(by_hash(0, "test", ids[3:])[:2])


def test_the_papers_protocol_has_the_same_test_split_and_trains_on_the_rest():
    frame = images([f"{i}" for i in range(20)], ["val"] * 5 + [""] * 15)
    holdout, paper = as_dict(split(frame)), as_dict(split(frame, protocol="paper"))
    assert paper == {i: "train" if holdout[i] == "val" else holdout[i] for i in holdout}
    assert set(paper.values()) == {"train", "test"}


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (images(["a"]), "no image for val and test: 1 usable images give train 1, val 0, test 0"),
        (
            images(["a", "b"], ["test", "test"]),
            "no image for train and val: .* train 0, val 0, test 2",
        ),
        (images([]), "no image for train and val and test: 0 usable images"),
        (images(["a", "b"], delivery=1), "no image for train and val and test: 0 usable"),
    ],
)
def test_an_empty_split_is_refused_with_the_counts(frame, says):
    with pytest.raises(PlmclError, match=says):
        split(frame)


def test_the_papers_protocol_needs_no_val_images():
    assert set(split(images(["a", "b", "c"]), protocol="paper")["split"]) == {"train", "test"}


# ------------------------------------------------------------- same bytes, rare labels, cole


def test_images_with_the_same_bytes_are_drawn_together():
    ids = [f"{i:02d}" for i in range(40)]
    world = images(ids, split="train", sha256=[i[1] for i in ids])  # ten contents, four of each
    with_test = images(
        [*ids, "t"], split=["train"] * 40 + ["test"], sha256=[i[1] for i in ids] + ["t"]
    )
    for either in (world, with_test):
        found = as_dict(split(either))
        for digit in "0123456789":
            assert len({found[i] for i in ids if i[1] == digit}) == 1


@given(st.integers(0, 30))
@settings(max_examples=20, deadline=None)
def test_a_label_with_three_positives_is_in_each_split_case_31(seed):
    """Case 31: ten images, three of them show the rare label."""
    ids = [f"{i}" for i in range(10)]
    rare = {(i, "elk"): 1 for i in "123"} | {(i, "cat"): 1 for i in ids}
    found = as_dict(split(images(ids, values=rare), seed=seed))
    assert sorted(found[i] for i in "123") == ["test", "train", "val"]


def test_training_keeps_the_last_image_of_a_label_case_31():
    """Case 31: what is not possible is left as it is drawn."""
    ids = [f"{i}" for i in range(10)]
    plain = as_dict(split(images(ids)))
    train = [i for i in ids if plain[i] == "train"]
    one = {(train[0], "elk"): 1}
    assert as_dict(split(images(ids, values=one))) == plain
    # Two images show elk: one split besides training can have it.
    two = {(train[0], "elk"): 1, (train[1], "elk"): 1}
    found = as_dict(split(images(ids, values=two)))
    assert sorted(found[i] for i in train[:2]) == ["test", "train"]
    # One image went back in its place: the sizes are as they were.
    assert sorted(found.values()) == sorted(plain.values())
    assert sum(found[i] != plain[i] for i in ids) == 2


def test_a_label_that_a_split_has_moves_nothing():
    ids = [f"{i}" for i in range(20)]
    everywhere = {(i, name): 1 for i in ids for name in ("cat", "dog", "elk")}
    assert as_dict(split(images(ids, values=everywhere))) == as_dict(split(images(ids)))


def published(number):
    ids = [f"{i}.jpg" for i in range(number)]  # as texts "10.jpg" comes before "2.jpg"
    return images(
        [*ids, "t.jpg"],
        split=["train"] * number + ["test"],
        published=[*range(number), 0],
    )


def test_coles_split_is_the_tail_of_a_permutation_of_the_published_list():
    found = as_dict(split(published(10), draw="cole", seed=7))
    # numpy.random.RandomState(1200).permutation(10), a public generator with a fixed stream
    order = [int(i) for i in np.random.RandomState(1200).permutation(10)]
    assert {i for i in found if found[i] == "val"} == {f"{i}.jpg" for i in order[8:]}
    assert found["t.jpg"] == "test"


def test_coles_split_has_the_published_sizes():
    counts = split(published(5717), draw="cole")["split"].value_counts()
    assert (counts["train"], counts["val"]) == (4574, 1143)


def test_coles_split_counts_files_that_cannot_be_used():
    world = published(10)
    broken = dataclasses.replace(
        world, images=world.images.assign(status=["ok"] * 4 + ["truncated"] + ["ok"] * 6)
    )
    whole, found = as_dict(split(world, draw="cole")), as_dict(split(broken, draw="cole"))
    del whole["4.jpg"]
    assert found == whole


def test_coles_split_says_that_images_are_missing(caplog):
    world = published(10)
    split(world, draw="cole")
    assert not caplog.text
    gone = dataclasses.replace(world, images=world.images[world.images["image_id"] != "4.jpg"])
    split(gone, draw="cole")
    assert "the draw is not that of the reference code" in caplog.text


@pytest.mark.parametrize(
    "world",
    [
        images(["a", "b", "c"]),
        images(["a", "b"], split=["train", "train"], published=[0, 1]),
        images(["a", "b", "c"], split=["train", "val", "test"], published=[0, 0, 0]),
    ],
)
def test_coles_split_needs_a_published_list(world):
    with pytest.raises(PlmclError, match=r"split\.draw: cole needs a source with a published"):
        split(world, draw="cole")
