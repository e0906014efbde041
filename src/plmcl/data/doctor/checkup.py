"""A folder's checkup: every file with one status, what is there twice, and the bad ones aside."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.doctor.same import first_with_same_bytes, pairs_that_look_alike
from plmcl.data.images import Recipe
from plmcl.data.listing import PassedOver, list_files
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

# What by its name is no image was never asked for; all else that is not usable is.
BY_NAME = ("hidden", "other_file", "link", "not_a_file")


@dataclass(frozen=True)
class Checkup:
    """What was found in a folder.

    Attributes:
        folder: The folder.
        files: One row a file, sorted by path: `path`, `status`, `reason`, `sha256`, `dhash`,
            `width`, `height`, `bytes`.
        alike: Pairs of usable images that look alike: `first`, `second`, `distance`.
    """

    folder: Path
    files: pd.DataFrame
    alike: pd.DataFrame

    @property
    def usable(self) -> pd.DataFrame:
        """The files that can be trained on and predicted."""
        return self.files[self.files["status"].isin(USABLE)]

    @property
    def set_aside(self) -> pd.DataFrame:
        """The files that should have been images, and cannot be used or are there twice."""
        return self.files[~self.files["status"].isin(USABLE + BY_NAME)]

    @property
    def passed_over(self) -> list[PassedOver]:
        """The files that by their names were never asked for."""
        files = self.files.loc[self.files["status"].isin(BY_NAME), list(PassedOver._fields)]
        return [PassedOver(*file) for file in files.itertuples(index=False, name=None)]


def check_up(
    folder: Path,
    recipe: Recipe,
    *,
    record: Path | None,
    progress: ProgressCallback | None = None,
) -> Checkup:
    """Examine a folder.

    Args:
        folder: Where the images are.
        recipe: Its pixel limit and background apply.
        record: Of earlier examinations; files that have not changed since are not opened.
        progress: Called with (done, total) files.

    Raises:
        PlmclError: There is no such folder.
    """
    if not folder.is_dir():
        raise PlmclError(f"{folder}: not found, or not a folder")
    listing = list_files(folder)
    examined = examine_all(folder, listing.files, recipe, record=record, progress=progress)
    passed_over = pd.DataFrame(listing.passed_over, columns=["path", "status", "reason"])
    passed_over = passed_over.assign(sha256="", dhash="", width=0, height=0, bytes=0)
    files = pd.concat([_name_duplicates(examined), passed_over.astype(examined.dtypes)])
    files = files.sort_values("path", ignore_index=True)
    return Checkup(folder, files, _alike(files))


def _name_duplicates(examined: pd.DataFrame) -> pd.DataFrame:
    usable = np.flatnonzero(examined["status"].isin(USABLE))
    first = first_with_same_bytes(examined["sha256"], usable)
    later = np.flatnonzero(first != np.arange(len(first)))
    examined.loc[later, "status"] = "duplicate"
    names = examined["path"].iloc[first[later]]
    examined.loc[later, "reason"] = [f"same bytes as {name}" for name in names]
    return examined


def _alike(files: pd.DataFrame) -> pd.DataFrame:
    images = files[files["status"].isin(USABLE)]
    pairs = pairs_that_look_alike(images["path"], images["sha256"], images["dhash"])
    return pairs.sort_values("distance", kind="stable", ignore_index=True)


def check_quarantine(folder: Path, target: Path) -> None:
    """Refuse a place that files of a folder cannot be moved to and found again.

    Raises:
        PlmclError: `target` lies in the folder, is a file, or holds something.
    """
    if target.resolve().is_relative_to(folder.resolve()):
        raise PlmclError(f"{target}: lies in {folder}; choose a folder outside of it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PlmclError(f"{target}: is not an empty folder")


def quarantine(checkup: Checkup, target: Path) -> int:
    """Move the files that were set aside to `target`/files, each to the same path below it.

    `target`/quarantine.csv names them, and is written first: whoever wants them back finds them.
    Duplicates stay, since training uses one of them anyway.

    Returns:
        The number of files moved.

    Raises:
        PlmclError: As from `check_quarantine`, or a file cannot be written or moved.
    """
    check_quarantine(checkup.folder, target)
    files = checkup.set_aside
    # A name that is not UTF-8 is shown escaped, so the file cannot be found by it; of a folder that
    # cannot be read ("…/") nobody knows what is in it.
    stays = files["status"].isin(["duplicate", "unreadable_name"]) | files["path"].str.endswith("/")
    files = files[~stays]
    columns = ["path", "status", "reason", "sha256"]
    try:
        (target / "files").mkdir(parents=True)
        files[columns].to_csv(target / "quarantine.csv", index=False, lineterminator="\n")
    except OSError as error:
        raise PlmclError(f"{target}: cannot be written: {error.strerror or error}") from None
    for path in files["path"]:
        moved = target / "files" / path
        try:
            moved.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(checkup.folder / path, moved)
        except OSError as error:
            raise PlmclError(f"{checkup.folder / path}: cannot be moved: {error}") from None
    return len(files)
