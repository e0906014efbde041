import logging

import pytest
from PIL import Image

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.sources import make_source
from plmcl.errors import PlmclError


def folder(images=".", labels=None, unlisted="unknown"):
    section = {"images": images, "labels": labels, "unlisted": unlisted}
    return make_source("folder", {"folder": section})


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def label_rows(annotations):
    return list(annotations.labels.itertuples(index=False, name=None))


def everything_below(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_one_sub_folder_is_one_tag(tmp_path):
    touch(tmp_path, "dog/a.jpg", "cat/b.jpg", "cat/kittens/c.jpg", "loose.jpg", "007/d.png")
    found = folder().annotations(tmp_path)
    assert found.files == ["007/d.png", "cat/b.jpg", "cat/kittens/c.jpg", "dog/a.jpg", "loose.jpg"]
    assert label_rows(found) == [
        ("007/d.png", "007", 1),
        ("cat/b.jpg", "cat", 1),
        ("cat/kittens/c.jpg", "cat", 1),
        ("dog/a.jpg", "dog", 1),
    ]
    assert found.label_names == ["007", "cat", "dog"]
    assert (found.splits, found.unlisted, found.ignored) == ({}, "unknown", {})


def test_stray_folders_are_no_tags_case_16(tmp_path):
    touch(
        tmp_path,
        "cat/a.jpg",
        "dog/b.jpg",
        "runs/events.out",
        ".ipynb_checkpoints/c.jpg",
        "__MACOSX/cat/._a.jpg",
    )
    (tmp_path / "wandb").mkdir()
    found = folder().annotations(tmp_path)
    assert found.label_names == ["cat", "dog"]
    assert found.ignored == {"hidden": 2, "suffix .out": 1}


def test_a_tag_folder_without_an_image_is_refused_by_name_case_16(tmp_path):
    touch(tmp_path, "cat/a.jpg", "iguana/b.heic")
    (tmp_path / "dog").mkdir()
    with pytest.raises(PlmclError, match="tag folders without an image: 'dog', 'iguana'; remove"):
        folder().annotations(tmp_path)


def test_a_tag_that_is_called_like_a_stray_folder_is_a_tag(tmp_path):
    touch(tmp_path, "runs/a.jpg", "walks/b.jpg")
    assert folder().annotations(tmp_path).label_names == ["runs", "walks"]


def test_a_csv_gives_labels_and_the_rest_is_the_unlabeled_pool_case_24(tmp_path):
    touch(tmp_path, "images/a.jpg", "images/b.jpg", "images/sub/c.jpg", "images/d.jpg")
    (tmp_path / "labels.csv").write_text(
        "image,labels,split\nsub/c.jpg,dog;cat,test\na.jpg,Zebra,\nb.jpg,,train\n"
    )
    found = folder("images", "labels.csv", "negative").annotations(tmp_path)
    assert found.files == ["a.jpg", "b.jpg", "d.jpg", "sub/c.jpg"]
    # Nothing is known of d.jpg, which the file does not name; all is known of the other three.
    assert label_rows(found) == [
        *(("a.jpg", "Zebra", 1), ("a.jpg", "cat", 0), ("a.jpg", "dog", 0)),
        *(("b.jpg", "Zebra", 0), ("b.jpg", "cat", 0), ("b.jpg", "dog", 0)),
        *(("sub/c.jpg", "Zebra", 0), ("sub/c.jpg", "cat", 1), ("sub/c.jpg", "dog", 1)),
    ]
    assert found.label_names == ["Zebra", "cat", "dog"]
    assert found.splits == {"b.jpg": "train", "sub/c.jpg": "test"}
    assert (found.root, found.unlisted) == ("images", "unknown")


def test_without_a_pool_what_is_not_listed_is_absent(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "labels.csv").write_text("image,labels\na.jpg,cat\nb.jpg,\n")
    found = folder(".", "labels.csv", "negative").annotations(tmp_path)
    assert label_rows(found) == [("a.jpg", "cat", 1)]
    assert found.unlisted == "negative"


def test_a_label_missing_from_a_split_shifts_nothing_case_15(tmp_path):
    touch(tmp_path, *(f"images/{name}.jpg" for name in "abc"))
    (tmp_path / "labels.csv").write_text(
        "image,labels,split\na.jpg,x;y;z,train\nb.jpg,x,val\nc.jpg,z,val\n"
    )
    assert folder("images", "labels.csv").annotations(tmp_path).label_names == ["x", "y", "z"]


def test_the_csv_may_be_anywhere_when_nothing_is_copied(tmp_path):
    touch(tmp_path / "photos", "a.jpg")
    path = tmp_path / "elsewhere.csv"
    path.write_text("image,labels\na.jpg,cat\n")
    source = folder(".", str(path))
    assert source.annotations(tmp_path / "photos").label_names == ["cat"]
    with pytest.raises(PlmclError, match=r"sources\.folder\.labels: must be below data\.path"):
        source.download(tmp_path / "photos", tmp_path / "raw", seed=0)


def test_images_without_any_label_are_refused_with_advice(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    with pytest.raises(
        PlmclError, match="none of the 2 images has a label; put them in one folder"
    ):
        folder().annotations(tmp_path)
    (tmp_path / "labels.csv").write_text("image,labels\na.jpg,\n")
    with pytest.raises(PlmclError, match=r"give some of them labels in .*labels\.csv"):
        folder(".", "labels.csv").annotations(tmp_path)


@pytest.mark.parametrize("images", ["../photos", "/photos", "a/../../b"])
def test_the_images_are_below_the_path(images):
    with pytest.raises(PlmclError, match=r"images: .*must be a folder below"):
        folder(images)


def test_a_snapshot_holds_the_images_and_the_csv_and_nothing_else(tmp_path, caplog):
    photos = tmp_path / "photos"
    touch(photos, "images/a.jpg", "images/sub/b.png", "images/._a.jpg", "images/c.heic", "notes.md")
    (photos / "truth").mkdir()
    (photos / "truth" / "labels.csv").write_text("image,labels\na.jpg,cat\n")
    source = folder("images", "truth/labels.csv")
    calls = []
    with caplog.at_level(logging.INFO):
        source.download(
            photos,
            tmp_path / "data" / "raw",
            seed=0,
            progress=lambda done, total: calls.append((done, total)),
        )
    raw = tmp_path / "data" / "raw"
    assert everything_below(raw) == ["images/a.jpg", "images/sub/b.png", "truth/labels.csv"]
    assert (raw / "images" / "a.jpg").read_bytes() == b"images/a.jpg"
    assert calls == [(1, 2), (2, 2)]
    assert f"copied 2 images from {photos}" in caplog.text
    assert f"passed over in {photos}: 1 x hidden, 1 x suffix .heic" in caplog.text
    # what is read from the copy is what is read from the original
    original, copy = source.annotations(photos), source.annotations(raw)
    assert copy.files == original.files == ["a.jpg", "sub/b.png"]
    assert label_rows(copy) == label_rows(original)


def test_a_snapshot_copies_what_a_link_inside_means(tmp_path):
    photos = tmp_path / "photos"
    touch(photos, "cat/a.jpg", "dog/b.jpg")
    (photos / "dog" / "c.jpg").symlink_to("../cat/a.jpg")
    folder().download(photos, tmp_path / "raw", seed=0)
    copy = tmp_path / "raw" / "dog" / "c.jpg"
    assert not copy.is_symlink()
    assert copy.read_bytes() == b"cat/a.jpg"


def test_nothing_is_copied_when_something_is_wrong(tmp_path):
    photos = tmp_path / "photos"
    touch(photos, "cat/a.jpg", "dog/b.jpg")
    touch(tmp_path, "secret.jpg")
    (photos / "dog" / "c.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(PlmclError, match="links lead outside"):
        folder().download(photos, tmp_path / "raw", seed=0)
    with pytest.raises(PlmclError, match="not found"):
        folder().download(tmp_path / "none", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


def test_a_csv_link_out_of_the_path_is_not_copied(tmp_path):
    photos = tmp_path / "photos"
    touch(photos, "a.jpg")
    (tmp_path / "secret.csv").write_text("image,labels\na.jpg,cat\n")
    (photos / "labels.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(PlmclError, match="must be below"):
        folder(".", "labels.csv").download(photos, tmp_path / "raw", seed=0)


def test_the_same_photo_under_two_tags_has_both_case_30(tmp_path):
    for tag in ("cat", "dog"):
        (tmp_path / tag).mkdir()
        Image.new("RGB", (8, 8), "red").save(tmp_path / tag / "a.png")
    Image.new("RGB", (8, 8), "blue").save(tmp_path / "cat" / "b.png")
    source = folder()
    recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=100)
    manifest = ingest(source.annotations(tmp_path), tmp_path, recipe)
    assert list(manifest.labels.itertuples(index=False, name=None)) == [
        ("cat/a.png", "cat", 1),
        ("cat/a.png", "dog", 1),
        ("cat/b.png", "cat", 1),
    ]


def test_real_photographs_are_read(photos5):
    # 1,507 rows that end in CR LF; the counts are those of `cut | tr | sort | uniq -c`
    found = folder("images", "labels.csv", "negative").annotations(photos5)
    assert len(found.files) == 1507
    assert found.labels["label"].value_counts().to_dict() == {
        "car": 799, "person": 417, "cat": 340, "train": 273, "bus": 182,
    }  # fmt: skip
    assert found.label_names == ["bus", "car", "cat", "person", "train"]
