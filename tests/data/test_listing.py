import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from plmcl.data.listing import (
    Listing,
    PassedOver,
    counts,
    find_files,
    first_five,
    list_files,
    list_images,
)
from plmcl.errors import PlmclError


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def reasons(listing):
    return Counter((file.status, file.reason) for file in listing.passed_over)


def test_images_are_found_at_any_depth_sorted_by_code_point(tmp_path):
    touch(
        tmp_path, "b.jpg", "Z.PNG", "é.gif", "a/b/c.webp", "a b.jpeg", "x,y.Tiff", "w.tif", "q.bmp"
    )
    files, passed_over = list_images(tmp_path)
    assert files == [
        "Z.PNG", "a b.jpeg", "a/b/c.webp", "b.jpg", "q.bmp", "w.tif", "x,y.Tiff", "é.gif",
    ]  # fmt: skip
    assert passed_over == []


def test_files_are_found_as_deep_as_one_asks(tmp_path):
    touch(tmp_path, "a.jpg", "b/c.jpg", "b/d/e.jpg", "b/d/f.txt")
    assert set(find_files(tmp_path, depth=1)) == {"a.jpg"}
    assert set(find_files(tmp_path, depth=2)) == {"a.jpg", "b/c.jpg"}
    found = set(find_files(tmp_path))
    assert found == {
        "a.jpg", "b/c.jpg", "b/d/e.jpg", PassedOver("b/d/f.txt", "other_file", "suffix .txt"),
    }  # fmt: skip


def test_other_suffixes_are_counted_case_11(tmp_path):
    touch(tmp_path, "a.avif", "b.HEIC", "c.heic", "d.txt", "README", "e.jpg.exe")
    listing = list_images(tmp_path)
    assert listing.files == ["a.avif"]
    assert reasons(listing) == {
        ("other_file", "no suffix"): 1,
        ("other_file", "suffix .exe"): 1,
        ("other_file", "suffix .heic (needs another package, pillow-heif: convert to JPEG)"): 2,
        ("other_file", "suffix .txt"): 1,
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
    listing = list_images(tmp_path)
    assert listing.files == ["a.jpg"]
    assert reasons(listing) == {
        ("hidden", "hidden"): 4, ("hidden", "__MACOSX"): 1, ("other_file", "Thumbs.db"): 1
    }  # fmt: skip


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
    listing = list_images(root)
    assert listing.files == ["b.jpg", "cat/a.jpg"]
    assert reasons(listing) == {("link", "a link to a folder"): 2, ("link", "a link to nothing"): 2}


def test_links_that_lead_outside_are_set_aside_case_84(tmp_path):
    root = tmp_path / "photos"
    touch(root, "a.jpg")
    touch(tmp_path, "secret.jpg", "photos2/b.jpg")
    (root / "c.jpg").symlink_to(tmp_path / "secret.jpg")
    (root / "more").symlink_to(tmp_path / "photos2")  # its name begins like the folder's
    (root / "up").symlink_to("..")
    (root / "through.jpg").symlink_to("more/b.jpg")
    (root / "notes.txt").symlink_to("/etc/passwd")
    reason = "a link that leads out of the folder"
    assert list_images(root) == Listing(
        ["a.jpg"],
        [
            PassedOver(name, "outside_root", reason)
            for name in ("c.jpg", "more", "notes.txt", "through.jpg", "up")
        ],
    )


def test_a_tree_deeper_than_pythons_recursion_limit(tmp_path):
    folder = f"{tmp_path}/tree"
    Path(folder).mkdir()
    for _ in range(1500):
        folder += "/d"
        Path(folder).mkdir()
    touch(Path(folder), "a.jpg")
    try:
        assert list_images(tmp_path / "tree").files == ["d/" * 1500 + "a.jpg"]
    finally:  # pytest's own removal calls itself once a folder
        subprocess.run(["rm", "-rf", tmp_path / "tree"], check=True)


def test_the_folder_itself_may_be_a_link(tmp_path):
    touch(tmp_path / "photos", "a.jpg")
    (tmp_path / "link").symlink_to("photos")
    assert list_images(tmp_path / "link")[0] == ["a.jpg"]


def test_a_folder_that_cannot_be_read_is_passed_over_and_the_others_go_on(tmp_path):
    touch(tmp_path, "a.jpg", "b/c.jpg")
    names = ["d" * 120] * 40  # deeper than a system call takes
    folder = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    listing = list_images(tmp_path)
    assert listing.files == ["a.jpg", "b/c.jpg"]
    (file,) = listing.passed_over
    assert file.path.startswith("d" * 120 + "/")
    assert (file.status, file.reason) == (
        "unreadable", "a folder that cannot be read: File name too long"
    )  # fmt: skip


def test_pipes_are_no_images(tmp_path):
    touch(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "b.jpg")
    pipe = PassedOver("b.jpg", "not_a_file", "not a regular file")
    assert list_images(tmp_path) == Listing(["a.jpg"], [pipe])


def test_a_name_that_is_not_utf_8_is_set_aside(tmp_path):
    touch(tmp_path, "a.jpg")
    (tmp_path / os.fsdecode(b"\xe9.jpg")).write_bytes(b"x")
    odd = PassedOver("\\xe9.jpg", "unreadable_name", "the name is not UTF-8; rename it")
    assert list_images(tmp_path) == Listing(["a.jpg"], [odd])


def test_a_folder_without_images_can_be_listed(tmp_path):
    touch(tmp_path, ".c")
    assert list_files(tmp_path) == Listing([], [PassedOver(".c", "hidden", "hidden")])


def test_messages_stay_short():
    assert first_five(["a"]) == "'a'"
    assert first_five(list("abcdefg")) == "'a', 'b', 'c', 'd', 'e', …"
    files = [PassedOver(name, "hidden", reason) for name, reason in ("xb", "ya", "zb")]
    assert counts(files) == "1 x a, 2 x b"
