"""From a source's annotations and the files themselves to a manifest."""

from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.doctor.near_duplicates import near_duplicates
from plmcl.data.images import Recipe
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.progress import ProgressCallback


def ingest(
    annotations: Annotations,
    raw: Path,
    recipe: Recipe,
    *,
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
    images = _image_table(annotations, findings, split)
    merged = np.flatnonzero(keeper != np.arange(len(files)))
    names = images["image_id"].to_numpy(dtype=object)
    images.loc[merged, "status"] = "duplicate"
    images.loc[merged, "reason"] = [f"same bytes as {name}" for name in names[keeper[merged]]]
    return Manifest(
        images=images,
        labels=_moved(annotations.labels, names, keeper),
        label_names=list(annotations.label_names),
        unlisted=annotations.unlisted,
        difficult=_moved(annotations.difficult, names, keeper),
        near_duplicates=_near_duplicates(images),
    )


def _refuse_strangers(annotations: Annotations, files: list[str]) -> None:
    labels = annotations.labels["image_id"]
    strangers = labels[positions(labels, files) < 0].unique()
    if len(strangers):
        raise PlmclError(f"labels of {len(strangers)} images that are not listed: {strangers[0]!r}")


def _keepers(sha256: pd.Series, usable: np.ndarray, official: np.ndarray) -> np.ndarray:
    # For each row the row that it is merged into: itself, unless its bytes came before.
    rows = np.arange(len(sha256))
    keeper = rows.copy()
    # An official image comes first among those with its bytes.
    order = np.lexsort((rows, ~official))
    order = order[usable[order]]
    first = positions(sha256.iloc[order], sha256.iloc[order])
    keeper[order] = order[first]
    keeper[official] = rows[official]
    return keeper


def _moved(cells: pd.DataFrame, names: np.ndarray, keeper: np.ndarray) -> pd.DataFrame:
    # `schemas.Labels` or `schemas.Difficult`, each row at the image that its own is merged into
    rows = positions(cells["image_id"], _texts(names))
    target = keeper[rows]
    if (target == rows).all():
        return cells
    moved = cells.assign(image_id=_texts(names[target]).to_numpy())
    columns = ["image_id", "label", *cells.columns[2:]]
    # Sorted by value last, so that of a cell's rows the last is the largest.
    moved = moved.sort_values(columns, ignore_index=True)
    return moved.drop_duplicates(["image_id", "label"], keep="last", ignore_index=True)


def _image_table(
    annotations: Annotations, findings: pd.DataFrame, split: pd.Series
) -> pd.DataFrame:
    root = PurePosixPath(annotations.root)
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


def _near_duplicates(images: pd.DataFrame) -> pd.DataFrame:
    candidates = images[images["status"].isin(USABLE) & (images["dhash"] != "")]
    pairs = near_duplicates(candidates["dhash"].tolist())
    # Equal bytes that a published list holds twice are told elsewhere.
    content = candidates["sha256"].to_numpy(dtype=object)
    first, second, distance = pairs[content[pairs[:, 0]] != content[pairs[:, 1]]].T
    return pd.DataFrame(
        {
            "image_id": candidates["image_id"].iloc[first].to_numpy(),
            "other_id": candidates["image_id"].iloc[second].to_numpy(),
            "distance": distance.astype(np.int32),
        }
    ).astype({"image_id": "str", "other_id": "str"})


def _texts(values: list[str] | np.ndarray) -> pd.Series:
    return pd.Series(values, dtype="str")
