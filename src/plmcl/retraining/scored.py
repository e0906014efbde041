"""A model's probabilities on a test split, beside what is known of its images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from plmcl.data.rows import Rows
from plmcl.errors import PlmclError
from plmcl.labels.matrix import to_matrix
from plmcl.ordering import positions
from plmcl.ranking import Bools


@dataclass(frozen=True)
class Scored:
    """A model with its probabilities on a test split.

    Attributes:
        version: Such as `v0002`.
        predictions: `schemas.Predictions`: every image with every label that the model knows.
        truth: `image_id`, `label`, `value`: what is known of those images; no row means unknown.
        model: The ONNX file.
        complete: Whether every label of every image is known.
    """

    version: str
    predictions: pd.DataFrame
    truth: pd.DataFrame
    model: Path
    complete: bool


@dataclass(frozen=True)
class Cells:
    """Images (N) by labels (L).

    Attributes:
        image_ids: N ids, in their order.
        label_names: L names, in the model's order.
        probs: (N, L).
        targets: (N, L) in {0, 1}, 0 where unknown.
        observed: (N, L).
    """

    image_ids: list[str]
    label_names: list[str]
    probs: NDArray[np.float32]
    targets: NDArray[np.uint8]
    observed: NDArray[np.bool_]

    @classmethod
    def of(cls, scored: Scored) -> "Cells":
        """The tables as matrices.

        Raises:
            PlmclError: An image lacks a label's probability, or the truth speaks of an image or a
                label without one.
        """
        table = scored.predictions
        image_ids = sorted(table["image_id"].unique().tolist())
        label_names = table["label"].unique().tolist()
        probs = np.full((len(image_ids), len(label_names)), np.nan, dtype=np.float32)
        rows = positions(table["image_id"], image_ids)
        probs[rows, positions(table["label"], label_names)] = table["score"].to_numpy()
        if len(table) != probs.size or np.isnan(probs).any():
            raise PlmclError(
                f"predictions of {scored.version}: expected one for each of {len(image_ids)} "
                f"images and {len(label_names)} labels, found {len(table)}"
            )
        try:
            targets, observed = to_matrix(scored.truth, image_ids, label_names, unlisted="unknown")
        except PlmclError as error:
            raise PlmclError(
                f"truth of {scored.version} is not of the images and labels of its predictions: "
                f"{error}; `plmcl refreeze` makes the champion's anew"
            ) from None
        return cls(image_ids, label_names, probs, targets, observed)

    def of_labels(self, label_names: Sequence[str]) -> "Cells":
        """The columns of some of the labels, in this order."""
        columns = positions(label_names, self.label_names)
        return Cells(
            self.image_ids,
            list(label_names),
            self.probs[:, columns],
            self.targets[:, columns],
            self.observed[:, columns],
        )

    def difference(self, other: "Cells") -> str:
        """How the split and the truth of `other` (the same labels) differ from these, in words.

        "" if they do not: probabilities are not compared.
        """
        at = positions(self.image_ids, other.image_ids)
        both, rows = at >= 0, at[at >= 0]
        counts = {
            "new images": len(other.image_ids) - len(rows),
            "images that are gone": int((~both).sum()),
            "labels known only now": _count(other.observed[rows] & ~self.observed[both]),
            "labels no longer known": _count(self.observed[both] & ~other.observed[rows]),
            "labels that changed": _count(
                self.observed[both]
                & other.observed[rows]
                & (self.targets[both] != other.targets[rows])
            ),
        }
        return ", ".join(f"{words}: {count:,}" for words, count in counts.items() if count)


def truth_table(rows: Rows, label_names: Sequence[str]) -> pd.DataFrame:
    """What is known of images as `schemas.Labels`: one row for each known label of each image."""
    image, label = np.nonzero(rows.observed)
    table = pd.DataFrame(
        {
            "image_id": np.array(rows.image_ids, dtype=object)[image],
            "label": np.array(label_names, dtype=object)[label],
            "value": rows.targets[image, label].astype(np.int8),
        }
    )
    return table.astype({"image_id": "str", "label": "str"})


def _count(cells: Bools) -> int:
    return int(np.count_nonzero(cells))
