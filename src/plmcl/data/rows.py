"""Images of one split with what is known of their labels, row by row."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.labels.matrix import to_matrix
from plmcl.ordering import positions


@dataclass(frozen=True)
class Rows:
    """N images, in the order of their ids.

    Attributes:
        image_ids: N stable ids.
        paths: N paths, as the manifest has them.
        sha256: N content hashes.
        targets: (N, L) in {0, 1}; meaningful only where `observed`.
        observed: (N, L), where the label is known.
    """

    image_ids: list[str]
    paths: list[str]
    sha256: list[str]
    targets: npt.NDArray[np.uint8]
    observed: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.image_ids)


def training_rows(manifest: Manifest, splits: pd.DataFrame, observed: pd.DataFrame) -> Rows:
    """The training images, with the labels that the setting lets a method see."""
    return _rows(manifest, splits, "train", observed)


def truth_rows(manifest: Manifest, splits: pd.DataFrame, split: str) -> Rows:
    """The images of `split`, with all that the manifest knows of their labels."""
    rows = _rows(manifest, splits, split, manifest.labels)
    rows.observed[_closed(manifest, rows)] = True  # `targets` are 0 where nothing is listed
    return rows


def difficult_cells(manifest: Manifest, rows: Rows) -> npt.NDArray[np.bool_]:
    """Where the source has difficult instances only: (N, L), in the order of `rows`."""
    cells = manifest.difficult[manifest.difficult["image_id"].isin(rows.image_ids)]
    _, difficult = to_matrix(
        cells.assign(value=np.int8(0)), rows.image_ids, manifest.label_names, unlisted="unknown"
    )
    return difficult


def positives_per_image(given: float | None, manifest: Manifest, splits: pd.DataFrame) -> float:
    """k, the expected number of positive labels of an image.

    Args:
        given: What the user says; it holds.
        manifest: The mean over those training images of which every label is known, as the
            published protocol has it (knowledge that single positives do not hold).
        splits: Which images are training images.

    Raises:
        PlmclError: Nothing is given, and no training image is completely labeled; or k is not
            between 0 and the number of labels.
    """
    k = _count_labels(manifest, splits) if given is None else given
    if not 0 < k < len(manifest.label_names):
        raise PlmclError(
            f"labels.per_image: {k:g} labels an image on average, of "
            f"{len(manifest.label_names)} labels in all; it must be above 0 and below that"
        )
    return k


def _count_labels(manifest: Manifest, splits: pd.DataFrame) -> float:
    train = truth_rows(manifest, splits, "train")
    # All labels listed as present is no sign that somebody looked for absent ones.
    looked = _closed(manifest, train) | (train.targets == 0).any(axis=1)
    complete = train.observed.all(axis=1) & looked
    if not complete.any():
        raise PlmclError(
            "labels.per_image: null, and no training image is known completely, so labels cannot "
            "be counted: say how many an image has on average, such as 1.5"
        )
    return float(train.targets[complete].sum(axis=1).mean())


def _closed(manifest: Manifest, rows: Rows) -> npt.NDArray[np.bool_]:
    closed: npt.NDArray[np.bool_] = positions(rows.image_ids, manifest.closed) >= 0
    return closed


def _rows(manifest: Manifest, splits: pd.DataFrame, split: str, labels: pd.DataFrame) -> Rows:
    ids = splits.loc[splits["split"] == split, "image_id"]
    images = manifest.usable[manifest.usable["image_id"].isin(ids)].sort_values("image_id")
    image_ids = images["image_id"].tolist()
    targets, observed = to_matrix(
        labels[labels["image_id"].isin(image_ids)],
        image_ids,
        manifest.label_names,
        unlisted="unknown",
    )
    return Rows(image_ids, images["path"].tolist(), images["sha256"].tolist(), targets, observed)
