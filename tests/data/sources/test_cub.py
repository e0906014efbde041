import official_sets as sets
import pytest

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError

NAMES = ["1 has_bill_shape::curved_(up_or_down)", "2 has_wing_color::blue", "3 has_size::large"]
IMAGES = ["3 200.Wren/Wren_3.jpg", "1 001.Albatross/Albatross_1.jpg", "2 001.Albatross/A_2.jpg",
          "4 002.Auk/Auk_4.jpg"]  # fmt: skip
SPLIT = ["1 1", "2 0", "3 1", "4 0"]
# image, attribute, is_present, certainty, seconds; two lines have more than that
LABELS = [
    "1 1 0 3 27.7", "1 2 1 1 27.7", "1 3 1 4 27.7",
    "2 1 0 4 5.4", "2 2 0 4 3 0.816", "2 3 1 1 0 1 7.1",
    "3 1 1 4 9.0", "3 2 0 1 9.0", "3 3 0 1 9.0",
    "4 1 0 1 0.0", "4 2 0 1 0.0", "4 3 0 1 0.0",
]  # fmt: skip


def cub(**changes):
    return make_source("cub", {"cub": {"missing": 0.0, "mirrors": []} | changes})


def write(root, names="attributes.txt", **changes):
    files = {"images.txt": IMAGES, "train_test_split.txt": SPLIT,
             "attributes/image_attribute_labels.txt": LABELS} | changes  # fmt: skip
    base = root / "CUB_200_2011"
    sets.write_files(base, {file: "\n".join(lines) + "\n" for file, lines in files.items()})
    sets.write_files(root, {names: "\n".join(NAMES) + "\n"})
    sets.write_images(base / "images", [line.split()[1] for line in IMAGES])
    return root


def test_is_present_alone_counts_and_both_orders_are_those_of_images_txt(tmp_path):
    found = cub().annotations(write(tmp_path))
    assert sets.in_order(found, "train") == ["200.Wren/Wren_3.jpg", "001.Albatross/Albatross_1.jpg"]
    assert sets.in_order(found, "test") == ["001.Albatross/A_2.jpg", "002.Auk/Auk_4.jpg"]
    assert found.root == "CUB_200_2011/images"
    assert sets.rows(found.labels) == [
        ("001.Albatross/A_2.jpg", "has_size::large", 1),
        ("001.Albatross/Albatross_1.jpg", "has_size::large", 1),
        ("001.Albatross/Albatross_1.jpg", "has_wing_color::blue", 1),
        ("200.Wren/Wren_3.jpg", "has_bill_shape::curved_(up_or_down)", 1),
    ]
    # in the order of attributes.txt
    assert found.label_names == [line.split()[1] for line in NAMES]
    assert found.unlisted == "negative"
    assert found.notes == {
        "images in the train list, where the published one has 5,994": 2,
        "images in the test list, where the published one has 5,794": 2,
    }


@pytest.mark.parametrize(
    "names", ["CUB_200_2011/attributes/attributes.txt", "CUB_200_2011/attributes.txt"]
)
def test_the_names_may_lie_in_other_places(tmp_path, names):
    path = write(tmp_path / "in", names) / "CUB_200_2011"
    cub().download(path, tmp_path / "raw", seed=0)
    assert cub().annotations(tmp_path / "raw").label_names[2] == "has_size::large"


def test_names_outside_the_path_are_not_taken(tmp_path):
    path = write(tmp_path) / "CUB_200_2011"
    with pytest.raises(PlmclError, match=r"attributes\.txt: lies outside .*; name the folder that"):
        cub().download(path, tmp_path / "raw", seed=0)


def test_cells_that_no_line_names_are_counted(tmp_path):
    found = cub().annotations(
        write(tmp_path, **{"attributes/image_attribute_labels.txt": LABELS[:10]})
    )
    assert found.notes["cells without a line in image_attribute_labels.txt, taken as absent"] == 2


def test_the_archive_is_unpacked_without_the_parts(tmp_path):
    made = write(tmp_path / "made")
    sets.write_files(made, {"CUB_200_2011/parts/parts.txt": "1 back"})
    sets.tar(made, tmp_path / "in" / "CUB_200_2011.tgz")
    raw = tmp_path / "raw"
    cub().download(tmp_path / "in", raw, seed=0)
    assert "attributes.txt" in sets.below(raw)
    assert "CUB_200_2011/parts/parts.txt" not in sets.below(raw)
    assert sets.rows(cub().annotations(raw).labels) == sets.rows(cub().annotations(made).labels)


def test_the_archive_and_its_checksum():
    (remote,) = cub(mirrors=["http://localhost/cub"]).archives()
    assert remote.name == "CUB_200_2011.tgz"
    assert remote.md5 == "97eceeb196236b17998738112f37df78"
    assert remote.urls[1] == "http://localhost/cub/CUB_200_2011.tgz"


@pytest.mark.parametrize(
    ("file", "lines", "words"),
    [
        ("images.txt", ["1 a.jpg", "1 b.jpg"], "line 2: number 1 stands above, too"),
        ("images.txt", [""], "images.txt: empty"),
        ("images.txt", ["one a.jpg"], "line 1: expected a number first, found 'one'"),
        ("images.txt", [IMAGES[0], "1 ../../a.jpg", *IMAGES[2:]], "'../../a.jpg' must be a path"),
        ("images.txt", [*IMAGES[:3], "4 200.Wren/Wren_3.jpg"],
         "test list, image 2: '200.Wren/Wren_3.jpg' is also image 1 of the train list"),
        ("train_test_split.txt", ["1 1", "2 0", "3 1"], "no line for image 4 of"),
        ("train_test_split.txt", ["1 2", *SPLIT[1:]], "image 1: expected 1 or 0, found '2'"),
        ("attributes/image_attribute_labels.txt", ["1 1 2 1 0"],
         "image_attribute_labels.txt: expected only 0 and 1, found 2"),
        ("attributes/image_attribute_labels.txt", ["1 4 1 1 0"],
         "4 is no number of a known image or attribute"),
        ("attributes/image_attribute_labels.txt", ["1 x 1"], "expected whole numbers"),
        ("attributes/image_attribute_labels.txt", ["1 1"], "expected whole numbers"),
    ],
)  # fmt: skip
def test_a_file_that_breaks_a_rule_is_refused(tmp_path, file, lines, words):
    with pytest.raises(PlmclError) as caught:
        cub().annotations(write(tmp_path, **{file: lines}))
    assert words in str(caught.value)


def test_an_empty_table_is_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "CUB_200_2011" / "attributes" / "image_attribute_labels.txt").write_bytes(b"")
    with pytest.raises(PlmclError, match=r"image_attribute_labels\.txt: empty"):
        cub().annotations(tmp_path)
