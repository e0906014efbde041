import stat
import tarfile
import zipfile

import pytest
from data.archives.packing import (
    FILES,
    KINDS,
    LIMITS,
    declare,
    entry,
    pack,
    pack_tar,
    pack_zip,
    refusal,
)

from plmcl.data.archives import Limits, extract
from plmcl.errors import PlmclError


def tree(folder):
    return {
        str(path.relative_to(folder).as_posix()): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_archive_comes_out_byte_for_byte(tmp_path, kind):
    archive = pack(tmp_path / "named like nothing", FILES, kind)
    seen = []
    written = extract(
        archive, tmp_path / "out", limits=LIMITS, progress=lambda *done: seen.append(done)
    )
    assert written == list(FILES)
    assert tree(tmp_path / "out") == FILES
    size = archive.stat().st_size
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("kind", ["zip", "w"])
def test_no_file_can_be_executed(tmp_path, kind):
    path = tmp_path / "a"
    if kind == "zip":
        pack_zip(path, "run", stat.S_IFREG | 0o4777)
    else:
        pack_tar(path, entry("run", mode=0o4777, size=1))
    extract(path, tmp_path / "out", limits=LIMITS)
    assert (tmp_path / "out" / "run").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_wanted_is_written(tmp_path, kind):
    archive = pack(tmp_path / "a", FILES, kind)
    written = extract(
        archive, tmp_path / "out", wanted=lambda path: path.endswith(".jpg"), limits=LIMITS
    )
    assert written == ["set/images/a.jpg", "set/images/b c, 'd'.jpg"]
    assert tree(tmp_path / "out") == {path: FILES[path] for path in written}


@pytest.mark.parametrize("kind", ["zip", "w"])
def test_what_is_not_wanted_is_checked_too(tmp_path, kind):
    archive = pack(tmp_path / "a", {"good": b"x", "../bad": b"x"}, kind)
    message = refusal(archive, wanted=lambda path: path == "good")
    assert message == "member '../bad' has '..' in its path"


def test_dots_slashes_and_repeated_folders_are_harmless(tmp_path):
    folder = entry("./set/", type=tarfile.DIRTYPE)
    root = entry("./", type=tarfile.DIRTYPE)
    archive = pack_tar(tmp_path / "a", root, folder, folder, entry("./set//a", size=1))
    assert extract(archive, tmp_path / "out", limits=LIMITS) == ["set/a"]


def test_an_empty_archive_is_an_empty_folder(tmp_path):
    for number, kind in enumerate(["zip", "w:gz", "w:bz2"]):
        archive = pack(tmp_path / str(number), {}, kind)
        assert extract(archive, tmp_path / f"out{number}", limits=LIMITS) == []


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("/etc/passwd", "has an absolute path"),
        ("//host/share", "has an absolute path"),
        ("..", "has '..' in its path"),
        ("a/../../b", "has '..' in its path"),
        ("a/..", "has '..' in its path"),
        ("C:/x", "has a drive letter in its path"),
        ("c:x", "has a drive letter in its path"),
        ("..\\x", "has a backslash in its name"),
        ("a\\b", "has a backslash in its name"),
        ("a\0.jpg", "has a NUL in its name"),
        (".", "has no name"),
        ("a" * 1001, "has a name of 1001 characters, more than 1000"),
    ],
)
def test_a_bad_path_is_refused(tmp_path, name, rule):
    message = f"member {name[:200]!r} {rule}"
    assert refusal(pack_zip(tmp_path / "zip", name)) == message
    # a pax header holds any name, also one with a NUL
    tar = pack_tar(tmp_path / "tar", entry("x", size=1, pax_headers={"path": name}))
    assert refusal(tar) == message


@pytest.mark.parametrize("kind", ["zip", "w"])
@pytest.mark.parametrize(
    ("names", "member", "rule"),
    [
        (["a", "a"], "a", "is there twice"),
        (["d/a", "./d//a"], "./d//a", "is there twice"),
        (["d/Cat.jpg", "d/cat.JPG"], "d/cat.JPG", "makes 'd/cat.JPG', which is 'd/Cat.jpg' but"),
        (["Dog/a", "dog/b"], "dog/b", "makes 'dog', which is 'Dog' but for case or Unicode form"),
        (["caf\u00e9", "cafe\u0301"], "cafe\u0301", r"makes 'cafe\u0301', which is 'caf\xe9' but"),
        (["straße", "STRASSE"], "STRASSE", r"makes 'STRASSE', which is 'stra\xdfe' but"),
        (["a", "a/b"], "a/b", "makes 'a' a file and a folder"),
        (["a/b", "a"], "a", "makes 'a' a file and a folder"),
        (["A/b", "a"], "a", "makes 'a' a file and a folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_in_one_place_are_refused(tmp_path, kind, names, member, rule):
    archive = tmp_path / "a"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as bundle:
            for name in names:
                bundle.writestr(name, b"x")
    else:
        pack_tar(archive, *(entry(name, size=1) for name in names))
    assert refusal(archive).startswith(f"member {member!r} {rule}")


def test_a_link_then_a_file_through_it_writes_nothing_outside(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = entry("d", type=tarfile.SYMTYPE, linkname=str(tmp_path / "elsewhere"))
    assert refusal(pack_tar(tmp_path / "a", link, entry("d/x", size=1))).endswith("a symbolic link")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (Limits(3, 10**6, 10**6), "member 'd/c' makes more than 3 files and folders"),
        (Limits(9, 29, 20), "member 'd/c' makes 30 bytes in all, more than 29"),
        (Limits(9, 30, 9), "member 'd/a' has 10 bytes, more than 9"),
    ],
)
def test_each_limit_is_kept(tmp_path, kind, limits, rule):
    archive = pack(tmp_path / "a", dict.fromkeys(["d/a", "d/b", "d/c"], b"x" * 10), kind)
    assert refusal(archive, limits) == rule
    assert len(extract(archive, tmp_path / "x", limits=Limits(4, 30, 10))) == 3


def test_folders_count(tmp_path):
    archive = pack(tmp_path / "a", {"/".join("abcdefgh"): b""})
    limits = Limits(max_files=7, max_bytes=10, max_file_bytes=10)
    assert refusal(archive, limits).endswith("makes more than 7 files and folders")
    again = pack_tar(tmp_path / "b", *[entry("d", type=tarfile.DIRTYPE)] * 8)
    assert refusal(again, limits) == "member 'd' makes more than 7 files and folders"


def test_a_bomb_is_stopped_by_what_it_declares(tmp_path):
    for kind in ("zip", "w:gz", "w:bz2"):
        archive = pack(tmp_path / kind, {"zeros": bytes(5_000_000)}, kind)
        assert refusal(archive) == "member 'zeros' has 5000000 bytes, more than 500000"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("size", [5_000_000, 1001])
def test_a_bomb_that_lies_about_its_size_is_stopped_by_its_bytes(tmp_path, method, size):
    archive = pack_zip(tmp_path / "a", "x", data=bytes(size), compress_type=method)
    message = refusal(declare(archive, 1000))
    assert message == "member 'x' unpacks to more than the 1000 bytes that it declares"


def test_a_member_with_fewer_bytes_than_declared_is_refused(tmp_path):
    archive = pack_zip(tmp_path / "a", "x", data=b"0123456789")
    assert refusal(declare(archive, 11)) == "member 'x' unpacks to 10 bytes, but declares 11"


def test_a_target_that_holds_something_is_left_alone(tmp_path):
    archive = pack(tmp_path / "a", FILES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(PlmclError, match="out: is not empty"):
        extract(archive, tmp_path / "out", limits=LIMITS)
    assert tree(tmp_path / "out") == {"mine": b"mine"}


def test_no_archive_and_a_name_that_the_disk_refuses_are_said(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(PlmclError, match=r"a: not unpacked into .*out: No such file or directory"):
        extract(tmp_path / "a", out, limits=LIMITS)
    archive = pack(tmp_path / "b", {"x" * 300: b""})
    with pytest.raises(PlmclError, match=r"b: not unpacked into .*out: File name too long"):
        extract(archive, out, limits=LIMITS)
    assert not out.exists()
    assert not out.with_name("out.partial").exists()
