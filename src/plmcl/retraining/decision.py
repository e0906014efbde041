"""What the gate decided of a challenger, and why: a record, for programs and for people."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from plmcl.records import read_record, write_record

Figures = dict[str, float | int | None]
LabelRow = dict[str, str | float | int | None]


@dataclass(frozen=True)
class Decision:
    """Whether a challenger replaces the champion.

    Attributes:
        promote: Whether it does, with nobody asked.
        reasons: Short sentences with figures; those that stand against it come first.
        figures: Flat; AP and mAP as fractions, None where one is not defined.
        labels: One entry a label: `label`, `champion_AP`, `challenger_AP`, `difference` (each None
            where it is not defined) and `positives` on the test split.
        champion: The champion's version; None if there is none yet.
        challenger: The challenger's.
        proposes: Not promoted, but only because a person has to decide.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )

    promote: bool
    reasons: list[str]
    figures: Figures
    labels: list[LabelRow]
    champion: str | None
    challenger: str
    proposes: bool = False

    @property
    def headline(self) -> str:
        """What it says, in one sentence."""
        if self.promote:
            over = f"replaces {self.champion}" if self.champion else "becomes the first champion"
            return f"{self.challenger} {over}"
        if self.proposes:
            return f"{self.challenger} is proposed: `plmcl promote {self.challenger}` promotes it"
        return f"{self.challenger} is refused" + (f": {self.champion} stays" * bool(self.champion))

    def table(self) -> list[dict[str, str]]:
        """One row a label, for people: AP in percent with one decimal, "n/a" where undefined."""
        return [
            {
                "label": str(row["label"]),
                "champion AP": _percent(row["champion_AP"]),
                "challenger AP": _percent(row["challenger_AP"]),
                "difference": _percent(row["difference"], sign="+"),
                "positives": str(row["positives"]),
            }
            for row in self.labels
        ]

    def markdown(self) -> str:
        """All of it as Markdown: a heading, the reasons as a list, the labels as a table."""
        lines = [f"# {self.headline}", "", *(f"- {_escape(reason)}" for reason in self.reasons)]
        rows = self.table()
        if rows:
            lines += ["", _row(rows[0].keys()), _row(["---", *["---:"] * (len(rows[0]) - 1)])]
            lines += [_row(_escape(cell) for cell in row.values()) for row in rows]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_record(self, path)

    @classmethod
    def read(cls, path: Path) -> "Decision":
        """Read what `write` wrote.

        Raises:
            PlmclError: The file is missing, is not JSON, or has a missing, unknown or wrong key.
        """
        return read_record(cls, path, missing="not found; no gate has judged this version")


def _percent(value: str | float | None, sign: str = "") -> str:
    return "n/a" if value is None else f"{100 * float(value):{sign}.1f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    # A label may hold anything; one with a bar would add a column.
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
