import logging
import re
from importlib.util import find_spec
from pathlib import Path

import official_sets as sets
import pytest

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.sources import make_source, official
from plmcl.errors import PlmclError

# Difficult alone: a cat in 2008_000002, which has a dog, too; all of 2009_000003 and 2010_000004.
TRAIN = {
    "2008_000002": {"dog": 1, "cat": 0},
    "2007_000001": {"person": 1, "aeroplane": 1},
    "2009_000003": {"cat": 0},
}
VAL = {
    "2010_000009": {"tvmonitor": 1},
    "2008_000010": {"cat": 1},
    "2010_000004": {"dog": 0, "person": 0},
}


def voc(**changes):
    section = {"year": 2012, "difficult": "negative", "missing": 0.0, "mirrors": []}
    return make_source("voc", {"voc": section | changes})


def write(root, **splits):
    sets.write_voc(root, splits or {"train": TRAIN, "val": VAL})
    return root


def test_only_the_value_1_is_a_positive_and_only_difficult_objects_leave_the_list(tmp_path):
    found = voc().annotations(write(tmp_path))
    assert sets.rows(found.labels) == [
        ("2007_000001.jpg", "aeroplane", 1),
        ("2007_000001.jpg", "person", 1),
        ("2008_000002.jpg", "dog", 1),
        ("2008_000010.jpg", "cat", 1),
        ("2010_000009.jpg", "tvmonitor", 1),
    ]
    assert found.root == "JPEGImages"
    assert sets.in_order(found, "train") == ["2007_000001.jpg", "2008_000002.jpg"]
    assert sets.in_order(found, "test") == ["2008_000010.jpg", "2010_000009.jpg"]
    assert found.published == {
        "2007_000001.jpg": 0, "2008_000002.jpg": 1, "2008_000010.jpg": 0, "2010_000009.jpg": 1,
    }  # fmt: skip
    assert found.label_names == sets.VOC_LABELS == sorted(sets.VOC_LABELS)
    assert found.unlisted == "negative"
    assert found.notes == {
        "images without a positive, which the published list leaves out": 2,
        "images in no published list": 2,
        "images in the train list, where the published one has 5,717": 2,
        "images in the test list, where the published one has 5,823": 2,
    }


def test_difficult_cells_are_absent_as_published_or_unknown_case_27(tmp_path):
    write(tmp_path)
    negative, ignore = voc().annotations(tmp_path), voc(difficult="ignore").annotations(tmp_path)
    expected = [("2008_000002.jpg", "cat")]
    assert sets.rows(negative.difficult) == sets.rows(ignore.difficult) == expected
    assert ignore.files == negative.files
    assert ignore.published == negative.published
    assert ignore.unlisted == "unknown"
    said = {(image, label): value for image, label, value in sets.rows(ignore.labels)}
    assert len(said) == 4 * 20 - 1
    assert ("2008_000002.jpg", "cat") not in said
    assert said["2008_000002.jpg", "dog"] == 1
    assert said["2008_000002.jpg", "person"] == 0
    positives = [(*cell, 1) for cell, value in said.items() if value == 1]
    assert positives == sets.rows(negative.labels)


def test_2007_is_trained_on_trainval_and_tested_on_test(tmp_path):
    write(tmp_path, trainval={"000007": {"car": 1}, "000005": {"chair": 1}},
          test={"000001": {"dog": 1}}, train={"000005": {"chair": 1}})  # fmt: skip
    found = voc(year=2007).annotations(tmp_path)
    assert sets.in_order(found, "train") == ["000005.jpg", "000007.jpg"]
    assert sets.in_order(found, "test") == ["000001.jpg"]
    assert found.notes == {}  # how many images the published lists have is not known


def test_a_folder_is_found_one_level_deeper_and_its_year_counts(tmp_path):
    write(tmp_path / "VOCdevkit" / "VOC2012")
    write(tmp_path / "VOCdevkit" / "VOC2007", train={}, val={}, trainval={}, test={})
    for path in (tmp_path, tmp_path / "VOCdevkit", tmp_path / "VOCdevkit" / "VOC2012"):
        assert len(voc().annotations(path).files) == 4
    with pytest.raises(PlmclError, match="no ImageSets/Main of PASCAL VOC in it; run the download"):
        voc().annotations(tmp_path / "VOCdevkit" / "VOC2007")


def test_a_users_folder_is_copied_and_what_is_not_listed_stays_behind(tmp_path, caplog):
    path, raw = write(tmp_path / "in" / "VOCdevkit" / "VOC2012").parents[1], tmp_path / "raw"
    calls = []
    voc().download(path, raw, seed=0, progress=lambda *call: calls.append(call))
    images = raw / "VOCdevkit" / "VOC2012" / "JPEGImages"
    assert sorted(path.name for path in images.iterdir()) == [
        "2007_000001.jpg", "2008_000002.jpg", "2008_000010.jpg", "2010_000009.jpg",
    ]  # fmt: skip
    original = path / "VOCdevkit" / "VOC2012" / "JPEGImages" / "2007_000001.jpg"
    copy = images / "2007_000001.jpg"
    assert copy.read_bytes() == original.read_bytes()
    assert not copy.samefile(original)  # DVC makes its files read-only
    assert len(sets.below(images.parent / "ImageSets" / "Main")) == 40
    assert calls == [(done, 4) for done in range(1, 5)]
    assert "images in no published list: 2" in caplog.text
    before, after = voc().annotations(path), voc().annotations(raw)
    assert sets.rows(after.labels) == sets.rows(before.labels)
    assert (after.published, after.splits) == (before.published, before.splits)


def test_an_archive_that_is_there_already_is_unpacked_without_what_is_not_needed(tmp_path):
    base = write(tmp_path / "made" / "VOCdevkit" / "VOC2012")
    sets.write_files(base, {"Annotations/2007_000001.xml": "<annotation/>",
                            "ImageSets/Segmentation/train.txt": ""})  # fmt: skip
    sets.tar(tmp_path / "made", tmp_path / "in" / "VOCtrainval_11-May-2012.tar")
    raw = tmp_path / "raw"
    voc().download(tmp_path / "in", raw, seed=0)
    kinds = {name.rsplit("/", 1)[0] for name in sets.below(raw)}
    assert kinds == {"VOCdevkit/VOC2012/JPEGImages", "VOCdevkit/VOC2012/ImageSets/Main"}
    assert sets.rows(voc().annotations(raw).labels) == sets.rows(voc().annotations(base).labels)


def test_an_archive_that_is_not_there_is_fetched_from_its_place_and_kept(tmp_path, monkeypatch):
    write(tmp_path / "made" / "VOCdevkit" / "VOC2012")
    asked = []

    def fetch(remote, folder, *, progress):
        asked.append(remote)
        sets.tar(tmp_path / "made", folder / remote.name)
        return folder / remote.name

    monkeypatch.setattr(official, "fetch", fetch)
    raw = tmp_path / "data" / "raw" / "voc"
    source = voc(mirrors=["https://mirror.example/voc/"])
    (tmp_path / "empty").mkdir()
    source.download(tmp_path / "empty", raw, seed=0)
    (remote,) = asked
    assert remote.urls == (
        "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
        "https://mirror.example/voc/VOCtrainval_11-May-2012.tar",
    )
    assert remote.md5 == "6cd6e144f989b92b3379bac3b3de84fd"
    assert remote.size == 1_999_639_040
    assert (raw.parent / "voc.archives" / remote.name).is_file()
    assert len(source.annotations(raw).files) == 4


def test_the_checksums_are_those_that_torchvision_has():
    # Read and not imported, which takes seconds.
    code = Path(find_spec("torchvision").origin).with_name("datasets") / "voc.py"
    known = dict(re.findall(r'/([^/]+\.tar)",\n.*\n +"md5": "(\w+)"', code.read_text()))
    for year in (2007, 2012):
        for remote in voc(year=year).archives():
            assert known[remote.name] == remote.md5


def test_an_archive_without_the_data_set_leaves_nothing(tmp_path):
    sets.write_files(tmp_path / "made", {"readme.txt": "moved"})
    sets.tar(tmp_path / "made", tmp_path / "in" / "VOCtrainval_11-May-2012.tar")
    with pytest.raises(PlmclError, match="no ImageSets/Main of PASCAL VOC in it"):
        voc().download(tmp_path / "in", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2007_000001 2\n", r"dog_train\.txt, line 1: expected 1, 0 or -1, found '2'"),
        ("2007_000001\n", r"dog_train\.txt, line 1: expected two columns, found '2007_000001'"),
        ("a b 1\n", "expected two columns, found 'a b 1'"),
        ("../../secret 1\n", r"train list, image 1: '\.\./\.\./secret\.jpg' must be a path below"),
        ("/etc/passwd 1\n", r"'/etc/passwd\.jpg' must be a path below"),
    ],
)
def test_a_list_that_breaks_a_rule_is_refused(tmp_path, line, words):
    write(tmp_path)
    sets.write_files(tmp_path, {"ImageSets/Main/dog_train.txt": line})
    with pytest.raises(PlmclError, match=words):
        voc().annotations(tmp_path)


def test_a_list_that_is_missing_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "ImageSets" / "Main" / "dog_val.txt").unlink()
    with pytest.raises(PlmclError, match=r"dog_val\.txt: No such file"):
        voc().annotations(tmp_path)


def test_lists_without_a_positive_are_refused(tmp_path):
    write(tmp_path, train={"2007_000001": {"dog": 0}}, val={"2008_000010": {}})
    with pytest.raises(PlmclError, match="the lists name no image"):
        voc().annotations(tmp_path)


def test_missing_images_are_refused_and_listed_unless_they_may_be_missing(tmp_path, caplog):
    raw = write(tmp_path / "raw")
    (raw / "JPEGImages" / "2007_000001.jpg").unlink()
    report = tmp_path / "raw.missing.txt"
    with pytest.raises(PlmclError, match=r"3 of 4 listed images found in .*'2007_000001"):
        voc().annotations(raw)
    assert report.read_text() == "2007_000001.jpg\n"
    with caplog.at_level(logging.WARNING):
        found = voc(missing=0.25).annotations(raw)
    assert "3 of 4 listed images found" in caplog.text
    assert found.notes["listed images that are missing"] == 1
    assert found.published["2008_000002.jpg"] == 1  # its place in the published list
    sets.write_images(raw / "JPEGImages", ["2007_000001.jpg"])
    voc().annotations(raw)
    assert not report.exists()


def test_links_out_of_the_users_folder_are_not_followed(tmp_path):
    elsewhere, path = write(tmp_path / "elsewhere"), tmp_path / "in"
    write(path)
    image = path / "JPEGImages" / "2007_000001.jpg"
    image.unlink()
    image.symlink_to(elsewhere / "JPEGImages" / "2007_000001.jpg")
    with pytest.raises(PlmclError, match="3 of 4 listed images found"):
        voc().download(path, tmp_path / "raw", seed=0)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "VOC2012").symlink_to(elsewhere)
    with pytest.raises(PlmclError, match="is a link out of it; name the folder that holds"):
        voc().download(linked, tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


def test_a_link_inside_the_folder_gives_the_file_it_leads_to(tmp_path):
    path = write(tmp_path / "in")
    image = path / "JPEGImages" / "2007_000001.jpg"
    image.rename(path / "kept.jpg")
    image.symlink_to("../kept.jpg")
    with pytest.raises(PlmclError, match="3 of 4 listed images found"):  # out of JPEGImages
        voc().download(path, tmp_path / "raw", seed=0)
    (path / "kept.jpg").rename(path / "JPEGImages" / "kept.jpg")
    image.unlink()
    image.symlink_to("kept.jpg")
    voc().download(path, tmp_path / "raw", seed=0)
    copy = tmp_path / "raw" / "JPEGImages" / "2007_000001.jpg"
    assert not copy.is_symlink()
    assert copy.read_bytes() == sets.jpeg("2007_000001.jpg")


@pytest.mark.parametrize(
    "change", [{"year": 2011}, {"difficult": "drop"}, {"missing": 1.5}, {"mirrors": ["ftp://x"]}]
)
def test_senseless_values_are_refused(change):
    with pytest.raises(PlmclError, match=next(iter(change))):
        voc(**change)


@pytest.mark.parametrize("difficult", ["negative", "ignore"])
def test_it_comes_in_through_ingest(tmp_path, difficult):
    source = voc(difficult=difficult)
    raw = write(tmp_path / "raw")
    recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)
    manifest = ingest(source.annotations(raw), raw, recipe)
    manifest.write(tmp_path / "manifest")
    images = manifest.images
    assert images["status"].tolist() == ["ok"] * 4
    assert images["path"].tolist()[0] == "JPEGImages/2007_000001.jpg"
    assert images["published"].tolist() == [0, 1, 0, 1]
    assert images["split"].tolist() == ["train", "train", "test", "test"]
    assert sets.rows(manifest.difficult) == [("2008_000002.jpg", "cat")]
    assert int(manifest.labels["value"].sum()) == 5
