"""The measurements that are kept, and the tables that the page makes of them."""

import json

import pandas as pd
import pytest
from pages import read, tables
from project import ROOT
from suggest import table

from plmcl.evaluation import AP_FLAVOUR

RESULTS = ROOT / "benchmarks/results"


@pytest.mark.parametrize("data_set", ["photos5", "scenes20"])
def test_gains_name_their_flavour_of_ap_and_the_page_has_their_table_case_59(data_set):
    found = json.loads((RESULTS / f"suggest-{data_set}.json").read_text())
    assert found["ap"] == AP_FLAVOUR
    made = table(pd.DataFrame(found["rows"])).assign(data=data_set)
    expected = [
        {name: str(value) for name, value in row.items()} for row in made.to_dict("records")
    ]
    (shown,) = [t for t in tables(read("docs/labelling.md")) if "seeds won" in t[0]]
    assert [row for row in shown if row["data"] == data_set] == expected


def test_the_page_has_the_means_of_the_audit():
    rows = pd.DataFrame(json.loads((RESULTS / "audit-photos5.json").read_text()))
    assert sorted(rows["seed"].unique()) == [0, 1, 2]
    (shown,) = [t for t in tables(read("docs/labelling.md")) if "base rate" in t[0]]
    keys = ["kind", "among", "method", "scores"]
    means = 100 * rows.groupby([*keys, "at"])[["precision", "base_rate"]].mean()
    for row in shown:
        for column in (name for name in row if name.startswith("first ") and row[name]):
            at = int(column.removeprefix("first "))
            precision, base = means.loc[(*(row[key] for key in keys), at)]
            assert float(row[column]) == round(precision, 1)
            assert float(row["base rate"]) == round(base, 1)
    assert len(shown) == len(means.groupby(level=[0, 1, 2, 3]))
