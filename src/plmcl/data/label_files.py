"""How label files are opened: whole, within a size, as UTF-8 text or JSON, never trusted."""

import codecs
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from plmcl.data.listing import is_utf8
from plmcl.errors import PlmclError

T = TypeVar("T")

MAX_BYTES = 1 << 30  # COCO's largest file has 450 MB

_WORDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


def check_file(path: Path, *, max_bytes: int | None = None) -> None:
    """Refuse what is no regular file (a pipe would never end), and what is too large.

    Raises:
        PlmclError: One of these; or there is nothing of that name.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise PlmclError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise PlmclError(f"{path}: not a regular file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise PlmclError(f"{path}: {status.st_size} bytes; at most {max_bytes} are read")


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """The bytes of a file.

    Raises:
        PlmclError: It cannot be read, or is too large.
    """
    check_file(path, max_bytes=max_bytes)
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlmclError(f"{path}: {error.strerror or error}") from None


def read_text(path: Path, *, max_bytes: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises:
        PlmclError: It cannot be read, is too large, or is not UTF-8.
    """
    data = read_bytes(path, max_bytes=max_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None


def not_utf8(path: Path, error: UnicodeDecodeError) -> PlmclError:
    """The message for a file in another encoding."""
    found = f"{error.object[error.start]:#04x}"
    return PlmclError(f"{path}: not UTF-8 (it holds the byte {found}); save it as UTF-8")


def read_json(path: Path, *, keep: frozenset[str] | None = None) -> Any:
    """The value of a JSON file.

    Args:
        path: The file.
        keep: Keys that are kept, in all objects; None: all.

    Raises:
        PlmclError: It cannot be read, is not JSON, nests too deeply, has a key twice, or holds a
            number that JSON does not have (NaN) or that is too long.
    """

    def make(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        kept = pairs if keep is None else [pair for pair in pairs if pair[0] in keep]
        made = dict(kept)
        if len(made) != len(kept):
            (twice, _), *_ = Counter(key for key, _ in kept).most_common(1)
            raise PlmclError(f"{path}: the key {shown(twice)} stands twice in an object")
        return made

    def refuse(number: str) -> None:
        raise PlmclError(f"{path}: not JSON: {number} is no number there")

    text = read_text(path)
    try:
        return json.loads(text, object_pairs_hook=make, parse_constant=refuse)
    except RecursionError:
        raise PlmclError(f"{path}: nested too deeply") from None
    except ValueError as error:  # also a whole number of thousands of digits
        raise PlmclError(f"{path}: not JSON: {error}") from None


def starts_json(path: Path, first: bytes) -> bool:
    """Whether it is a `.json` file of which `first` is the first byte that counts."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(first)


def expect(value: object, kind: type[T], where: str) -> T:
    """`value`, if it is of that JSON type.

    Raises:
        PlmclError: It is of another, or is not there (None).
    """
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise PlmclError(f"{where}: must be {_WORDS[kind]}, found {shown(value)}")


def label_name(value: object, where: str) -> str:
    """A label without the blanks around it.

    Raises:
        PlmclError: It is no text, is empty, or holds what is no character.
    """
    name = expect(value, str, where).strip()
    if not name:
        raise PlmclError(f"{where}: a label must not be empty")
    if "\0" in name or not is_utf8(name):
        raise PlmclError(f"{where}: {shown(name)} holds what is no character")
    return name


def name_list(values: list[Any], where: str) -> list[str]:
    """Labels in their order.

    Raises:
        PlmclError: One of them is no label (`label_name`), or stands there twice.
    """
    names: dict[str, None] = {}
    for number, value in enumerate(values, start=1):
        name = label_name(value, f"{where}, name {number}")
        if name in names:
            raise PlmclError(f"{where}, name {number}: {shown(name)} stands there twice")
        names[name] = None
    return list(names)


def read_name_list(path: Path) -> list[str]:
    """Labels in their order, out of a JSON list (`.json`), or one a line.

    Raises:
        PlmclError: It cannot be read, is empty, or has an empty name or a name twice.
    """
    if path.suffix.lower() == ".json":
        values = expect(read_json(path), list, str(path))
    else:
        values = read_text(path).rstrip("\r\n").split("\n")
    if not values:
        raise PlmclError(f"{path}: no names in it")
    return name_list(values, str(path))


def files_below(folder: Path, suffix: str) -> Iterator[str]:
    """Paths below a folder of its files with a suffix, in any case; sorted in each folder.

    Hidden ones and `__MACOSX` are left out.

    Raises:
        PlmclError: It is no folder, or one of the files is a link that leads out of it.
    """
    if not folder.is_dir():
        raise PlmclError(f"{folder}: not found, or not a folder")
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in sorted(names):
            path = Path(place, name)
            if _is_hidden(name) or not name.lower().endswith(suffix):
                continue
            check_inside(path, folder)
            yield path.relative_to(folder).as_posix()


def check_inside(path: Path, folder: Path) -> None:
    """Refuse a link that leads out of a folder.

    Raises:
        PlmclError: It does.
    """
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise PlmclError(f"{path}: a link that leads out of {folder}")


def shown(value: object) -> str:
    """A value for a message: short, and on one line."""
    if isinstance(value, dict | list):
        return _WORDS[type(value)]
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
