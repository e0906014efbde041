"""A grid's results for people and for papers: Markdown, LaTeX, CSV, and mAP against its price."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from plmcl.grid.cost import draw_cost
from plmcl.grid.entries import (
    Comparison,
    Entries,
    compare,
    leaders,
    make_entries,
    num_candidates,
    tuning,
)
from plmcl.grid.published import read_published
from plmcl.grid.spec import GridSpec
from plmcl.labels.effort import SECONDS_A_LABEL, hours
from plmcl.report.drawing import printable
from plmcl.report.words import FIGURE_NAMES, OPTIMISTIC, count

_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>#|~$&"})
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"{{{character}}}" for character in "[]*"}  # special after a line's \\
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
    }
)


@dataclass(frozen=True)
class Table:
    """All that the files are written from.

    Attributes:
        spec: The grid.
        dataset: Its name, for the reader.
        selection: What epochs and candidates were chosen by, such as `val/mAP`.
        entries: Of the table.
        leaders: Row and column of the entries that are the best of a column.
        published: The paper's figures in percent, by row and setting.
        comparisons: Those that the grid wants.
        hours: Of annotation for each setting, if it is known how many images there are.
    """

    spec: GridSpec
    dataset: str
    selection: str
    entries: Entries
    leaders: set[tuple[str, str]]
    published: Mapping[tuple[str, str], float]
    comparisons: Sequence[Comparison]
    hours: Mapping[str, float]

    def heading(self, row: str) -> str:
        """A row's name, with its setting where that is not the column's."""
        own = self.spec.rows[row].setting
        return row if own is None else f"{row} ({own})"

    def value(self, row: str, column: str) -> str:
        """Mean and deviation."""
        entry = self.entries[row, column]
        if not entry.test:
            return "missing"
        spread = "" if math.isnan(entry.deviation) else f" ± {entry.deviation:.1f}"
        return f"{entry.mean:.1f}{spread}"

    def remark(self, row: str, column: str) -> str:
        """What belongs behind the value: how many seeds it lacks, and the paper's figure."""
        entry, planned = self.entries[row, column], len(self.spec.seeds)
        remark = ""
        if 0 < len(entry.test) < planned:
            remark += f" ({len(entry.test)} of {planned} seeds)"
        if (row, entry.setting) in self.published:
            remark += f" [{self.published[row, entry.setting]:.1f}]"
        return remark


def write_tables(
    spec: GridSpec,
    runs: pd.DataFrame,
    out: Path,
    dataset: str,
    *,
    source: str,
    num_train: int | None = None,
    num_labels: int | None = None,
) -> list[Path]:
    """Write table.md, table.tex, table.csv, tuning.csv, comparisons.csv and cost.svg.

    Args:
        spec: The grid.
        runs: `results.read_results`: its runs, or as many as there are yet.
        out: A folder; it is made.
        dataset: Its name, for the reader.
        source: Where it comes from; the paper has figures of `voc`, `coco` and `nuswide` alone.
        num_train: N, how many training images there are; without it there is no cost.svg.
        num_labels: L; likewise.

    Returns:
        The files written: comparisons.csv only where the grid compares.

    Raises:
        PlmclError: There is no run, one is there twice, some were chosen on the validation split
            and some on the test split, or there is no published table of that name.
    """
    entries = make_entries(spec, runs)
    prices: dict[str, float] = {}
    if num_train is not None and num_labels is not None:
        settings = dict.fromkeys(entry.setting for entry in entries.values())
        prices = {s: hours(s, num_train=num_train, num_labels=num_labels) for s in settings}
    table = Table(
        spec=spec,
        dataset=dataset,
        selection=runs["selection"].iloc[0],
        entries=entries,
        leaders=leaders(spec, entries),
        published=read_published().figures(spec.published, source) if spec.published else {},
        comparisons=compare(spec, entries),
        hours=prices,
    )
    files = {
        "table.md": _markdown(table),
        "table.tex": _latex(table),
        "table.csv": _csv(_long(table)),
        "tuning.csv": _csv(tuning(spec, runs, entries)),
    }
    if spec.compare is not None:
        files["comparisons.csv"] = _csv(pd.DataFrame(table.comparisons))
    if prices:
        files["cost.svg"] = draw_cost(spec, entries, prices)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
    return [out / name for name in files]


def _csv(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


def _long(table: Table) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "row": row,
                "column": column,
                "setting": entry.setting,
                "reference": table.spec.rows[row].reference,
                "candidate": entry.candidate,
                "seeds": len(entry.test),
                "mean": entry.mean,
                "deviation": entry.deviation,
                "best": (row, column) in table.leaders,
                "lacks": "; ".join(entry.lacks),
                "published": table.published.get((row, entry.setting), math.nan),
            }
            for (row, column), entry in table.entries.items()
        ]
    )


def _markdown(table: Table) -> str:
    sections = [
        f"# {_in_markdown(table.spec.title)}",
        "\n".join(f"- {line}" for line in _notes(table)),
        _grid(table),
    ]
    if missing := _missing(table):
        sections += ["## Missing", "\n".join(f"- {line}" for line in missing)]
    if table.comparisons:
        sections += ["## Comparisons", _comparison_notes(table), _comparison_grid(table)]
    if table.hours:
        sections += ["## Cost", _cost_notes(), _cost_grid(table)]
    return "\n\n".join(sections) + "\n"


def _notes(table: Table) -> list[str]:
    spec, seeds = table.spec, ", ".join(map(str, table.spec.seeds))
    split, _, figure = table.selection.partition("/")
    shown = f"Test {FIGURE_NAMES.get(figure, figure)} in % on {_in_markdown(table.dataset)}"
    if len(spec.seeds) == 1:
        notes = [f"{shown}, of one seed ({seeds}): a small difference may be chance."]
    else:
        notes = [
            f"{shown}: mean ± sample standard deviation over {len(spec.seeds)} seeds ({seeds})."
        ]
    notes.append("**Bold**: the highest mean of a column, references and what is missing aside.")
    optimistic = split == "selected_on_test"
    if any(num_candidates(spec, row) > 1 for row in spec.rows):
        notes.append(
            f"Tuned for each row and setting on the {'test' if optimistic else 'validation'} "
            f"split, over {count(len(spec.tuning_seeds), 'seed')} "
            f"({', '.join(map(str, spec.tuning_seeds))}): every candidate is in tuning.csv."
        )
    if optimistic:
        notes.append(f"**{OPTIMISTIC[0].upper()}{OPTIMISTIC[1:]}.** On new images expect less.")
    if table.published:
        source = read_published().source
        notes.append(f"In brackets: the paper's figure ({source}, {spec.published}).")
    return notes


def _grid(table: Table) -> str:
    def show(row: str, column: str) -> str:
        value = table.value(row, column)
        bold = "**" if (row, column) in table.leaders else ""
        return f"{bold}{value}{bold}{table.remark(row, column)}"

    columns = table.spec.settings
    lines = [
        [_in_markdown(table.heading(row)), *(show(row, column) for column in columns)]
        for row in table.spec.rows
    ]
    return _rows(["", *columns], lines)


def _missing(table: Table) -> list[str]:
    """A line for each row and setting that lacks something."""
    lines: dict[str, None] = {}
    for entry in table.entries.values():
        if entry.lacks:
            what = ", ".join(entry.lacks) if entry.test else "every seed"
            lines[f"{_in_markdown(entry.row)}, {entry.setting}: {what}"] = None
    return list(lines)


def _comparison_notes(table: Table) -> str:
    tests = sum(not math.isnan(comparison.p) for comparison in table.comparisons)
    return (
        "Two-sided paired t-tests: the same seed means the same split and the same labels drawn. "
        "Each is against the other row with the highest mean on the test split, the one that is "
        "tested, so the choice favours the other row. A difference is in percentage points, above "
        f"0 where the first row is better. Holm's correction is for {count(tests, 'test')}. n/a: "
        "fewer than two pairs, or the same difference under every seed."
    )


def _comparison_grid(table: Table) -> str:
    return _rows(
        ["row", "setting", "against", "difference", "pairs", "p", "p (Holm)"],
        [
            [
                _in_markdown(c.row),
                c.column,
                _in_markdown(c.against) or "missing",
                "missing" if math.isnan(c.difference) else f"{c.difference:+.1f}",
                str(c.pairs),
                _p(c.p),
                _p(c.p_holm),
            ]
            for c in table.comparisons
        ],
    )


def _cost_notes() -> str:
    return (
        f"cost.svg shows mAP against hours of annotation, at {SECONDS_A_LABEL:.1f} s a label: the "
        "paper's 20,000 hours for 2.5 million labels. One positive of an image is one label. Where "
        "an image shows negatives too, each of its entries was looked at and counts."
    )


def _cost_grid(table: Table) -> str:
    lines = [
        [setting, "n/a" if math.isnan(price) else f"{price:,.1f}"]
        for setting, price in table.hours.items()
    ]
    return _rows(["setting", "hours"], lines)


def _latex(table: Table) -> str:
    def show(row: str, column: str) -> str:
        value = _in_latex(table.value(row, column))
        bold = f"\\textbf{{{value}}}" if (row, column) in table.leaders else value
        return f"{bold}{_in_latex(table.remark(row, column))}"

    lines = [
        [_in_latex(table.heading(row)), *(show(row, column) for column in table.spec.settings)]
        for row in table.spec.rows
    ]
    return "\n".join(
        [
            f"% {printable(table.spec.title)}",
            "% What the figures are: table.md.",
            f"\\begin{{tabular}}{{l{'r' * len(table.spec.settings)}}}",
            "\\toprule",
            f" & {' & '.join(table.spec.settings)} \\\\",
            "\\midrule",
            *(f"{' & '.join(line)} \\\\" for line in lines),
            "\\bottomrule",
            "\\end{tabular}",
            "",
        ]
    )


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _p(p: float) -> str:
    if math.isnan(p):
        return "n/a"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _in_markdown(text: str) -> str:
    return printable(text).translate(_MARKDOWN)


def _in_latex(text: str) -> str:
    return printable(text).translate(_LATEX)
