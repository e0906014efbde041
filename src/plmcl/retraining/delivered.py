"""What was received, for those who train on it."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.retraining.store import Store


@dataclass(frozen=True)
class Waiting:
    """Accepted images that no model has been trained on.

    Attributes:
        count: Their number.
        oldest: When the first of them arrived, in ms since 1970; 0 if there is none.
    """

    count: int
    oldest: int


def accepted(delivery: pd.DataFrame) -> pd.Series:
    """Which rows of a `schemas.Delivery` are images that can be used: bool (N,)."""
    return delivery["status"].isin(USABLE)


def waiting(store: Path, since: int) -> Waiting:
    """The accepted images of the deliveries above a number."""
    rows = Store(store).read(["status", "arrived"], since)
    arrived = rows.loc[accepted(rows), "arrived"]
    return Waiting(len(arrived), int(arrived.min()) if len(arrived) else 0)


def last_delivery(store: Path) -> int:
    """The number of the last delivery; 0 if there is none."""
    return max(Store(store).numbers(), default=0)


def snapshot(store: Path, target: Path, last: int) -> None:
    """Link, or else copy, the tables and accepted images of deliveries to a new folder.

    Later deliveries do not change it. It is there whole or not at all.

    Args:
        store: Of all deliveries.
        target: To be made.
        last: The number of the last delivery that is taken, from 1.

    Raises:
        PlmclError: The folder exists, a delivery is incomplete, or an image of it is missing.
    """
    kept = Store(store)
    kept.check_complete()
    if target.exists():
        raise PlmclError(f"{target}: exists; a snapshot is never changed")
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    numbers = [number for number in kept.numbers() if number <= last]
    rows = kept.read(["name", "status"])
    rows = rows[accepted(rows) & (rows["number"] <= last)]
    try:
        partial.mkdir(parents=True)
        for number in numbers:
            table = kept.table(number)
            _link(table, partial / table.name)
        for number, name in zip(rows["number"], rows["name"], strict=True):
            image = kept.images(number) / name
            linked = partial / image.relative_to(store)
            if not linked.parent.exists():
                linked.parent.mkdir(parents=True)
            _link(image, linked)
        partial.replace(target)
    except FileNotFoundError as error:
        raise PlmclError(f"{error.filename}: is in a delivery's table, and not there") from None
    except OSError as error:
        raise PlmclError(f"{error.filename or target}: {error.strerror or error}") from None


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
