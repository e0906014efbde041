import gzip
import random
import stat
import tarfile
import tracemalloc
import zipfile

import pytest
from data.archives.packing import (
    FILES,
    KINDS,
    LIMITS,
    NOISE,
    entry,
    overwrite,
    pack,
    pack_tar,
    pack_zip,
    refusal,
)

from plmcl.data.archives import Limits, extract
from plmcl.errors import PlmclError


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    tar = pack_tar(tmp_path / "tar", entry("a\udcff", size=1), tar_format=tarfile.GNU_FORMAT)
    assert refusal(tar) == "member 'a\\udcff' has a name that is not UTF-8"
    bundle = pack(tmp_path / "zip", {"aXYb": b"x"})
    bundle.write_bytes(bundle.read_bytes().replace(b"aXYb", b"a\xff\xfeb"))
    assert refusal(bundle) == r"member b'a\xff\xfeb' has a name that is not UTF-8"


def test_a_utf_8_name_without_the_flag_that_says_so_is_read_as_utf_8(tmp_path):
    bundle = pack(tmp_path / "zip", {"aXYb": b"x"})
    bundle.write_bytes(bundle.read_bytes().replace(b"aXYb", "aüb".encode()))
    assert extract(bundle, tmp_path / "out", limits=LIMITS) == ["aüb"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (b"Z", "of tar type b'Z'"),
    ],
)
def test_a_tar_member_that_is_no_file_is_refused(tmp_path, kind, what):
    tar = pack_tar(tmp_path / "a", entry("x", type=kind, linkname="/etc/passwd"))
    assert refusal(tar) == f"member 'x' is {what}"


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        (stat.S_IFLNK | 0o777, "a symbolic link"),
        (stat.S_IFIFO, "a pipe"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFDIR, "of Unix file type 40000"),
        (0o150000, "of Unix file type 150000"),
    ],
)
def test_a_zip_member_that_is_no_file_is_refused(tmp_path, mode, what):
    assert refusal(pack_zip(tmp_path / "a", "x", mode, b"/etc/passwd")) == f"member 'x' is {what}"


def test_a_sparse_file_is_refused(tmp_path):
    tar = pack_tar(tmp_path / "a", entry("x", type=tarfile.GNUTYPE_SPARSE))
    assert refusal(tar) == "member 'x' is of tar type b'S'"


def test_an_encrypted_member_is_refused(tmp_path):
    archive = pack(tmp_path / "a", {"x": b"secret"})
    central = archive.read_bytes().index(b"PK\x01\x02")
    overwrite(overwrite(archive, central + 8, b"\1"), 6, b"\1")
    assert refusal(archive) == "member 'x' is encrypted"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_without_a_bound_on_memory_is_refused(tmp_path, method):
    archive = pack_zip(tmp_path / "a", "x", compress_type=method)
    assert refusal(archive) == (
        f"member 'x' is compressed by method {method}, neither stored nor deflated"
    )


@pytest.mark.parametrize("size", [-512, -1])
def test_a_negative_size_is_refused(tmp_path, size):
    # tarfile alone would go back and read the same header for ever
    header = entry("x", size=size).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a").write_bytes(header + bytes(10240))
    assert refusal(tmp_path / "a") == f"member 'x' is of {size} bytes"


@pytest.mark.parametrize("kind", ["zip", "w:gz", "w:bz2"])
def test_a_cut_archive_is_refused_wherever_it_is_cut(tmp_path, kind):
    content = pack(tmp_path / "whole", FILES, kind).read_bytes()
    for part in (0.0, 0.0001, 0.01, 0.3, 0.6, 0.9, 0.999, 1 - 1 / len(content)):
        (tmp_path / "a").write_bytes(content[: int(part * len(content))])
        message = refusal(tmp_path / "a")
        assert message.startswith(("is damaged or cut off (", "is no zip or tar"))


def test_a_cut_tar_is_refused_although_tarfile_takes_it(tmp_path):
    content = pack(tmp_path / "whole", {"a": b"x" * 600, "b": b"y"}, "w").read_bytes()
    end = 512 + 1024 + 512 + 512  # two headers, two blocks, one block; then the end mark
    for cut in range(512, end + 1, 64):
        (tmp_path / "a").write_bytes(content[:cut])
        assert refusal(tmp_path / "a").startswith("is damaged or cut off (")
    (tmp_path / "a").write_bytes(content[: end + 512])
    assert extract(tmp_path / "a", tmp_path / "x", limits=LIMITS) == ["a", "b"]


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    archive = pack(tmp_path / "a", {"a": b"x", "b": b"y", "c": b"z"}, "w")
    overwrite(archive, 1024, b"\xff")  # the header of b
    assert refusal(archive) == (
        "is damaged or cut off (ReadError no end mark where the members end)"
    )


def test_a_second_tar_behind_the_first_is_not_lost(tmp_path):
    first = pack(tmp_path / "1", {"a": b"x"}, "w").read_bytes()
    second = pack(tmp_path / "2", {"b": b"x"}, "w").read_bytes()
    (tmp_path / "a").write_bytes(first + second)
    assert refusal(tmp_path / "a") == "is damaged or cut off (ReadError data after the end mark)"


@pytest.mark.parametrize("kind", ["zip", "w:gz", "w:bz2"])
def test_a_flipped_bit_is_noticed(tmp_path, kind):
    archive = pack(tmp_path / "a", {"a": NOISE[:100_000]}, kind)
    byte = archive.read_bytes()[50_000]
    overwrite(archive, 50_000, bytes([byte ^ 1]))
    assert refusal(archive).startswith("is damaged or cut off (")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<!DOCTYPE html><html>404</html>",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!\x1a\x07\0",
        bytes(9999),
    ],
)
def test_what_is_no_archive_is_said_so(tmp_path, content):
    (tmp_path / "images.zip").write_bytes(content)
    assert refusal(tmp_path / "images.zip") == (
        f"is no zip or tar (.gz, .bz2); begins with {content[:16]!r}"
    )


def test_a_gzip_that_holds_no_tar_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(b"hello"))
    assert refusal(tmp_path / "a").startswith("is damaged or cut off (ReadError ")


def pax(size, data):
    return entry("x", type=tarfile.XHDTYPE, size=size).tobuf(tarfile.GNU_FORMAT) + data


@pytest.mark.parametrize(
    "content",
    [
        pax(3 * 2**20, bytes(3 * 2**20)),  # a header of 3 MiB
        pax(-512, bytes(3 * 2**20)),  # which would read all there is
        pax(512, b"12 path=abc\n".ljust(512, b"\0")) * 2000,  # headers of headers
        pax(512, b"x" * 512),
        pax(512, b"16 size=-99999\n".ljust(512, b"\0")) + entry("y", size=1).tobuf(),
    ],
    ids=["long", "negative", "nested", "no key", "size"],
)
def test_a_hostile_tar_header_is_refused_in_little_memory(tmp_path, content):
    (tmp_path / "a").write_bytes(content + bytes(10240))
    tracemalloc.start()
    try:
        refusal(tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_long_list_of_zip_members_is_refused_unread(tmp_path):
    with zipfile.ZipFile(tmp_path / "a", "w") as bundle:
        for number in range(30):
            bundle.writestr(zipfile.ZipInfo(f"{number:040000}"), b"")
    message = refusal(tmp_path / "a", Limits(max_files=10, max_bytes=9, max_file_bytes=9))
    assert message == "is damaged or cut off (ValueError more than 1051576 bytes in one piece)"


def test_random_damage_ends_in_files_or_one_message(tmp_path):
    files = {"a/b": b"x" * 2000, "c": NOISE[:1000]}
    draw = random.Random(1)
    contents = [pack(tmp_path / kind, files, kind).read_bytes() for kind in KINDS]
    refused = 0
    for number in range(300):
        content = bytearray(contents[number % len(contents)])
        for _ in range(draw.randint(1, 8)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / "a").write_bytes(content[: draw.randint(len(content) // 2, 2 * len(content))])
        try:
            extract(tmp_path / "a", tmp_path / "out" / str(number), limits=LIMITS)
        except PlmclError:
            refused += 1
    assert 150 < refused < 300
