import csv
import shutil

import numpy as np
import official_sets as sets
import pytest

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError

# Ids with gaps, and neither they nor the names are sorted.
CATEGORIES = {3: "car", 1: "person", 90: "toothbrush"}


def name(split, number):
    return f"COCO_{split}2014_{number:012d}.jpg"


# 25 has no annotation; the only toothbrush of 30, and its only label, is a crowd.
TRAIN_IDS = (100, 9, 25, 10, 30)
TRAIN = [(9, 1, 0), (9, 1, 1), (10, 90, 0), (10, 3, 0), (100, 3, 1), (100, 3, 0), (30, 90, 1)]
VAL_IDS = (42, 7)
VAL = [(42, 1, 0)]


def coco(**changes):
    section = {"year": 2014, "crowd": "keep", "missing": 0.0, "mirrors": []}
    return make_source("coco", {"coco": section | changes})


def write(root, train=TRAIN, val=VAL, categories=CATEGORIES, images="."):
    for split, ids, annotations in (("train", TRAIN_IDS, train), ("val", VAL_IDS, val)):
        files = {number: name(split, number) for number in ids}
        path = root / "annotations" / f"instances_{split}2014.json"
        sets.write_coco(path, categories, files, annotations)
        sets.write_images(root / images / f"{split}2014", files.values())
    return root


def test_ids_are_sorted_as_texts_and_images_without_an_annotation_leave_the_list_case_24(tmp_path):
    found = coco().annotations(write(tmp_path))
    expected = [f"train2014/{name('train', number)}" for number in (10, 100, 30, 9)]
    assert sets.in_order(found, "train") == expected
    assert [found.published[image_id] for image_id in expected] == [0, 1, 2, 3]
    assert sets.in_order(found, "test") == [f"val2014/{name('val', 42)}"]
    assert found.files == sorted(found.files)
    assert found.root == "."
    assert found.passed_over == []
    assert found.notes == {
        "images without an annotation, which the published list leaves out": 2,
        "labels that only crowd regions give (crowd: keep)": 1,
        "images in no published list": 2,
        "images in the train list, where the published one has 82,081": 4,
        "images in the test list, where the published one has 40,137": 1,
    }


def test_category_ids_with_gaps_give_the_declared_names_in_the_declared_order_case_23(tmp_path):
    found = coco().annotations(write(tmp_path))
    assert found.label_names == ["car", "person", "toothbrush"]
    assert sets.rows(found.labels) == [
        (f"train2014/{name('train', 9)}", "person", 1),
        (f"train2014/{name('train', 10)}", "car", 1),
        (f"train2014/{name('train', 10)}", "toothbrush", 1),
        (f"train2014/{name('train', 30)}", "toothbrush", 1),
        (f"train2014/{name('train', 100)}", "car", 1),
        (f"val2014/{name('val', 42)}", "person", 1),
    ]
    assert found.unlisted == "negative"


def test_labels_that_only_a_crowd_gives_can_be_dropped_and_the_list_stays_case_25(tmp_path):
    write(tmp_path)
    keep, drop = coco().annotations(tmp_path), coco(crowd="drop").annotations(tmp_path)
    assert (drop.files, drop.published) == (keep.files, keep.published)
    gone = (f"train2014/{name('train', 30)}", "toothbrush", 1)
    assert set(sets.rows(keep.labels)) - set(sets.rows(drop.labels)) == {gone}
    assert drop.notes["labels that only crowd regions give (crowd: drop)"] == 1


def test_an_unknown_category_is_refused_with_its_id_case_23(tmp_path):
    with pytest.raises(PlmclError, match=r"instances_train2014\.json: annotations\[0\].*\b2\b"):
        coco().annotations(write(tmp_path, train=[(9, 2, 0)]))


def test_both_files_have_the_same_categories(tmp_path):
    write(tmp_path)
    path = tmp_path / "annotations" / "instances_val2014.json"
    sets.write_coco(path, {1: "person", 3: "car", 90: "toothbrush"}, {42: name("val", 42)}, VAL)
    with pytest.raises(PlmclError, match=r"instances_val2014\.json: the categories are not those"):
        coco().annotations(tmp_path)


def test_a_file_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "annotations" / "instances_val2014.json"
    sets.write_coco(path, CATEGORIES, {42: "../../secret.jpg"}, VAL)
    with pytest.raises(PlmclError, match=r"test list, image 1: .* must be a path below"):
        coco().annotations(tmp_path)


def test_2017_has_other_names_and_images_may_lie_in_a_folder_of_their_own(tmp_path):
    for split, number in (("train", 9), ("val", 139)):
        path = tmp_path / "coco" / "annotations" / f"instances_{split}2017.json"
        sets.write_coco(path, CATEGORIES, {number: f"{number:012d}.jpg"}, [(number, 1, 0)])
        sets.write_images(tmp_path / f"coco/images/{split}2017", [f"{number:012d}.jpg"])
    found = coco(year=2017).annotations(tmp_path)
    assert found.root == "coco/images"
    assert found.files == ["train2017/000000000009.jpg", "val2017/000000000139.jpg"]
    assert found.notes == {}


def test_a_users_folder_comes_over_with_its_two_annotation_files(tmp_path):
    path = write(tmp_path / "in", images="images")
    sets.write_files(path, {"annotations/captions_train2014.json": "{}"})
    coco().download(path, tmp_path / "raw", seed=0)
    assert sets.below(tmp_path / "raw") == [
        "annotations/instances_train2014.json",
        "annotations/instances_val2014.json",
        *(f"images/train2014/{name('train', number)}" for number in (9, 10, 30, 100)),
        f"images/val2014/{name('val', 42)}",
    ]
    assert coco().annotations(tmp_path / "raw").published == coco().annotations(path).published


def test_the_three_archives_are_unpacked(tmp_path):
    made = write(tmp_path / "made")
    sets.write_files(made, {"annotations/captions_train2014.json": "{}"})
    for archive, member in (("annotations_trainval2014", "annotations"),
                            ("train2014", "train2014"), ("val2014", "val2014")):  # fmt: skip
        sets.pack_zip(made, tmp_path / "in" / f"{archive}.zip", [member])
    raw = tmp_path / "raw"
    coco().download(tmp_path / "in", raw, seed=0)
    assert "annotations/captions_train2014.json" not in sets.below(raw)
    assert sets.rows(coco().annotations(raw).labels) == sets.rows(coco().annotations(made).labels)


def test_a_download_that_is_not_complete_leaves_nothing(tmp_path):
    made = write(tmp_path / "made")
    (made / "val2014" / name("val", 42)).unlink()
    for archive, member in (("annotations_trainval2014", "annotations"),
                            ("train2014", "train2014"), ("val2014", "val2014")):  # fmt: skip
        sets.pack_zip(made, tmp_path / "in" / f"{archive}.zip", [member])
    with pytest.raises(PlmclError, match="4 of 5 listed images found"):
        coco().download(tmp_path / "in", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()
    assert (tmp_path / "raw.missing.txt").read_text() == f"val2014/{name('val', 42)}\n"


def test_published_order_and_labels_of_real_photographs(coco160, tmp_path):
    # The instances files that say what labels.csv says, and the lists worked out the other way:
    # from the CSV, as the published protocol makes them.
    names = (coco160 / "classes.txt").read_text().split("\n")[:80]
    with (coco160 / "labels.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    half = {"train": table[:100], "val": table[100:]}
    for split, entries in half.items():
        (tmp_path / f"{split}2017").mkdir()
        for entry in entries:
            copy = tmp_path / f"{split}2017" / entry["image"]
            shutil.copyfile(coco160 / "images" / entry["image"], copy)
        files = {int(entry["image"][:-4]): entry["image"] for entry in entries}
        annotations = [
            (int(entry["image"][:-4]), 2 * names.index(label) + 1, 0)
            for entry in reversed(entries)
            for label in [*entry["labels"].split(";"), entry["labels"].split(";")[0]]
            if label
        ]
        path = tmp_path / "annotations" / f"instances_{split}2017.json"
        categories = {2 * number + 1: label for number, label in enumerate(names)}
        sets.write_coco(path, categories, files, annotations)
    found = coco(year=2017).annotations(tmp_path)
    present = {(image_id.split("/")[1], label) for image_id, label, _ in sets.rows(found.labels)}
    expected = {
        (entry["image"], label) for entry in table for label in entry["labels"].split(";") if label
    }
    assert present == expected
    assert found.label_names == names
    for split, entries in half.items():
        ids = [str(int(entry["image"][:-4])) for entry in entries if entry["labels"]]
        listed = np.sort(np.array(ids))  # texts
        order = sets.in_order(found, "test" if split == "val" else split)
        assert order == [f"{split}2017/{int(number):012d}.jpg" for number in listed]
