"""Train, validation and test: the source's own splits where it has them, else a seeded draw."""

from typing import Literal

import numpy as np
import pandas as pd

from plmcl.errors import PlmclError
from plmcl.ordering import rank_keys


def make_splits(
    images: pd.DataFrame,
    *,
    seed: int,
    val: float,
    test: float,
    protocol: Literal["holdout", "paper"],
) -> pd.DataFrame:
    """Give each image its split; the order of the rows does not matter.

    An image of a later delivery is for training, whatever its source says, and changes no
    earlier row.

    Args:
        images: The usable rows of `schemas.Images`.
        seed: Of params.yaml.
        val: Share of the training images held out, if the source has no validation split.
        test: Share of the base set held out, if the source has no test split.
        protocol: `paper` makes no validation split; a source's own joins train.

    Returns:
        `schemas.Splits`, sorted by image_id.

    Raises:
        PlmclError: A split would be empty.
    """
    images = images.sort_values("image_id")
    base = images[images["delivery"] == 0]
    image_ids = base["image_id"].to_numpy(dtype=object)
    split = base["split"].replace("", "train").to_numpy(dtype=object)
    if "test" not in split:
        _hold_out("test", round(test * len(split)), image_ids, split, seed)
    if protocol == "paper":
        split[split == "val"] = "train"
    elif "val" not in split:
        _hold_out("val", round(val * np.count_nonzero(split == "train")), image_ids, split, seed)

    counts = {name: np.count_nonzero(split == name) for name in ("train", "val", "test")}
    empty = [name for name, n in counts.items() if n == 0 and (name, protocol) != ("val", "paper")]
    if empty:
        found = ", ".join(f"{name} {n}" for name, n in counts.items())
        raise PlmclError(
            f"split: no image for {' and '.join(empty)}: {len(split)} usable images give {found}; "
            f"add images, or change split.val ({val}) or split.test ({test})"
        )
    later = images.loc[images["delivery"] > 0, "image_id"].to_numpy(dtype=object)
    table = {
        "image_id": np.concatenate([image_ids, later]),
        "split": np.concatenate([split, np.full(len(later), "train", dtype=object)]),
    }
    return pd.DataFrame(table, dtype="str").sort_values("image_id", ignore_index=True)


def _hold_out(name: str, count: int, image_ids: np.ndarray, split: np.ndarray, seed: int) -> None:
    train = np.flatnonzero(split == "train")
    turn = np.argsort(rank_keys(seed, name, image_ids[train]), kind="stable")
    split[train[turn[:count]]] = name
