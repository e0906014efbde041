"""The text files of published data sets, with the place of each mistake."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from plmcl.data.label_files import MAX_BYTES, check_file, read_text
from plmcl.errors import PlmclError


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line that is not blank, after its place for messages.

    Raises:
        PlmclError: The file cannot be read, is too large, or is not UTF-8.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line.strip()


def read_pairs(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the two columns of each line, after its place for messages.

    Raises:
        PlmclError: As from `read_lines`, or a line has not two columns.
    """
    for where, line in read_lines(path):
        columns = line.split()
        if len(columns) != 2:
            raise PlmclError(f"{where}: expected two columns, found {line[:80]!r}")
        yield where, columns[0], columns[1]


def read_numbers(path: Path, columns: Sequence[int]) -> npt.NDArray[np.int32]:
    """Read some columns, from 0, of a table of whole numbers; a line may have more.

    Returns:
        (lines, columns).

    Raises:
        PlmclError: The file cannot be read, is too large or empty, or holds something else.
    """
    check_file(path, max_bytes=MAX_BYTES)
    try:
        with warnings.catch_warnings(action="ignore"):  # of a table without a line, see below
            table = np.loadtxt(path, dtype=np.int32, usecols=columns, comments=None, ndmin=2)
    except OSError as error:
        raise PlmclError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # another encoding, too
        raise PlmclError(f"{path}: expected whole numbers: {str(error)[:200]}") from None
    if len(table) == 0:
        raise PlmclError(f"{path}: empty")
    return table


def to_presence(values: np.ndarray, where: object) -> npt.NDArray[np.bool_]:
    """Turn 0 and 1, of any type, into booleans.

    Raises:
        PlmclError: There is another value; what -1 means is not guessed.
    """
    present = values == 1
    strange = ~present & (values != 0)
    if strange.any():
        raise PlmclError(f"{where}: expected only 0 and 1, found {values[strange].flat[0]}")
    return np.asarray(present)
