"""Some test images, with what a model says of them and what is true."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import pandas as pd
from PIL import Image

from plmcl import schemas
from plmcl.data.images import ImageProblem, Recipe, decode
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.report.results import Result

IMAGES = 12
PAIRS = 6
SIDE = 320
RECIPE = Recipe(size=SIDE, background=(255, 255, 255), max_pixels=50_000_000)

Verdict = Literal["right", "wrong", "unknown", "missed"]


@dataclass(frozen=True)
class Tag:
    """A label of an image: what was predicted, and whether that is so.

    Attributes:
        label: Its name.
        score: In [0, 1].
        verdict: Predicted: `right`, `wrong`, or `unknown` (nobody looked). Or true and `missed`.
    """

    label: str
    score: float
    verdict: Verdict


@dataclass(frozen=True)
class Tile:
    """One image of the gallery.

    Attributes:
        image_id: Its name.
        picture: A small JPEG as a data URI.
        true: Labels that are known to be true.
        predicted: Surest first.
        missed: True and not predicted, the nearest first.
    """

    image_id: str
    picture: str
    true: list[str]
    predicted: list[Tag]
    missed: list[Tag]


def make_gallery(result: Result, manifest: Manifest, root: Path) -> list[Tile]:
    """Test images spread evenly over their sorted ids, without those whose file is gone.

    Args:
        result: Whose scores and thresholds are shown.
        manifest: The images' paths and labels.
        root: The folder that the paths start from.
    """
    scores = schemas.read_table(result.folder / "predictions.parquet", schemas.Predictions)
    paths = manifest.usable.set_index("image_id")["path"]
    ids = sorted(set(scores["image_id"].unique()) & set(paths.index))
    places = sorted({round(place) for place in np.linspace(0, len(ids) - 1, IMAGES)}) if ids else []
    chosen = [ids[place] for place in places]
    scores = scores[scores["image_id"].isin(chosen)]
    labels = manifest.labels[manifest.labels["image_id"].isin(chosen)]
    thresholds = result.per_label.set_index("label")["threshold"].astype(np.float32)
    if strange := sorted(set(scores["label"].unique()) - set(thresholds.index)):
        raise PlmclError(
            f"{result.folder}: predictions.parquet has label {strange[0]!r}, per_label.csv has "
            "not; run the evaluate stage again"
        )
    tiles = []
    for image_id in chosen:
        picture = thumbnail(root, paths[image_id])
        if picture is not None:
            mine = labels[labels["image_id"] == image_id]
            known = dict(zip(mine["label"], mine["value"], strict=True))
            true = [label for label in manifest.label_names if known.get(label) == 1]
            said = scores[scores["image_id"] == image_id].set_index("label")["score"]
            tags = _tags(said, thresholds, known, unlisted=manifest.unlisted)
            tiles.append(Tile(image_id, picture, true, *tags))
    return tiles


@dataclass(frozen=True)
class Picture:
    """An image as a page shows it.

    Attributes:
        name: Its id or path.
        data: A small JPEG as a data URI; None where the file is gone.
        remark: What is said of it; "" for nothing.
    """

    name: str
    data: str | None
    remark: str = ""


@dataclass(frozen=True)
class Pair:
    """Two images that look alike.

    Attributes:
        first: One.
        second: The other.
        distance: Bits in which their difference hashes differ.
    """

    first: Picture
    second: Picture
    distance: int


def make_pairs(alike: pd.DataFrame, manifest: Manifest, root: Path) -> list[Pair]:
    """The first pairs, each image with its split.

    Args:
        alike: Of `duplicates.alike_across`.
        manifest: The images' paths.
        root: The folder that the paths start from.
    """
    paths = manifest.usable.set_index("image_id")["path"]

    def picture(name: str, split: str) -> Picture:
        return Picture(name, thumbnail(root, paths[name]), split)

    return [
        Pair(
            picture(row["image_id"], row["split"]),
            picture(row["other_id"], row["other_split"]),
            row["distance"],
        )
        for row in alike.head(PAIRS).to_dict("records")
    ]


def _tags(
    scores: "pd.Series[float]",
    thresholds: "pd.Series[float]",
    known: dict[str, int],
    *,
    unlisted: str,
) -> tuple[list[Tag], list[Tag]]:
    predicted: list[Tag] = []
    missed: list[Tag] = []
    for label, score in sorted(scores.items(), key=lambda item: (-item[1], str(item[0]))):
        name = str(label)
        value = known.get(name, 0 if unlisted == "negative" else None)
        if score >= thresholds[name]:
            verdict: Verdict = "unknown" if value is None else "right" if value else "wrong"
            predicted.append(Tag(name, float(score), verdict))
        elif value:
            missed.append(Tag(name, float(score), "missed"))
    return predicted, missed


def thumbnail(root: Path, path: str) -> str | None:
    """A data URI, or None if there is no such image below `root`."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        return None
    try:
        image = Image.fromarray(decode(root / parts, RECIPE))
    except ImageProblem:
        return None
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def verdicts(tiles: Sequence[Tile]) -> list[Verdict]:
    """The verdicts that occur, in a fixed order: what a legend has to explain."""
    order: tuple[Verdict, ...] = ("right", "wrong", "unknown", "missed")
    present = {tag.verdict for tile in tiles for tag in tile.predicted + tile.missed}
    return [verdict for verdict in order if verdict in present]
