"""The deliveries that were received: a table each, then its files; killed anywhere, it goes on.

    0001.parquet           one row a file (`schemas.Delivery`): with it, the delivery is received
    0001/<name>            its accepted images
    0001-quarantine/<name> its files that cannot be used
    0001-labels.csv        the tag file that came with it
    moving.json            there while files are being moved: which delivery, and from where
    .partial               what is being written or fetched

Files come after their table, so what was interrupted is known and is finished at the next start.
A delivery that is complete is never changed again.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from plmcl.data.statuses import USABLE
from plmcl.durable import copy, sync
from plmcl.errors import PlmclError
from plmcl.retraining.tags import TAG_FILE
from plmcl.schemas import Delivery, read_table, write_table
from plmcl.violations import Violations


@dataclass(frozen=True)
class Moving:
    """A delivery whose files are being moved.

    Attributes:
        number: Of the delivery.
        source: Folder that its files come from; "" = they were fetched into the store.
        tags_sha256: Of its tag file as it was read; "" = there is none.
    """

    number: int
    source: str
    tags_sha256: str


class Store:
    """A folder of deliveries; one process at a time writes to it.

    Args:
        folder: Made when the first delivery is received.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._moving = folder / "moving.json"
        self._partial = folder / ".partial"
        self.fetched = self._partial / "fetched"

    def numbers(self) -> list[int]:
        """Of the deliveries, in order."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []  # noqa: PTH208
        return sorted(int(name[:-8]) for name in names if re.fullmatch(r"\d{4,}\.parquet", name))

    @property
    def next_number(self) -> int:
        """Of the next delivery."""
        return max(self.numbers(), default=0) + 1

    def table(self, number: int) -> Path:
        """Where a delivery's table is."""
        return self.folder / f"{number:04d}.parquet"

    def images(self, number: int) -> Path:
        """Where the accepted images of a delivery are."""
        return self.folder / f"{number:04d}"

    def _quarantine(self, number: int) -> Path:
        return self.folder / f"{number:04d}-quarantine"

    def _tags(self, number: int) -> Path:
        return self.folder / f"{number:04d}-labels.csv"

    def read(self, columns: Sequence[str], since: int = 0) -> pd.DataFrame:
        """Some columns of all deliveries above a number, after the column `number` (int32).

        Raises:
            PlmclError: A table cannot be read.
        """
        empty: pd.DataFrame = Delivery.empty()
        tables = [empty[list(columns)].assign(number=np.int32())]
        for number in self.numbers():
            if number > since:
                table = read_columns(self.table(number), columns)
                tables.append(table.assign(number=np.int32(number)))
        return pd.concat(tables, ignore_index=True)[["number", *columns]]

    def check_complete(self) -> None:
        """Refuse to read while files are still being moved.

        Raises:
            PlmclError: A delivery is incomplete.
        """
        moving = self._read_moving()
        if moving is not None and self.table(moving.number).exists():
            raise PlmclError(
                f"{self._moving}: delivery {moving.number} is not complete; receive finishes it"
            )

    def receive(self, delivery: pd.DataFrame, source: Path | None, tags_sha256: str) -> int:
        """Receive a delivery: write its table; `finish` moves its files. The number that it got.

        Args:
            delivery: `schemas.Delivery`; other columns are left out.
            source: Folder that the files are in. None: they are below `fetched`.
            tags_sha256: As in `Moving`.

        Raises:
            PlmclError: The table breaks a rule; nothing was moved.
        """
        number = self.next_number
        delivery = delivery[list(Delivery.to_schema().columns)]
        violations = Violations(f"delivery {number}")
        violations.check_schema("delivery", delivery, Delivery)
        violations.raise_if_any()
        self._partial.mkdir(parents=True, exist_ok=True)
        where = "" if source is None else str(source.absolute())
        moving = self._partial / "moving.json"
        text = json.dumps(asdict(Moving(number, where, tags_sha256)))
        moving.write_text(text + "\n", encoding="utf-8")
        self._place(moving, self._moving)
        self._write_table(delivery, number)
        return number

    def finish(self) -> list[str]:
        """Finish moving what an earlier process left, and clear away what it had begun.

        A file that is no longer what the table says is not taken for it: it stays where it is, for
        the next delivery, and its row goes.

        Returns:
            Names of the delivery whose files were no longer there.
        """
        moving = self._read_moving()
        gone: list[str] = []
        if moving is not None:
            if self.table(moving.number).exists():
                gone = self._move(moving)
            self._moving.unlink()
            sync(self.folder)
        if self._partial.exists():
            shutil.rmtree(self._partial)
        return gone

    def _move(self, moving: Moving) -> list[str]:
        number = moving.number
        source = Path(moving.source) if moving.source else self.fetched
        table = read_table(self.table(number), Delivery)
        duplicate = (table["status"] == "duplicate").to_numpy()
        usable = table["status"].isin(USABLE).to_numpy()
        gone = np.zeros(len(table), dtype=bool)
        folders = {self.folder}
        for row, name, sha256, size in _files(table[~duplicate]):
            place = (self.images(number) if usable[row] else self._quarantine(number)) / name
            gone[row] = not self._take(source / name, place, sha256, size)
            folders.add(place.parent)
        # What has the bytes of a file that is gone is the only one that has them now.
        gone |= duplicate & table["sha256"].isin(table["sha256"][gone & usable]).to_numpy()
        self._sync(folders)
        for _, name, sha256, size in _files(table[duplicate & ~gone]):
            if _is(source / name, sha256, size):
                (source / name).unlink()
        if moving.tags_sha256:
            self._take(source / TAG_FILE, self._tags(number), moving.tags_sha256, size=0)
        if gone.any():
            self._write_table(table[~gone].reset_index(drop=True), number)
        return list(table["name"][gone])

    def _sync(self, folders: set[Path]) -> None:
        # the names in them, and their own in the folders that they are in
        above = {parent for folder in folders for parent in folder.parents}
        for folder in folders | {parent for parent in above if parent.is_relative_to(self.folder)}:
            if folder.is_dir():
                sync(folder)

    def _take(self, source: Path, target: Path, sha256: str, size: int) -> bool:
        # whether the file that the table speaks of is at its place now
        is_there = _is(source, sha256, size)
        if target.exists():
            if is_there:  # it was copied, and the process ended before it could remove it
                source.unlink()
            return True
        if not is_there:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        status = source.lstat()
        # What has another name, too, is somebody else's to write to.
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            try:
                source.replace(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return True
        self._partial.mkdir(exist_ok=True)
        copied = self._partial / "copied"
        copy(source, copied)
        self._place(copied, target)
        source.unlink()
        return True

    def _write_table(self, delivery: pd.DataFrame, number: int) -> None:
        self._partial.mkdir(exist_ok=True)
        written = self._partial / "table.parquet"
        write_table(delivery, written)
        self._place(written, self.table(number))

    def _place(self, written: Path, target: Path) -> None:
        # at once, and whole
        sync(written)
        written.replace(target)
        sync(target.parent)

    def _read_moving(self) -> Moving | None:
        try:
            return Moving(**json.loads(self._moving.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise PlmclError(f"{self._moving}: not what was written there: {error}") from None


def read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of a table that this project wrote.

    Raises:
        PlmclError: It cannot be read.
    """
    try:
        table = pyarrow.parquet.read_table(path, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise PlmclError(f"{path}: not a readable Parquet file: {reason}") from None
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _is(path: Path, sha256: str, size: int) -> bool:
    # a file that could not be read has no hash, and is known by its size
    try:
        if not sha256:
            return path.stat().st_size == size
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _files(table: pd.DataFrame) -> Iterator[tuple[int, str, str, int]]:
    # row, name, sha256 and bytes of each
    return zip(table.index, table["name"], table["sha256"], table["bytes"], strict=True)
