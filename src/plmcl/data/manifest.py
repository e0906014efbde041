"""A manifest: the images of a source, what is known of their labels, and the label list."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.schemas import (
    Difficult,
    Images,
    Labels,
    NearDuplicates,
    read_table,
    validate_manifest,
    write_table,
)

Unlisted = Literal["negative", "unknown"]


def no_cells() -> pd.DataFrame:
    """An empty table of (image_id, label)."""
    return pd.DataFrame({"image_id": [], "label": []}, dtype="str")


def _no_pairs() -> pd.DataFrame:
    pairs = pd.DataFrame({"image_id": [], "other_id": [], "distance": []}, dtype="str")
    return pairs.astype({"distance": np.int32})


@dataclass(frozen=True)
class Manifest:
    """Every image that is known, one row each, and every label that somebody gave.

    Attributes:
        images: `schemas.Images`: one row a file, also for files that cannot be used.
        labels: `schemas.Labels`: (image_id, label, value), value 0 or 1; no row means "unlisted".
        label_names: All labels, in the order of the model's outputs; the only label list there is.
        unlisted: What no row means of an image of the base set: the label is absent (`negative`)
            or nobody looked (`unknown`). Of a delivered image it is always unknown.
        difficult: `schemas.Difficult`: cells that published lists call difficult. `labels` says
            what is made of them; figures are given both ways.
        near_duplicates: `schemas.NearDuplicates`: pairs of usable images that look alike.
    """

    images: pd.DataFrame
    labels: pd.DataFrame
    label_names: list[str]
    unlisted: Unlisted
    difficult: pd.DataFrame = field(default_factory=no_cells)
    near_duplicates: pd.DataFrame = field(default_factory=_no_pairs)

    @property
    def usable(self) -> pd.DataFrame:
        """The images that can be trained on and predicted."""
        return self.images[self.images["status"].isin(USABLE)]

    @property
    def closed(self) -> pd.Series:
        """Ids of the images of which a label without a row is absent."""
        base = self.images.loc[self.images["delivery"] == 0, "image_id"]
        return base if self.unlisted == "negative" else base[:0]

    def write(self, directory: Path) -> None:
        """Check the tables and write them, with the label list, to `directory`."""
        validate_manifest(self, report_to=directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_table(self.images, directory / "images.parquet")
        write_table(self.labels, directory / "labels.parquet")
        write_table(self.difficult, directory / "difficult.parquet")
        write_table(self.near_duplicates, directory / "near_duplicates.parquet")
        record = {
            "label_names": self.label_names,
            "label_names_sha256": label_names_sha256(self.label_names),
            "unlisted": self.unlisted,
        }
        text = json.dumps(record, indent=2, ensure_ascii=False)
        (directory / "labels.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Read what `write` wrote.

        Raises:
            PlmclError: A file is missing, or the label list does not match its checksum.
        """
        path = directory / "labels.json"
        if not path.exists():
            raise PlmclError(f"{path}: not found; run the ingest stage first")
        record = json.loads(path.read_text(encoding="utf-8"))
        if label_names_sha256(record["label_names"]) != record["label_names_sha256"]:
            raise PlmclError(f"{path}: label_names were edited by hand: their checksum differs")
        return cls(
            images=read_table(directory / "images.parquet", Images),
            labels=read_table(directory / "labels.parquet", Labels),
            label_names=record["label_names"],
            unlisted=record["unlisted"],
            difficult=read_table(directory / "difficult.parquet", Difficult),
            near_duplicates=read_table(directory / "near_duplicates.parquet", NearDuplicates),
        )


def label_names_sha256(label_names: list[str]) -> str:
    """Checksum of an ordered label list."""
    return hashlib.sha256(json.dumps(label_names, ensure_ascii=False).encode()).hexdigest()
