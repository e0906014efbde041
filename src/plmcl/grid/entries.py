"""From a grid's runs to what stands in its table: one entry a row and column, and comparisons."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from plmcl.errors import PlmclError
from plmcl.grid.results import RUN, choose_candidates
from plmcl.grid.spec import GridSpec
from plmcl.statistics import holm, mean_and_deviation, paired_p


@dataclass(frozen=True)
class Entry:
    """A row under a setting.

    Attributes:
        row: Of the table.
        setting: What was trained under; the row's own if it has one, else the column.
        candidate: That was chosen; empty if nothing is tuned.
        test: Its figure on the test split by seed, in percent.
        lacks: What is not there yet, in words, such as "seed 2"; empty if nothing.
    """

    row: str
    setting: str
    candidate: str
    test: Mapping[int, float]
    lacks: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Over the seeds; NaN without any."""
        return self._mean_and_deviation[0]

    @property
    def deviation(self) -> float:
        """The sample standard deviation over the seeds; NaN for fewer than two."""
        return self._mean_and_deviation[1]

    @property
    def _mean_and_deviation(self) -> tuple[float, float]:
        return mean_and_deviation(list(self.test.values())) if self.test else (math.nan, math.nan)


# By row and column of the table; a row with its own setting has the same entry in each column.
Entries = Mapping[tuple[str, str], Entry]


@dataclass(frozen=True)
class Comparison:
    """A paired t-test between two entries of a column.

    Attributes:
        row: That is compared.
        column: Of the table.
        against: The other row with the highest mean on the test split; empty if there is none.
        pairs: How many seeds both have: under the same seed they had the same split and labels.
        difference: Mean over the pairs, in percentage points; above 0 where `row` is better.
        p: Two-sided; NaN where it is not defined (`statistics.paired_p`).
        p_holm: `p` corrected for the number of comparisons in the table.
    """

    row: str
    column: str
    against: str
    pairs: int
    difference: float
    p: float
    p_holm: float


def make_entries(spec: GridSpec, runs: pd.DataFrame) -> Entries:
    """What stands in each place of the table.

    Args:
        spec: The grid.
        runs: `results.read_results`.

    Raises:
        PlmclError: There is no run, one is there twice, or they were not all chosen alike.
    """
    _refuse_what_does_not_belong_together(runs)
    chosen = choose_candidates(runs, spec.tuning_seeds)
    return {
        (row, column): _entry(spec, runs, row, spec.rows[row].setting or column, chosen)
        for row in spec.rows
        for column in spec.settings
    }


def _refuse_what_does_not_belong_together(runs: pd.DataFrame) -> None:
    if runs.empty:
        raise PlmclError("grid: no run is finished yet, so there is no table")
    selections = runs["selection"].unique().tolist()
    if len(selections) > 1:
        raise PlmclError(
            f"grid: runs chosen by {' and by '.join(sorted(selections))} cannot be in one table; "
            "run the grid anew under one split.protocol"
        )
    twice = runs[runs.duplicated(RUN)]
    if len(twice):
        run = twice.iloc[0]
        raise PlmclError(
            f"grid: {run['row']}, {run['setting']}, seed {run['seed']}, "
            f"{run['candidate'] or 'nothing tuned'}: there twice"
        )


def num_candidates(spec: GridSpec, row: str) -> int:
    """How many candidates a row is tuned among; 1: it is not."""
    tuned = spec.tune | spec.rows[row].tune
    return math.prod(len(values) for values in tuned.values() if values is not None)


def _entry(
    spec: GridSpec,
    runs: pd.DataFrame,
    row: str,
    setting: str,
    chosen: Mapping[tuple[str, str], str],
) -> Entry:
    cell = runs[(runs["row"] == row) & (runs["setting"] == setting)]
    tuned = cell[cell["seed"].isin(spec.tuning_seeds)].groupby("candidate").size()
    ready, planned = int((tuned == len(spec.tuning_seeds)).sum()), num_candidates(spec, row)
    lacks = []
    if planned > 1 and ready < planned:
        lacks.append(f"{planned - ready} of {planned} candidates")
    # What is not tuned needs no tuning seed to be shown.
    candidate = chosen.get((row, setting), cell["candidate"].min() if len(cell) else "")
    of_chosen = cell[cell["candidate"] == candidate].set_index("seed")["test"]
    test = {
        seed: 100 * float(of_chosen[seed])
        for seed in spec.seeds
        if seed in of_chosen.index and not math.isnan(of_chosen[seed])
    }
    lacks += [f"seed {seed}" for seed in spec.seeds if seed not in test]
    return Entry(row, setting, candidate, test, tuple(lacks))


def leaders(spec: GridSpec, entries: Entries) -> set[tuple[str, str]]:
    """The best of each column, of the rows that are no references and lack nothing."""
    found = set()
    for column in spec.settings:
        means = {
            row: entries[row, column].mean
            for row in spec.rows
            if not spec.rows[row].reference and not entries[row, column].lacks
        }
        if len(means) > 1:
            found |= {(row, column) for row in means if means[row] == max(means.values())}
    return found


def compare(spec: GridSpec, entries: Entries) -> list[Comparison]:
    """Test the rows that the grid wants compared, each in each column.

    The other row is the best on the test split, on the same figures that are tested: that choice
    flatters the other row, so a difference that holds against it holds.
    """
    if spec.compare is None:
        return []
    no_references = [name for name, row in spec.rows.items() if not row.reference]
    against = spec.compare.against or no_references
    made = []
    for row in spec.compare.rows:
        for column in spec.settings:
            others = [entries[name, column] for name in against if name != row]
            made.append(_compare(entries[row, column], column, [o for o in others if o.test]))
    adjusted = holm([p for *_, p in made])
    return [Comparison(*values, p) for values, p in zip(made, adjusted, strict=True)]


def _compare(
    entry: Entry, column: str, others: list[Entry]
) -> tuple[str, str, str, int, float, float]:
    if not entry.test or not others:
        return entry.row, column, "", 0, math.nan, math.nan
    best = max(others, key=lambda other: other.mean)
    seeds = [seed for seed in entry.test if seed in best.test]
    differences = [entry.test[seed] - best.test[seed] for seed in seeds]
    difference = mean_and_deviation(differences)[0] if seeds else math.nan
    p = paired_p([entry.test[seed] for seed in seeds], [best.test[seed] for seed in seeds])
    return entry.row, column, best.row, len(seeds), difference, p


def tuning(spec: GridSpec, runs: pd.DataFrame, entries: Entries) -> pd.DataFrame:
    """Every candidate, with its mean on the validation split over the tuning seeds in percent.

    Returns:
        Columns `row`, `setting`, `candidate`, `seeds` (of the tuning seeds, how many it has),
        `val`, `chosen`.
    """
    runs = runs[runs["seed"].isin(spec.tuning_seeds)]
    runs = runs.assign(val=100 * runs["val"])
    table = runs.groupby(["row", "setting", "candidate"], as_index=False).agg(
        seeds=("val", "size"), val=("val", "mean")
    )
    chosen = {(entry.row, entry.setting, entry.candidate) for entry in entries.values()}
    return table.assign(
        chosen=[tuple(names) in chosen for names in table[["row", "setting", "candidate"]].values]
    )
