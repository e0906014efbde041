"""Every broken rule of a set of tables: all rows in a CSV, a short message for the person.

The rules stand in pandera's classes; the rows are collected here. pandera's own report takes
minutes when a million rows break a joint uniqueness, and lists a row once for each column.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.engines.pandas_engine import Engine

from plmcl.errors import PlmclError
from plmcl.ordering import positions

_COLUMNS = ["table", "row", "rule", "image_id", "label", "found"]
_MAX_LINES = 10  # of rules, and of rows
_MAX_BYTES = 1800


class Violations:
    """What is wrong with the tables that make up `subject`; empty until something is found.

    Attributes:
        subject: What the message begins with.
        sound: Whether all columns are there with the right types, so that rows can be compared.
    """

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.sound = True
        self._parts: list[pd.DataFrame] = []

    def check_schema(
        self, table: str, frame: pd.DataFrame, schema: type[pa.DataFrameModel]
    ) -> None:
        """Hold a frame against a pandera class: columns, types, each column's checks, uniqueness.

        A column of a wrong type is one violation; its other rules wait until that is right.
        """
        contract = schema.to_schema()
        if sorted(map(str, frame.columns)) != sorted(contract.columns):
            expected, found = ", ".join(contract.columns), ", ".join(map(str, frame.columns))
            self.add_whole(table, f"columns: {expected}", found)
            return
        for name, column in contract.columns.items():
            values = frame[name].reset_index(drop=True)
            missing = values.isna().to_numpy()
            self.add_rows(table, frame, f"{name}: present", missing, found=name)
            values = values[~missing]
            if not np.all(column.dtype.check(Engine.dtype(values.dtype), values)):
                self.add_whole(table, f"{name}: of type {column.dtype}", str(values.dtype))
                continue
            for check in column.checks:
                broken = ~missing
                broken[broken] = ~check(values).check_output.to_numpy(dtype=bool)
                self.add_rows(table, frame, f"{name}: {check.error}", broken, found=name)
            if column.unique:
                self._check_unique(table, frame, [name])
        if contract.unique:
            self._check_unique(table, frame, list(contract.unique))

    def check_known(
        self, table: str, frame: pd.DataFrame, column: str, known: pd.Series, where: str
    ) -> None:
        """Require that each text of `frame[column]` is one of `known`."""
        unknown = positions(frame[column], known) < 0
        self.add_rows(table, frame, f"{column}: {where}", unknown, found=column)

    def add_whole(self, table: str, rule: str, found: str = "") -> None:
        """Note that a table as a whole breaks a rule; its rows make no sense now."""
        self.sound = False
        self._parts.append(pd.DataFrame([[table, "", rule, "", "", found]], columns=_COLUMNS))

    def add_rows(
        self,
        table: str,
        frame: pd.DataFrame,
        rule: str,
        broken: np.ndarray,
        *,
        found: str = "image_id",
    ) -> None:
        """Note the rows of `frame` where `broken`, bool (N,), is true.

        Args:
            table: The frame's name.
            frame: The table or a part of it; the index holds the row numbers.
            rule: What the rows break.
            broken: Which rows.
            found: The column whose value is shown.
        """
        if not broken.any():
            return
        rows = frame[broken]
        part = {"table": table, "row": rows.index.astype(str), "rule": rule}
        for name, source in (("image_id", "image_id"), ("label", "label"), ("found", found)):
            part[name] = rows[source].astype(str).fillna("").to_numpy() if source in rows else ""
        self._parts.append(pd.DataFrame(part, columns=_COLUMNS))

    def raise_if_any(self, report: Path | None = None) -> None:
        """Refuse, unless nothing was found.

        Args:
            report: The CSV that gets all rows; that of an earlier check is removed.

        Raises:
            PlmclError: Each rule with its number of rows, and the first rows; under 2 kB.
        """
        if report is not None:
            report.unlink(missing_ok=True)
        if not self._parts:
            return
        lines = [f"{self.subject}: {len(self._parts)} rule(s) broken"]
        lines += [_summary(part) for part in self._parts[:_MAX_LINES]]
        if len(self._parts) > _MAX_LINES:
            lines.append(f"  and {len(self._parts) - _MAX_LINES} more rules")
        last = []
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            pd.concat(self._parts).to_csv(report, index=False)
            last = [f"  all rows: {report}"]
        first = pd.concat([part[part["row"] != ""][:_MAX_LINES] for part in self._parts])
        for row in first[:_MAX_LINES].to_dict("records"):
            line = f"  {row['table']} row {row['row']}: image_id {_short(row['image_id'])}"
            line += f", label {_short(row['label'])}, found {_short(row['found'])}: {row['rule']}"
            if len("\n".join([*lines, line, *last]).encode()) > _MAX_BYTES:
                break
            lines.append(line)
        raise PlmclError("\n".join(lines + last))

    def _check_unique(self, table: str, frame: pd.DataFrame, columns: list[str]) -> None:
        repeated = frame.duplicated(columns, keep=False).to_numpy()
        rule = f"{', '.join(columns)}: not twice"
        self.add_rows(table, frame, rule, repeated, found=columns[-1])


def _summary(part: pd.DataFrame) -> str:
    first = part.iloc[0]
    number = f"{len(part)} row(s)" if first["row"] else f"found {first['found'][:200]}"
    return f"  {first['table']}: {first['rule']}: {number}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 24 else text[:23] + "…")
