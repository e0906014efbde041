"""Parquet files with the tables that `csv` reads, in columns that have types."""

from collections.abc import Iterator
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plmcl.data.formats._header import Header, parse_header
from plmcl.data.formats._table import Row, read_table
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import check_file, shown
from plmcl.errors import PlmclError

_BATCH = 4096  # rows that are in memory at once
_MAX_TEXT = 1 << 17  # bytes of a cell, as for CSV
_MAX_ITEMS = 1 << 22  # labels of a batch
_MAX_ROWS = 20_000_000  # some bytes can stand for any number of equal rows

_ERRORS = (OSError, pa.ArrowException, UnicodeDecodeError)
_TEXT = (pa.string(), pa.large_string())
_VALUES = {None: "", 1: "1", 0: "0", -1: "-1"}  # a truth value is 0 or 1, too


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read a Parquet file of any of the three layouts of `_header`.

    `labels` is a text with `;` or a list of texts. Values are whole numbers, truth values,
    floating-point numbers or texts; null and NaN are blank.

    Raises:
        PlmclError: The file is missing or is not such a Parquet file.
    """
    check_file(path)
    try:
        # Texts come as a dictionary, so that one long text, repeated, is one text.
        schema = pq.ParquetFile(path).schema
        leaves = [schema.column(place) for place in range(len(schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = pq.ParquetFile(path, read_dictionary=texts)
    except _ERRORS as error:
        raise _unreadable(path, error) from None
    if file.metadata.num_rows > _MAX_ROWS:
        raise PlmclError(f"{path}: {file.metadata.num_rows} rows; at most {_MAX_ROWS} are read")
    names = file.schema_arrow.names
    header = parse_header(names, path)
    return read_table(header, _rows(file, header, path), index, options, path)


def recognise(path: Path) -> bool:
    """Whether its name ends in `.parquet`."""
    return path.suffix.lower() == ".parquet" and path.is_file()


def _rows(file: pq.ParquetFile, header: Header, path: Path) -> Iterator[Row]:
    names = file.schema_arrow.names
    used = [names[place] for place in header.used]
    valued = {header.value, *header.label_columns.values()}
    number = 0
    try:
        for batch in file.iter_batches(batch_size=_BATCH, columns=used):
            columns: list[Any] = [repeat("")] * len(names)
            for place in header.used:
                where = f"{path}, column {shown(names[place])}"
                column = batch.column(names[place])
                if place in valued:
                    columns[place] = _values(column, where)
                elif place == header.labels and _is_list(column.type):
                    columns[place] = _lists(column, where)
                else:
                    columns[place] = _texts(column, where)
            for row in zip(*columns, strict=False):
                number += 1
                yield f"{path}, row {number}", row
    except _ERRORS as error:
        raise _unreadable(path, error) from None


def _values(column: pa.Array, where: str) -> list[str]:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return [
            "" if value != value else _VALUES.get(value, repr(value))  # NaN is not itself
            for value in column.to_pylist()
        ]
    return _texts(column, where)


def _texts(column: pa.Array, where: str) -> list[str]:
    kind = column.type
    if pa.types.is_null(kind):
        return [""] * len(column)
    if not (pa.types.is_dictionary(kind) and kind.value_type in _TEXT):
        raise PlmclError(f"{where}: cannot be of type {kind}")
    longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if longest > _MAX_TEXT:
        raise PlmclError(f"{where}: a text of {longest} bytes; at most {_MAX_TEXT} are read")
    return [text or "" for text in column.dictionary_decode().to_pylist()]


def _lists(column: pa.Array, where: str) -> list[list[str]]:
    items = column.flatten()
    if len(items) > _MAX_ITEMS:
        raise PlmclError(f"{where}: {len(items)} labels in {len(column)} rows")
    texts = _texts(items, where)
    ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0))
    return [texts[start:end] for start, end in pairwise([0, *ends])]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _unreadable(path: Path, error: Exception) -> PlmclError:
    return PlmclError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())[:200]}")
