"""Small grids and results of them, for tests of what reads them."""

from typing import Any

import pandas as pd

from plmcl.grid.results import COLUMNS
from plmcl.grid.spec import GridSpec
from plmcl.params import parse_section


def grid(rows: dict[str, dict[str, Any]], **others: Any) -> GridSpec:
    """A grid of two seeds under two settings; a row's method is `epr` where it does not say."""
    values = {"title": "Example", "seeds": [0, 1], "settings": ["sspl-20", "fspl"]} | others
    rows = {name: {"method": "epr"} | row for name, row in rows.items()}
    return parse_section(GridSpec, values | {"rows": rows}, "grid")


def runs(*lines: tuple[Any, ...], selection: str = "val/mAP") -> pd.DataFrame:
    """Results as they are read from a file.

    Args:
        lines: (row, setting, candidate, val, test): fractions, `val` and `test` by seed from 0;
            None where a run is missing.
        selection: What chose them.
    """
    table = [
        ("method", "epr"), ("selection", selection), ("best_epoch", 1), ("seconds", 1.0),
        ("device", "cpu"), ("identity", "0"),
    ]  # fmt: skip
    made = [
        dict(table) | {"row": row, "setting": setting, "candidate": candidate, "seed": seed}
        | {"val": v, "test": t}
        for row, setting, candidate, val, test in lines
        for seed, (v, t) in enumerate(zip(val, test, strict=True))
        if v is not None
    ]  # fmt: skip
    return pd.DataFrame(made, columns=list(COLUMNS)).astype({"seed": int, "val": float})
