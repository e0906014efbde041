"""What a zip or tar archive says is in it, and the bytes of that, both read within bounds."""

import bz2
import copy
import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from plmcl.errors import PlmclError

PIECE = 2**20  # bytes that are read at once
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class Member(NamedTuple):
    """One entry of an archive.

    Attributes:
        name: As the archive has it; nothing about it is checked.
        is_folder: Or else a file.
        fault: What it is instead of a plain file or folder; None: it is one.
        size: In bytes, as declared.
        open: Gives its bytes, which may be fewer or more than `size`; for files without a fault.
    """

    name: str
    is_folder: bool
    fault: str | None
    size: int
    open: Callable[[], IO[bytes]]


def read_members(archive: Path, raw: io.FileIO, most: int) -> Iterator[Member]:
    """Yield the members in the order in which they lie in the archive.

    Args:
        archive: For messages.
        raw: The archive, opened; its content says of which kind it is.
        most: How many members are expected at most: it bounds the memory for a zip's list of them.

    Raises:
        PlmclError: It is no zip or tar archive, it is damaged or cut off, or a name in a zip is
            not UTF-8.
    """
    head = raw.read(262)
    raw.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        members = _zip_members(_Bounded(raw, PIECE + 300 * most))
    elif (stream := _tar_stream(raw, head)) is not None:
        members = _tar_members(_Bounded(stream, PIECE))
    else:
        raise PlmclError(f"{archive}: is no zip or tar (.gz, .bz2); begins with {head[:16]!r}")
    with _parsing(archive):
        yield from members


def read_pieces(archive: Path, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a file, at most `PIECE` of them at once.

    Raises:
        PlmclError: The archive is damaged or cut off.
    """
    with _parsing(archive), member.open() as file:
        while piece := file.read(PIECE):
            yield piece


@contextmanager
def _parsing(archive: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise PlmclError(
            f"{archive}: member {error.object[:200]!r} has a name that is not UTF-8"
        ) from None
    except Exception as error:  # the parsers raise nearly any kind on hostile input
        what = f"{type(error).__name__} {error}".rstrip()[:200]
        raise PlmclError(f"{archive}: is damaged or cut off ({what})") from None


class _Bounded(io.BufferedReader):
    """Returns no more than `most` bytes at once, whatever length a header claims."""

    def __init__(self, raw: io.RawIOBase | io.BufferedIOBase, most: int) -> None:
        super().__init__(raw)
        self.most = most
        self.last = b""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= self.most:
            size = self.most + 1
        self.last = super().read(size)
        if len(self.last) > self.most:
            raise ValueError(f"more than {self.most} bytes in one piece")
        return self.last


def _zip_members(stream: _Bounded) -> Iterator[Member]:
    with zipfile.ZipFile(stream, metadata_encoding="utf-8") as bundle:
        for info in sorted(bundle.infolist(), key=lambda info: info.header_offset):
            is_folder = info.orig_filename.endswith("/")
            # With the declared size alone, what a member has beyond it would not be unpacked.
            longer = copy.copy(info)
            longer.file_size += PIECE
            # zipfile's own `filename` ends at a NUL.
            yield Member(
                info.orig_filename,
                is_folder,
                _zip_fault(info, is_folder),
                info.file_size,
                partial(bundle.open, longer),
            )


def _zip_fault(info: zipfile.ZipInfo, is_folder: bool) -> str | None:
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        # bzip2 and LZMA are unpacked by zipfile without a bound on the memory
        return f"compressed by method {info.compress_type}, neither stored nor deflated"
    kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archive was not made on Unix
    if kind in {0, stat.S_IFDIR if is_folder else stat.S_IFREG}:
        return None
    return _KINDS.get(kind, f"of Unix file type {kind:o}")


def _tar_stream(raw: io.FileIO, head: bytes) -> io.RawIOBase | io.BufferedIOBase | None:
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    # xz is left out: an archive says itself how many gigabytes its dictionary takes.
    return raw if head.endswith(b"ustar") else None


def _tar_members(stream: _Bounded) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for info in tar:
            yield Member(
                info.name,
                info.isdir(),
                _tar_fault(info),
                info.size,
                cast(Callable[[], IO[bytes]], partial(tar.extractfile, info)),
            )
        # tarfile takes a damaged or a missing header for the end; zeros are.
        if stream.last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end mark where the members end")
        if stream.read().strip(b"\0"):  # also reads what the decompressor's checksum stands behind
            raise tarfile.ReadError("data after the end mark")


def _tar_fault(info: tarfile.TarInfo) -> str | None:
    if info.size < 0:
        return f"of {info.size} bytes"
    if info.issym():
        return "a symbolic link"
    if info.islnk():
        return "a hard link"
    if info.isdev():
        return "a pipe" if info.isfifo() else "a device"
    if info.isdir() or (info.isreg() and not info.issparse()):
        return None
    return f"of tar type {info.type!r}"
