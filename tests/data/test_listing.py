import os

import pytest

from plmcl.data.listing import counts, first_five, list_images
from plmcl.errors import PlmclError


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_images_are_found_at_any_depth_sorted_by_code_point(tmp_path):
    touch(
        tmp_path, "b.jpg", "Z.PNG", "é.gif", "a/b/c.webp", "a b.jpeg", "x,y.Tiff", "w.tif", "q.bmp"
    )
    files, ignored = list_images(tmp_path)
    assert files == [
        "Z.PNG", "a b.jpeg", "a/b/c.webp", "b.jpg", "q.bmp", "w.tif", "x,y.Tiff", "é.gif",
    ]  # fmt: skip
    assert ignored == {}


def test_other_suffixes_are_counted_case_11(tmp_path):
    touch(tmp_path, "a.avif", "b.HEIC", "c.heic", "d.txt", "README", "e.jpg.exe")
    files, ignored = list_images(tmp_path)
    assert files == ["a.avif"]
    assert ignored == {
        "no suffix": 1,
        "suffix .exe": 1,
        "suffix .heic (needs another package, pillow-heif: convert to JPEG)": 2,
        "suffix .txt": 1,
    }


def test_what_systems_leave_behind_is_counted_case_12(tmp_path):
    touch(
        tmp_path,
        "a.jpg",
        ".DS_Store",
        "._a.jpg",
        "cat/._b.jpg",
        ".ipynb_checkpoints/c.jpg",
        "__MACOSX/cat/d.jpg",
        "cat/Thumbs.db",
    )
    files, ignored = list_images(tmp_path)
    assert files == ["a.jpg"]
    assert ignored == {"hidden": 4, "__MACOSX": 1, "Thumbs.db": 1}


def test_a_hidden_parent_of_the_folder_does_not_matter(tmp_path):
    touch(tmp_path / ".cache" / "photos", "a.jpg")
    assert list_images(tmp_path / ".cache" / "photos")[0] == ["a.jpg"]


def test_an_empty_folder_says_what_was_passed_over(tmp_path):
    with pytest.raises(PlmclError) as caught:
        list_images(tmp_path)
    assert str(caught.value) == f"no images in {tmp_path}; passed over: nothing"
    touch(tmp_path, "a.txt", "b.txt", ".c")
    with pytest.raises(PlmclError, match=r"passed over: 1 x hidden, 2 x suffix \.txt$"):
        list_images(tmp_path)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(PlmclError, match="gone: not found"):
        list_images(tmp_path / "gone")
    touch(tmp_path, "file")
    with pytest.raises(PlmclError, match="not a folder"):
        list_images(tmp_path / "file")


def test_links_are_followed_inside_only(tmp_path):
    root = tmp_path / "photos"
    touch(root, "cat/a.jpg")
    (root / "b.jpg").symlink_to("cat/a.jpg")
    (root / "again").symlink_to("cat")
    (root / "self").symlink_to(".")
    (root / "loop.jpg").symlink_to("loop.jpg")
    (root / "dangling.jpg").symlink_to("cat/none.jpg")
    files, ignored = list_images(root)
    assert files == ["b.jpg", "cat/a.jpg"]
    assert ignored == {"link to a folder": 2, "not a regular file": 2}


def test_links_that_lead_outside_are_refused(tmp_path):
    root = tmp_path / "photos"
    touch(root, "a.jpg")
    touch(tmp_path, "secret.jpg", "elsewhere/b.jpg")
    (root / "c.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(PlmclError, match=r"1 links lead outside of it \('c.jpg'\)"):
        list_images(root)
    (root / "c.jpg").unlink()
    (root / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlmclError, match="'more'"):
        list_images(root)
    (root / "more").unlink()
    (root / "notes.txt").symlink_to(tmp_path / "secret.jpg")  # nobody reads it
    assert list_images(root)[1] == {"suffix .txt": 1}


def test_the_folder_itself_may_be_a_link(tmp_path):
    touch(tmp_path / "photos", "a.jpg")
    (tmp_path / "link").symlink_to("photos")
    assert list_images(tmp_path / "link")[0] == ["a.jpg"]


def test_pipes_are_no_images(tmp_path):
    touch(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "b.jpg")
    assert list_images(tmp_path) == (["a.jpg"], {"not a regular file": 1})


def test_a_name_that_is_not_utf_8_is_counted(tmp_path):
    touch(tmp_path, "a.jpg")
    (tmp_path / os.fsdecode(b"\xe9.jpg")).write_bytes(b"x")
    assert list_images(tmp_path) == (["a.jpg"], {"name is not UTF-8": 1})


def test_messages_stay_short():
    assert first_five(["a"]) == "'a'"
    assert first_five(list("abcdefg")) == "'a', 'b', 'c', 'd', 'e', …"
    assert counts({"b": 2, "a": 1}) == "1 x a, 2 x b"
