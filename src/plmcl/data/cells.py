"""Labels of images, gathered one by one in any order, a few bytes each."""

from array import array

import numpy as np
import pandas as pd
import pyarrow as pa


class Cells:
    """What is said of (image, label): present (1) or absent (0); no cell is nothing said.

    An image may also be named without a label: somebody looked at it.
    """

    def __init__(self) -> None:
        self._images: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._rows = array("l")
        self._columns = array("l")
        self._values = array("b")

    def name(self, image_id: str) -> None:
        """Note that the image was looked at."""
        self._images.setdefault(image_id, len(self._images))

    def add(self, image_id: str, label: str, value: int) -> None:
        """Note one cell. If both values come for one cell, present wins."""
        self._rows.append(self._images.setdefault(image_id, len(self._images)))
        self._columns.append(self._labels.setdefault(label, len(self._labels)))
        self._values.append(value)

    @property
    def named(self) -> frozenset[str]:
        """All images of which something was said."""
        return frozenset(self._images)

    @property
    def label_names(self) -> list[str]:
        """All labels, sorted by code point."""
        return sorted(self._labels)

    @property
    def conflicts(self) -> int:
        """Number of cells that were said to be present and to be absent."""
        cells, values = self._sorted()
        changes = (np.diff(cells) == 0) & (np.diff(values) != 0)
        return int(changes.sum())

    def table(self) -> pd.DataFrame:
        """The cells as a table of `schemas.Labels`, sorted by code point, each cell once."""
        cells, values = self._sorted()
        last = np.append(np.diff(cells) != 0, True)[: len(cells)]
        rows, columns = np.divmod(cells[last], max(1, len(self._labels)))
        images, labels = sorted(self._images), sorted(self._labels)
        return pd.DataFrame(
            {
                "image_id": _take(images, rows),
                "label": _take(labels, columns),
                "value": values[last],
            }
        )

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        # Positions in (images x labels), both sorted by code point, and values; 1 after 0.
        rows = _ranks(self._images)[np.frombuffer(self._rows, dtype=np.int64)]
        columns = _ranks(self._labels)[np.frombuffer(self._columns, dtype=np.int64)]
        values = np.frombuffer(self._values, dtype=np.int8)
        cells = rows * len(self._labels) + columns
        order = np.lexsort((values, cells))
        return cells[order], values[order]


def _ranks(codes: dict[str, int]) -> np.ndarray:
    # code -> place of its text among all texts by code point
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[[codes[text] for text in sorted(codes)]] = np.arange(len(codes))
    return ranks


def _take(texts: list[str], places: np.ndarray) -> pd.Series:
    return pd.Series(pa.array(texts, type=pa.large_string()).take(places).to_pandas(), dtype="str")
