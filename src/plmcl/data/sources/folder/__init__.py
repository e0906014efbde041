"""A folder of somebody's own images, labeled by a file, by many files, or by its sub-folders."""

import difflib
import logging
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import pandas as pd
from pydantic import AfterValidator, Field

from plmcl.data.filling import copy_file, filling
from plmcl.data.formats import format_names, read_labels
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import read_name_list
from plmcl.data.listing import counts, first_five, list_images
from plmcl.data.manifest import Unlisted
from plmcl.data.sources.base import Annotations, Source
from plmcl.data.sources.folder.absences import with_absences
from plmcl.data.sources.folder.tags import read_tags
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

logger = logging.getLogger(__name__)


def _inside(path: str) -> str:
    if ".." in PurePosixPath(path).parts:
        raise ValueError("must be below data.path")
    return path


def _below(path: str) -> str:
    if PurePosixPath(path).is_absolute():
        raise ValueError("must be below data.path")
    return _inside(path)


def _known_format(name: str) -> str:
    if name not in ("auto", *format_names()):
        raise ValueError(f"must be auto or one of {', '.join(format_names())}")
    return name


class Folder(Source):
    """Images and labels as they lie on a disk.

    Attributes:
        images: Folder of images, below data.path ("." for data.path itself).
        labels: A file, or a folder of files, of labels (`plmcl.data.formats`), below data.path
            or absolute; None for one sub-folder a tag: an image's tag is the first folder on
            its path, and an image in none is unlabeled.
        format: Of the labels; "auto" for the one that their names and first bytes tell.
        label_names: A file below data.path with all labels in the order of the model's outputs,
            one a line or a JSON list; None for the order that the labels declare, or else by
            code point.
        unlisted: What a label that is not given means, for an image that the labels name (also
            without a label). Other images are the unlabeled pool: nothing is known of them. Of
            no effect where the format itself speaks of every label (a column each).
        minus_one: See `Options`, as the two below.
        crowd: COCO's crowd regions.
        difficult: VOC's difficult objects.
        missing: Share of the images that the labels name which need not be there.
    """

    images: Annotated[str, AfterValidator(_below)]
    labels: Annotated[str, AfterValidator(_inside)] | None
    format: Annotated[str, AfterValidator(_known_format)]
    label_names: Annotated[str, AfterValidator(_below)] | None
    unlisted: Unlisted
    minus_one: Literal["refuse", "negative", "unknown"]
    crowd: Literal["keep", "drop"]
    difficult: Literal["negative", "ignore"]
    missing: Annotated[float, Field(ge=0, le=1)]

    def download(
        self, path: Path, raw: Path, *, seed: int, progress: ProgressCallback | None = None
    ) -> None:
        """Copy the images and the files of labels, each to its place below `raw`.

        Raises:
            PlmclError: See `annotations`; or a file of labels is not below `path`, or copying
                fails.
        """
        if self.labels is not None and PurePosixPath(self.labels).is_absolute():
            raise PlmclError(
                f"sources.folder.labels: must be a path below data.path ({path}) to be copied "
                f"with it, found {self.labels!r}"
            )
        found, read = self._survey(path)  # whatever is wrong is said before anything is copied
        for file in read:
            if not file.resolve().is_relative_to(path.resolve()):
                raise PlmclError(f"{file}: must be below data.path ({path}) to be copied with it")
        with filling(raw) as partial:
            for done, name in enumerate(found.files, start=1):
                copy_file(path / self.images / name, partial / self.images / name)
                if progress is not None:
                    progress(done, len(found.files))
            for file in read:
                copy_file(file, partial / file.relative_to(path))
        logger.info("copied %d images from %s", len(found.files), path)
        if found.passed_over:  # the copy does not show it any more
            logger.warning("passed over in %s: %s", path, counts(found.passed_over))

    def annotations(self, raw: Path) -> Annotations:
        """Read names and labels of a folder laid out as data.path is; opens no image.

        Raises:
            PlmclError: There is no image or no label, a folder that should be a tag holds no
                image, a file of labels breaks a rule, or too many images are missing.
        """
        return self._survey(raw)[0]

    def _survey(self, raw: Path) -> tuple[Annotations, list[Path]]:
        # the annotations, and the files that they were read from
        root = raw / self.images
        files, passed_over = list_images(root)
        if self.labels is None:
            given = root
            found = read_tags(root, files)
            advice = "put them in one folder a tag, or say where labels are (sources.folder.labels)"
        else:
            given = raw / self.labels
            options = Options(self.minus_one, self.crowd, self.difficult)
            found = read_labels(given, ImageIndex(files), options, format=self.format)
            advice = f"give some of them labels in {given}"
            if len(found.difficult):
                advice += f", which has {len(found.difficult)} of difficult objects only"
        notes = found.notes | self._count_missing(found, given, root)
        if not (found.labels["value"] == 1).any():
            raise PlmclError(f"{root}: none of the {len(files)} images has a label; {advice}")
        read = list(found.files)
        if self.label_names is not None:
            read.append(raw / self.label_names)
        label_names = self._order(found, given, raw)
        labels, unlisted = found.labels, found.unlisted or self.unlisted
        if unlisted == "negative" and (len(found.named) < len(files) or len(found.unknown)):
            # What is absent must be said: beside images of which all labels are known there is a
            # pool of which none is, or an image of which some are not.
            labels, unlisted = with_absences(found, label_names), "unknown"
        below = {file.relative_to(root).as_posix() for file in read if file.is_relative_to(root)}
        annotations = Annotations(
            root=self.images,
            files=files,
            splits=found.splits,
            labels=labels,
            label_names=label_names,
            unlisted=unlisted,
            passed_over=[entry for entry in passed_over if entry.path not in below],
            difficult=found.difficult,
            notes=notes,
        )
        return annotations, read

    def _count_missing(self, found: LabelFile, given: Path, root: Path) -> dict[str, int]:
        absent, total = len(found.absent), len(found.absent) + len(found.named)
        if not absent:
            return {}
        counted = (
            f"{given}: {total - absent} of {total} images found in {root}; not there: "
            f"{first_five(found.absent)}"
        )
        if absent > self.missing * total:
            raise PlmclError(
                f"{counted}; names are paths below that folder (sources.folder.missing says how "
                "many need not be there)"
            )
        logger.warning(counted)
        return {"images that the labels name and that are not there": absent}

    def _order(self, found: LabelFile, given: Path, raw: Path) -> list[str]:
        labels = pd.concat([t["label"] for t in (found.labels, found.unknown, found.difficult)])
        if self.label_names is None:
            return found.label_names or sorted(labels.unique())
        path = raw / self.label_names
        names = read_name_list(path)
        strange = sorted(set(labels.unique()) - set(names))
        if strange:
            close = difflib.get_close_matches(strange[0], names, n=1)
            hint = f"; is {close[0]!r} meant?" if close else ""
            raise PlmclError(
                f"{path}: lacks {len(strange)} labels of {given}: {first_five(strange)}{hint}"
            )
        return names


SOURCE = Folder
