"""COCO JSON: images, annotations, categories, in one file."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plmcl.data.cells import Cells
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import expect, label_name, read_json, shown, starts_json
from plmcl.errors import PlmclError

Id = int | str

_KEYS = frozenset({
    "images", "annotations", "categories", "id", "file_name", "name", "image_id", "category_id",
    "iscrowd",
})  # fmt: skip


@dataclass(frozen=True)
class Instances:
    """What a file says of its A annotations: which image, which category, a crowd or not.

    Attributes:
        file_names: Image id -> file name, in the order of the file.
        categories: Category id -> name, in the order of the file.
        image: Place of the image in `file_names`, (A,).
        category: Place of the category in `categories`, (A,).
        crowd: Whether the annotation is a crowd region, (A,).
    """

    file_names: dict[Id, str]
    categories: dict[Id, str]
    image: npt.NDArray[np.int32]
    category: npt.NDArray[np.int32]
    crowd: npt.NDArray[np.bool_]


def read_instances(path: Path) -> Instances:
    """Read a file; ids may be whole numbers or texts.

    Raises:
        PlmclError: It is not such a file; an id or a category's name stands there twice; or an
            annotation is of an image or a category that the file does not have.
    """
    document = expect(read_json(path, keep=_KEYS), dict, str(path))
    file_names: dict[Id, str] = {}
    for entry, where in _entries(document, "images", path):
        image_id = _new_id(entry, file_names, where)
        file_names[image_id] = expect(entry.get("file_name"), str, f"{where}.file_name")
    categories: dict[Id, str] = {}
    names: set[str] = set()
    for entry, where in _entries(document, "categories", path):
        category_id = _new_id(entry, categories, where)
        name = label_name(entry.get("name"), f"{where}.name")
        if name in names:
            raise PlmclError(f"{where}.name: {shown(name)} is the name of two categories")
        names.add(name)
        categories[category_id] = name
    image_places = {key: place for place, key in enumerate(file_names)}
    category_places = {key: place for place, key in enumerate(categories)}
    image, category, crowd = array("i"), array("i"), array("b")
    for entry, where in _entries(document, "annotations", path):
        image.append(_place(entry, "image_id", image_places, where))
        category.append(_place(entry, "category_id", category_places, where))
        crowd.append(_is_crowd(entry, where))
    return Instances(
        file_names,
        categories,
        np.array(image, dtype=np.int32),
        np.array(category, dtype=np.int32),
        np.array(crowd, dtype=np.bool_),
    )


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read labels: a category is present in an image that has an annotation of it.

    Raises:
        PlmclError: See `read_instances`; or a file name may be any of several images.
    """
    found = read_instances(path)
    names = list(found.categories.values())
    file_names = list(found.file_names.values())
    ids = [index.find_name(name, f"{path}: images") for name in file_names]
    absent = [name for name, image_id in zip(file_names, ids, strict=True) if image_id is None]
    cells = Cells()
    for image_id in ids:
        if image_id is not None:
            cells.name(image_id)
    places = found.image * np.int64(len(names)) + found.category
    every, solid = np.unique(places), np.unique(places[~found.crowd])
    for cell in (every if options.crowd == "keep" else solid).tolist():
        image, category = divmod(cell, len(names))
        image_id = ids[image]
        if image_id is not None:
            cells.add(image_id, names[category], 1)
    notes = {
        "images without an annotation": len(ids) - len(np.unique(found.image)),
        f"labels that only crowd regions give (crowd: {options.crowd})": len(every) - len(solid),
    }
    return LabelFile(
        labels=cells.table(),
        named=cells.named,
        absent=list(dict.fromkeys(absent)),
        label_names=names,
        notes={words: number for words, number in notes.items() if number},
        files=[path],
    )


def recognise(path: Path) -> bool:
    """Whether it is a JSON file that holds one object."""
    return starts_json(path, b"{")


def _entries(
    document: dict[str, Any], key: str, path: Path
) -> Iterator[tuple[dict[str, Any], str]]:
    # (object, its place); taken out of the document, so that they are forgotten when done
    entries = expect(document.pop(key, None), list, f"{path}: {key}")
    for number, entry in enumerate(entries):
        where = f"{path}: {key}[{number}]"
        yield expect(entry, dict, where), where


def _new_id(entry: dict[str, Any], known: dict[Id, str], where: str) -> Id:
    found = _id(entry, "id", where)
    if found in known:
        raise PlmclError(f"{where}.id: {shown(found)} stands there twice")
    return found


def _place(entry: dict[str, Any], key: str, places: dict[Id, int], where: str) -> int:
    found = _id(entry, key, where)
    if found not in places:
        kind = key.removesuffix("_id")
        raise PlmclError(f"{where}.{key}: no {kind} of the file has the id {shown(found)}")
    return places[found]


def _id(entry: dict[str, Any], key: str, where: str) -> Id:
    value = entry.get(key)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise PlmclError(f"{where}.{key}: must be a whole number or a text, found {shown(value)}")


def _is_crowd(entry: dict[str, Any], where: str) -> bool:
    value = entry.get("iscrowd", 0)
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise PlmclError(f"{where}.iscrowd: must be 0 or 1, found {shown(value)}")
