"""MS-COCO 2014 and 2017: the image-level labels that its objects give."""

from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

import numpy as np

from plmcl.data.downloads import Remote
from plmcl.data.formats.coco import Instances, read_instances
from plmcl.data.sources.official import Official, folders
from plmcl.data.sources.published import Part, Published
from plmcl.errors import PlmclError

OFFICIAL = {"train": "train", "test": "val"}  # the test images have no public annotations
TOTALS = {2014: {"train": 82_081, "test": 40_137}, 2017: {}}
# The first has a certificate of another name, so no https; the second is the same store.
SERVERS = ("http://images.cocodataset.org", "https://s3.amazonaws.com/images.cocodataset.org")
ARCHIVES = {
    2014: [
        ("annotations/annotations_trainval2014.zip", 252_872_794,
         "0a379cfc70b0e71301e0f377548639bd"),
        ("zips/train2014.zip", 13_510_573_713, "0da8c0bd3d6becc4dcb32757491aca88"),
        ("zips/val2014.zip", 6_645_013_297, "a3d79f5ed8d289b7a7554ce06a5782b3"),
    ],
    2017: [
        ("annotations/annotations_trainval2017.zip", 252_907_541,
         "f4bbac642086de4f52a3fdda2de5fa2c"),
        ("zips/train2017.zip", 19_336_861_798, "cced6f7f71b7629ddf16f17bbcfab6b2"),
        ("zips/val2017.zip", 815_585_330, "442b8da7639aecaf257c1dceb8ba8c80"),
    ],
}  # fmt: skip


class Coco(Official):
    """The images with at least one annotation; ids are sorted as texts, as was published.

    Attributes:
        year: Of the annotation files.
        crowd: Whether a label that only crowd regions give counts. `keep` is the published
            protocol; with `drop` such a label is absent, and the list of images stays the same.
    """

    year: Literal[2014, 2017]
    crowd: Literal["keep", "drop"]

    layout: ClassVar[str] = "annotations/instances_*.json of MS-COCO"

    def find(self, folder: Path) -> Path | None:
        """The folder in which `annotations` lies."""
        for candidate in folders(folder):
            if all(self._instances(candidate, split).is_file() for split in OFFICIAL):
                return candidate
        return None

    def read(self, base: Path) -> Published:
        """Read them; the images lie in `train2014` and so on, or in `images/train2014`.

        Raises:
            PlmclError: A file is no COCO file, or the two have other categories.
        """
        parts: dict[str, Part] = {}
        label_names: list[str] = []
        without = crowds = 0
        for split, official in OFFICIAL.items():
            path = self._instances(base, split)
            found = read_instances(path)
            names = list(found.categories.values())
            if label_names and names != label_names:
                raise PlmclError(f"{path}: the categories are not those of the training images")
            label_names = names
            parts[split], crowd_only = self._part(found, f"{official}{self.year}")
            without += len(found.file_names) - len(parts[split].names)
            crowds += crowd_only
        nested = base / "images" / f"train{self.year}"
        return Published(
            images=nested.parent if nested.is_dir() else base,
            label_names=label_names,
            parts=parts,
            files=[self._instances(base, split) for split in parts],
            totals=TOTALS[self.year],
            notes={
                "images without an annotation, which the published list leaves out": without,
                f"labels that only crowd regions give (crowd: {self.crowd})": crowds,
            },
        )

    def _part(self, found: Instances, folder: str) -> tuple[Part, int]:
        # One split, and the number of its labels that only crowd regions give.
        shape = (len(found.file_names), len(found.categories))
        every, solid = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        every[found.image, found.category] = True
        solid[found.image[~found.crowd], found.category[~found.crowd]] = True
        ids, names = list(found.file_names), list(found.file_names.values())
        listed = sorted(np.flatnonzero(every.any(axis=1)), key=lambda row: str(ids[row]))
        present = every if self.crowd == "keep" else solid
        part = Part([f"{folder}/{names[row]}" for row in listed], present[listed])
        return part, int(every.sum() - solid.sum())

    def _instances(self, base: Path, split: str) -> Path:
        return base / "annotations" / f"instances_{OFFICIAL[split]}{self.year}.json"

    def archives(self) -> list[Remote]:
        """Annotations, training images, validation images: 20 GB."""
        return [
            self.remote(
                PurePosixPath(path).name,
                *(f"{server}/{path}" for server in SERVERS),
                size=size,
                md5=md5,
            )
            for path, size, md5 in ARCHIVES[self.year]
        ]

    def wanted(self, member: str) -> bool:
        """The images, and of the annotations those of objects."""
        path = PurePosixPath(member)
        return path.parent.name != "annotations" or path.name.startswith("instances_")


SOURCE = Coco
