"""A checkup as people and programs read it: words, JSON lines, and a page with pictures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from plmcl.data.doctor.checkup import Checkup
from plmcl.data.listing import counts
from plmcl.data.statuses import STATUSES
from plmcl.report.gallery import Pair, Picture, thumbnail
from plmcl.report.page import write_page

LINES = 40
ROWS = 2000
PAIRS = 60
PICTURES = 24
BLOCK = 4096


def in_words(checkup: Checkup) -> str:
    """Counts of each status, why files are passed over or set aside, and look-alikes."""
    lines = [f"{len(checkup.files)} files in {checkup.folder}"]
    lines += [f"  {count:>8} {status:<16} {meaning}" for count, status, meaning in _counts(checkup)]
    if checkup.passed_over:
        lines += ["", _printable(f"passed over by name: {counts(checkup.passed_over)}")]
    lines += _some(checkup.set_aside, "set aside", "{path}: {status}: {reason}")
    lines += _some(
        checkup.alike, "pairs that look alike", "{first} and {second} ({distance} of 128 bits)"
    )
    return "\n".join(lines)


def _some(rows: pd.DataFrame, what: str, line: str) -> list[str]:
    if rows.empty:
        return []
    columns = [str(column) for column in rows.columns]
    shown = [
        "  " + _printable(line.format(**dict(zip(columns, values, strict=True))))
        for values in rows.head(LINES).itertuples(index=False, name=None)
    ]
    more = [f"  and {len(rows) - LINES} more"] if len(rows) > LINES else []
    return ["", f"{len(rows)} {what}:", *shown, *more]


def _printable(text: str) -> str:
    # A file's name may hold what a terminal obeys, or a line break.
    escape = "unicode_escape"
    return "".join(c if c.isprintable() else c.encode(escape).decode() for c in text)


def json_lines(checkup: Checkup) -> Iterator[str]:
    """One JSON object a file, without the line's end: the columns of `Checkup.files`."""
    for start in range(0, len(checkup.files), BLOCK):
        for file in checkup.files[start : start + BLOCK].to_dict("records"):
            yield json.dumps(file, ensure_ascii=False)


def write_checkup(checkup: Checkup, out: Path) -> None:
    """Write the page: counts, look-alikes side by side, converted images, and what is set aside.

    Args:
        checkup: Of a folder that is still there, for its pictures.
        out: The HTML file.
    """
    converted = checkup.files[checkup.files["status"] == "converted"]
    aside = checkup.set_aside
    write_page(
        "checkup.html.j2",
        out,
        folder=str(checkup.folder),
        files=len(checkup.files),
        usable=len(checkup.usable),
        counts=_counts(checkup),
        passed_over=counts(checkup.passed_over),
        alike=len(checkup.alike),
        pairs=[
            Pair(
                _picture(checkup, pair["first"]),
                _picture(checkup, pair["second"]),
                pair["distance"],
            )
            for pair in checkup.alike.head(PAIRS).to_dict("records")
        ],
        converted=len(converted),
        pictures=[
            _picture(checkup, file["path"], file["reason"])
            for file in converted.head(PICTURES).to_dict("records")
        ],
        aside=len(aside),
        rows=aside.head(ROWS).to_dict("records"),
    )


def _counts(checkup: Checkup) -> list[tuple[int, str, str]]:
    files = checkup.files["status"].value_counts()
    return [
        (int(files[status]), status, meaning)
        for status, meaning in STATUSES.items()
        if status in files
    ]


def _picture(checkup: Checkup, path: str, remark: str = "") -> Picture:
    return Picture(path, thumbnail(checkup.folder, path), remark)
