"""Small tables that meet their contracts, for tests of what reads them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from plmcl import schemas
from plmcl.data.cells import Cells
from plmcl.data.manifest import Manifest

_TEXTS = {"sha256": "", "dhash": "", "split": "", "status": "ok", "reason": ""}
_NUMBERS = {
    "width": np.int32(4), "height": np.int32(3), "bytes": np.int64(9),
    "published": np.int32(-1), "delivery": np.int32(0),
}  # fmt: skip


def image_table(image_ids: Sequence[str], **columns: Any) -> pd.DataFrame:
    """A table of `schemas.Images`; the columns named are filled with a value or N values."""
    contract = schemas.Images.to_schema()
    values = {"image_id": image_ids, "path": image_ids} | _TEXTS | _NUMBERS | columns
    index = range(len(image_ids))
    types = {name: column.dtype.type for name, column in contract.columns.items()}
    return pd.DataFrame(
        {name: pd.Series(values[name], index=index).astype(types[name]) for name in types}
    )


def label_table(values: Mapping[tuple[str, str], int]) -> pd.DataFrame:
    """A table of `schemas.Labels` of (image id, label) -> value."""
    cells = Cells()
    for (image_id, label), value in values.items():
        cells.add(image_id, label, value)
    return cells.table()


def manifest(
    image_ids: Sequence[str],
    values: Mapping[tuple[str, str], int] | None = None,
    label_names: Sequence[str] = ("cat", "dog", "elk"),
    unlisted: Any = "negative",
    **columns: Any,
) -> Manifest:
    """A manifest of `image_table` and `label_table`."""
    images = image_table(image_ids, **columns)
    return Manifest(images, label_table(values or {}), list(label_names), unlisted)
