"""A checkup as people and programs read it: words, JSON lines, and a page with pictures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from plmcl.data.doctor.checkup import Checkup
from plmcl.data.statuses import STATUSES
from plmcl.report.gallery import thumbnail
from plmcl.report.page import write_page

LINES = 40
ROWS = 2000
PAIRS = 60
PICTURES = 24
BLOCK = 4096


def in_words(checkup: Checkup) -> str:
    """Counts of each status, the files that were set aside with their reasons, and look-alikes."""
    lines = [f"{len(checkup.files)} files in {checkup.folder}"]
    lines += [f"  {count:>8} {status:<16} {meaning}" for count, status, meaning in _counts(checkup)]
    lines += _some(checkup.set_aside, "set aside", "{path}: {status}: {reason}")
    lines += _some(
        checkup.alike, "pairs that look alike", "{path} and {other_path} ({distance} of 128 bits)"
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
        alike=len(checkup.alike),
        pairs=[
            {
                "tiles": [_tile(checkup, pair["path"]), _tile(checkup, pair["other_path"])],
                "distance": pair["distance"],
            }
            for pair in checkup.alike.head(PAIRS).to_dict("records")
        ],
        converted=len(converted),
        tiles=[
            _tile(checkup, file["path"]) | {"reason": file["reason"]}
            for file in converted.head(PICTURES).to_dict("records")
        ],
        aside=len(aside),
        rows=aside.head(ROWS).to_dict("records"),
    )


def _counts(checkup: Checkup) -> list[tuple[int, str, str]]:
    counts = checkup.files["status"].value_counts()
    return [
        (int(counts[status]), status, meaning)
        for status, meaning in STATUSES.items()
        if status in counts
    ]


def _tile(checkup: Checkup, path: str) -> dict[str, str | None]:
    return {"path": path, "picture": thumbnail(checkup.folder, path)}
