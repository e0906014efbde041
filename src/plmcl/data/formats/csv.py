"""CSV files: UTF-8, commas between the columns, quotes where a text needs them."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from plmcl.data.formats._header import parse_header
from plmcl.data.formats._table import Row, read_table
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import check_file, not_utf8
from plmcl.errors import PlmclError

_MAX_LINE = 1 << 24  # characters; a cell has at most csv.field_size_limit()


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read a CSV file of any of the three layouts of `_header`.

    Raises:
        PlmclError: The file is missing or is not such a CSV file.
    """
    rows = _rows(path)
    _, names = next(rows)
    return read_table(parse_header(names, path), rows, index, options, path)


def recognise(path: Path) -> bool:
    """Whether its name ends in `.csv` (or in `.tsv`: the message says what to do)."""
    return path.suffix.lower() in {".csv", ".tsv"} and path.is_file()


def _rows(path: Path) -> Iterator[Row]:
    # the header first
    check_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path), strict=True)
            header = next(reader, [])
            yield f"{path}, line 1", header
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if not any(cells):
                    continue
                if len(cells) != len(header):
                    raise PlmclError(
                        f"{where}: {len(cells)} cells where the header has {len(header)}; put "
                        'quotes around text with a comma, and ";" between labels'
                    )
                yield where, cells
    except OSError as error:
        raise PlmclError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except csv.Error as error:
        raise PlmclError(f"{path}, line {reader.line_num}: {error}") from None


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise PlmclError(f"{path}: a line is longer than {_MAX_LINE} characters")
        yield line
