"""CUB-200-2011: birds, with their 312 attributes as labels."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from plmcl.data.downloads import Remote
from plmcl.data.sources.official import Official, folders
from plmcl.data.sources.published import Part, Published
from plmcl.data.sources.reading import read_numbers, read_pairs, to_presence
from plmcl.errors import PlmclError

TOTALS = {"train": 5994, "test": 5794}
LABELS_FILE = "image_attribute_labels.txt"
SPLITS = {"1": "train", "0": "test"}


class Cub(Official):
    """The official split, in the order of images.txt; a label counts if is_present is 1.

    How sure the annotators were is not looked at.
    """

    layout: ClassVar[str] = "images.txt and train_test_split.txt of CUB-200-2011"

    def find(self, folder: Path) -> Path | None:
        """The folder that the archive calls CUB_200_2011."""
        for candidate in folders(folder):
            if all((candidate / f"{n}.txt").is_file() for n in ("images", "train_test_split")):
                return candidate
        return None

    def read(self, base: Path) -> Published:
        """Read the four files.

        Raises:
            PlmclError: One is missing, breaks its form, or speaks of an image or an attribute
                that its own list does not have.
        """
        images_file, splits_file = base / "images.txt", base / "train_test_split.txt"
        labels_file, names_file = base / "attributes" / LABELS_FILE, _names_file(base)
        images = _numbered(images_file)
        attributes = _numbered(names_file)
        split_of = _numbered(splits_file)
        for number, value in split_of.items():
            if value not in SPLITS:
                raise PlmclError(f"{splits_file}: image {number}: expected 1 or 0, found {value!r}")
        without = images.keys() - split_of.keys()
        if without:
            raise PlmclError(f"{splits_file}: no line for image {min(without)} of {images_file}")
        present, not_said = _read_labels(labels_file, list(images), list(attributes))
        names = list(images.values())
        split = np.array([SPLITS[split_of[number]] for number in images])
        return Published(
            images=base / "images",
            label_names=list(attributes.values()),
            parts={
                part: Part([names[row] for row in np.flatnonzero(split == part)],
                           present[split == part])
                for part in SPLITS.values()
            },
            files=[images_file, splits_file, labels_file, names_file],
            totals=TOTALS,
            notes={f"cells without a line in {LABELS_FILE}, taken as absent": not_said},
        )  # fmt: skip

    def archives(self) -> list[Remote]:
        """One archive."""
        name = "CUB_200_2011.tgz"
        return [
            self.remote(
                name,
                f"https://data.caltech.edu/records/65de6-vp158/files/{name}",
                size=1_150_585_339,
                md5="97eceeb196236b17998738112f37df78",
            )
        ]

    def wanted(self, member: str) -> bool:
        """Everything but the parts of the birds."""
        return "/parts/" not in member


def _names_file(base: Path) -> Path:
    # The archive has it beside the folder CUB_200_2011, copies also in it.
    places = (base / "attributes" / "attributes.txt", base / "attributes.txt")
    return next((file for file in places if file.is_file()), base.parent / "attributes.txt")


def _numbered(path: Path) -> dict[int, str]:
    # number -> what stands behind it, in the order of the lines
    found: dict[int, str] = {}
    for where, number, text in read_pairs(path):
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            raise PlmclError(f"{where}: expected a number first, found {number[:40]!r}")
        if int(number) in found:
            raise PlmclError(f"{where}: number {number} stands above, too")
        found[int(number)] = text
    if not found:
        raise PlmclError(f"{path}: empty")
    return found


def _read_labels(
    path: Path, images: list[int], attributes: list[int]
) -> tuple[npt.NDArray[np.bool_], int]:
    # (N, L), and the number of its cells without a line. Some lines of the official file have more
    # columns than the five that it should have, all behind the first three.
    table = read_numbers(path, (0, 1, 2))
    rows, columns = _places(table[:, 0], images, path), _places(table[:, 1], attributes, path)
    value = to_presence(table[:, 2], path)
    present = np.zeros((len(images), len(attributes)), dtype=bool)
    said = present.copy()
    said[rows, columns] = True
    present[rows[value], columns[value]] = True
    return present, int((~said).sum())


def _places(numbers: np.ndarray, known: list[int], path: Path) -> npt.NDArray[np.intp]:
    values = np.array(known)
    order = np.argsort(values)
    at = order[np.minimum(np.searchsorted(values, numbers, sorter=order), len(values) - 1)]
    strange = numbers[values[at] != numbers]
    if len(strange):
        raise PlmclError(f"{path}: {strange[0]} is no number of a known image or attribute")
    return at


SOURCE = Cub
