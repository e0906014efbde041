"""NUS-WIDE, photographs from Flickr with 81 concepts as labels."""

import os
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from plmcl.data.downloads import Remote
from plmcl.data.filling import copy_file, filling
from plmcl.data.formats.base import ImageIndex
from plmcl.data.listing import SUFFIXES, list_files
from plmcl.data.sources.nuswide.lists import ARRAYS, has_lists, map_array, read_lists
from plmcl.data.sources.official import (
    Official,
    beside,
    fetch_beside,
    folders,
    refuse_outside,
)
from plmcl.data.sources.published import Find, Part, Published
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

IMAGES_ARCHIVE = "Flickr.zip"
LISTS_ADDRESS = "https://zenodo.org/records/10162606/files"


class NusWide(Official):
    """The lists published for single positive labels, or those of the classic package.

    Images are found by path, else by file name, in any case: copies of NUS-WIDE differ in both.

    Attributes:
        without_positive: What happens to images without a positive, a fifth of all. `keep` is the
            published protocol: they are never labeled, and are negatives in the test.
    """

    without_positive: Literal["keep", "drop"]

    layout: ClassVar[str] = "lists and unpacked images of NUS-WIDE"

    def find(self, folder: Path) -> Path | None:
        """The folder itself, if lists and images are anywhere in it."""
        complete = not (folder / IMAGES_ARCHIVE).exists() and _has_image(folder)
        return folder if complete and has_lists(folder) else None

    def read(self, base: Path) -> Published:
        """Read the lists.

        Raises:
            PlmclError: See `read_lists`.
        """
        said = read_lists(base)
        without = {
            split: np.asarray(~part.present.any(axis=1)) for split, part in said.parts.items()
        }
        parts, totals = said.parts, said.totals
        if self.without_positive == "drop":
            parts = {split: _without(part, without[split]) for split, part in parts.items()}
            totals = {}
        return Published(
            images=_images_folder(base),
            label_names=said.label_names,
            parts=parts,
            files=said.files,
            totals=totals,
            notes={
                f"images without a positive (without_positive: {self.without_positive})": sum(
                    int(rows.sum()) for rows in without.values()
                )
            },
        )

    def make_find(self, files: list[str]) -> Find:
        """By path, by path in any case, by file name in any case."""
        exact, folded = ImageIndex(files), ImageIndex([file.casefold() for file in files])
        by_path: dict[str, list[str]] = {}
        by_name: dict[str, list[str]] = {}
        for file in files:
            by_path.setdefault(file.casefold(), []).append(file)
            by_name.setdefault(_last(file).casefold(), []).append(file)

        def find(name: str, where: str) -> str | None:
            found = exact.find(name, where)
            if found is not None:
                return found
            path = folded.find_name(name.casefold(), where)
            alike = by_name.get(_last(name).casefold(), []) if path is None else by_path[path]
            if len(alike) > 1:
                raise PlmclError(f"{where}: {name!r} may be any of {len(alike)}: {alike[:3]}")
            return alike[0] if alike else None

        return find

    def archives(self) -> list[Remote]:
        """The published lists; no checksum of theirs is known."""
        return [
            self.remote(name, f"{LISTS_ADDRESS}/{name}", size=None, md5=None)
            for names in ARRAYS.values()
            for name in names
        ]

    def wanted(self, member: str) -> bool:
        """The images."""
        return PurePosixPath(member).suffix.lower() in SUFFIXES

    def unpack(self, path: Path, raw: Path, progress: ProgressCallback | None) -> None:
        """Take the images, unpacked or not, from `path`, and the lists from there or the web."""
        zipped = path / IMAGES_ARCHIVE
        if not zipped.is_file() and not _has_image(path):
            raise PlmclError(
                f"{path}: no images of NUS-WIDE, and they cannot be downloaded: ask the National "
                f"University of Singapore for {IMAGES_ARCHIVE} and put it, or the folder Flickr "
                "out of it, into that folder"
            )
        lists = read_lists(path).files if has_lists(path) else self._fetch(path, raw, progress)
        own = [file for file in lists if file.is_relative_to(path)]
        refuse_outside(path, [_images_folder(path), zipped, *own])
        with filling(raw) as partial:
            for file in lists:
                copy_file(file, partial / file.name)
            if zipped.is_file():
                self.extract_into(partial, zipped, progress)
            else:
                for name in list_files(path).files:
                    copy_file(path / name, partial / name)
            self.annotations_of(partial, beside(raw, "missing.txt"))

    def _fetch(self, path: Path, raw: Path, progress: ProgressCallback | None) -> list[Path]:
        try:
            return [_fetch_array(remote, raw, progress) for remote in self.archives()]
        except PlmclError as error:
            raise PlmclError(
                f"{error}; the lists of record 10162606 of Zenodo may also be put into {path}, "
                f"under the names {', '.join(name for names in ARRAYS.values() for name in names)}"
            ) from None


def _fetch_array(remote: Remote, raw: Path, progress: ProgressCallback | None) -> Path:
    path = fetch_beside(remote, raw, progress)
    try:
        map_array(path)
    except PlmclError as error:
        path.unlink()  # without a checksum it would be taken for the right one for ever
        raise PlmclError(f"{error}; it was fetched, and is removed") from None
    return path


def _without(part: Part, rows: npt.NDArray[np.bool_]) -> Part:
    names = [name for name, out in zip(part.names, rows, strict=True) if not out]
    return Part(names, part.present[~rows])


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _images_folder(base: Path) -> Path:
    named = (place for place in folders(base) if place.name.casefold() in {"flickr", "images"})
    found = next(named, base)
    if found != base:
        for other in folders(found.parent, depth=1):
            if other != found and str(other).casefold() == str(found).casefold():
                raise PlmclError(f"{found} and {other}: either may be the folder of images")
    return found


def _has_image(folder: Path) -> bool:
    names = (name for _, _, names in os.walk(_images_folder(folder)) for name in names)
    return any(PurePosixPath(name).suffix.lower() in SUFFIXES for name in names)


SOURCE = NusWide
