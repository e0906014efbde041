"""What earlier examinations found, on disk, so that an unchanged file is not opened again."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

logger = logging.getLogger(__name__)

_TEXT = pa.large_string()
SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("path", _TEXT),
            ("bytes", pa.int64()),
            ("mtime_ns", pa.int64()),
            ("status", _TEXT),
            ("reason", _TEXT),
            ("sha256", _TEXT),
            ("dhash", _TEXT),
            ("width", pa.int32()),
            ("height", pa.int32()),
        )
    ]
)
_FACTS = b"plmcl.facts"


class ExaminationRecord:
    """A folder of Parquet files whose rows are findings, each for a path, a size and a time.

    It may be deleted at any time. A file of it that cannot be read is left out, with a warning;
    where none can be written, one warning says so and nothing more is kept.

    Args:
        folder: Made when it is first written to. None: nothing is kept.
        facts: All else that findings depend on; rows that were written under others are left out.
    """

    def __init__(self, folder: Path | None, facts: str) -> None:
        self._folder = folder
        self._schema = SCHEMA.with_metadata({_FACTS: facts.encode()})
        self._files: list[Path] = []
        self._rows = 0  # in these files

    def read(self) -> pa.Table:
        """Rows of `SCHEMA`, the latest first; a path may come more than once."""
        if self._folder is not None:
            try:
                self._files = sorted(self._folder.glob("*.parquet"), reverse=True)
            except OSError as error:
                self._give_up(error)
        tables = [table for path in self._files if (table := self._read(path)) is not None]
        table = pa.concat_tables([self._schema.empty_table(), *tables])
        self._rows = table.num_rows
        return table

    def _read(self, path: Path) -> pa.Table | None:
        try:
            table = pyarrow.parquet.read_table(path)
        except (OSError, pa.ArrowException) as error:
            logger.warning("%s: left out, not readable: %s", path, str(error).splitlines()[0])
            return None
        if not table.schema.equals(SCHEMA):
            logger.warning("%s: left out, its columns are not those of an examination", path)
            return None
        return table if table.schema.metadata == self._schema.metadata else None

    def add(self, table: pa.Table) -> None:
        """Keep rows of `SCHEMA`; they are there for the next process once this returns."""
        if self._folder is None or not table.num_rows:
            return
        path = self._folder / f"{time.time_ns()}-{os.getpid()}.parquet"
        unfinished = path.with_suffix(".tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(table.cast(self._schema), unfinished, compression="zstd")
            unfinished.replace(path)
        except OSError as error:
            self._give_up(error)
        else:
            self._files.append(path)
            self._rows += table.num_rows

    def replace(self, table: pa.Table) -> None:
        """Keep these rows, in one file, instead of all that was read and added."""
        if len(self._files) == 1 and table.num_rows == self._rows:
            return
        old, self._files, self._rows = self._files, [], 0
        self.add(table)
        if self._folder is None:
            return
        for path in old:
            with suppress(OSError):  # it is left out the next time, too, or read twice
                path.unlink()

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or error
        logger.warning("%s: nothing is kept of this examination: %s", self._folder, reason)
        self._folder = None


def find(
    table: pa.Table,
    paths: pa.Array,
    sizes: npt.NDArray[np.int64],
    mtimes_ns: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """For each of N files the row of `table` that is about it as it is now, or -1."""
    found = pc.index_in(paths, value_set=table["path"]).fill_null(-1)
    row: npt.NDArray[np.int64] = found.to_numpy().astype(np.int64)
    known = row >= 0
    at = row[known]
    same = (table["bytes"].to_numpy()[at] == sizes[known]) & (
        table["mtime_ns"].to_numpy()[at] == mtimes_ns[known]
    )
    row[np.flatnonzero(known)[~same]] = -1
    return row
