import json
import logging
import os

import pandas as pd
import pytest
from PIL import Image

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.listing import counts
from plmcl.data.sources import make_source
from plmcl.errors import PlmclError

DEFAULTS = {
    "images": ".", "labels": None, "format": "auto", "label_names": None, "unlisted": "unknown",
    "minus_one": "refuse", "crowd": "keep", "difficult": "negative", "missing": 0.0,
}  # fmt: skip


def folder(images=".", labels=None, unlisted="unknown", **more):
    section = DEFAULTS | {"images": images, "labels": labels, "unlisted": unlisted} | more
    return make_source("folder", {"folder": section})


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def refusal(source, root):
    with pytest.raises(PlmclError) as caught:
        source.annotations(root)
    return str(caught.value)


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
    assert (found.splits, found.unlisted, found.passed_over) == ({}, "unknown", [])


def test_stray_folders_are_no_tags_case_16(tmp_path):
    """Case 16: what tools leave beside the tags."""
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
    assert counts(found.passed_over) == "2 x hidden, 1 x suffix .out"


def test_a_tag_folder_without_an_image_is_refused_by_name_case_16(tmp_path):
    """Case 16: an empty label is refused by name."""
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


def test_labels_may_be_anywhere_when_nothing_is_copied(tmp_path):
    touch(tmp_path / "photos", "a.jpg")
    path = tmp_path / "elsewhere.csv"
    path.write_text("image,labels\na.jpg,cat\n")
    source = folder(".", str(path))
    assert source.annotations(tmp_path / "photos").label_names == ["cat"]
    with pytest.raises(PlmclError, match=r"sources\.folder\.labels: must be a path below"):
        source.download(tmp_path / "photos", tmp_path / "raw", seed=0)


def test_images_without_any_label_are_refused_with_advice(tmp_path):
    """Case 45: nothing is trained of which no label is known."""
    touch(tmp_path, "a.jpg", "b.jpg")
    with pytest.raises(
        PlmclError, match="none of the 2 images has a label; put them in one folder"
    ):
        folder().annotations(tmp_path)
    (tmp_path / "labels.csv").write_text("image,labels\na.jpg,\n")
    with pytest.raises(PlmclError, match=r"give some of them labels in .*labels\.csv"):
        folder(".", "labels.csv").annotations(tmp_path)


@pytest.mark.parametrize("path", ["../photos", "/photos", "a/../../b"])
def test_what_is_copied_is_below_the_path(path):
    for key in ("images", "label_names"):
        with pytest.raises(PlmclError, match=rf"{key}: .*must be below data\.path"):
            folder(**{key: path})


def test_a_value_that_is_not_there_is_refused():
    with pytest.raises(PlmclError, match=r"format: .*must be auto or one of coco, csv"):
        folder(format="excel")
    for key in ("minus_one", "crowd", "difficult"):
        with pytest.raises(PlmclError, match=rf"{key}: input should be '"):
            folder(**{key: "maybe"})
    with pytest.raises(PlmclError, match="missing: input should be less than or equal to 1"):
        folder(missing=1.5)


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
    with pytest.raises(PlmclError, match=r"labels\.csv: not found"):
        folder(labels="labels.csv").download(photos, tmp_path / "raw", seed=0)
    with pytest.raises(PlmclError, match="not found"):
        folder().download(tmp_path / "none", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


def test_a_link_out_of_the_path_is_not_copied(tmp_path, caplog):
    photos = tmp_path / "photos"
    touch(photos, "a.jpg", "b.jpg")
    write(tmp_path, {"secret.csv": "image,labels\na.jpg,cat\n", "secret.txt": "cat\n"})
    (photos / "labels.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(PlmclError, match="must be below"):
        folder(".", "labels.csv").download(photos, tmp_path / "raw", seed=0)
    (photos / "labels.csv").unlink()
    write(photos, {"labels.csv": "image,labels\na.jpg,cat\n"})
    (photos / "names.txt").symlink_to(tmp_path / "secret.txt")
    source = folder(".", "labels.csv", label_names="names.txt")
    with pytest.raises(PlmclError, match="must be below"):
        source.download(photos, tmp_path / "raw", seed=0)
    touch(tmp_path, "secret.jpg")
    (photos / "c.jpg").symlink_to(tmp_path / "secret.jpg")
    folder(".", "labels.csv").download(photos, tmp_path / "raw", seed=0)
    assert everything_below(tmp_path / "raw") == ["a.jpg", "b.jpg", "labels.csv"]
    assert "2 x a link that leads out of the folder" in caplog.text


def test_the_copy_keeps_the_times_by_which_files_are_known(tmp_path):
    photos = tmp_path / "photos"
    touch(photos, "cat/a.jpg")
    os.utime(photos / "cat" / "a.jpg", ns=(5_000_000_000, 7_123_456_789))
    folder().download(photos, tmp_path / "raw", seed=0)
    assert (tmp_path / "raw" / "cat" / "a.jpg").stat().st_mtime_ns == 7_123_456_789


def test_a_snapshot_holds_all_files_of_labels_and_what_declares_them(tmp_path):
    photos = tmp_path / "photos"
    touch(photos, "images/train/a.jpg", "images/train/b.jpg")
    write(
        photos,
        {
            "data.yaml": "names: [dog, cat]",
            "names.json": '["cat", "dog", "elk"]',
            "labels/train/a.txt": "0 0.5 0.5 0.1 0.1",
            "labels/train/b.txt": "",
            "labels/cache.npy": "",
            "notes.txt": "",
        },
    )
    source = folder("images", "labels", "negative", label_names="names.json")
    source.download(photos, tmp_path / "raw", seed=0)
    assert everything_below(tmp_path / "raw") == [
        "data.yaml", "images/train/a.jpg", "images/train/b.jpg",
        "labels/train/a.txt", "labels/train/b.txt", "names.json",
    ]  # fmt: skip
    copy = source.annotations(tmp_path / "raw")
    assert label_rows(copy) == [("train/a.jpg", "dog", 1)]
    assert (copy.label_names, copy.unlisted) == (["cat", "dog", "elk"], "negative")


def test_the_list_of_labels_is_the_order_of_the_outputs(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    write(
        tmp_path,
        {
            "labels.csv": "image,labels\na.jpg,dog;cat\nb.jpg,elk\n",
            "wide.csv": "image,elk,cat,dog\na.jpg,0,1,1\nb.jpg,1,0,0\n",
            "names.txt": "dog\nelk\nyak\ncat\n",
        },
    )
    assert folder(labels="labels.csv").annotations(tmp_path).label_names == ["cat", "dog", "elk"]
    assert folder(labels="wide.csv").annotations(tmp_path).label_names == ["elk", "cat", "dog"]
    for labels in ("labels.csv", "wide.csv"):
        found = folder(labels=labels, label_names="names.txt").annotations(tmp_path)
        assert found.label_names == ["dog", "elk", "yak", "cat"]
        assert label_rows(found) == [("a.jpg", "cat", 1), ("a.jpg", "dog", 1), ("b.jpg", "elk", 1)]


def test_a_label_that_the_list_lacks_is_refused_by_name_case_45(tmp_path):
    """Case 45: names of classes that do not match give no empty labels."""
    touch(tmp_path, "a.jpg", "b.jpg")
    write(
        tmp_path,
        {
            "a.xml": "<annotation><object><name>Cat</name></object></annotation>",
            "b.xml": "<annotation><object><name>dog</name><difficult>1</difficult></object>"
            "</annotation>",
            "names.txt": "cat\nelk\n",
        },
    )
    source = folder(labels=".", format="voc", difficult="ignore", label_names="names.txt")
    message = refusal(source, tmp_path)
    assert "names.txt: lacks 2 labels of" in message
    assert "'Cat', 'dog'; is 'cat' meant?" in message


def test_labels_of_difficult_objects_alone_are_the_reason_that_is_given_case_45(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    only = "<annotation><object><name>{}</name><difficult>1</difficult></object></annotation>"
    write(tmp_path, {"a.xml": only.format("cat"), "b.xml": only.format("dog")})
    for difficult in ("negative", "ignore"):
        message = refusal(folder(labels=".", format="voc", difficult=difficult), tmp_path)
        assert "none of the 2 images has a label; give some of them labels in" in message
        assert message.endswith(", which has 2 of difficult objects only")


def test_a_file_that_lists_yes_no_and_unknown_leaves_unlisted_nothing_to_say_case_33(tmp_path):
    """Case 33: three states come in as they are."""
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    write(tmp_path, {"labels.csv": "image,cat,dog\na.jpg,1,0\nb.jpg,,1\n"})
    for unlisted in ("unknown", "negative"):
        found = folder(".", "labels.csv", unlisted).annotations(tmp_path)
        assert label_rows(found) == [("a.jpg", "cat", 1), ("a.jpg", "dog", 0), ("b.jpg", "dog", 1)]
        assert found.unlisted == "unknown"


def test_a_complete_file_needs_no_rows_for_what_is_absent(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path, {"labels.csv": "image,cat,dog\na.jpg,1,0\nb.jpg,0,0\n"})
    found = folder(labels="labels.csv").annotations(tmp_path)
    assert (label_rows(found), found.unlisted) == ([("a.jpg", "cat", 1)], "negative")
    touch(tmp_path, "c.jpg")  # of which the file says nothing
    found = folder(labels="labels.csv").annotations(tmp_path)
    assert found.unlisted == "unknown"
    assert label_rows(found) == [
        ("a.jpg", "cat", 1), ("a.jpg", "dog", 0), ("b.jpg", "cat", 0), ("b.jpg", "dog", 0),
    ]  # fmt: skip


def test_what_the_labels_call_unknown_is_not_made_absent(tmp_path):
    touch(tmp_path, "a.jpg")
    write(tmp_path, {"labels.csv": "image,label,value\na.jpg,cat,1\na.jpg,dog,\na.jpg,elk,0\n"})
    found = folder(".", "labels.csv", "negative").annotations(tmp_path)
    assert label_rows(found) == [("a.jpg", "cat", 1), ("a.jpg", "elk", 0)]
    assert (found.label_names, found.unlisted) == (["cat", "dog", "elk"], "unknown")


def test_minus_one_is_a_question_to_the_user_case_46(tmp_path):
    """Case 46: the key is named, and its two values."""
    touch(tmp_path, "a.jpg")
    write(tmp_path, {"labels.csv": "image,cat,dog\na.jpg,1,-1\n"})
    assert "sources.folder.minus_one" in refusal(folder(labels="labels.csv"), tmp_path)
    found = folder(labels="labels.csv", minus_one="negative").annotations(tmp_path)
    assert (label_rows(found), found.unlisted) == ([("a.jpg", "cat", 1)], "negative")
    found = folder(labels="labels.csv", minus_one="unknown").annotations(tmp_path)
    assert (label_rows(found), found.unlisted) == ([("a.jpg", "cat", 1)], "unknown")


def test_difficult_objects_are_absent_or_unknown_and_are_handed_on(tmp_path):
    touch(tmp_path, "a.jpg")
    text = "<object><name>{}</name><difficult>{}</difficult></object>"
    objects = text.format("cat", 0) + text.format("dog", 1)
    write(tmp_path, {"xml/a.xml": f"<annotation>{objects}</annotation>"})
    hard = [("a.jpg", "dog")]
    found = folder(".", "xml", "negative").annotations(tmp_path)
    assert list(found.difficult.itertuples(index=False, name=None)) == hard
    assert label_rows(found) == [("a.jpg", "cat", 1), ("a.jpg", "dog", 0)]
    assert found.unlisted == "negative"
    found = folder(".", "xml", "negative", difficult="ignore").annotations(tmp_path)
    assert list(found.difficult.itertuples(index=False, name=None)) == hard
    assert (label_rows(found), found.unlisted) == ([("a.jpg", "cat", 1)], "unknown")


def test_missing_images_are_counted_against_a_limit(tmp_path, caplog):
    touch(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path, {"labels.csv": "image,labels\na.jpg,cat\nx.jpg,cat\nb.jpg,dog\n"})
    message = refusal(folder(labels="labels.csv", missing=0.33), tmp_path)
    assert "labels.csv: 2 of 3 images found in" in message
    assert "not there: 'x.jpg'; names are paths below that folder (sources.folder.miss" in message
    found = folder(labels="labels.csv", missing=0.34).annotations(tmp_path)
    assert found.notes == {"images that the labels name and that are not there": 1}
    assert "2 of 3 images found in" in caplog.text
    assert found.files == ["a.jpg", "b.jpg"]


def test_five_of_many_missing_images_are_named(tmp_path):
    touch(tmp_path, "a.jpg")
    rows = "".join(f"x{number}.jpg,cat\n" for number in (*range(7), *range(7)))
    write(tmp_path, {"labels.csv": "image,labels\na.jpg,cat\n" + rows})
    message = refusal(folder(labels="labels.csv"), tmp_path)
    assert "1 of 8 images found in" in message
    assert "not there: 'x0.jpg', 'x1.jpg', 'x2.jpg', 'x3.jpg', 'x4.jpg', …; names" in message


def test_files_of_labels_are_not_passed_over(tmp_path):
    touch(tmp_path, "a.jpg", "b.heic")
    write(tmp_path, {"labels.csv": "image,labels\na.jpg,cat\n", "names.txt": "cat\n"})
    found = folder(labels="labels.csv", label_names="names.txt").annotations(tmp_path)
    assert [entry.path for entry in found.passed_over] == ["b.heic"]
    found = folder(labels="labels.csv").annotations(tmp_path)
    assert [entry.path for entry in found.passed_over] == ["b.heic", "names.txt"]


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


def write_formats(root, truth, names):
    """The same truth in four formats; `truth` is image -> labels."""
    rows = "".join(f"{image},{';'.join(labels)}\n" for image, labels in truth.items())
    write(root, {"long.csv": "image,labels\n" + rows, "names.json": json.dumps(names)})
    ids = {name: 7 * place + 3 for place, name in enumerate(reversed(names))}
    annotations = [
        {"image_id": image, "category_id": ids[label], "iscrowd": 0, "bbox": [1, 1, 2, 2]}
        for image, labels in truth.items()
        for label in labels
    ]
    coco = {
        "images": [{"id": image, "file_name": f"train2017/{image}"} for image in truth],
        "annotations": annotations,
        "categories": [{"id": number, "name": name} for name, number in ids.items()],
    }
    write(root, {"coco.json": json.dumps(coco), "yolo/classes.txt": "\n".join(names)})
    for image, labels in truth.items():
        stem = image.removesuffix(".jpg")
        objects = "".join(f"<object><name>{label}</name></object>" for label in labels)
        lines = "".join(f"{names.index(label)} 0.5 0.5 0.25 0.25\n" for label in labels)
        xml = f"<annotation><filename>{image}</filename>{objects}</annotation>"
        write(root, {f"voc/{stem}.xml": xml, f"yolo/{stem}.txt": lines})


def check_formats(root, truth, names):
    """All formats give one manifest, which holds the truth."""
    recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000_000)
    expected = sorted((image, label, 1) for image in truth for label in truth[image])
    columns = ["image_id", "sha256", "width", "height", "bytes"]
    first = None
    for labels in ("long.csv", "coco.json", "voc", "yolo"):
        source = folder("images", labels, "negative", label_names="names.json")
        found = source.annotations(root)
        manifest = ingest(found, root, recipe, record=root / "examined")
        assert label_rows(manifest) == expected
        assert (manifest.label_names, manifest.unlisted) == (names, "negative")
        first = manifest if first is None else first
        pd.testing.assert_frame_equal(manifest.images[columns], first.images[columns])
    assert len(first.images) == len(truth)
    assert set(first.images["status"]) <= {"ok", "converted"}


def truth_of(data):
    lines = (data / "labels.csv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split(",") for line in lines]
    return {row[0]: [label for label in row[1].split(";") if label] for row in rows}


def test_coco160_comes_in_through_four_formats(tmp_path, coco160):
    (tmp_path / "images").symlink_to(coco160 / "images")
    names = (coco160 / "classes.txt").read_text(encoding="utf-8").splitlines()
    write_formats(tmp_path, truth_of(coco160), names)
    check_formats(tmp_path, truth_of(coco160), names)


def test_photos5_comes_in_through_four_formats(tmp_path, photos5):
    (tmp_path / "images").symlink_to(photos5 / "images")
    names = ["train", "person", "cat", "car", "bus"]
    write_formats(tmp_path, truth_of(photos5), names)
    check_formats(tmp_path, truth_of(photos5), names)
