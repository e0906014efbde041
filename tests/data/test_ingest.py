import dataclasses

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tables import label_table

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations
from plmcl.errors import PlmclError

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def annotations(files, values=None, splits=None, label_names=("cat", "dog"), **more):
    return Annotations(
        root=".",
        files=sorted(files),
        splits=splits or {},
        labels=label_table(values or {}),
        label_names=list(label_names),
        unlisted="unknown",
        **more,
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


@pytest.mark.parametrize(
    ("root", "below", "path"),
    [
        (".", ".", "x/a.png"),
        (".", "raw/pets", "raw/pets/x/a.png"),
        ("x", ".", "x/a.png"),
        ("x", "raw/pets", "raw/pets/x/a.png"),
    ],
)
def test_paths_start_where_the_caller_says_and_ids_stay(tmp_path, root, below, path):
    raw = tmp_path / below
    save(raw, "x/a.png", 1)
    file = "a.png" if root == "x" else "x/a.png"
    given = dataclasses.replace(annotations([file]), root=root)
    manifest = ingest(given, raw, RECIPE, below=below)
    assert images(manifest, "image_id", "path") == [(file, path)]
    assert (tmp_path / path).exists()


def test_the_manifest_meets_its_contract_and_survives_the_disk(tmp_path):
    save(tmp_path, "a.png", 1)
    (tmp_path / "b.png").write_bytes(b"")
    manifest = ingest(annotations(["a.png", "b.png"], {("a.png", "cat"): 1}), tmp_path, RECIPE)
    manifest.write(tmp_path / "manifest")
    back = Manifest.read(tmp_path / "manifest")
    pd.testing.assert_frame_equal(back.images, manifest.images)
    pd.testing.assert_frame_equal(back.labels, manifest.labels)


def test_labels_of_unusable_files_stay_in_the_table(tmp_path):
    save(tmp_path, "a.png", 1)
    (tmp_path / "b.png").write_bytes(b"")
    values = {("b.png", "cat"): 1, ("b.png", "dog"): 0}
    manifest = ingest(annotations(["a.png", "b.png"], values), tmp_path, RECIPE)
    # whoever repairs the file finds them; a published draw goes through them
    assert label_rows(manifest) == [("b.png", "cat", 1), ("b.png", "dog", 0)]
    assert images(manifest, "reason") == [("",), ("empty file (0 bytes)",)]


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


def test_images_of_a_published_list_are_all_kept_case_30(tmp_path):
    """Case 30: a list with the same bytes twice, within a split or across, stays what it is."""
    files = ["test/x.png", "train/y.png", "train/z.png"]
    for name in files:
        save(tmp_path, name, 5)
    splits = {name: name.split("/")[0] for name in files}
    values = {("train/y.png", "cat"): 1, ("test/x.png", "dog"): 1}
    manifest = ingest(annotations(files, values, splits=splits), tmp_path, RECIPE)
    assert manifest.usable["image_id"].tolist() == files
    assert label_rows(manifest) == [("test/x.png", "dog", 1), ("train/y.png", "cat", 1)]


def test_an_image_outside_of_the_list_is_merged_into_the_one_on_it(tmp_path):
    for name in ("a.png", "b.png"):
        save(tmp_path, name, 5)
    difficult = pd.DataFrame({"image_id": ["a.png"], "label": ["dog"]}, dtype="str")
    manifest = ingest(
        annotations(
            ["a.png", "b.png"],
            {("a.png", "cat"): 1},
            splits={"b.png": "test"},
            difficult=difficult,
        ),
        tmp_path,
        RECIPE,
    )
    assert images(manifest, "image_id", "split", "status", "reason") == [
        ("a.png", "", "duplicate", "same bytes as b.png"),
        ("b.png", "test", "ok", ""),
    ]
    assert label_rows(manifest) == [("b.png", "cat", 1)]
    assert manifest.difficult.to_numpy().tolist() == [["b.png", "dog"]]


def test_a_label_that_one_of_two_equal_images_has_is_not_difficult(tmp_path, caplog):
    for name in ("a.png", "b.png"):
        save(tmp_path, name, 5)
    rows = [("a.png", "dog"), ("b.png", "cat")]
    difficult = pd.DataFrame(rows, columns=["image_id", "label"], dtype="str")
    values = {("a.png", "dog"): 0, ("b.png", "dog"): 1, ("b.png", "cat"): 0}
    manifest = ingest(
        annotations(["a.png", "b.png"], values, difficult=difficult), tmp_path, RECIPE
    )
    assert label_rows(manifest) == [("a.png", "cat", 0), ("a.png", "dog", 1)]
    assert manifest.difficult.to_numpy().tolist() == [["a.png", "cat"]]
    assert "labels that images with the same bytes dispute: 1" in caplog.text


def test_the_published_order_is_kept_and_minus_one_without_one(tmp_path):
    for shade, name in enumerate(("a.png", "b.png", "c.png")):
        save(tmp_path, name, shade)
    places = {"c.png": 0, "a.png": 1}
    manifest = ingest(annotations(["a.png", "b.png", "c.png"], published=places), tmp_path, RECIPE)
    assert images(manifest, "image_id", "published") == [
        ("a.png", 1), ("b.png", -1), ("c.png", 0)
    ]  # fmt: skip


def test_pictures_that_look_alike_are_paired(tmp_path):
    """The same gradient as PNG and as JPEG, beside its mirror image and a copy of the first."""
    gradient = np.add.outer(np.arange(64), 3 * np.arange(64)).astype(np.uint8)
    picture = Image.fromarray(gradient).convert("RGB")
    picture.save(tmp_path / "a.png")
    picture.save(tmp_path / "b.jpg", quality=80)
    picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "c.png")
    (tmp_path / "d.png").write_bytes((tmp_path / "a.png").read_bytes())
    files = ["a.png", "b.jpg", "c.png", "d.png"]
    # On a published list d stays: it looks like b as well, and that it is a is known.
    for splits, expected in (
        ({}, [["a.png", "b.jpg"]]),
        (dict.fromkeys(files, "train"), [["a.png", "b.jpg"], ["b.jpg", "d.png"]]),
    ):
        manifest = ingest(annotations(files, splits=splits), tmp_path, RECIPE)
        pairs = manifest.near_duplicates[["image_id", "other_id"]].to_numpy().tolist()
        assert pairs == expected


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
    numbers = ("width", "height", "published", "delivery")
    assert [types[c] for c in numbers] == [np.dtype("int32")] * 4
    assert types["bytes"] == np.dtype("int64")
    assert manifest.labels["value"].dtype == np.int8
    assert all(types[c] == "str" for c in ("image_id", "sha256", "split", "status", "reason"))
    assert manifest.labels["label"].dtype == "str"
