"""Which files of a folder are images, by name alone, and why each other file is passed over."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from plmcl.errors import PlmclError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"}
)  # fmt: skip


class PassedOver(NamedTuple):
    r"""A file that its name, or what the name stands for, says is no image to be opened.

    Attributes:
        path: Posix path below the folder; bytes that are not UTF-8 are written as \xNN.
        status: hidden, other_file, unreadable_name, outside_root, link or not_a_file; unreadable
            for a folder, of which nothing is known.
        reason: The status in words.
    """

    path: str
    status: str
    reason: str


class Listing(NamedTuple):
    """What lies in a folder; each file is in one of the two lists.

    Attributes:
        files: Images by name: posix paths below the folder, sorted by code point.
        passed_over: All other files, sorted.
    """

    files: list[str]
    passed_over: list[PassedOver]


def list_images(root: Path) -> Listing:
    """Find the image files below a folder, by name alone.

    A link is followed to a file below `root`, never to a folder and never out of it.

    Raises:
        PlmclError: No such folder, or no image in it.
    """
    if not root.is_dir():
        raise PlmclError(f"{root}: not found, or not a folder")
    listing = list_files(root)
    if not listing.files:
        counted = counts(listing.passed_over)
        raise PlmclError(f"no images in {root}; passed over: {counted or 'nothing'}")
    return listing


def list_files(root: Path) -> Listing:
    """As `list_images`, for a folder that exists and may hold no image."""
    files: list[str] = []
    passed_over: list[PassedOver] = []
    for found in find_files(root):
        if isinstance(found, PassedOver):
            passed_over.append(found)
        else:
            files.append(found)
    return Listing(sorted(files), sorted(passed_over))


def find_files(root: Path, *, depth: float = math.inf) -> Iterator[str | PassedOver]:
    """What `list_files` lists, as it is found, in no order; nothing is kept.

    Args:
        root: The folder.
        depth: How many levels; 1: what lies directly in the folder.

    Raises:
        PlmclError: The folder cannot be read.
    """
    inside = root.resolve()
    for path, entry in _walk(root, depth):
        reason = _why_not(path, entry, inside)
        yield path if reason is None else PassedOver(_printable(path), *reason)


def _walk(root: Path, depth: float) -> Iterator[tuple[str, os.DirEntry[str] | OSError]]:
    # (path below the root, entry) of all files, and of links to folders, which are not entered;
    # a folder that cannot be read comes with the reason
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        yield path, entry
                    elif path.count("/") + 1 < depth:
                        waiting.append(f"{path}/")
        except OSError as error:
            if not prefix:
                raise PlmclError(f"{root}: {error.strerror}") from None
            yield prefix, error


def _why_not(path: str, entry: os.DirEntry[str] | OSError, inside: Path) -> tuple[str, str] | None:
    # (status, reason) of a file that is passed over
    if isinstance(entry, OSError):
        return "unreadable", f"a folder that cannot be read: {entry.strerror}"
    if not is_utf8(path):
        return "unreadable_name", "the name is not UTF-8; rename it"
    if path.startswith(".") or "/." in path:  # ._x.jpg and .DS_Store, too
        return "hidden", "hidden"
    if path.startswith("__MACOSX/") or "/__MACOSX/" in path:
        return "hidden", "__MACOSX"
    if entry.is_symlink():
        # Unlike resolve(), this takes a link to itself.
        target = Path(os.path.realpath(entry.path))
        if not target.is_relative_to(inside):
            return "outside_root", "a link that leads out of the folder"
        if not target.exists():
            return "link", "a link to nothing"
        if target.is_dir():
            return "link", "a link to a folder"
    suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 (half of pathlib's time)
    if suffix not in SUFFIXES:
        return "other_file", _why_no_image(entry.name, suffix)
    if not entry.is_file():
        return "not_a_file", "not a regular file"
    return None


def _why_no_image(name: str, suffix: str) -> str:
    if name.casefold() == "thumbs.db":
        return "Thumbs.db"
    if suffix in {".heic", ".heif"}:
        return f"suffix {suffix} (needs another package, pillow-heif: convert to JPEG)"
    return f"suffix {suffix}" if suffix else "no suffix"


def is_utf8(text: str) -> bool:
    """Whether a text can be written down: a name that is no UTF-8 holds lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def counts(passed_over: Iterable[PassedOver]) -> str:
    """Reasons and their numbers, for a message."""
    counted = Counter(file.reason for file in passed_over)
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(counted.items()))


def first_five(names: Sequence[str]) -> str:
    """The first names, for a message."""
    return ", ".join(repr(name) for name in names[:5]) + (", …" if len(names) > 5 else "")
