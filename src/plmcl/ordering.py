"""Orders of text keys that depend on nothing but the keys, and where a key stands in a list."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 1 << 18


def rank_keys(seed: int, purpose: str, keys: Iterable[str]) -> np.ndarray:
    """A number for each key, uniform over 64 bits and independent of all other keys.

    Sorting by it draws a sample that keys which come later leave as it is; no permutation of
    N keys can do that.

    Args:
        seed: Of params.yaml.
        purpose: What is drawn; draws of different purposes are independent.
        keys: Any texts.

    Returns:
        uint64 (N,): the first 8 bytes, big-endian, of sha256("seed|purpose|key").
    """
    prefix = f"{seed}|{purpose}|".encode()
    sha256 = hashlib.sha256
    digests = bytearray()
    for key in keys:
        digests += sha256(prefix + key.encode()).digest()[:8]
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def owners(seed: int, keys: Iterable[str], ranks: int) -> np.ndarray:
    """Which rank each key belongs to: shared out by chance, and evenly to one key.

    Args:
        seed: As in `rank_keys`.
        keys: Any texts; others among them change whose a key is.
        ranks: How many there are.

    Returns:
        int64 (N,), from 0.
    """
    order = np.argsort(rank_keys(seed, "rank", keys), kind="stable")
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.arange(len(order)) % ranks
    return owner


def texts_at(texts: pd.Series, rows: np.ndarray) -> Iterator[str]:
    """The texts at these places, made into Python's a block at a time.

    All of a large table's at once are gigabytes, and one by one is ten times slower.
    """
    for start in range(0, len(rows), BLOCK):
        yield from texts.iloc[rows[start : start + BLOCK]].to_numpy(dtype=object)


def positions(values: Sequence[str] | pd.Series, among: Sequence[str] | pd.Series) -> np.ndarray:
    """Where each of `values` stands in `among` (the first time, if it stands there twice).

    Returns:
        int64 (N,); -1 where a value is not there.
    """
    # Arrow's own texts: a pandas index would make a Python object of each of N x L texts.
    found = pc.index_in(_arrow(values), value_set=_arrow(among))
    return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


def _arrow(values: Sequence[str] | pd.Series) -> pa.Array | pa.ChunkedArray:
    # 64-bit offsets: a column of a large table can hold more than 2 GB of text.
    return pa.array(values, type=pa.large_string())
