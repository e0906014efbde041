"""Labels that are absent since they are not listed, written down where that must be said."""

import numpy as np
import pandas as pd

from plmcl.data.formats.base import LabelFile
from plmcl.ordering import positions


def with_absences(found: LabelFile, label_names: list[str]) -> pd.DataFrame:
    """The labels with a row for every label of each named image that is not called unknown.

    Args:
        found: What the label file says.
        label_names: All labels.

    Returns:
        `schemas.Labels`, sorted.
    """
    images = pd.Series(sorted(found.named), dtype="str")
    names = pd.Series(sorted(label_names), dtype="str")
    values = np.zeros((len(images), len(names)), dtype=np.int8)
    # In this order: what one row says is known, though another calls it unknown.
    for cells, value in ((found.unknown, -1), (found.labels, found.labels["value"])):
        values[positions(cells["image_id"], images), positions(cells["label"], names)] = value
    rows, columns = np.nonzero(values >= 0)
    return pd.DataFrame(
        {
            "image_id": images.take(rows).reset_index(drop=True),
            "label": names.take(columns).reset_index(drop=True),
            "value": values[rows, columns],
        }
    )
