"""Writes docs/inputs.md out of the table that the tests hold the code to.

python docs/make_inputs.py
"""

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from data.hostile import HOSTILE, Hostile  # noqa: E402 (it is no part of the package)

BEFORE = """# Odd and hostile inputs

What becomes of {count} files that have broken tools of this kind, or look as if they would. Each
is made by code and lies in one folder with all the others. A test holds each to its status and its
reason (`tests/data/test_hostile.py`). Another one mixes them into 1,000 good images and goes from
ingest to `plmcl predict` (`tests/test_hostile_folder.py`).

Only files that are `ok` or `converted` are trained on, evaluated and tagged. Nothing is changed,
moved or deleted. What each status means is on the page about [data](data.md#the-doctor). `…`
stands for words that depend on the file. This page is written by `docs/make_inputs.py`.
"""

AFTER = """
## What nobody can tell

Decoders mend some damage and say nothing. A JPEG with an end mark that comes too early is grey
below it, a PNG with too few rows is black below them, and one bit that is wrong in a JPEG changes
its colours. Such files are `ok`, as they are for every program that uses these decoders.
"""


def page() -> str:
    """The whole page."""
    parts = [BEFORE.format(count=len(HOSTILE))]
    for kind, rows in groupby(HOSTILE, key=lambda row: row.kind):
        parts += [
            f"\n## {kind}\n\n",
            "| file | what it is | status | reason |\n|---|---|---|---|\n",
        ]
        parts += map(_line, rows)
    return "".join([*parts, AFTER])


def _line(row: Hostile) -> str:
    name = (
        row.listed.encode("unicode_escape").decode() if not row.listed.isprintable() else row.listed
    )
    if len(name) > 40:
        name = f"{name[:20]}…{name[-12:]}"
    cells = [f"`{name}`", row.what, f"`{row.status}`", row.reason.replace("...", "…")]
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    (ROOT / "docs" / "inputs.md").write_text(page(), encoding="utf-8")
