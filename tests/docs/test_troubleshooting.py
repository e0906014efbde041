"""Every message on the page of troubles is one of the program's."""

import ast
import re

import pytest
from pages import column, read
from project import ROOT

HOLE = "\0"


def templates() -> list[str]:
    """Every text in the source, with a mark where a value is put in."""
    found = []
    for path in sorted((ROOT / "src/plmcl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else HOLE
                         for part in node.values)  # fmt: skip
                found.append("".join(map(str, parts)))
    return found


TEMPLATES = templates()
# What the system itself says.
OTHERS = {"No space left on device"}
MESSAGES = [
    cell for cells in column(read("docs/troubleshooting.md"), "message") for cell in cells
] + [
    "test mAP n/a, mean reciprocal rank of the known labels …",
    ": no known positive of … labels: …",
]


def is_said(message: str) -> bool:
    """Whether a text of the source holds the message, with values where it has dots."""
    wanted = re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
    return any(wanted.search(template) for template in TEMPLATES)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_in_the_source(message):
    assert message in OTHERS or is_said(message)


def test_the_search_takes_no_message_that_is_not_there():
    assert not is_said("images found in …; none there")
    assert not is_said("; one at a time please")
    assert len(MESSAGES) > 40
