"""Which files of a folder are images, by name alone, and why the others are passed over."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from plmcl.errors import PlmclError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"}
)  # fmt: skip


def list_images(root: Path) -> tuple[list[str], dict[str, int]]:
    """Find the image files below a folder, by name alone.

    Hidden files, other suffixes and whatever is no regular file are passed over. A link is
    followed to a file below `root`, never to a folder.

    Returns:
        Posix paths below `root`, sorted by code point; and reason -> number of files passed over.

    Raises:
        PlmclError: No such folder, no image in it, or a link that leads outside of it.
    """
    if not root.is_dir():
        raise PlmclError(f"{root}: not found, or not a folder")
    inside = root.resolve()
    files: list[str] = []
    outside: list[str] = []
    ignored: Counter[str] = Counter()
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        for name in [*names, *links]:
            path = Path(folder, name)
            relative = path.relative_to(root)
            reason = _why_not(path, relative)
            if reason:
                ignored[reason] += 1
            elif path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(inside):
                outside.append(relative.as_posix())
            elif not path.is_file():
                ignored["link to a folder" if path.is_dir() else "not a regular file"] += 1
            else:
                files.append(relative.as_posix())
    if outside:
        raise PlmclError(
            f"{root}: {len(outside)} links lead outside of it ({first_five(outside)}); "
            "copy the files into it, or name the folder that holds them"
        )
    if not files:
        raise PlmclError(f"no images in {root}; passed over: {counts(ignored) or 'nothing'}")
    return sorted(files), dict(sorted(ignored.items()))


def _refuse(error: OSError) -> None:
    raise PlmclError(f"{error.filename}: {error.strerror}")


def _why_not(path: Path, relative: Path) -> str:
    try:
        str(relative).encode("utf-8")
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if any(part.startswith(".") for part in relative.parts):  # ._x.jpg and .DS_Store, too
        return "hidden"
    if "__MACOSX" in relative.parts:
        return "__MACOSX"
    if path.name.casefold() == "thumbs.db":
        return "Thumbs.db"
    if path.is_dir():
        return ""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        if suffix in {".heic", ".heif"}:
            return f"suffix {suffix} (needs another package, pillow-heif: convert to JPEG)"
        return f"suffix {suffix}" if suffix else "no suffix"
    return ""


def counts(ignored: Mapping[str, int]) -> str:
    """Reasons and their numbers, for a message."""
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(ignored.items()))


def first_five(names: Sequence[str]) -> str:
    """The first names, for a message."""
    return ", ".join(repr(name) for name in names[:5]) + (", …" if len(names) > 5 else "")
