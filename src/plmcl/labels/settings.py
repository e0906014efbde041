"""What training may see of the labels: all, some, or one positive, of all images or some.

Every draw orders keys by `ordering.rank_keys`: so SSPL at 40 % holds the labels of SSPL at 20 %
and more, and an image that arrives later changes none of them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pandas as pd

from plmcl.data.manifest import Manifest
from plmcl.data.splits import COLE_SEED, Draw
from plmcl.errors import PlmclError
from plmcl.labels.matrix import to_matrix
from plmcl.ordering import BLOCK, positions, rank_keys, texts_at

Kind = Literal["ffl", "fpl", "fspl", "sfl", "sspl", "given"]


@dataclass(frozen=True)
class Setting:
    """A label setting.

    Attributes:
        kind: `ffl` all labels of all images; `fpl` a share of all entries; `fspl` one positive of
            each image; `sfl` all labels of a share of the images; `sspl` one positive of each of
            a share of the images; `given` what the source knows, as it is.
        percent: The share, 1 to 100; 100 where there is none.
    """

    kind: Kind
    percent: int

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read what `str` wrote.

        Raises:
            PlmclError: It is no setting's name.
        """
        found = re.fullmatch(r"(ffl|fspl|given)|(fpl|sfl|sspl)-([1-9][0-9]?|100)", text)
        if not found:
            raise PlmclError(
                f"setting {text!r}: expected ffl, fspl, given, or fpl-P, sfl-P, sspl-P with a "
                f"percentage P from 1 to 100"
            )
        whole, kind, percent = found.groups()
        return cls(cast(Kind, whole or kind), int(percent or 100))

    def __str__(self) -> str:
        return f"{self.kind}-{self.percent}" if self.kind in ("fpl", "sfl", "sspl") else self.kind

    @property
    def single_positive(self) -> bool:
        """Whether a labeled image shows one positive and nothing else."""
        return self.kind in ("fspl", "sspl")

    def num_labeled(self, num_images: int) -> int:
        """How many of the images have their turn to be labeled: round(p*N)."""
        share = self.percent if self.kind in ("sfl", "sspl") else 100
        return round(share * num_images / 100)


def make_draws(
    truth: Manifest, train_ids: Sequence[str] | pd.Series, *, seed: int, draw: Draw
) -> pd.DataFrame:
    """Draw the one positive that each image may show, and the turn in which it is labeled.

    One table serves all settings: `sspl` labels the images with draw_rank < round(p*N). An image
    without a positive has its turn too, and stays unlabeled.

    Args:
        truth: All labels; for `cole`, also the published list that its draw goes through.
        train_ids: The base training images.
        seed: Of params.yaml; of the positives under `hash`, and of the turns.
        draw: How the positives are drawn: by hashes of (image, label), or as the reference code
            does, bit for bit.

    Returns:
        `schemas.Draws`, sorted by image_id.
    """
    image_ids = pd.Series(train_ids, dtype="str").sort_values(ignore_index=True)
    every = np.arange(len(image_ids))
    turn = np.empty_like(every)
    turn[np.argsort(rank_keys(seed, "turn", texts_at(image_ids, every)), kind="stable")] = every
    drawn = _draw_as_cole(truth) if draw == "cole" else _draw_by_hash(truth, image_ids, seed)
    label = drawn.reindex(image_ids, fill_value="").array
    return pd.DataFrame({"image_id": image_ids, "label": label, "draw_rank": turn})


def _draw_by_hash(truth: Manifest, image_ids: pd.Series, seed: int) -> pd.Series:
    rows = positions(truth.labels["image_id"], image_ids)
    positive = (truth.labels["value"] == 1).to_numpy() & (rows >= 0)
    keys = rank_keys(seed, "positive", _entry_keys(truth.labels, positive))
    rows = rows[positive]
    order = np.lexsort((keys, rows))
    rows, first = np.unique(rows[order], return_index=True)
    labels = truth.labels["label"].iloc[np.flatnonzero(positive)[order[first]]]
    return labels.set_axis(image_ids.iloc[rows])


def _draw_as_cole(truth: Manifest) -> pd.Series:
    """One positive of each image of the published training list, validation included.

    Source: generate_observed_labels.py of the reference code. Its generator goes through the list
    in order and also shuffles the negatives, of which it keeps none: that moves the stream.
    """
    images = truth.images
    images = images[(images["published"] >= 0) & (images["split"] == "train")]
    image_ids = images.sort_values("published")["image_id"].tolist()
    positives = truth.labels[truth.labels["value"] == 1]
    positives = positives[positions(positives["image_id"], image_ids) >= 0]
    targets, _ = to_matrix(positives, image_ids, truth.label_names, unlisted="negative")
    generator = np.random.RandomState(COLE_SEED)
    drawn = {}
    for image_id, row in zip(image_ids, targets, strict=True):
        present, absent = np.flatnonzero(row == 1), np.flatnonzero(row == 0)
        generator.shuffle(present)
        generator.shuffle(absent)
        if len(present):
            drawn[image_id] = truth.label_names[present[0]]
    return pd.Series(drawn, dtype="str")


def observe(
    setting: Setting, *, truth: Manifest, splits: pd.DataFrame, draws: pd.DataFrame, seed: int
) -> pd.DataFrame:
    """The labels that training may see; of training images only.

    Images of a later delivery are unlabeled; under `given` they have the tag that came with them.

    Args:
        setting: Which labels.
        truth: All labels.
        splits: `schemas.Splits`.
        draws: `schemas.Draws`; it names the base training images.
        seed: Of params.yaml.

    Returns:
        `schemas.ObservedLabels`, sorted by image_id and label.

    Raises:
        PlmclError: The source cannot give such labels, or nothing would be observed.
    """
    turn = draws["draw_rank"] < setting.num_labeled(len(draws))
    if setting.kind == "given":
        observed = _known_entries(truth, splits.loc[splits["split"] == "train", "image_id"])
    elif setting.single_positive:
        chosen = draws[turn & (draws["label"] != "")]
        observed = _sorted(chosen[["image_id", "label"]].assign(value=np.int8(1)))
    else:
        _refuse_without_negatives(setting, truth, draws["image_id"])
        observed = _known_entries(truth, draws.loc[turn, "image_id"])
        if setting.kind == "fpl":
            # key / 2^64 < p, exactly: the largest key that is below p * 2^64.
            largest = np.uint64(-(-setting.percent * 2**64 // 100) - 1)
            every = np.ones(len(observed), dtype=np.bool_)
            keep = rank_keys(seed, "fpl", _entry_keys(observed, every)) <= largest
            observed = observed[keep].reset_index(drop=True)
    if observed.empty:
        raise PlmclError(
            f"{setting}: no label would be observed: {turn.sum()} of {len(draws)} training images "
            f"have their turn, {(turn & (draws['label'] != '')).sum()} of them with a positive; "
            f"choose a larger share or label more images"
        )
    return observed


def describe(
    observed: pd.DataFrame, draws: pd.DataFrame, splits: pd.DataFrame, setting: Setting
) -> dict[str, int]:
    """What a setting amounts to, in numbers for people."""
    split, positive = splits["split"], observed["value"] == 1
    empty = draws["label"] == ""
    turn = draws["draw_rank"] < setting.num_labeled(len(draws))
    train = int((split == "train").sum())
    return {
        "train images": train,
        "train images that arrived later": train - len(draws),
        "val images": int((split == "val").sum()),
        "test images": int((split == "test").sum()),
        "images without a positive": int(empty.sum()),
        "images whose turn found no positive": int((turn & empty).sum()),
        "labeled images": int(observed["image_id"].nunique()),
        "observed positives": int(positive.sum()),
        "observed negatives": int((~positive).sum()),
    }


def _refuse_without_negatives(setting: Setting, truth: Manifest, train_ids: pd.Series) -> None:
    negatives = truth.labels[truth.labels["value"] == 0]
    if truth.unlisted == "unknown" and not (positions(negatives["image_id"], train_ids) >= 0).any():
        raise PlmclError(
            f"{setting}: needs known negatives, and of the training images positives only are "
            f"known; use fspl, sspl-P or given, or say that an unlisted label is negative"
        )


def _known_entries(truth: Manifest, image_ids: pd.Series) -> pd.DataFrame:
    """Every known entry, positive or negative, of these images; sorted."""
    listed = truth.labels[positions(truth.labels["image_id"], image_ids) >= 0]
    closed = image_ids[positions(image_ids, truth.closed) >= 0]
    if closed.empty:
        return _sorted(listed)
    in_closed = positions(listed["image_id"], closed) >= 0
    rows, columns = sorted(closed), sorted(truth.label_names)
    targets, _ = to_matrix(listed[in_closed], rows, columns, unlisted="negative")
    image_id = pd.Series(rows, dtype="str").repeat(len(columns))
    label = pd.Series(columns, dtype="str").iloc[np.tile(np.arange(len(columns)), len(rows))]
    value = targets.ravel().astype(np.int8)
    known = pd.DataFrame({"image_id": image_id.array, "label": label.array, "value": value})
    return known if in_closed.all() else _sorted(pd.concat([known, listed[~in_closed]]))


def _entry_keys(entries: pd.DataFrame, chosen: np.ndarray) -> Iterator[str]:
    # In blocks, as `texts_at`.
    for start in range(0, len(entries), BLOCK):
        block = entries[["image_id", "label"]][start : start + BLOCK]
        block = block[chosen[start : start + BLOCK]]
        yield from (block["image_id"] + "|" + block["label"]).to_numpy(dtype=object)


def _sorted(entries: pd.DataFrame) -> pd.DataFrame:
    return entries.sort_values(["image_id", "label"], ignore_index=True)
