import time

import pytest

from plmcl.data.formats.base import ImageIndex
from plmcl.errors import PlmclError

INDEX = ImageIndex(["a.jpg", "train/b.jpg", "val/b.jpg", "val/c.d.png", "x/y/e.jpg", "x/e.jpg"])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.jpg", "a.jpg"),
        ("./train//b.jpg", "train/b.jpg"),
        ("b.jpg", None),
        ("a", None),
        ("A.jpg", None),
    ],
)
def test_a_path_is_an_image_only_as_it_stands(name, found):
    assert INDEX.find(name, "here") == found


@pytest.mark.parametrize("name", ["../a.jpg", "train/../../a.jpg", "/a.jpg", "", "."])
def test_a_path_that_leaves_the_folder_is_refused(name):
    with pytest.raises(PlmclError, match=r"here: .* must be a path below the folder of images"):
        INDEX.find(name, "here")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.jpg", "a.jpg"),
        ("/home/me/set/a.jpg", "a.jpg"),
        ("C:\\set\\a.jpg", "a.jpg"),
        ("a", "a.jpg"),
        ("a.png", None),
        ("/set/train/b.jpg", "train/b.jpg"),
        ("/set/train/b", "train/b.jpg"),
        ("/set/test/b.jpg", None),  # another folder: never train/b.jpg or val/b.jpg
        ("c.d", "val/c.d.png"),
        ("c", None),
        ("y/e.jpg", "x/y/e.jpg"),
        ("/set/x/e.jpg", "x/e.jpg"),
        ("none.jpg", None),
        ("/a.jpg", "a.jpg"),
        ("/b.jpg", None),
        ("/x/y/e.jpg", "x/y/e.jpg"),
        ("z/y/e.jpg", None),
        ("z/x/y/e", "x/y/e.jpg"),
    ],
)
def test_a_path_of_another_machine_is_an_image_if_the_folders_agree(name, found):
    assert INDEX.find_name(name, "here") == found


def test_a_name_of_two_images_is_refused():
    with pytest.raises(PlmclError, match=r"here: 'b.jpg' may be any of 2 images: \['train/b.jpg'"):
        INDEX.find_name("b.jpg", "here")


@pytest.mark.parametrize("name", ["", "train/", "\\"])
def test_an_empty_name_is_refused(name):
    with pytest.raises(PlmclError, match=r"here: .* must name an image"):
        INDEX.find_name(name, "here")


def test_twenty_thousand_images_of_one_name_are_found_in_time():
    files = [f"images/scene{number}/rgb.png" for number in range(20_000)]
    index = ImageIndex(files)
    start = time.process_time()
    for suffix in (".png", ""):
        names = [f"/set/images/scene{number}/rgb{suffix}" for number in range(20_000)]
        assert [index.find_name(name, "here") for name in names] == files
    assert time.process_time() - start < 2
    with pytest.raises(PlmclError, match="may be any of 20000 images"):
        index.find_name("rgb.png", "here")
