"""The contract of a label format: what a file of labels says, whoever wrote it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal

import pandas as pd

from plmcl.data.manifest import Unlisted, no_cells
from plmcl.errors import PlmclError


@dataclass(frozen=True)
class Options:
    """What a user must or may say of a format.

    Attributes:
        minus_one: What the value -1 means; it is refused until somebody says so, because data
            sets use it for "absent" and for "not annotated" alike.
        crowd: Whether a label that only crowd regions (COCO's iscrowd) give counts.
        difficult: Whether a label that only difficult objects (VOC) give is absent, as the
            published lists have it, or unknown.
    """

    minus_one: Literal["refuse", "negative", "unknown"] = "refuse"
    crowd: Literal["keep", "drop"] = "keep"
    difficult: Literal["negative", "ignore"] = "negative"


@dataclass(frozen=True)
class LabelFile:
    """What a file, or a folder of files, says.

    Attributes:
        labels: `schemas.Labels`, sorted.
        named: Image ids that it speaks of, also without a label.
        absent: Names of images in it that are not among the files, in its order.
        label_names: The labels in the order that it declares; None if it declares none.
        splits: Split ("train", "val" or "test") of the images that it gives one.
        unlisted: What no row means for a named image, if the format itself says it of every
            cell; None: the user says it.
        unknown: Cells (`image_id`, `label`) that it calls unknown, whatever `unlisted` is.
        difficult: Columns `image_id` and `label`.
        notes: What was counted on the way, in words, with its number.
        files: The files that were read.
    """

    labels: pd.DataFrame
    named: frozenset[str]
    absent: list[str] = field(default_factory=list)
    label_names: list[str] | None = None
    splits: dict[str, str] = field(default_factory=dict)
    unlisted: Unlisted | None = None
    unknown: pd.DataFrame = field(default_factory=no_cells)
    difficult: pd.DataFrame = field(default_factory=no_cells)
    notes: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)


class ImageIndex:
    """The images that exist, found by the names that label files use.

    Args:
        files: Image ids, as `list_images` gives them.
    """

    def __init__(self, files: list[str]) -> None:
        self._files = frozenset(files)

    def find(self, name: str, where: str) -> str | None:
        """The image of this path below the folder of images; None if it is not there.

        Args:
            name: As the label file has it.
            where: Place in the label file, for messages.

        Raises:
            PlmclError: The path is empty, absolute or leads out of the folder.
        """
        if name in self._files:
            return name
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise PlmclError(f"{where}: {name!r} must be a path below the folder of images")
        return str(path) if str(path) in self._files else None

    def find_name(self, name: str, where: str) -> str | None:
        """The image that a path on another machine means; None if there is none.

        The file name, with or without its suffix, is that of the image; folders may stand
        before it on one side or on both, and those that both sides have are the same. So
        `/home/me/set/train/1.jpg` is `train/1.jpg` or `1.jpg` here, and never `val/1.jpg`.

        Args:
            name: As the label file has it.
            where: Place in the label file, for messages.

        Raises:
            PlmclError: The name is empty, or means more than one image.
        """
        if name in self._files:
            return name
        *folders, last = re.split(r"[/\\]+", name)
        if not last:
            raise PlmclError(f"{where}: {name!r} must name an image")
        ends = self._ends if last in self._ends else self._ends_without_suffix
        end, found = last, ends.get(f"/{last}", [])
        for folder in reversed(folders):
            end = f"{folder}/{end}"
            if end not in ends:
                break
            found = ends.get(f"/{end}", found)
        else:
            found = ends.get(end, found)
        if len(found) > 1:
            raise PlmclError(f"{where}: {name!r} may be any of {len(found)} images: {found[:3]}")
        return found[0] if found else None

    @cached_property
    def _ends(self) -> dict[str, list[str]]:
        return _by_end((file, file) for file in sorted(self._files))

    @cached_property
    def _ends_without_suffix(self) -> dict[str, list[str]]:
        return _by_end((_without_suffix(file), file) for file in sorted(self._files))


def _by_end(paths: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    # from "1.jpg", "train/1.jpg" and so on to the files that end so; "/train/1.jpg" is a whole path
    by_end: dict[str, list[str]] = {}
    for path, file in paths:
        end = f"/{path}"
        by_end.setdefault(end, []).append(file)
        while "/" in end:
            end = end.partition("/")[2]
            by_end.setdefault(end, []).append(file)
    return by_end


def _without_suffix(file: str) -> str:
    folder, slash, name = file.rpartition("/")
    return folder + slash + (name.rpartition(".")[0] or name)
