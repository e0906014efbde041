"""Every file gets exactly one status and a reason; nothing is changed, moved or deleted."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import PIL
import pyarrow as pa
import pyarrow.compute as pc

from plmcl.data.decoding.problems import NO_MEMORY
from plmcl.data.doctor.finding import RULES, Finding
from plmcl.data.doctor.pool import SECONDS_A_FILE, examine_in_workers
from plmcl.data.doctor.record import SCHEMA, ExaminationRecord, find
from plmcl.data.images import Recipe
from plmcl.progress import ProgressCallback

COLUMNS = ["path", "status", "reason", "sha256", "dhash", "width", "height", "bytes"]

# So much work is lost at most if the process is killed.
_PART_FILES, _PART_SECONDS = 5000, 10.0
# A file that was changed so shortly before may be changed again within the clock's grain.
_GRAIN_NS = 2_000_000_000

_Integers = npt.NDArray[np.int64]


def examine_all(
    root: Path,
    files: Sequence[str],
    recipe: Recipe,
    *,
    record: Path | None,
    progress: ProgressCallback | None = None,
    seconds_a_file: float = SECONDS_A_FILE,
) -> pd.DataFrame:
    """Examine files on all cores, each in a process that it cannot take us down with.

    Args:
        root: Folder that `files` are below.
        files: Posix paths.
        recipe: Its background and pixel limit apply.
        record: Folder of what earlier examinations found: a file whose path, size and time of
            change are in it is not opened again. None: none is kept.
        progress: Called with (done, total) now and then, and at the end.
        seconds_a_file: After which a file is given up.

    Returns:
        A row for each of `files`, in their order: path, then a `Finding`'s fields.
    """
    paths = pa.array(files, pa.large_string())
    start_ns = time.time_ns()
    sizes, mtimes_ns = _stat_all(root, files)
    kept = ExaminationRecord(record, _facts(recipe))
    earlier = kept.read()
    known_at = find(earlier, paths, sizes, mtimes_ns)
    known, new = np.flatnonzero(known_at >= 0), np.flatnonzero(known_at < 0)
    tables, rows = [earlier.take(known_at[known])], [known]
    del earlier
    done = len(known)

    def gather(part: list[tuple[int, Finding]]) -> pa.Table:
        at = new[[position for position, _ in part]]
        rows.append(at)
        tables.append(_table(paths.take(at), sizes[at], mtimes_ns[at], [f for _, f in part]))
        return tables[-1]

    if progress is not None and done:
        progress(done, len(files))
    part: list[tuple[int, Finding]] = []
    last = time.monotonic()
    names = [files[int(row)] for row in new]
    with closing(
        examine_in_workers(root, names, recipe, seconds_a_file=seconds_a_file)
    ) as examined:
        for found in examined:
            part += found
            done += len(found)
            if len(part) >= _PART_FILES or time.monotonic() - last >= _PART_SECONDS:
                kept.add(_lasting(gather(part), start_ns))
                part, last = [], time.monotonic()
            if progress is not None:
                progress(done, len(files))
    kept.add(_lasting(gather(part), start_ns))
    table = pa.concat_tables(tables).take(np.argsort(np.concatenate(rows)))
    tables.clear()
    kept.replace(_lasting(table, start_ns))
    frame: pd.DataFrame = table.select(COLUMNS).to_pandas()
    return frame


def _facts(recipe: Recipe) -> str:
    """All that a finding depends on besides the file."""
    return json.dumps(
        {
            "rules": RULES,
            "recipe": [recipe.version, recipe.max_pixels, recipe.background],
            "pillow": PIL.__version__,
        }
    )


def _stat_all(root: Path, files: Sequence[str]) -> tuple[_Integers, _Integers]:
    """Sizes (N,) and times of change in ns (N,); 0 and -1 where a file is not to be had."""
    sizes, mtimes_ns = np.zeros(len(files), np.int64), np.full(len(files), -1, np.int64)
    for row, file in enumerate(files):
        try:
            status = os.stat(f"{root}/{file}")  # noqa: PTH116 (a third of pathlib's time)
        except OSError:
            continue
        sizes[row], mtimes_ns[row] = status.st_size, status.st_mtime_ns
    return sizes, mtimes_ns


def _table(
    paths: pa.Array, sizes: _Integers, mtimes_ns: _Integers, findings: list[Finding]
) -> pa.Table:
    fields = zip(*findings, strict=True) if findings else [()] * len(Finding._fields)
    columns = dict(zip(Finding._fields, map(list, fields), strict=True))
    known = {"path": paths, "bytes": sizes, "mtime_ns": mtimes_ns}
    return pa.table({**columns, **known}).select(SCHEMA.names).cast(SCHEMA)


def _lasting(table: pa.Table, start_ns: int) -> pa.Table:
    """The rows that would be found again, for as long as the file has this size and time."""
    read = pc.or_(pc.not_equal(table["status"], "unreadable"), pc.not_equal(table["sha256"], ""))
    enough_memory = pc.not_equal(table["reason"], NO_MEMORY)
    settled = pc.less(table["mtime_ns"], start_ns - _GRAIN_NS)
    return table.filter(pc.and_(pc.and_(read, enough_memory), settled))
