"""Rows of a split, and k: how many labels an image has on average."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from plmcl.data.manifest import Manifest
from plmcl.data.rows import difficult_cells, positives_per_image, training_rows, truth_rows
from plmcl.errors import PlmclError

NAMES = ["cat", "dog", "owl"]
SPLITS = pd.DataFrame({"image_id": list("abcd"), "split": ["train", "train", "test", "train"]})


def table(*cells):
    frame = pd.DataFrame(cells, columns=["image_id", "label", "value"])
    return frame.astype({"image_id": "str", "label": "str", "value": "int8"})


def manifest(unlisted, *cells, delivered=()):
    images = pd.DataFrame({"image_id": list("dcba"), "status": "ok", "sha256": list("DCBA")})
    images["path"] = "images/" + images["image_id"]
    images["delivery"] = images["image_id"].isin(list(delivered)).astype("int32")
    return Manifest(images, table(*cells), NAMES, unlisted)


TRUTH = (("a", "cat", 1), ("a", "dog", 1), ("b", "owl", 1), ("c", "cat", 1))


def test_training_rows_hold_what_is_observed_in_the_order_of_ids():
    rows = training_rows(manifest("negative", *TRUTH), SPLITS, table(("b", "owl", 1)))
    assert (rows.image_ids, rows.paths) == (["a", "b", "d"], ["images/a", "images/b", "images/d"])
    assert rows.sha256 == ["A", "B", "D"]
    np.testing.assert_array_equal(rows.observed, [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(rows.targets, [[0, 0, 0], [0, 0, 1], [0, 0, 0]])


def test_difficult_cells_in_the_order_of_the_rows_case_27():
    """Case 27: of the split's images only."""
    difficult = pd.DataFrame({"image_id": ["d", "a", "c"], "label": ["dog", "owl", "cat"]})
    world = dataclasses.replace(manifest("negative", *TRUTH), difficult=difficult.astype("str"))
    train = truth_rows(world, SPLITS, "train")
    np.testing.assert_array_equal(difficult_cells(world, train), [[0, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert not difficult_cells(manifest("negative", *TRUTH), train).any()


def test_truth_rows_hold_all_that_is_known():
    rows = truth_rows(manifest("negative", *TRUTH), SPLITS, "test")
    assert rows.image_ids == ["c"]
    assert rows.observed.all()
    np.testing.assert_array_equal(rows.targets, [[1, 0, 0]])
    assert not truth_rows(manifest("unknown", *TRUTH), SPLITS, "test").observed[0, 1]


@pytest.mark.parametrize("unlisted", ["negative", "unknown"])
def test_of_a_delivered_image_only_its_tag_is_known(unlisted):
    """a and d came later; b is of the base set, d has no tag."""
    cells = [("a", "dog", 1), ("b", "owl", 1)]
    rows = truth_rows(manifest(unlisted, *cells, delivered="ad"), SPLITS, "train")
    assert rows.image_ids == ["a", "b", "d"]
    np.testing.assert_array_equal(rows.targets, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    looked = unlisted == "negative"
    np.testing.assert_array_equal(rows.observed, [[0, 1, 0], [looked, looked, 1], [0, 0, 0]])


def test_k_is_counted_on_the_base_set_alone():
    # b has 1 label. a and d came later: a with a tag, so nobody knows whether it has two.
    world = manifest("negative", ("a", "dog", 1), ("b", "owl", 1), delivered="ad")
    assert positives_per_image(None, world, SPLITS) == 1.0
    # With one label in all, a's tag is its whole row, and still no sign that somebody looked.
    one = manifest("negative", ("a", "cat", 1), ("b", "cat", 1), delivered="a")
    assert positives_per_image(None, dataclasses.replace(one, label_names=["cat"]), SPLITS) == 0.5


def test_k_is_the_mean_of_the_training_truth():
    # Training images: a has 2 labels, b has 1, d has none.
    assert positives_per_image(None, manifest("negative", *TRUTH), SPLITS) == 1.0


def test_k_is_what_the_user_says():
    assert positives_per_image(1.7, manifest("unknown", *TRUTH), SPLITS) == 1.7


def test_k_of_a_partial_truth_is_counted_on_the_images_that_somebody_looked_at_completely():
    complete = [("a", "owl", 0), ("b", "cat", 0), ("b", "dog", 0)]
    assert positives_per_image(None, manifest("unknown", *TRUTH, *complete), SPLITS) == 1.5


def test_an_image_with_every_label_listed_is_no_sign_of_a_complete_look():
    everything = [("a", name, 1) for name in NAMES]
    with pytest.raises(PlmclError, match=r"labels\.per_image: null, and no training image"):
        positives_per_image(None, manifest("unknown", *everything), SPLITS)


@pytest.mark.parametrize("k", [3.0, 15.0])
def test_k_beyond_the_number_of_labels_is_refused(k):
    with pytest.raises(PlmclError, match=rf"{k:g} labels an image on average, of 3 labels"):
        positives_per_image(k, manifest("unknown", *TRUTH), SPLITS)


def test_k_of_images_that_all_carry_nothing_is_refused():
    with pytest.raises(PlmclError, match=r"0 labels an image on average"):
        positives_per_image(None, manifest("negative", ("c", "cat", 1)), SPLITS)
