"""What is known already, by its bytes: it is not received a second time."""

from pathlib import Path

import numpy as np
import pandas as pd

from plmcl.data.doctor.same import first_with_same_bytes
from plmcl.data.statuses import FORGOTTEN, USABLE
from plmcl.ordering import positions
from plmcl.retraining.store import Store, read_columns


def name_duplicates(examined: pd.DataFrame, store: Store, known: Path) -> None:
    """Turn the status of files whose bytes are known to "duplicate"; the reason names the image.

    Args:
        examined: As from `examine_all`; changed in place. Of files with the same bytes the first
            stands for them all. Files that cannot be used keep their status.
        store: Of earlier deliveries.
        known: images.parquet of the manifest; it need not exist.
    """
    usable = examined["status"].isin(USABLE).to_numpy()
    earlier = _known_images(store, known)
    at = np.where(usable, positions(examined["sha256"], earlier["sha256"]), -1)
    before = np.flatnonzero(at >= 0)
    first = first_with_same_bytes(examined["sha256"], np.flatnonzero(usable))
    again = np.flatnonzero((at < 0) & (first != np.arange(len(first))))
    number = store.next_number
    twins = [
        *earlier["image_id"].iloc[at[before]],
        *(delivered_id(number, name) for name in examined["path"].iloc[first[again]]),
    ]
    rows = np.concatenate([before, again])
    examined.loc[rows, "status"] = "duplicate"
    examined.loc[rows, "reason"] = [f"same bytes as {twin}" for twin in twins]


def delivered_id(number: int, name: str) -> str:
    """The image id of a file of a delivery."""
    return f"delivered/{number:04d}/{name}"


def _known_images(store: Store, known: Path) -> pd.DataFrame:
    # `image_id` and `sha256` of all images that can be used, or were to be forgotten
    delivered = store.read(["name", "sha256", "status"])
    ids = map(delivered_id, delivered["number"], delivered["name"])
    tables = [delivered.assign(image_id=pd.Series(list(ids), dtype="str"))]
    if known.exists():
        tables.append(read_columns(known, ["image_id", "sha256", "status"]))
    known_ones = [table[table["status"].isin([*USABLE, FORGOTTEN])] for table in tables]
    return pd.concat([table[["image_id", "sha256"]] for table in known_ones], ignore_index=True)
