"""Train, validation and test: the source's own splits where it has them, else a seeded draw."""

import logging
from typing import Literal

import numpy as np
import pandas as pd

from plmcl.data.manifest import Manifest
from plmcl.data.rare_labels import exchange_for_rare_labels
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions, rank_keys, texts_at

logger = logging.getLogger(__name__)

Draw = Literal["hash", "cole"]
COLE_SEED = 1200  # of the reference code, for the split and for the labels
# What a draw looks at, beside the bytes; tables of millions of images are not copied whole.
COLUMNS = ["image_id", "split", "status", "published", "delivery"]


def make_splits(
    manifest: Manifest,
    *,
    seed: int,
    val: float,
    test: float,
    protocol: Literal["holdout", "paper"],
    draw: Draw,
) -> pd.DataFrame:
    """Give each usable image its split; the order of the rows does not matter.

    An image of a later delivery is for training, whatever its source says, and changes no
    earlier row. Images with the same bytes are drawn together. Drawn splits exchange images so
    that each has a positive of each label, where that is possible.

    Args:
        manifest: Its usable images are split; `cole` draws from all of its published list.
        seed: Of params.yaml; `cole` has a seed of its own.
        val: Share of the training images held out, if the source has no validation split.
        test: Share of the base set held out, if the source has no test split.
        protocol: `paper` makes no validation split; a source's own joins train.
        draw: `hash` orders the images by hashes of their ids; `cole` draws the validation split
            as the reference code does, bit for bit: a permutation of the published list.

    Returns:
        `schemas.Splits`, sorted by image_id.

    Raises:
        PlmclError: A split would be empty, or `cole` finds no published list.
    """
    content = manifest.images["sha256"]
    images = manifest.images[COLUMNS].assign(content=positions(content, content))
    images = images.sort_values("image_id", ignore_index=True)
    images = images[images["status"].isin(USABLE)] if draw == "hash" else images
    base = images[images["delivery"] == 0]
    split = base["split"].replace("", "train").to_numpy(dtype=object)
    if draw == "cole":
        _hold_out_as_cole(base, split, val if protocol == "holdout" else 0.0)
    else:
        _draw(manifest, base, split, seed=seed, val=val, test=test, protocol=protocol)
    if protocol == "paper":
        split[split == "val"] = "train"
    usable = base["status"].isin(USABLE).to_numpy()
    _refuse_empty(split[usable], protocol, val, test)
    later = images[(images["delivery"] > 0) & images["status"].isin(USABLE)]
    table = pd.DataFrame(
        {
            "image_id": np.concatenate([base["image_id"][usable], later["image_id"]]),
            "split": np.concatenate([split[usable], np.full(len(later), "train", dtype=object)]),
        },
        dtype="str",
    )
    return table.sort_values("image_id", ignore_index=True)


def _draw(
    manifest: Manifest,
    base: pd.DataFrame,
    split: np.ndarray,
    *,
    seed: int,
    val: float,
    test: float,
    protocol: str,
) -> None:
    # Fills in what the source does not have.
    groups = _Groups(base)
    official = set(split)
    if "test" not in official:
        _hold_out("test", round(test * len(split)), split, groups, seed)
    if protocol == "holdout" and "val" not in official:
        _hold_out("val", round(val * np.count_nonzero(split == "train")), split, groups, seed)
    movable = np.where(np.isin(split, list(official - {"train"})), "", split)
    rows = positions(manifest.labels["image_id"], base["image_id"])
    columns = positions(manifest.labels["label"], manifest.label_names)
    positive = (manifest.labels["value"] == 1).to_numpy() & (rows >= 0)
    exchanges = exchange_for_rare_labels(
        movable,
        groups.first,
        rows[positive],
        columns[positive],
        len(manifest.label_names),
        lambda images, purpose: groups.in_turn(images, purpose, seed),
    )
    np.copyto(split, movable, where=movable != "")
    if exchanges:
        logger.info("%d images exchanged, so that splits have a positive of each label", exchanges)


class _Groups:
    """Images with the same bytes and the same official split; they are drawn as one.

    Attributes:
        first: int64 (N,), for each image the first one of its group.
    """

    def __init__(self, base: pd.DataFrame) -> None:
        official = positions(base["split"], ["", "train", "val", "test"])
        content = 4 * base["content"].to_numpy() + official
        _, first, group = np.unique(content, return_index=True, return_inverse=True)
        self._image_ids = base["image_id"]
        self.first = first[group]

    def in_turn(self, rows: np.ndarray, purpose: str, seed: int) -> np.ndarray:
        """These images in the order of the keys of their groups' first images."""
        keys = rank_keys(seed, purpose, texts_at(self._image_ids, self.first[rows]))
        ordered: np.ndarray = rows[np.argsort(keys, kind="stable")]
        return ordered


def _hold_out(name: str, count: int, split: np.ndarray, groups: _Groups, seed: int) -> None:
    train = groups.in_turn(np.flatnonzero(split == "train"), name, seed)
    # What has the bytes of a chosen image goes with it.
    chosen = np.isin(groups.first, groups.first[train[:count]])
    split[chosen & (split == "train")] = name


def _hold_out_as_cole(base: pd.DataFrame, split: np.ndarray, val: float) -> None:
    place = base["published"].to_numpy()
    if (place < 0).any() or "test" not in split or "val" in split:
        raise PlmclError(
            "split.draw: cole needs a source with a published order of its training images and a "
            "test split (voc, coco, nuswide, cub); use hash"
        )
    train = np.flatnonzero(split == "train")
    train = train[np.argsort(place[train])]
    if (place[train] != np.arange(len(train))).any():
        logger.warning(
            "split.draw: cole: images of the published list are missing (the last of its %d is at "
            "place %d), so the draw is not that of the reference code",
            len(train),
            place[train[-1]] + 1,
        )
    number = int(np.round(val * len(train)))
    if number:
        order = np.random.RandomState(COLE_SEED).permutation(len(train))
        split[train[order[-number:]]] = "val"


def _refuse_empty(split: np.ndarray, protocol: str, val: float, test: float) -> None:
    counts = {name: np.count_nonzero(split == name) for name in ("train", "val", "test")}
    empty = [name for name, n in counts.items() if n == 0 and (name, protocol) != ("val", "paper")]
    if empty:
        found = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise PlmclError(
            f"split: no image for {' and '.join(empty)}: {len(split)} usable images give {found}; "
            f"add images, or change split.val ({val}) or split.test ({test})"
        )
