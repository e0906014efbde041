"""Tables of labels, whatever file holds them, in one of the layouts of `_header`."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmcl.data.cells import Cells
from plmcl.data.formats._header import Header
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import label_name, shown
from plmcl.errors import PlmclError

# Place for messages, and a cell for each column: text, "" for nothing; `labels` may be a list.
Row = tuple[str, Sequence[Any]]

_UNKNOWN = 2


def read_table(
    header: Header, rows: Iterable[Row], index: ImageIndex, options: Options, path: Path
) -> LabelFile:
    """Read a table of any layout; rows of the same image are merged.

    Args:
        header: Of the table.
        rows: As many cells each as the header has columns.
        index: The images.
        options: What -1 means.
        path: Of the file, for messages.

    Raises:
        PlmclError: A row breaks a rule.
    """
    images = _Images(header, index)
    if header.labels is not None:
        return _read_long(header.labels, rows, images, path)
    if header.label is not None:
        return _read_single(header.label, header.value, rows, images, options, path)
    return _read_wide(header.label_columns, rows, images, options, path)


class _Images:
    # what rows of any layout say of their image

    def __init__(self, header: Header, index: ImageIndex) -> None:
        self._header = header
        self._index = index
        self.cells = Cells()
        self.absent: dict[str, None] = {}
        self.splits: dict[str, str] = {}
        self._labels: dict[str, str] = {}  # as they stand there -> without blanks around

    def label(self, text: str, where: str) -> str:
        """A label, looked at once."""
        if text not in self._labels:
            self._labels[text] = label_name(text, where)
        return self._labels[text]

    def of(self, where: str, row: Sequence[Any]) -> str | None:
        """The row's image; None if it is not there."""
        name = row[self._header.image]
        image_id = self._index.find(name, where)
        split = "" if self._header.split is None else row[self._header.split].strip()
        if split not in ("", "train", "val", "test"):
            raise PlmclError(
                f"{where}: split must be train, val, test or empty, found {shown(split)}"
            )
        if image_id is None:
            self.absent[name] = None
            return None
        self.cells.name(image_id)
        if split and self.splits.setdefault(image_id, split) != split:
            raise PlmclError(
                f"{where}: {image_id!r} is in split {split!r} here and in "
                f"{self.splits[image_id]!r} above"
            )
        return image_id

    def finish(self, path: Path, **fields: Any) -> LabelFile:
        return LabelFile(
            labels=self.cells.table(),
            named=self.cells.named,
            absent=list(self.absent),
            splits=self.splits,
            files=[path],
            **fields,
        )


def _read_long(column: int, rows: Iterable[Row], images: _Images, path: Path) -> LabelFile:
    for where, row in rows:
        image_id = images.of(where, row)
        labels = row[column]
        if isinstance(labels, str):
            labels = [label for label in labels.split(";") if label.strip()]
        for label in labels:
            name = images.label(label, where)
            if image_id is not None:
                images.cells.add(image_id, name, 1)
    return images.finish(path)


def _read_single(
    column: int,
    value_column: int | None,
    rows: Iterable[Row],
    images: _Images,
    options: Options,
    path: Path,
) -> LabelFile:
    codes = _codes(options)
    unknown = Cells()
    for where, row in rows:
        image_id = images.of(where, row)
        text = "1" if value_column is None else row[value_column]
        code = _code(text, codes, f"{where}, column value")
        if image_id is None or not row[column].strip():
            continue
        name = images.label(row[column], where)
        if code == _UNKNOWN:
            unknown.add(image_id, name, 0)
        else:
            images.cells.add(image_id, name, code)
    return images.finish(
        path,
        unknown=unknown.table()[["image_id", "label"]],
        notes=_conflicts(images.cells),
    )


def _read_wide(
    columns: dict[str, int], rows: Iterable[Row], images: _Images, options: Options, path: Path
) -> LabelFile:
    codes = _codes(options)
    image_ids: list[str] = []
    said = bytearray()  # a byte for each label of each of these images
    for where, row in rows:
        image_id = images.of(where, row)
        texts = [row[place] for place in columns.values()]
        try:
            values = bytes(map(codes.__getitem__, texts))
        except KeyError:
            pairs = zip(columns, texts, strict=True)
            values = bytes(_code_below(name, text, codes, where) for name, text in pairs)
        if image_id is not None:
            image_ids.append(image_id)
            said += values
    table = np.frombuffer(said, dtype=np.uint8).reshape(-1, len(columns))
    # If nothing is unknown, what is absent need not be written down.
    complete = len(image_ids) == len(images.cells.named) and not (table == _UNKNOWN).any()
    written = np.nonzero(table == 1 if complete else table != _UNKNOWN)
    names = list(columns)
    for image, column in zip(*written, strict=True):
        images.cells.add(image_ids[image], names[column], table[image, column])
    return images.finish(
        path,
        label_names=names,
        unlisted="negative" if complete else "unknown",
        notes=_conflicts(images.cells),
    )


def _codes(options: Options) -> dict[str, int]:
    codes = {"1": 1, "0": 0, "": _UNKNOWN}
    if options.minus_one != "refuse":
        codes["-1"] = 0 if options.minus_one == "negative" else _UNKNOWN
    # pandas writes a column of whole numbers with blanks in it as 1.0, 0.0 and nothing.
    return codes | {f"{text}.0": code for text, code in codes.items() if text}


def _code(text: str, codes: dict[str, int], where: str) -> int:
    text = text.strip()
    if text in codes:
        return codes[text]
    if text in ("-1", "-1.0"):
        raise PlmclError(
            f"{where}: found -1, which means absent in some files and not annotated in others; "
            "say which: sources.folder.minus_one is negative or unknown"
        )
    raise PlmclError(f"{where}: must be 1, 0 or blank, found {shown(text)}")


def _code_below(name: str, text: str, codes: dict[str, int], where: str) -> int:
    # in a label's own column
    try:
        return _code(text, codes, f"{where}, column {shown(name)}")
    except PlmclError as error:
        close = difflib.get_close_matches(name.lower(), ("labels", "label"), n=1)
        if not close:
            raise
        raise PlmclError(
            f"{where}: unknown column {shown(name)}; is {close[0]!r} meant? "
            f"If it is a label: {error}"
        ) from None


def _conflicts(cells: Cells) -> dict[str, int]:
    words = "labels said to be present and to be absent (taken as present)"
    number = cells.conflicts
    return {words: number} if number else {}
