"""What is there twice: files with the same bytes, and pictures that look alike."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from plmcl.data.doctor.near_duplicates import near_duplicates
from plmcl.ordering import positions


def first_with_same_bytes(sha256: pd.Series, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Find for each file the one that stands for all files with its bytes.

    Args:
        sha256: Of N files.
        order: Rows of those that are compared; the first of some with the same bytes stands for
            them all.

    Returns:
        (N,): a row of each file; its own where it stands for itself, or is not compared.
    """
    first = np.arange(len(sha256))
    content = sha256.iloc[order]
    first[order] = order[positions(content, content)]
    return first


def pairs_that_look_alike(paths: pd.Series, sha256: pd.Series, dhash: pd.Series) -> pd.DataFrame:
    """Find all pairs of usable images that look alike and are not the same bytes.

    Args:
        paths: Of N images, or their ids.
        sha256: Of their bytes.
        dhash: `difference_hash` of each; an image without one is like no other.

    Returns:
        `first`, `second` (of `paths`, in its order) and `distance` (int32, bits), as sorted by
        `near_duplicates`.
    """
    pairs = near_duplicates(dhash.tolist())
    content = sha256.to_numpy(dtype=object)
    first, second, distance = pairs[content[pairs[:, 0]] != content[pairs[:, 1]]].T
    return pd.DataFrame(
        {
            "first": paths.iloc[first].reset_index(drop=True),
            "second": paths.iloc[second].reset_index(drop=True),
            "distance": distance.astype(np.int32),
        }
    )
