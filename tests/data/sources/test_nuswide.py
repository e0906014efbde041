import numpy as np
import official_sets as sets
import pytest

from plmcl.data.sources import make_source, official
from plmcl.data.sources.nuswide.concepts import CONCEPTS
from plmcl.errors import PlmclError

AIRPORT, SKY, ZEBRA = (CONCEPTS.index(name) for name in ("airport", "sky", "zebra"))
# The second training image has no positive.
TRAIN = {"zoo/0003_33.jpg": [ZEBRA, SKY], "actor/0001_11.jpg": [], "sky/0002_22.jpg": [SKY]}
VAL = {"airport/0004_44.jpg": [AIRPORT]}


def nuswide(**changes):
    section = {"without_positive": "keep", "missing": 0.0, "mirrors": []}
    return make_source("nuswide", {"nuswide": section | changes})


def matrix(images, dtype=np.float64):
    labels = np.zeros((len(images), 81), dtype=dtype)
    for row, columns in enumerate(images.values()):
        labels[row, columns] = 1
    return labels


def write_arrays(root, train=TRAIN, val=VAL):
    root.mkdir(parents=True, exist_ok=True)
    for split, images in (("train", train), ("val", val)):
        np.save(root / f"formatted_{split}_images.npy", np.array(list(images)))
        np.save(root / f"formatted_{split}_labels.npy", matrix(images))
    return root


def write_images(root, names=(*TRAIN, *VAL)):
    sets.write_images(root, names)
    return root


def write_classic(root, concepts=("airport", "sky", "zebra")):
    place = {name: number for number, name in enumerate(CONCEPTS)}
    files = {"ConceptsList/Concepts81.txt": "\r\n".join(concepts) + "\r\n"}
    for split, images in (("Train", TRAIN), ("Test", VAL)):
        lines = "".join(name.replace("/", "\\") + "\r\n" for name in images)
        files[f"ImageList/{split}Imagelist.txt"] = lines
        for concept in concepts:
            column = "".join(f"{int(place[concept] in there)}\n" for there in images.values())
            files[f"Groundtruth/TrainTestLabels/Labels_{concept}_{split}.txt"] = column
    sets.write_files(root, files)
    return root


LABELS = [
    ("airport/0004_44.jpg", "airport", 1),
    ("sky/0002_22.jpg", "sky", 1),
    ("zoo/0003_33.jpg", "sky", 1),
    ("zoo/0003_33.jpg", "zebra", 1),
]


def test_the_published_lists_give_order_labels_and_all_81_concepts(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr")
    found = nuswide().annotations(tmp_path)
    assert sets.in_order(found, "train") == list(TRAIN)
    assert sets.in_order(found, "test") == list(VAL)
    assert sets.rows(found.labels) == LABELS
    assert found.label_names == CONCEPTS
    assert len(set(CONCEPTS)) == 81
    assert (found.root, found.unlisted, found.passed_over) == ("Flickr", "negative", [])


def test_images_without_a_positive_are_counted_and_kept_or_dropped_case_28(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr")
    keep = nuswide().annotations(tmp_path)
    assert keep.notes["images without a positive (without_positive: keep)"] == 1
    assert keep.splits["actor/0001_11.jpg"] == "train"
    assert keep.published["sky/0002_22.jpg"] == 2
    assert keep.notes["images in the train list, where the published one has 150,000"] == 3
    drop = nuswide(without_positive="drop").annotations(tmp_path)
    assert "actor/0001_11.jpg" not in drop.files
    assert sets.in_order(drop, "train") == ["zoo/0003_33.jpg", "sky/0002_22.jpg"]
    assert drop.published["sky/0002_22.jpg"] == 1
    assert sets.rows(drop.labels) == LABELS
    assert drop.notes == {
        "images without a positive (without_positive: drop)": 1,
        "images in no published list": 1,
    }


def test_the_classic_package_says_the_same(tmp_path):
    write_images(write_classic(tmp_path / "NUS-WIDE") / "Flickr")
    found = nuswide().annotations(tmp_path)
    assert found.root == "NUS-WIDE/Flickr"
    assert sets.in_order(found, "train") == list(TRAIN)
    assert sets.rows(found.labels) == LABELS
    assert found.label_names == ["airport", "sky", "zebra"]
    assert found.notes["images in the test list, where the published one has 107,859"] == 1


def test_with_both_forms_the_published_lists_count_and_a_concepts_file_names_them(tmp_path):
    write_images(write_arrays(write_classic(tmp_path)) / "Flickr")
    other = [f"concept {number}" for number in range(81)]
    sets.write_files(tmp_path, {"ConceptsList/Concepts81.txt": "\n".join(other)})
    found = nuswide().annotations(tmp_path)
    assert found.label_names == other
    assert ("airport/0004_44.jpg", f"concept {AIRPORT}", 1) in sets.rows(found.labels)


def test_images_are_found_by_path_and_then_by_name_in_any_case_case_29(tmp_path):
    images = {"Flickr\\zoo\\0003_33.JPG": [ZEBRA], "./sky/0002_22.jpg": [SKY], "a/0001_11.jpg": []}
    write_arrays(tmp_path, train=images, val={"AIRPORT/0004_44.jpg": [AIRPORT]})
    write_images(tmp_path / "images", ["Zoo/0003_33.jpg", "sky/0002_22.jpg", "b/0001_11.jpg",
                                       "airport/0004_44.jpg", "other/0003_33.jpg"])  # fmt: skip
    found = nuswide().annotations(tmp_path)
    assert sets.in_order(found, "train") == ["Zoo/0003_33.jpg", "sky/0002_22.jpg", "b/0001_11.jpg"]
    assert sets.in_order(found, "test") == ["airport/0004_44.jpg"]
    assert found.notes["images in no published list"] == 1


def test_a_name_that_may_be_two_images_is_refused(tmp_path):
    write_arrays(tmp_path, train={"zoo/0003_33.jpg": [ZEBRA]})
    write_images(tmp_path / "images", ["a/0003_33.jpg", "b/0003_33.jpg", *VAL])
    with pytest.raises(PlmclError, match=r"train list, image 1: 'zoo/0003_33\.jpg' may be any of"):
        nuswide().annotations(tmp_path)


def test_images_that_differ_only_in_case_are_refused(tmp_path):
    write_arrays(tmp_path, train={"flickr/a/X.jpg": [ZEBRA]})
    write_images(tmp_path / "images", ["Flickr/a/X.JPG", "flickr/A/x.jpg", *VAL])
    with pytest.raises(PlmclError, match=r"image 1: 'flickr/a/X\.jpg' may be any of 2: "):
        nuswide().annotations(tmp_path)


def test_folders_of_images_that_differ_only_in_case_are_refused(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr")
    write_images(tmp_path / "flickr", ["x.jpg"])
    with pytest.raises(PlmclError, match=r"Flickr and .*/flickr: either may be the folder of imag"):
        nuswide().annotations(tmp_path)


def test_one_of_three_images_is_missing_case_29(tmp_path):
    raw = write_arrays(tmp_path / "raw", train={name: [SKY] for name in list(TRAIN)[:2]})
    write_images(raw / "Flickr", [*list(TRAIN)[:1], *VAL])
    with pytest.raises(PlmclError, match=r"2 of 3 listed images found in .*'actor/0001_11\.jpg'"):
        nuswide().annotations(raw)
    assert (tmp_path / "raw.missing.txt").read_text() == "actor/0001_11.jpg\n"
    with pytest.raises(PlmclError, match=r"the share that may be missing is 0\.3"):
        nuswide(missing=0.3).annotations(raw)
    found = nuswide(missing=0.4).annotations(raw)
    assert found.notes["listed images that are missing"] == 1
    assert sets.in_order(found, "train") == ["zoo/0003_33.jpg"]


def test_none_of_the_images_is_never_enough(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr", ["x.jpg"])
    with pytest.raises(PlmclError, match="0 of 4 listed images found"):
        nuswide(missing=1.0).annotations(tmp_path)


def test_an_array_of_objects_is_refused_with_advice(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr")
    names = np.array([*TRAIN, None], dtype=object)[:3]
    np.save(tmp_path / "formatted_train_images.npy", names, allow_pickle=True)
    with pytest.raises(
        PlmclError, match=r"train_images\.npy: no plain array .*Python objects.*sav"
    ):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize(
    ("file", "array", "words"),
    [
        ("train_images", np.array([list(TRAIN)]), r"expected N texts, found shape \(1, 3\)"),
        ("train_images", np.zeros(3), r"expected N texts, found shape \(3,\) of float64"),
        ("train_labels", np.zeros((3, 80)), r"shape \(3, 81\).* found shape \(3, 80\)"),
        ("train_labels", np.zeros((2, 81)), r"shape \(3, 81\).* found shape \(2, 81\)"),
        ("train_labels", np.full((3, 81), "1"), r"expected numbers .* of <U1"),
        ("val_labels", np.full((1, 81), -1), r"val_labels\.npy: expected only 0 and 1, found -1"),
        ("val_labels", np.full((1, 81), np.nan), "expected only 0 and 1, found nan"),
    ],
)
def test_arrays_of_another_shape_or_kind_are_refused(tmp_path, file, array, words):
    write_images(write_arrays(tmp_path) / "Flickr")
    np.save(tmp_path / f"formatted_{file}.npy", array)
    with pytest.raises(PlmclError, match=words):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
def test_what_is_no_array_is_refused(tmp_path, content):
    write_images(write_arrays(tmp_path) / "Flickr")
    (tmp_path / "formatted_val_labels.npy").write_bytes(content)
    with pytest.raises(PlmclError, match=r"val_labels\.npy: no plain array"):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', (\n",  # tokenize.TokenError
        b"{[]: 1}\n",  # TypeError
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1" + b"0" * 30 + b",)}\n",
    ],
)
def test_a_hostile_header_is_refused(tmp_path, header):
    write_images(write_arrays(tmp_path) / "Flickr")
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    (tmp_path / "formatted_val_labels.npy").write_bytes(start + header)
    with pytest.raises(PlmclError, match=r"val_labels\.npy: no plain array"):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_text_of_what_is_no_character_is_refused(tmp_path, order):
    write_images(write_arrays(tmp_path) / "Flickr")
    names = np.array(list(TRAIN)).astype(f"{order}U20")
    np.save(tmp_path / "formatted_train_images.npy", names)
    assert nuswide().annotations(tmp_path).splits["sky/0002_22.jpg"] == "train"
    names.view(f"{order}u4")[5] = 0x110000
    np.save(tmp_path / "formatted_train_images.npy", names)
    with pytest.raises(PlmclError, match=r"train_images\.npy: holds what is no character"):
        nuswide().annotations(tmp_path)


def test_an_array_that_claims_to_be_huge_is_refused_before_memory_is_taken(tmp_path):
    write_images(write_arrays(tmp_path) / "Flickr")
    path = tmp_path / "formatted_val_labels.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 81)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(PlmclError, match=r"val_labels\.npy: no plain array"):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize("name", ["..\\..\\secret.jpg", "/etc/passwd", "zoo/../../x.jpg", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path, name):
    write_arrays(tmp_path, val={name: [SKY]})
    write_images(tmp_path / "Flickr")
    with pytest.raises(PlmclError, match=r"test list, image 1: .* must be a path below"):
        nuswide().annotations(tmp_path)


def test_a_classic_label_file_is_missing_short_or_strange(tmp_path):
    write_images(write_classic(tmp_path) / "Flickr")
    path = tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_sky_Train.txt"
    for content, words in (
        ("1\n0\n", r"Labels_sky_Train\.txt: 2 lines, where .*TrainImagelist\.txt has 3 images"),
        ("1\n0\n-1\n", r"Labels_sky_Train\.txt: expected only 0 and 1, found -1"),
    ):
        path.write_text(content)
        with pytest.raises(PlmclError, match=words):
            nuswide().annotations(tmp_path)
    path.unlink()
    with pytest.raises(PlmclError, match=r"no Labels_sky_Train\.txt in it"):
        nuswide().annotations(tmp_path)


@pytest.mark.parametrize("write", [write_arrays, write_classic])
@pytest.mark.parametrize("zipped", [True, False])
def test_lists_and_images_of_a_user_come_over_zipped_or_not(tmp_path, write, zipped):
    path, raw = write(tmp_path / "in"), tmp_path / "raw"
    if zipped:
        write_images(tmp_path / "made" / "Flickr")
        sets.pack_zip(tmp_path / "made", path / "Flickr.zip", ["Flickr"])
    else:
        write_images(path / "Flickr", [*TRAIN, *VAL, "not/listed.jpg"])
    nuswide().download(path, raw, seed=0)
    found = nuswide().annotations(raw)
    assert sets.rows(found.labels) == LABELS
    assert sets.below(raw / "Flickr") == sorted([*TRAIN, *VAL])
    assert sets.in_order(found, "train") == list(TRAIN)


@pytest.mark.parametrize("zipped", [True, False])
def test_lists_that_are_not_there_are_fetched(tmp_path, monkeypatch, zipped):
    asked = []

    def fetch(remote, folder, *, progress):
        asked.append((remote.name, remote.md5, folder))
        write_arrays(folder)
        return folder / remote.name

    monkeypatch.setattr(official, "fetch", fetch)
    path, raw = tmp_path / "in", tmp_path / "raw"
    write_images(tmp_path / "made" / "Flickr") if zipped else write_images(path / "Flickr")
    if zipped:
        sets.pack_zip(tmp_path / "made", path / "Flickr.zip", ["Flickr"])
    nuswide().download(path, raw, seed=0)
    assert [name for name, _, _ in asked] == [
        "formatted_train_images.npy", "formatted_train_labels.npy",
        "formatted_val_images.npy", "formatted_val_labels.npy",
    ]  # fmt: skip
    assert {rest for _, *rest in map(list, asked) for rest in [tuple(rest)]} == {
        (None, tmp_path / "raw.archives")
    }
    assert sets.rows(nuswide().annotations(raw).labels) == LABELS


def test_a_fetched_file_that_is_no_array_is_removed(tmp_path, monkeypatch):
    def fetch(remote, folder, *, progress):
        sets.write_files(folder, {remote.name: "<html>"})
        return folder / remote.name

    monkeypatch.setattr(official, "fetch", fetch)
    write_images(tmp_path / "in" / "Flickr")
    with pytest.raises(PlmclError, match=r"no plain array .*; it was fetched, and is removed"):
        nuswide().download(tmp_path / "in", tmp_path / "raw", seed=0)
    assert list((tmp_path / "raw.archives").iterdir()) == []


def test_what_cannot_be_downloaded_is_said_with_what_to_put_where(tmp_path, monkeypatch):
    with pytest.raises(PlmclError, match=r"they cannot be downloaded: .* Flickr\.zip and put it"):
        nuswide().download(write_arrays(tmp_path / "lists"), tmp_path / "raw", seed=0)

    def fetch(remote, folder, *, progress):
        raise PlmclError(f"{remote.name}: could not be downloaded")

    monkeypatch.setattr(official, "fetch", fetch)
    write_images(tmp_path / "images" / "Flickr")
    with pytest.raises(PlmclError, match="could not be downloaded; the lists of record 10162606"):
        nuswide().download(tmp_path / "images", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()
