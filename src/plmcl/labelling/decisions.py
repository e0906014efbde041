"""Who answered what, when, and what became of it: nothing that was answered is lost."""

import csv
import io
from pathlib import Path

import pandas as pd
import pandera.pandas as pa
from pandera.typing.pandas import Series

from plmcl.data.label_files import read_text
from plmcl.errors import PlmclError
from plmcl.violations import Violations

# What an answer says by itself; only the first two say something of a label.
PRESENT, ABSENT, NOT_SURE = "present", "absent", "not sure"
SKIPPED, NOTHING, REFUSED = "skipped", "nothing", "refused"
ANSWERS = (PRESENT, ABSENT, NOT_SURE, SKIPPED, NOTHING, REFUSED)


class Decisions(pa.DataFrameModel):
    """One row an answer, all text.

    `ask` is the question (`name` a label, or `check` one), `answer` one of ANSWERS about `label`,
    `choice` the text that was chosen. `who` and `when` are the annotator and the time as Label
    Studio has them, `task` and `annotation` its numbers. `taken` says whether the answer became a
    label, `note` why it did not.
    """

    image_id: Series[str]
    ask: Series[str]
    label: Series[str]
    answer: Series[str] = pa.Field(isin=ANSWERS)
    choice: Series[str]
    who: Series[str]
    when: Series[str]
    task: Series[str]
    annotation: Series[str]
    taken: Series[str] = pa.Field(isin=["yes", "no"])
    note: Series[str]

    class Config:  # noqa: D106
        strict = True


COLUMNS = tuple(Decisions.to_schema().columns)


def table(rows: list[dict[str, str]]) -> pd.DataFrame:
    """Rows as `Decisions`."""
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype="str")


def write_decisions(decisions: pd.DataFrame, path: Path) -> None:
    """Write the table as CSV, any text in it unchanged."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    writer.writerows(decisions[list(COLUMNS)].itertuples(index=False, name=None))
    unfinished = path.with_name(path.name + ".tmp")
    try:
        unfinished.write_bytes(text.getvalue().encode())
        unfinished.replace(path)
    except OSError as error:
        raise PlmclError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_decisions(path: Path) -> pd.DataFrame:
    """Read what `write_decisions` wrote.

    Raises:
        PlmclError: It is not such a table.
    """
    try:
        header, *rows = list(csv.reader(io.StringIO(read_text(path), newline=""), strict=True))
    except (csv.Error, ValueError) as error:
        raise PlmclError(f"{path}: not a table of decisions: {error}") from None
    if tuple(header) != COLUMNS:
        raise PlmclError(f"{path}: columns must be {','.join(COLUMNS)}; found {','.join(header)}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(COLUMNS):
            raise PlmclError(f"{path}: row {number}: {len(row)} cells for {len(COLUMNS)} columns")
    decisions = table([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    violations = Violations(str(path))
    violations.check_schema(path.name, decisions, Decisions)
    violations.raise_if_any()
    return decisions
