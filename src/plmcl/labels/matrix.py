"""Label tables as matrices."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from plmcl.data.manifest import Unlisted
from plmcl.errors import PlmclError
from plmcl.ordering import positions


def to_matrix(
    labels: pd.DataFrame,
    image_ids: Sequence[str],
    label_names: Sequence[str],
    *,
    unlisted: Unlisted,
) -> tuple[np.ndarray, np.ndarray]:
    """Spread long-form labels over images (rows) and labels (columns).

    Args:
        labels: `schemas.Labels` or `schemas.ObservedLabels`, of these images only.
        image_ids: Of the N rows, in this order.
        label_names: Of the L columns, in this order.
        unlisted: What an entry without a row is.

    Returns:
        `targets`, uint8 (N, L), 0 where unknown, and `observed`, bool (N, L).

    Raises:
        PlmclError: A row speaks of another image or of another label.
    """
    rows = _positions(labels, "image_id", image_ids)
    columns = _positions(labels, "label", label_names)
    shape = (len(image_ids), len(label_names))
    targets = np.zeros(shape, dtype=np.uint8)
    observed = np.full(shape, unlisted == "negative")
    targets[rows, columns] = labels["value"].to_numpy()
    observed[rows, columns] = True
    return targets, observed


def _positions(labels: pd.DataFrame, column: str, known: Sequence[str]) -> np.ndarray:
    found = positions(labels[column], known)
    if (found < 0).any():
        unknown = labels[column].iloc[int(np.argmin(found))]
        raise PlmclError(f"labels: {column} {unknown!r} is not one of the {len(known)} known ones")
    return found
