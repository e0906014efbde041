"""The same picture in two splits: what is trained on must not be what is measured on."""

import numpy as np
import pandas as pd

from plmcl.data.listing import first_five
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.ordering import positions


def same_bytes_across(manifest: Manifest, splits: pd.DataFrame) -> pd.DataFrame:
    """Usable images whose bytes are in more than one split.

    Only images with an official split can be among them: of the others, one a group is kept.

    Args:
        manifest: All images.
        splits: `schemas.Splits`.

    Returns:
        Columns `sha256`, `image_id`, `split` and `official` (the source's own split, "" = none);
        sorted.
    """
    content = manifest.images["sha256"]
    group = positions(content, content)
    place = positions(manifest.images["image_id"], splits["image_id"])
    split = positions(splits["split"], ["train", "val", "test"])[place]
    in_groups = np.unique((3 * group + split)[place >= 0]) // 3
    groups, num_splits = np.unique(in_groups, return_counts=True)
    crossing = (place >= 0) & np.isin(group, groups[num_splits > 1])
    found: pd.DataFrame = manifest.images.loc[crossing, ["sha256", "image_id", "split"]]
    found = found.rename(columns={"split": "official"})
    found = found.assign(split=splits["split"].iloc[place[crossing]].array)
    columns = ["sha256", "image_id", "split", "official"]
    return found[columns].sort_values(columns, ignore_index=True)


def refuse_if_drawn_apart(crossing: pd.DataFrame) -> None:
    """Refuse a draw that put the same bytes into two splits; a source's own split may.

    Args:
        crossing: Of `same_bytes_across`.

    Raises:
        PlmclError: Images with the same bytes and the same official split (or none) were parted.
    """
    parted = crossing[crossing.groupby(["sha256", "official"])["split"].transform("nunique") > 1]
    if len(parted):
        raise PlmclError(
            f"split: the draw put the same bytes into two splits: {len(parted)} images, such as "
            f"{first_five(parted['image_id'].tolist())}"
        )


def alike_across(manifest: Manifest, splits: pd.DataFrame) -> pd.DataFrame:
    """Pairs of usable images that look alike and are in different splits.

    Returns:
        `schemas.NearDuplicates` with the columns `split` and `other_split`; the most alike first.
    """
    of = splits.set_index("image_id")["split"]
    pairs = manifest.near_duplicates
    pairs = pairs.assign(
        split=pairs["image_id"].map(of).to_numpy(), other_split=pairs["other_id"].map(of).to_numpy()
    )
    pairs = pairs[pairs["split"] != pairs["other_split"]]
    return pairs.sort_values(["distance", "image_id", "other_id"], ignore_index=True)
