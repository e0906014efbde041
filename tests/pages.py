"""The project's pages as the tests of them read them: prose, code blocks, tables."""

import re
from pathlib import Path

from project import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    """The text of a page below the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [body for found, body in FENCE.findall(text) if found == language]


def prose(text: str) -> str:
    """What is not in a fenced block."""
    return FENCE.sub("", text)


def tables(text: str) -> list[list[dict[str, str]]]:
    """Each table as its rows: heading -> cell."""
    found = []
    for table in re.findall(r"(?:^\|.*\|\n)+", prose(text), re.MULTILINE):
        heading, _, *rows = ([c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
                             for line in table.splitlines())  # fmt: skip
        found.append([dict(zip(heading, row, strict=True)) for row in rows])
    return found


def column(text: str, heading: str) -> list[list[str]]:
    """The cells under `heading`, without backticks, of each table that has it."""
    return [
        [row[heading].strip("`") for row in table] for table in tables(text) if heading in table[0]
    ]


def anchors(path: Path) -> set[str]:
    """What a link to a heading of the page may say behind its #."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
