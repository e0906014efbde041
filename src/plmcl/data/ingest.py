"""From a source's annotations and the files themselves to a manifest."""

import logging
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.doctor.same import first_with_same_bytes, pairs_that_look_alike
from plmcl.data.images import Recipe
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.progress import ProgressCallback

logger = logging.getLogger(__name__)


def ingest(
    annotations: Annotations,
    raw: Path,
    recipe: Recipe,
    *,
    below: str = ".",
    record: Path | None = None,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Examine every file and make the manifest: one row a file, with exactly one status.

    Files with the same bytes are one image: the first by id stays and takes over the labels of
    the others (1 wins over 0), which become "duplicate". Only images that have an official split
    are all kept: a published list stays what it is, and `duplicates.same_bytes_across` counts.

    Args:
        annotations: Of a source.
        raw: Folder that `annotations.root` is below.
        recipe: Its pixel limit applies.
        below: Posix path of `raw` below the folder that the manifest's paths start from.
        record: Of earlier examinations, so that only new and changed files are opened.
        progress: Called with (done, total) files.

    Raises:
        PlmclError: No file is usable, or a label belongs to no file.
    """
    root, files = raw / annotations.root, sorted(annotations.files)
    _refuse_strangers(annotations, files)
    findings = examine_all(root, files, recipe, record=record, progress=progress)
    usable = findings["status"].isin(USABLE).to_numpy()
    if not usable.any():
        counts = ", ".join(f"{status}: {n}" for status, n in Counter(findings["status"]).items())
        raise PlmclError(f"no images: none of the {len(files)} files below {root} is usable; "
                         f"{counts}")  # fmt: skip
    split = _texts([annotations.splits.get(file, "") for file in files])
    keeper = _keepers(findings["sha256"], usable, (split != "").to_numpy())
    images = _image_table(annotations, findings, split, below)
    names = images["image_id"].to_numpy(dtype=object)
    labels, disputed = _moved(annotations.labels, names, keeper)
    if disputed:
        logger.warning("labels that images with the same bytes dispute: %d, taken as present",
                       disputed)  # fmt: skip
    merged = np.flatnonzero(keeper != np.arange(len(files)))
    images.loc[merged, "status"] = "duplicate"
    images.loc[merged, "reason"] = [f"same bytes as {name}" for name in names[keeper[merged]]]
    return Manifest(
        images=images,
        labels=labels,
        label_names=list(annotations.label_names),
        unlisted=annotations.unlisted,
        difficult=_without_positives(_moved(annotations.difficult, names, keeper)[0], labels),
        near_duplicates=look_alikes(images),
    )


def _refuse_strangers(annotations: Annotations, files: list[str]) -> None:
    labels = annotations.labels["image_id"]
    strangers = labels[positions(labels, files) < 0].unique()
    if len(strangers):
        raise PlmclError(f"labels of {len(strangers)} images that are not listed: {strangers[0]!r}")


def _keepers(sha256: pd.Series, usable: np.ndarray, official: np.ndarray) -> np.ndarray:
    # For each row the row that it is merged into: itself, unless its bytes came before.
    rows = np.arange(len(sha256))
    # An official image comes first among those with its bytes.
    order = np.lexsort((rows, ~official))
    keeper = first_with_same_bytes(sha256, order[usable[order]])
    keeper[official] = rows[official]
    return keeper


def _moved(cells: pd.DataFrame, names: np.ndarray, keeper: np.ndarray) -> tuple[pd.DataFrame, int]:
    # `schemas.Labels` or `schemas.Difficult`, each row at the image that its own is merged into,
    # and the number of cells that came with both values
    rows = positions(cells["image_id"], _texts(names))
    target = keeper[rows]
    if (target == rows).all():
        return cells, 0
    moved = cells.assign(image_id=_texts(names[target]).to_numpy()).drop_duplicates()
    # Sorted by value last, so that of a cell's rows the last is the largest.
    moved = moved.sort_values(list(cells.columns), ignore_index=True)
    merged = moved.drop_duplicates(["image_id", "label"], keep="last", ignore_index=True)
    return merged, len(moved) - len(merged)


def _without_positives(difficult: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    # Where one of two images with the same bytes says that the label is there, it is.
    present = labels.loc[labels["value"] == 1, ["image_id", "label"]]
    found = difficult.merge(present, how="left", indicator=True)["_merge"]
    return difficult[(found == "left_only").to_numpy()].reset_index(drop=True)


def _image_table(
    annotations: Annotations, findings: pd.DataFrame, split: pd.Series, below: str
) -> pd.DataFrame:
    root = PurePosixPath(below, annotations.root)
    image_id = findings["path"]
    published = [annotations.published.get(name, -1) for name in image_id]
    return pd.DataFrame(
        {
            "image_id": image_id,
            "path": image_id if root == PurePosixPath() else str(root) + "/" + image_id,
            "sha256": findings["sha256"],
            "dhash": findings["dhash"],
            "width": findings["width"],
            "height": findings["height"],
            "bytes": findings["bytes"],
            "split": split,
            "status": findings["status"],
            "reason": findings["reason"],
            "published": np.array(published, dtype=np.int32),
            "delivery": np.zeros(len(findings), dtype=np.int32),
        }
    )


def look_alikes(images: pd.DataFrame) -> pd.DataFrame:
    """`schemas.NearDuplicates` of the usable ones among `schemas.Images`."""
    usable = images[images["status"].isin(USABLE)]
    pairs = pairs_that_look_alike(usable["image_id"], usable["sha256"], usable["dhash"])
    return pairs.rename(columns={"first": "image_id", "second": "other_id"})


def _texts(values: list[str] | np.ndarray) -> pd.Series:
    return pd.Series(values, dtype="str")
