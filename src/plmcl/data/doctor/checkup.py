"""A folder's checkup: every file with one status, what is there twice, and the bad ones aside."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.doctor.near_duplicates import near_duplicates
from plmcl.data.images import Recipe
from plmcl.data.listing import list_files
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
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
        alike: Pairs of usable images that look alike: `path`, `other_path`, `distance`.
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
    content = examined["sha256"].iloc[usable]
    first = usable[positions(content, content)]
    later = first != usable
    examined.loc[usable[later], "status"] = "duplicate"
    names = examined["path"].iloc[first[later]]
    examined.loc[usable[later], "reason"] = [f"same bytes as {name}" for name in names]
    return examined


def _alike(files: pd.DataFrame) -> pd.DataFrame:
    images = files[files["status"].isin(USABLE) & (files["dhash"] != "")]
    first, second, distance = near_duplicates(images["dhash"].tolist()).T
    paths = images["path"].to_numpy(dtype=object)
    return pd.DataFrame(
        {"path": paths[first], "other_path": paths[second], "distance": distance}
    ).sort_values("distance", kind="stable", ignore_index=True)


def quarantine(checkup: Checkup, target: Path) -> int:
    """Move the files that were set aside to `target`, each to the same path below it.

    quarantine.csv there names them, and is written first: whoever wants them back finds them.
    Duplicates stay, since training uses one of them anyway.

    Returns:
        The number of files moved.

    Raises:
        PlmclError: `target` lies in the folder, holds something, or a file cannot be moved.
    """
    if target.resolve().is_relative_to(checkup.folder.resolve()):
        raise PlmclError(f"{target}: lies in {checkup.folder}; choose a folder outside of it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PlmclError(f"{target}: is not an empty folder")
    files = checkup.set_aside
    # A name that is not UTF-8 is shown escaped, so the file cannot be found by it.
    files = files[~files["status"].isin(["duplicate", "unreadable_name"])]
    target.mkdir(parents=True, exist_ok=True)
    columns = ["path", "status", "reason", "sha256"]
    files[columns].to_csv(target / "quarantine.csv", index=False, lineterminator="\n")
    for path in files["path"]:
        moved = target / path
        moved.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.move(checkup.folder / path, moved)
        except OSError as error:
            raise PlmclError(f"{checkup.folder / path}: cannot be moved: {error}") from None
    return len(files)
