"""The page about odd inputs is the table that they are tested with."""

import importlib.util

from pages import read, tables
from project import ROOT


def test_the_page_is_what_the_table_makes():
    spec = importlib.util.spec_from_file_location("make_inputs", ROOT / "docs" / "make_inputs.py")
    make_inputs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_inputs)
    assert read("docs/inputs.md") == make_inputs.page(), "run: python docs/make_inputs.py"


def test_every_row_can_be_read():
    rows = [row for table in tables(read("docs/inputs.md")) for row in table]
    assert len(rows) > 140
    assert len({row["file"] for row in rows}) == len(rows)
