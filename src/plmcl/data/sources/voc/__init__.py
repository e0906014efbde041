"""PASCAL VOC 2012 and 2007, image-level labels as published for single positive labels."""

import re
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

import numpy as np

from plmcl.data.downloads import Remote
from plmcl.data.sources.official import Official, folders
from plmcl.data.sources.published import Part, Published
from plmcl.data.sources.reading import read_pairs
from plmcl.errors import PlmclError

LABELS = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
]  # fmt: skip
# Our split -> the official one. There are no public labels for the test images of 2012.
OFFICIAL = {
    2007: {"train": "trainval", "test": "test"},
    2012: {"train": "train", "test": "val"},
}
TOTALS = {2007: {}, 2012: {"train": 5717, "test": 5823}}
SERVERS = ("https://thor.robots.ox.ac.uk/pascal/VOC", "http://host.robots.ox.ac.uk/pascal/VOC")
ARCHIVES = {
    2007: [
        ("VOCtrainval_06-Nov-2007.tar", 460_032_000, "c52e279531787c972589f7e41ab4ae64"),
        ("VOCtest_06-Nov-2007.tar", 451_020_800, "b6e924de25625d8de591ea690078ad9f"),
    ],
    2012: [
        ("VOCtrainval_11-May-2012.tar", 1_999_639_040, "6cd6e144f989b92b3379bac3b3de84fd"),
    ],
}


class Voc(Official):
    """The lists `ImageSets/Main/<label>_<split>.txt`, in which only the value 1 is a positive.

    An image without a positive is in no list of ours, as in the published protocol.

    Attributes:
        year: 2012 (train, and val as the test) or 2007 (trainval, and test).
        difficult: What the value 0 means, that only difficult objects are there: the label is
            absent (the published protocol), or to be ignored.
    """

    year: Literal[2007, 2012]
    difficult: Literal["negative", "ignore"]

    layout: ClassVar[str] = "ImageSets/Main of PASCAL VOC"

    def find(self, folder: Path) -> Path | None:
        """The folder that holds the lists and is not called after another year."""
        for candidate in folders(folder):
            called = re.fullmatch(r"VOC(\d{4})", candidate.name)
            if called is not None and int(called[1]) != self.year:
                continue
            if all(self._list(candidate, LABELS[0], split).is_file() for split in self._splits):
                return candidate
        return None

    def read(self, base: Path) -> Published:
        """Read the lists of both splits.

        Raises:
            PlmclError: A list is missing, or a value is not 1, 0 or -1.
        """
        parts, left_out = {}, 0
        for split in self._splits:
            parts[split], without = self._read_split(base, split)
            left_out += without
        return Published(
            images=base / "JPEGImages",
            label_names=LABELS,
            parts=parts,
            files=[self._list(base, label, split) for split in parts for label in LABELS],
            totals=TOTALS[self.year],
            unlisted="unknown" if self.difficult == "ignore" else "negative",
            notes={"images without a positive, which the published list leaves out": left_out},
        )

    def _read_split(self, base: Path, split: str) -> tuple[Part, int]:
        # The images with a positive, and the number of those without.
        rows: dict[str, int] = {}
        values: dict[str, list[tuple[int, int]]] = {"1": [], "0": [], "-1": []}
        for column, label in enumerate(LABELS):
            for where, stem, value in read_pairs(self._list(base, label, split)):
                if value not in values:
                    raise PlmclError(f"{where}: expected 1, 0 or -1, found {value!r}")
                row = rows.setdefault(f"{stem}.jpg", len(rows))
                values[value].append((row, column))
        present = _marked(values["1"], len(rows))
        difficult = _marked(values["0"], len(rows))
        names = sorted(name for name, row in rows.items() if present[row].any())
        order = [rows[name] for name in names]
        return Part(names, present[order], difficult[order]), len(rows) - len(names)

    @property
    def _splits(self) -> dict[str, str]:
        return OFFICIAL[self.year]

    def _list(self, base: Path, label: str, split: str) -> Path:
        return base / "ImageSets" / "Main" / f"{label}_{self._splits[split]}.txt"

    def archives(self) -> list[Remote]:
        """One archive, or two for 2007."""
        return [
            self.remote(
                name, *(f"{server}/voc{self.year}/{name}" for server in SERVERS), size=size, md5=md5
            )
            for name, size, md5 in ARCHIVES[self.year]
        ]

    def wanted(self, member: str) -> bool:
        """The images and the lists."""
        folder = PurePosixPath(member).parent
        return folder.name == "JPEGImages" or folder.parts[-2:] == ("ImageSets", "Main")


def _marked(cells: list[tuple[int, int]], num_rows: int) -> np.ndarray:
    matrix = np.zeros((num_rows, len(LABELS)), dtype=bool)
    if cells:
        matrix[tuple(np.array(cells).T)] = True
    return matrix


SOURCE = Voc
