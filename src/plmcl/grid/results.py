"""The results of a grid: one CSV with a line a run, written as runs finish."""

import csv
import io
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

from plmcl.errors import PlmclError
from plmcl.grid.spec import Cell

RUN = ["row", "setting", "seed", "candidate"]


@dataclass(frozen=True)
class Result:
    """What a run came to.

    Attributes:
        row: Of the table.
        method: Such as `plmcl`.
        setting: Such as `sspl-40`.
        seed: Of everything that is drawn.
        candidate: The tuned values in words; empty where nothing is tuned.
        selection: Name of the figure that epochs and candidates are chosen by.
        val: Its best value, a fraction.
        test: The same figure on the test split, of the weights that were best.
        best_epoch: Whose weights these are, from 1; 0: a head in closed form.
        seconds: That the run took.
        device: Where it ran.
        identity: Of the run; see `plan.identity`.
    """

    row: str
    method: str
    setting: str
    seed: int
    candidate: str
    selection: str
    val: float
    test: float
    best_epoch: int
    seconds: float
    device: str
    identity: str


COLUMNS = {field.name: field.type for field in fields(Result)}


class Journal:
    """A CSV of results under way: what is in it is on the disk, and a torn last line is dropped.

    Args:
        path: Made where it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+b") as file:
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
        if not whole:
            self._append(list(COLUMNS))

    def read(self) -> pd.DataFrame:
        """As `read_results`."""
        return read_results(self.path)

    def append(self, result: Result) -> None:
        """Add a line, and return when it is on the disk."""
        self._append(list(asdict(result).values()))

    def _append(self, values: Sequence[object]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(values)
            file.flush()
            os.fsync(file.fileno())


def read_results(path: Path) -> pd.DataFrame:
    """The lines of a CSV, a column for each attribute of `Result`; a torn last line is left out.

    Raises:
        PlmclError: The file cannot be read, has other columns, or a value of another type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlmclError(f"{path}: cannot be read: {error}") from None
    whole = text[: text.rfind("\n") + 1]
    header = whole.partition("\n")[0]
    if header != ",".join(COLUMNS):
        raise PlmclError(f"{path}: not the results of a grid: columns {header!r}")
    try:
        return pd.read_csv(
            io.StringIO(whole),
            dtype=COLUMNS,
            keep_default_na=False,  # a row may be called NA
        )
    except ValueError as error:
        raise PlmclError(f"{path}: {' '.join(str(error).split())}") from None


def write_results(results: pd.DataFrame, path: Path) -> None:
    """Write results, sorted, so that the same runs give the same lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_suffix(".writing")
    results.sort_values(RUN).to_csv(writing, index=False, lineterminator="\n")
    writing.replace(path)


def merge_results(paths: Sequence[Path]) -> pd.DataFrame:
    """The results of several files; what is in more than one counts once.

    Raises:
        PlmclError: As `read_results`; or two files hold the same run of other data or code.
    """
    results = pd.concat([read_results(path) for path in paths], ignore_index=True)
    results = results.drop_duplicates([*RUN, "identity"], ignore_index=True)
    other = results[results.duplicated(RUN, keep=False)]
    if len(other):
        run = other.iloc[0]
        raise PlmclError(
            f"{' and '.join(map(str, paths))}: {run['row']}, {run['setting']}, seed {run['seed']}, "
            f"{run['candidate'] or 'nothing tuned'}: there twice, from other data, code or "
            "parameters; keep the file that is right"
        )
    return results


def choose_candidates(results: pd.DataFrame, seeds: Collection[int]) -> dict[Cell, str]:
    """The candidate of each cell with the best mean `val`; of equal ones the first by name.

    A candidate that lacks a seed is chosen only where all do.

    Args:
        results: As from `read_results`.
        seeds: The tuning seeds.
    """
    tuning = results[results["seed"].isin(list(seeds))]
    candidates = tuning.groupby(["row", "setting", "candidate"])["val"].agg(["size", "mean"])
    best = candidates.sort_values(["size", "mean"], ascending=False, kind="stable")
    index = best.groupby(["row", "setting"], sort=False).head(1).index
    return {(row, setting): candidate for row, setting, candidate in index}
