"""YOLO text files: a folder of `.txt` files, one an image, with a line `class x y w h` an object.

The order of the classes is in `classes.txt` (one name a line) or in `data.yaml` (`names`), in that
folder or in the one above it.
"""

import math
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from plmcl.data.cells import Cells
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import (
    check_inside,
    files_below,
    name_list,
    read_name_list,
    read_text,
    shown,
)
from plmcl.errors import PlmclError

_MAX_BYTES = 1 << 24
_MAX_YAML_BYTES = 1 << 20  # the reader takes a second for 100 kB
_MAX_DEPTH = 64

_CLASSES = ("classes.txt", "data.yaml", "data.yml")


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read labels: the classes of the lines; an empty file names an image without a label.

    A file is about the image of the same path without suffix, where a folder `labels` stands for
    a folder `images`.

    Raises:
        PlmclError: There is no text file or no list of classes, or a line breaks a rule.
    """
    texts = list(_texts(path))
    labels = [name for name in texts if "labels" in name.split("/")[:-1]] or texts
    if not labels:
        raise PlmclError(f"{path}: no text file in it besides {_CLASSES[0]}")
    declared, names = _classes(path)
    cells = Cells()
    absent: list[str] = []
    read_from: dict[str, Path] = {}
    for name in labels:
        file = path / name
        classes = _read_classes(file, names)
        image_id = _image(name, file, index)
        if image_id is None:
            absent.append(name)
            continue
        if read_from.setdefault(image_id, file) != file:
            raise PlmclError(f"{file}: is about {image_id!r}, as {read_from[image_id]} is")
        cells.name(image_id)
        for label in classes:
            cells.add(image_id, label, 1)
    others = len(texts) - len(labels)
    return LabelFile(
        labels=cells.table(),
        named=cells.named,
        absent=absent,
        label_names=names,
        notes={"text files outside the folders called labels": others} if others else {},
        files=[*declared, *(path / name for name in labels)],
    )


def recognise(path: Path) -> bool:
    """Whether it is a folder with a text file that may hold objects."""
    return path.is_dir() and any(_texts(path))


def _texts(path: Path) -> Iterator[str]:
    return (name for name in files_below(path, ".txt") if name.split("/")[-1] != "classes.txt")


def _image(name: str, file: Path, index: ImageIndex) -> str | None:
    stem = name[: -len(".txt")]
    parts = stem.split("/")
    if "labels" not in parts[:-1]:
        return index.find_name(stem, str(file))
    last = len(parts) - 2 - parts[-2::-1].index("labels")
    beside = "/".join([*parts[:last], "images", *parts[last + 1 :]])
    below = "/".join(parts[last + 1 :])
    return index.find_name(beside, str(file)) or index.find_name(below, str(file))


def _read_classes(file: Path, names: list[str]) -> set[str]:
    found = set()
    for number, line in enumerate(read_text(file, max_bytes=_MAX_BYTES).split("\n"), start=1):
        where = f"{file}, line {number}"
        cells = line.split()
        if not cells:
            continue
        if len(cells) < 5 or not all(_is_number(cell) for cell in cells):
            raise PlmclError(f"{where}: must be class x y w h, all numbers, found {shown(line)}")
        place = int(cells[0]) if cells[0].isdecimal() and len(cells[0]) < 10 else len(names)
        if place >= len(names):
            raise PlmclError(
                f"{where}: the class must be a whole number from 0 to {len(names) - 1}, "
                f"found {shown(cells[0])}"
            )
        found.add(names[place])
    return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _classes(path: Path) -> tuple[list[Path], list[str]]:
    # the files that declare the classes, and what all of them declare
    for folder in (path, path.parent):
        files = [folder / name for name in _CLASSES if (folder / name).is_file()]
        for file in files:
            check_inside(file, folder)
        lists = [_read_names(file) for file in files]
        for file, names in zip(files, lists, strict=True):
            if names != lists[0]:
                raise PlmclError(f"{file}: other classes than in {files[0]}; remove one of them")
        if files:
            return files, lists[0]
    raise PlmclError(f"{path}: no list of classes; put {' or '.join(_CLASSES[:2])} into it")


def _read_names(file: Path) -> list[str]:
    if file.suffix == ".txt":
        return read_name_list(file)
    document = _read_yaml(file)
    names = document.get("names") if isinstance(document, dict) else None
    where = f"{file}: names"
    if isinstance(names, dict):
        order = [names.get(str(place)) for place in range(len(names))]
        if None in order:
            raise PlmclError(f"{where}: the classes must be numbered from 0 on, without a gap")
        names = order
    if not isinstance(names, list) or not names:
        raise PlmclError(f"{where}: must be a list of classes, or a mapping of their numbers")
    count = document.get("nc", str(len(names)))
    if count != str(len(names)):
        raise PlmclError(f"{file}: nc is {shown(count)}, but there are {len(names)} names")
    return name_list(names, where)


def _read_yaml(file: Path) -> Any:
    # "base": every scalar is the text that stands there, so no label becomes a number
    text = read_text(file, max_bytes=_MAX_YAML_BYTES)
    depths = accumulate((mark in "[{") - (mark in "]}") for mark in text)
    if max(depths, default=0) > _MAX_DEPTH:  # on which the reader would spend ten seconds
        raise PlmclError(f"{file}: nested too deeply")
    try:
        return YAML(typ="base", pure=True).load(text)
    except (YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PlmclError(f"{file}: not valid YAML: {reason}") from None
