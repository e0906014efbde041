"""Images that were delivered after the base set: read from their tables, added to a manifest.

A folder of deliveries has for each, by its number, a table (`0001.parquet`, `schemas.Delivery`)
and a folder of its accepted images (`0001/`).
"""

import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.doctor.same import first_with_same_bytes
from plmcl.data.images import Recipe
from plmcl.data.ingest import look_alikes
from plmcl.data.manifest import Manifest
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.progress import ProgressCallback
from plmcl.schemas import Delivery, read_table

logger = logging.getLogger(__name__)

CHANGED = "its bytes are not those that were received"


def read_deliveries(folder: Path) -> list[tuple[int, pd.DataFrame]]:
    """The number and the table (`schemas.Delivery`) of each delivery, in the order of the numbers.

    Args:
        folder: One without any table, or that does not exist, has no deliveries.

    Raises:
        PlmclError: A table cannot be read, or breaks its contract.
    """
    files = [file for file in folder.glob("*.parquet") if re.fullmatch("[0-9]{4,}", file.stem)]
    files.sort(key=lambda file: int(file.stem))
    return [(int(file.stem), read_table(file, Delivery)) for file in files]


def append_deliveries(
    manifest: Manifest,
    folder: Path,
    recipe: Recipe,
    *,
    below: str,
    record: Path | None = None,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Add the accepted images of all deliveries; the rows and labels of the base set stay.

    Each is examined again, so that a file that was damaged since is found. One with the bytes of
    a base image, or of an earlier delivery's, is a "duplicate". A tag is a positive label of the
    delivered image that has the bytes; what is known of a base image is for its source to say.

    Args:
        manifest: The base set.
        folder: Of the deliveries.
        recipe: Its pixel limit applies.
        below: Posix path of `folder` below the one that the manifest's paths start from.
        record: Of earlier examinations, so that only new and changed files are opened.
        progress: Called with (done, total) files.

    Raises:
        PlmclError: A table is damaged, or a tag is not in the label list.
    """
    listed = _listed(read_deliveries(folder))
    accepted = listed[listed["status"].isin(USABLE)].reset_index(drop=True)
    if accepted.empty:
        return manifest
    findings = examine_all(
        folder, accepted["file"].tolist(), recipe, record=record, progress=progress
    )
    _refuse_changed(findings, accepted["sha256"])
    images = pd.concat(
        [manifest.images, _image_table(accepted, findings, below)], ignore_index=True
    )
    _merge_same_bytes(images, len(manifest.images))
    return replace(
        manifest,
        images=images,
        labels=pd.concat([manifest.labels, _tags(listed, images, manifest)], ignore_index=True),
        near_duplicates=look_alikes(images),
    )


def _listed(deliveries: list[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    # The accepted files and the duplicates of all tables, with `number` and, below the folder of
    # the deliveries, `file`.
    columns = ["number", "file", "status", "sha256", "label"]
    tables = [pd.DataFrame(columns=columns, dtype="str")]
    for number, table in deliveries:
        kept = table[table["status"].isin([*USABLE, "duplicate"])].sort_values("name")
        kept = kept.assign(number=np.int32(number), file=f"{number:04d}/" + kept["name"])
        tables.append(kept[columns])
    return pd.concat(tables, ignore_index=True)


def _refuse_changed(findings: pd.DataFrame, received: pd.Series) -> None:
    changed = findings["status"].isin(USABLE) & (findings["sha256"] != received)
    findings.loc[changed, ["status", "reason"]] = ["unreadable", CHANGED]
    findings.loc[changed, "dhash"] = ""
    findings.loc[changed, ["width", "height"]] = np.int32(0)


def _image_table(accepted: pd.DataFrame, findings: pd.DataFrame, below: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "image_id": "delivered/" + accepted["file"],
            "path": f"{below}/" + accepted["file"],
            "sha256": findings["sha256"],
            "dhash": findings["dhash"],
            "width": findings["width"],
            "height": findings["height"],
            "bytes": findings["bytes"],
            "split": pd.Series("", index=accepted.index, dtype="str"),
            "status": findings["status"],
            "reason": findings["reason"],
            "published": np.full(len(accepted), -1, dtype=np.int32),
            "delivery": accepted["number"].astype(np.int32),
        }
    )


def _merge_same_bytes(images: pd.DataFrame, num_base: int) -> None:
    # The rows are the base set's, and then those of the deliveries in their order: the first
    # usable one with some bytes is kept. Base rows were compared by their own rules.
    keeper = first_with_same_bytes(images["sha256"], _usable_rows(images))
    merged = np.flatnonzero(keeper != np.arange(len(images)))
    merged = merged[merged >= num_base]
    kept = images["image_id"].to_numpy(dtype=object)[keeper[merged]]
    images.loc[merged, "status"] = "duplicate"
    images.loc[merged, "reason"] = [f"same bytes as {image_id}" for image_id in kept]


def _tags(listed: pd.DataFrame, images: pd.DataFrame, base: Manifest) -> pd.DataFrame:
    # `schemas.Labels` of the delivered images.
    tagged = listed[listed["label"] != ""]
    own = positions("delivered/" + tagged["file"], images["image_id"])
    usable = _usable_rows(images)
    same = positions(tagged["sha256"], images["sha256"].iloc[usable])
    # A damaged file keeps its tag, as in the base set: whoever repairs it finds it.
    rows = np.where(same >= 0, usable[same], own)
    of_base = (rows >= 0) & (rows < len(base.images))
    if of_base.any():
        logger.warning(
            "tags of delivered files that the base set has: %d, not used: its labels are its "
            "source's to say",
            of_base.sum(),
        )
    rows, tagged = rows[rows >= len(base.images)], tagged[rows >= len(base.images)]
    unknown = tagged[positions(tagged["label"], base.label_names) < 0]
    if len(unknown):
        first = unknown.iloc[0]
        raise PlmclError(
            f"deliveries: {first['file']}: label {first['label']!r} is not one of the "
            f"{len(base.label_names)} labels"
        )
    cells = pd.DataFrame(
        {
            "image_id": images["image_id"].iloc[rows].array,
            "label": tagged["label"].array,
            "value": np.ones(len(rows), dtype=np.int8),
        }
    )
    return cells.drop_duplicates(ignore_index=True)


def _usable_rows(images: pd.DataFrame) -> npt.NDArray[np.int64]:
    return np.flatnonzero(images["status"].isin(USABLE))
