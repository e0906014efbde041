"""A run's scores on the test split beside what is known there, and what follows from the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.ranking import Bools
from plmcl.reliability import both_known
from plmcl.report.results import Result

# The smallest score that counts as such: a certain mistake is far off, and not infinitely.
_NEAREST = 1e-6


@dataclass(frozen=True)
class Scores:
    """Scores of N test images for L labels.

    Attributes:
        image_ids: N, sorted.
        targets: (N, L) in {0, 1}; counts where `observed`.
        observed: (N, L) bool.
        probs: (N, L) float32.
    """

    image_ids: list[str]
    targets: NDArray[np.uint8]
    observed: Bools
    probs: NDArray[np.float32]

    @property
    def is_judged(self) -> bool:
        """Whether known cells of both kinds say what the scores are worth."""
        return both_known(self.targets, self.observed)

    def order(self) -> list[str]:
        """The images of which something is known, from the best scored to the worst.

        By the mean cross entropy of an image's known cells.
        """
        probs = np.clip(self.probs.astype(np.float64), _NEAREST, 1 - _NEAREST)
        entropy = -np.log(np.where(self.targets == 1, probs, 1 - probs))
        known = self.observed.sum(axis=1)
        mean = np.where(self.observed, entropy, 0).sum(axis=1) / np.maximum(known, 1)
        places = np.argsort(mean, kind="stable")
        return [self.image_ids[place] for place in places if known[place]]


def read_scores(folder: Path, manifest: Manifest) -> Scores:
    """Read a run's predictions.parquet; images that the manifest does not have are left out.

    Raises:
        PlmclError: The file is missing, or has other labels than the manifest, or not all of them
            for each image.
    """
    path = folder / "predictions.parquet"
    table = schemas.read_table(path, schemas.Predictions)
    ids = pd.DataFrame({"image_id": table["image_id"].unique()}, dtype="str")
    rows = truth_rows(manifest, ids.assign(split="test"), "test")
    columns = positions(table["label"], manifest.label_names)
    if (columns < 0).any():
        strange = table["label"].iloc[int(np.argmin(columns))]
        raise PlmclError(
            f"{folder}: predictions.parquet has label {strange!r}, the label list has not; run "
            "the evaluate stage again"
        )
    places = positions(table["image_id"], rows.image_ids)
    here = places >= 0
    probs = np.full(rows.targets.shape, np.nan, dtype=np.float32)
    probs[places[here], columns[here]] = table["score"].to_numpy()[here]
    if np.isnan(probs).any():
        raise PlmclError(f"{path}: an image lacks scores; run the evaluate stage again")
    return Scores(rows.image_ids, rows.targets, rows.observed, probs)


def thresholds_of(result: Result, label_names: Sequence[str]) -> NDArray[np.float32]:
    """The threshold of each label, as per_label.csv has it.

    Raises:
        PlmclError: It lacks a label.
    """
    places = positions(label_names, result.per_label["label"])
    if (places < 0).any():
        strange = label_names[int(np.argmin(places))]
        raise PlmclError(
            f"{result.folder}: predictions.parquet has label {strange!r}, per_label.csv has "
            "not; run the evaluate stage again"
        )
    thresholds: NDArray[np.float32] = result.per_label["threshold"].to_numpy(np.float32)[places]
    return thresholds


@dataclass(frozen=True)
class Cooccurrence:
    """How often label b is present where label a is.

    Attributes:
        labels: The A labels that occur most often, that one first.
        counts: (A,), of how many images that is.
        truth: (A, A) P(b|a) over images where b is known; NaN where a = b or nothing is known.
        predicted: (A, A), the same of what is predicted; NaN where a is never predicted.
    """

    labels: list[str]
    counts: NDArray[np.int64]
    truth: NDArray[np.float64]
    predicted: NDArray[np.float64]

    def farthest(self, number: int) -> list[tuple[str, str, int, float, float]]:
        """The pairs whose two shares differ most: a, b, images with a, true and predicted."""
        gap = np.abs(self.predicted - self.truth)
        # A share of few images says little.
        gap[self.counts < max(5, self.counts.max() // 20)] = np.nan
        order = np.argsort(-np.nan_to_num(gap, nan=-1), axis=None, kind="stable")[:number]
        pairs = [np.unravel_index(place, gap.shape) for place in order]
        return [
            (
                self.labels[a],
                self.labels[b],
                int(self.counts[a]),
                float(self.truth[a, b]),
                float(self.predicted[a, b]),
            )
            for a, b in pairs
            if not np.isnan(gap[a, b])
        ]


def cooccurrence(
    scores: Scores, thresholds: NDArray[Any], label_names: Sequence[str], number: int
) -> Cooccurrence:
    """Of the `number` labels that are known to be present most often.

    Args:
        scores: Of the test split.
        thresholds: (L,), of each label.
        label_names: L names.
        number: A, or fewer if fewer occur.
    """
    present = scores.observed & (scores.targets == 1)
    counts = present.sum(axis=0)
    chosen = np.argsort(-counts, kind="stable")[:number]
    chosen = chosen[counts[chosen] > 0]
    here = present[:, chosen].astype(np.float64)
    said = (scores.probs >= thresholds)[:, chosen].astype(np.float64)
    known = scores.observed[:, chosen].astype(np.float64)
    with np.errstate(invalid="ignore"):  # 0 of 0
        truth = (here.T @ here) / (here.T @ known)
        predicted = (said.T @ said) / said.sum(axis=0)[:, None]
    for shares in (truth, predicted):
        np.fill_diagonal(shares, np.nan)
    names = [label_names[column] for column in chosen]
    return Cooccurrence(names, counts[chosen], truth, predicted)
