"""The contract of a label format: what a file of labels says, whoever wrote it."""

import re
from collections.abc import Sequence
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
        alike = [file for file in self._by_stem.get(_stem(last), []) if _parts(file)[-1] == last]
        shared = {
            file: _shared(folders, _parts(file)[:-1])
            for file in alike or self._by_stem.get(last, [])
        }
        most = max(shared.values(), default=-1)
        found = [file for file, number in shared.items() if number == most >= 0]
        if len(found) > 1:
            raise PlmclError(f"{where}: {name!r} may be any of {len(found)} images: {found[:3]}")
        return found[0] if found else None

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        by_stem: dict[str, list[str]] = {}
        for file in sorted(self._files):
            by_stem.setdefault(_stem(_parts(file)[-1]), []).append(file)
        return by_stem


def _parts(file: str) -> list[str]:
    return file.split("/")


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _shared(folders: Sequence[str], others: Sequence[str]) -> int:
    # number of folders that both have, from the file upwards; -1 if they differ
    pairs = list(zip(reversed(folders), reversed(others), strict=False))
    return len(pairs) if all(folder == other for folder, other in pairs) else -1
