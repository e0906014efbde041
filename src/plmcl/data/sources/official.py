"""A published data set, taken from the user's copy of it or from its official place."""

import logging
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from plmcl.data.archives import Limits, extract
from plmcl.data.downloads import Remote, fetch
from plmcl.data.filling import copy_file, filling
from plmcl.data.formats.base import ImageIndex
from plmcl.data.sources.base import Annotations, Source
from plmcl.data.sources.published import Find, Published, annotate
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

logger = logging.getLogger(__name__)

# Of one archive: NUS-WIDE has 269,648 images, COCO 19 GB in one file, its largest text 450 MB.
LIMITS = Limits(max_files=400_000, max_bytes=100_000_000_000, max_file_bytes=1_000_000_000)


class Official(Source):
    """A data set with published lists of images for training and for the test.

    Attributes:
        mirrors: Addresses of folders that hold the official archives, tried after their own.
        missing: Share of the listed images that may be absent.
    """

    mirrors: tuple[Annotated[str, Field(pattern="^https?://")], ...]
    missing: Annotated[float, Field(ge=0, le=1)]

    layout: ClassVar[str]  # what `find` looks for, in words

    @abstractmethod
    def find(self, folder: Path) -> Path | None:
        """Where the official layout begins, `folder` or a folder in it; None if it is not there."""

    @abstractmethod
    def read(self, base: Path) -> Published:
        """Read the label files of what `find` found."""

    @abstractmethod
    def archives(self) -> list[Remote]:
        """The official archives."""

    @abstractmethod
    def wanted(self, member: str) -> bool:
        """Whether this member of an archive is needed."""

    def make_find(self, files: list[str]) -> Find:
        """How a listed name is found among the images that exist."""
        return ImageIndex(files).find

    def remote(self, name: str, *urls: str, size: int | None, md5: str | None) -> Remote:
        """An archive at its official addresses and in the mirrors."""
        mirrored = (f"{mirror.rstrip('/')}/{name}" for mirror in self.mirrors)
        return Remote(name, (*urls, *mirrored), size=size, md5=md5)

    def download(
        self, path: Path, raw: Path, *, seed: int, progress: ProgressCallback | None = None
    ) -> None:
        """Take the data set from `path`, or unpack its archives from there or from their place.

        Of a folder in the official layout the listed images and the lists are copied: what happens
        to a link in `raw` would happen to the user's own file.
        Archives that are fetched stay beside `raw`, in `<raw>.archives`: an interrupted download
        goes on, and a second one fetches nothing.

        Raises:
            PlmclError: `path` is no folder; see `annotations`; or an archive cannot be had, or is
                not what it should be.
        """
        if not path.is_dir():
            raise PlmclError(
                f"{path}: not found, or not a folder; let data.path name a folder, an empty one to "
                "have everything fetched"
            )
        if self.find(path) is None:
            logger.info("%s: no %s in it; looking for the archives", path, self.layout)
            self.unpack(path, raw, progress)
        else:
            self.take(path, raw, progress)

    def annotations(self, raw: Path) -> Annotations:
        """Read the published lists and look for their images, of which none is opened.

        The names of missing images are written to a file beside `raw`, `<raw>.missing.txt`.

        Raises:
            PlmclError: The layout is not there, a file breaks a rule, or more images are missing
                than may be.
        """
        return self.annotations_of(raw, beside(raw, "missing.txt"))

    def annotations_of(self, folder: Path, report: Path) -> Annotations:
        """As `annotations`, with another place for the names of missing images."""
        return self._annotate(self._published(folder), folder, report)

    def take(self, path: Path, raw: Path, progress: ProgressCallback | None) -> None:
        """Take the data set out of a folder in the official layout."""
        said = self._published(path)
        refuse_outside(path, [said.images, *said.files])
        found = self._annotate(said, path, beside(raw, "missing.txt"))
        with filling(raw) as partial:
            for file in said.files:
                copy_file(file, partial / file.relative_to(path))
            for done, image_id in enumerate(found.files, start=1):
                copy_file(said.images / image_id, partial / found.root / image_id)
                if progress is not None:
                    progress(done, len(found.files))
        for what, count in found.notes.items():
            logger.warning("%s: %s: %d", path, what, count)

    def unpack(self, path: Path, raw: Path, progress: ProgressCallback | None) -> None:
        """Unpack the archives, each out of `path` if it is there, else out of what is fetched."""
        archives = []
        for remote in self.archives():
            own = path / remote.name
            if own.is_file():
                refuse_outside(path, [own])
                logger.info("%s: taken as it is, whatever its checksum", own)
                archives.append(own)
            else:
                archives.append(fetch_beside(remote, raw, progress))
        with filling(raw) as partial:
            for archive in archives:
                self.extract_into(partial, archive, progress)
            # Whatever is wrong is said before the folder gets its name.
            self.annotations_of(partial, beside(raw, "missing.txt"))

    def extract_into(self, folder: Path, archive: Path, progress: ProgressCallback | None) -> None:
        """Add what is needed of an archive to a folder that others may have filled before."""
        fresh = folder / ".unpacked"
        names = extract(archive, fresh, wanted=self.wanted, limits=LIMITS, progress=progress)
        for name in names:
            target = folder / name
            if target.exists():
                raise PlmclError(f"{archive}: {name} is in another archive, too")
            target.parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).rename(target)
        shutil.rmtree(fresh)

    def _published(self, folder: Path) -> Published:
        base = self.find(folder)
        if base is None:
            raise PlmclError(f"{folder}: no {self.layout} in it; run the download stage")
        return self.read(base)

    def _annotate(self, said: Published, folder: Path, report: Path) -> Annotations:
        return annotate(said, folder, self.make_find, missing=self.missing, report=report)


def beside(raw: Path, suffix: str) -> Path:
    """A place next to the folder of a source, for what is no part of its data."""
    return raw.with_name(f"{raw.name}.{suffix}")


def fetch_beside(remote: Remote, raw: Path, progress: ProgressCallback | None) -> Path:
    """Fetch into the folder next to `raw` that outlives an interrupted download."""
    return fetch(remote, beside(raw, "archives"), progress=progress)


def folders(root: Path, depth: int = 2) -> Iterator[Path]:
    """`root` and the folders in it that are not hidden, the nearest first, to some depth."""
    level = [root] if root.is_dir() else []
    for _ in range(depth + 1):
        yield from level
        level = [
            Path(entry.path)
            for folder in level
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)
            if entry.is_dir() and not entry.name.startswith(".")
        ]


def refuse_outside(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse paths that are not in `folder`, or lead out of it through a link."""
    inside = folder.resolve()
    for path in paths:
        if not path.resolve().is_relative_to(inside):
            raise PlmclError(
                f"{path}: lies outside {folder}, or is a link out of it; name the folder that "
                "holds everything in data.path"
            )
