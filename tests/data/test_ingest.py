import numpy as np
import pandas as pd
import pytest
from PIL import Image

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations, label_table
from plmcl.errors import PlmclError

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def annotations(files, values=None, splits=None, label_names=("cat", "dog")):
    return Annotations(
        root=".",
        files=sorted(files),
        splits=splits or {},
        labels=label_table(values or {}),
        label_names=list(label_names),
        unlisted="unknown",
        ignored={},
    )


def save(root, name, shade):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(path)


def label_rows(manifest):
    return list(manifest.labels.itertuples(index=False, name=None))


def images(manifest, *columns):
    return list(manifest.images[list(columns)].itertuples(index=False, name=None))


def test_every_file_is_one_row_with_one_status_case_24(tmp_path):
    save(tmp_path, "a.png", 1)
    save(tmp_path, "b.png", 2)
    save(tmp_path, "c.png", 3)
    (tmp_path / "d.png").write_bytes((tmp_path / "c.png").read_bytes()[:40])
    (tmp_path / "e.png").write_bytes(b"")
    manifest = ingest(
        annotations(
            ["a.png", "b.png", "c.png", "d.png", "e.png", "gone.png"], {("a.png", "cat"): 1}
        ),
        tmp_path,
        RECIPE,
    )
    # b and c have no label at all and stay
    assert images(manifest, "image_id", "status") == [
        ("a.png", "ok"),
        ("b.png", "ok"),
        ("c.png", "ok"),
        ("d.png", "truncated"),
        ("e.png", "empty"),
        ("gone.png", "unreadable"),
    ]
    assert images(manifest, "path", "width", "height", "split", "delivery")[0] == (
        "a.png", 8, 6, "", 0,
    )  # fmt: skip
    assert label_rows(manifest) == [("a.png", "cat", 1)]
    assert manifest.usable["image_id"].tolist() == ["a.png", "b.png", "c.png"]


def test_the_manifest_meets_its_contract_and_survives_the_disk(tmp_path):
    save(tmp_path, "a.png", 1)
    (tmp_path / "b.png").write_bytes(b"")
    manifest = ingest(annotations(["a.png", "b.png"], {("a.png", "cat"): 1}), tmp_path, RECIPE)
    manifest.write(tmp_path / "manifest")
    back = Manifest.read(tmp_path / "manifest")
    pd.testing.assert_frame_equal(back.images, manifest.images)
    pd.testing.assert_frame_equal(back.labels, manifest.labels)


def test_labels_of_unusable_files_are_dropped_and_counted(tmp_path):
    save(tmp_path, "a.png", 1)
    (tmp_path / "b.png").write_bytes(b"")
    manifest = ingest(
        annotations(["a.png", "b.png"], {("b.png", "cat"): 1, ("b.png", "dog"): 0}),
        tmp_path,
        RECIPE,
    )
    assert label_rows(manifest) == []
    assert images(manifest, "reason") == [("",), ("empty file (0 bytes); labels dropped: 2",)]


def test_the_same_bytes_under_two_tags_are_one_image_with_both_case_30(tmp_path):
    for name in ("dog/x.png", "cat/y.png", "dog/z.png"):
        save(tmp_path, name, 5)
    save(tmp_path, "dog/other.png", 6)
    manifest = ingest(
        annotations(
            ["dog/x.png", "cat/y.png", "dog/z.png", "dog/other.png"],
            {("dog/x.png", "dog"): 1, ("cat/y.png", "cat"): 1, ("dog/z.png", "dog"): 1},
        ),
        tmp_path,
        RECIPE,
    )
    assert images(manifest, "image_id", "status", "reason") == [
        ("cat/y.png", "ok", ""),
        ("dog/other.png", "ok", ""),
        ("dog/x.png", "duplicate", "same bytes as cat/y.png"),
        ("dog/z.png", "duplicate", "same bytes as cat/y.png"),
    ]
    assert label_rows(manifest) == [("cat/y.png", "cat", 1), ("cat/y.png", "dog", 1)]
    # what is known of the file itself stays
    assert (manifest.images["width"] == 8).all()


def test_one_wins_over_zero_when_duplicates_disagree_case_30(tmp_path):
    for name in ("a.png", "b.png"):
        save(tmp_path, name, 5)
    values = {("a.png", "cat"): 0, ("b.png", "cat"): 1, ("a.png", "dog"): 0, ("b.png", "dog"): 0}
    for swapped in (values, {(i, label): 1 - v if label == "cat" else v
                             for (i, label), v in values.items()}):  # fmt: skip
        manifest = ingest(annotations(["a.png", "b.png"], swapped), tmp_path, RECIPE)
        assert label_rows(manifest) == [("a.png", "cat", 1), ("a.png", "dog", 0)]


def test_the_same_bytes_in_two_official_splits_are_refused_case_30(tmp_path):
    for name in ("test/x.png", "train/y.png"):
        save(tmp_path, name, 5)
    files = ["test/x.png", "train/y.png"]
    splits = {"test/x.png": "test", "train/y.png": "train"}
    with pytest.raises(PlmclError) as caught:
        ingest(annotations(files, splits=splits), tmp_path, RECIPE)
    message = str(caught.value)
    assert "test/x.png (test)" in message
    assert "train/y.png (train)" in message


def test_a_duplicate_hands_its_official_split_on(tmp_path):
    for name in ("a.png", "b.png"):
        save(tmp_path, name, 5)
    manifest = ingest(annotations(["a.png", "b.png"], splits={"b.png": "test"}), tmp_path, RECIPE)
    assert images(manifest, "image_id", "split") == [("a.png", "test"), ("b.png", "")]


def test_two_broken_files_with_the_same_bytes_are_no_duplicates(tmp_path):
    save(tmp_path, "ok.png", 1)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"<html>")
    manifest = ingest(annotations(["ok.png", "a.png", "b.png"]), tmp_path, RECIPE)
    assert manifest.images["status"].tolist() == ["not_an_image", "not_an_image", "ok"]


def test_a_label_without_any_usable_image_stays_in_the_list_case_15(tmp_path):
    save(tmp_path, "a.png", 1)
    given = annotations(["a.png"], {("a.png", "dog"): 1}, label_names=["zebra", "cat", "dog"])
    assert ingest(given, tmp_path, RECIPE).label_names == ["zebra", "cat", "dog"]


def test_nothing_usable_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "b.png").write_bytes(b"x")
    with pytest.raises(PlmclError, match=r"no images.*2 files.*empty: 1, not_an_image: 1"):
        ingest(annotations(["a.png", "b.png"]), tmp_path, RECIPE)


def test_a_label_of_an_unlisted_file_is_refused(tmp_path):
    save(tmp_path, "a.png", 1)
    with pytest.raises(PlmclError, match=r"b\.png"):
        ingest(annotations(["a.png"], {("b.png", "cat"): 1}), tmp_path, RECIPE)


def test_columns_have_the_types_of_the_contract(tmp_path):
    save(tmp_path, "a.png", 1)
    manifest = ingest(annotations(["a.png"]), tmp_path, RECIPE)  # an empty label table, too
    types = manifest.images.dtypes
    assert [types[c] for c in ("width", "height", "delivery")] == [np.dtype("int32")] * 3
    assert manifest.labels["value"].dtype == np.int8
    assert all(types[c] == "str" for c in ("image_id", "sha256", "split", "status", "reason"))
    assert manifest.labels["label"].dtype == "str"
