"""Some images, with what a model or its pseudo labels say of them and what is true."""

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from plmcl.data.images import ImageProblem, Recipe, decode
from plmcl.data.manifest import Manifest
from plmcl.report.scores import Scores

IMAGES = 12
EXTREMES = 4
CHANGES = 8
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

    @property
    def tags(self) -> list[Tag]:
        """All that have a verdict."""
        return self.predicted + self.missed


@dataclass(frozen=True)
class Change:
    """A training image whose labels training has changed.

    Attributes:
        image_id: Its name.
        picture: A small JPEG as a data URI.
        given: Labels that training was shown.
        added: Labels whose pseudo label says that they are there, the surest first.
    """

    image_id: str
    picture: str
    given: list[str]
    added: list[Tag]


def spread(ids: Sequence[str]) -> list[str]:
    """Some of the ids, spread evenly over them."""
    places = {round(place) for place in np.linspace(0, len(ids) - 1, IMAGES)} if ids else set()
    return [ids[place] for place in sorted(places)]


def make_gallery(
    ids: Sequence[str],
    scores: Scores,
    thresholds: NDArray[np.float32],
    manifest: Manifest,
    root: Path,
) -> list[Tile]:
    """Test images as they were scored, without those whose file is gone.

    Args:
        ids: Which, in order.
        scores: Of the test split.
        thresholds: (L,), of each label.
        manifest: The images' paths, and the label list.
        root: The folder that the paths start from.
    """
    paths = manifest.usable.set_index("image_id")["path"]
    place = {image_id: row for row, image_id in enumerate(scores.image_ids)}
    tiles = []
    for image_id in ids:
        picture = thumbnail(root, paths[image_id])
        if picture is not None:
            row = place[image_id]
            known = {
                manifest.label_names[column]: int(scores.targets[row, column])
                for column in np.flatnonzero(scores.observed[row])
            }
            true = [label for label in manifest.label_names if known.get(label) == 1]
            tags = _tags(manifest.label_names, scores.probs[row], thresholds, known)
            tiles.append(Tile(image_id, picture, true, *tags))
    return tiles


def make_changes(changed: pd.DataFrame, manifest: Manifest, root: Path) -> list[Change]:
    """The training images that pseudo labels changed most, those whose file is there.

    Args:
        changed: `results.CHANGED`.
        manifest: The images' paths, and the truth that the added labels are held against.
        root: The folder that the paths start from.
    """
    usable = manifest.usable
    paths = usable.set_index("image_id")["path"]
    closed = set(manifest.closed)
    labels = manifest.labels[manifest.labels["image_id"].isin(changed["image_id"])]
    truth = dict(
        zip(zip(labels["image_id"], labels["label"], strict=True), labels["value"], strict=True)
    )
    found: list[Change] = []
    for image_id, rows in changed.groupby("image_id", sort=False):
        picture = thumbnail(root, paths[image_id]) if image_id in paths.index else None
        if picture is None or len(found) == CHANGES:
            continue
        added = []
        for row in rows[rows["observed"] == 0].to_dict("records"):
            value = truth.get((image_id, row["label"]), 0 if image_id in closed else None)
            added.append(Tag(row["label"], row["pseudo_label"], _verdict(value)))
        given = rows.loc[rows["observed"] == 1, "label"].tolist()
        found.append(Change(str(image_id), picture, given, added))
    return found


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
    label_names: Sequence[str],
    scores: NDArray[np.float32],
    thresholds: NDArray[np.float32],
    known: dict[str, int],
) -> tuple[list[Tag], list[Tag]]:
    predicted: list[Tag] = []
    missed: list[Tag] = []
    for column in sorted(range(len(scores)), key=lambda c: (-scores[c], label_names[c])):
        name, score = label_names[column], float(scores[column])
        if scores[column] >= thresholds[column]:
            predicted.append(Tag(name, score, _verdict(known.get(name))))
        elif known.get(name):
            missed.append(Tag(name, score, "missed"))
    return predicted, missed


def _verdict(value: int | None) -> Verdict:
    return "unknown" if value is None else "right" if value else "wrong"


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


def verdicts(tags: Iterable[Tag]) -> list[Verdict]:
    """The verdicts that occur, in a fixed order: what a legend has to explain."""
    order: tuple[Verdict, ...] = ("right", "wrong", "unknown", "missed")
    present = {tag.verdict for tag in tags}
    return [verdict for verdict in order if verdict in present]
