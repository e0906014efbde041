"""The lists of NUS-WIDE in the two forms that users have, wherever in a folder the files lie."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmcl.data.label_files import MAX_BYTES, check_file, read_name_list
from plmcl.data.sources.nuswide.concepts import CONCEPTS
from plmcl.data.sources.official import folders
from plmcl.data.sources.published import Part
from plmcl.data.sources.reading import read_lines, read_numbers, to_presence
from plmcl.errors import PlmclError

# The published lists for single positive labels: (images, labels) of each split.
ARRAYS = {
    "train": ("formatted_train_images.npy", "formatted_train_labels.npy"),
    "test": ("formatted_val_images.npy", "formatted_val_labels.npy"),
}
# The classic package calls the splits so, in TrainImagelist.txt and Labels_<concept>_Train.txt.
CLASSIC = {"train": "Train", "test": "Test"}
CONCEPTS_FILE = "Concepts81.txt"


@dataclass(frozen=True)
class Lists:
    """What the lists in a folder say.

    Attributes:
        label_names: The concepts in their order.
        parts: By split.
        totals: Number of images of each split in the whole lists of this form.
        files: All files that were read.
    """

    label_names: list[str]
    parts: dict[str, Part]
    totals: dict[str, int]
    files: list[Path]


def has_lists(folder: Path) -> bool:
    """Whether there are lists of either form."""
    found = _by_name(folder)
    return _has_arrays(found) or f"{CLASSIC['train']}Imagelist.txt".casefold() in found


def read_lists(folder: Path) -> Lists:
    """Read the lists; if both forms are there, the arrays, which are the published ones.

    Raises:
        PlmclError: A file is missing or breaks its form.
    """
    found = _by_name(folder)
    concepts = found.get(CONCEPTS_FILE.casefold())
    names = CONCEPTS if concepts is None else read_name_list(concepts)
    files = [] if concepts is None else [concepts]
    parts = {}
    if _has_arrays(found):
        for split, (images, labels) in ARRAYS.items():
            files += [found[images], found[labels]]
            parts[split] = _read_arrays(found[images], found[labels], names)
        return Lists(names, parts, {"train": 150_000, "test": 60_260}, files)
    for split, word in CLASSIC.items():
        images_file = _file(found, f"{word}Imagelist.txt", folder)
        columns = [_file(found, f"Labels_{name}_{word}.txt", folder) for name in names]
        files += [images_file, *columns]
        parts[split] = _read_classic(images_file, columns)
    return Lists(names, parts, {"train": 161_789, "test": 107_859}, files)


def _by_name(folder: Path) -> dict[str, Path]:
    # Folded file name -> the nearest file of that name; copies differ in folders and in case.
    found: dict[str, Path] = {}
    for place in folders(folder, depth=3):
        for entry in os.scandir(place):
            if entry.name.lower().endswith((".txt", ".npy")) and entry.is_file():
                found.setdefault(entry.name.casefold(), Path(entry.path))
    return found


def _has_arrays(found: Mapping[str, Path]) -> bool:
    return all(name in found for names in ARRAYS.values() for name in names)


def _file(found: Mapping[str, Path], name: str, folder: Path) -> Path:
    path = found.get(name.casefold())
    if path is None:
        raise PlmclError(f"{folder}: no {name} in it")
    return path


def _read_arrays(images_file: Path, labels_file: Path, label_names: list[str]) -> Part:
    images, labels = map_array(images_file), map_array(labels_file)
    if images.ndim != 1 or images.dtype.kind != "U":
        raise PlmclError(
            f"{images_file}: expected N texts, found shape {images.shape} of {images.dtype}"
        )
    expected = (len(images), len(label_names))
    if labels.shape != expected or labels.dtype.kind not in "biuf":
        raise PlmclError(
            f"{labels_file}: expected numbers of shape {expected}, images x concepts, found shape "
            f"{labels.shape} of {labels.dtype}"
        )
    codes = images.astype(images.dtype.newbyteorder("=")).tobytes()
    if np.frombuffer(codes, dtype=np.uint32).max(initial=0) > sys.maxunicode:
        raise PlmclError(f"{images_file}: holds what is no character")
    return Part([_posix(name) for name in images.tolist()], to_presence(labels, labels_file))


def map_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file, of which nothing is read yet.

    Raises:
        PlmclError: It is none, holds Python objects, or is shorter than it says.
    """
    check_file(path, max_bytes=MAX_BYTES)
    try:
        # Mapped and not loaded: a size that the file has not is noticed before memory is taken.
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy parses the header as Python, which fails in many ways
        raise PlmclError(
            f"{path}: no plain array of text or numbers ({error}); Python objects are not loaded, "
            "since they can run code: save it again with allow_pickle=False"
        ) from None


def _read_classic(images_file: Path, columns: list[Path]) -> Part:
    names = [_posix(line) for _, line in read_lines(images_file)]
    present = np.zeros((len(names), len(columns)), dtype=bool)
    for column, path in enumerate(columns):
        values = read_numbers(path, (0,))[:, 0]
        if len(values) != len(names):
            raise PlmclError(
                f"{path}: {len(values)} lines, where {images_file} has {len(names)} images"
            )
        present[:, column] = to_presence(values, path)
    return Part(names, present)


def _posix(name: str) -> str:
    return name.replace("\\", "/")
