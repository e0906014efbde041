"""The contract of a data source, and what every source needs to keep it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from plmcl.data.listing import PassedOver
from plmcl.data.manifest import Unlisted, no_cells
from plmcl.params import Section
from plmcl.progress import ProgressCallback


@dataclass(frozen=True)
class Annotations:
    """What a source says before any image is opened.

    Attributes:
        root: Folder of the images, a posix path below the raw folder ("." for that folder itself).
        files: Posix paths below `root`, sorted by code point; also the image ids.
        splits: Official split ("train", "val" or "test") of the images that have one.
        labels: Columns of `schemas.Labels`; sorted.
        label_names: All labels, in the order of the model's outputs.
        unlisted: What the absence of a row in `labels` means.
        passed_over: Files that are no images by their names.
        difficult: Columns `image_id` and `label`: cells of which the published list says that
            only difficult instances are there; a source of objects has them, others do not.
        published: Place of an image in the published list of its split, from 0; for draws that
            go by that order. Images without one are not in it.
        notes: What else a person should know before training, with its number.
    """

    root: str
    files: list[str]
    splits: dict[str, str]
    labels: pd.DataFrame
    label_names: list[str]
    unlisted: Unlisted
    passed_over: list[PassedOver] = field(default_factory=list)
    difficult: pd.DataFrame = field(default_factory=no_cells)
    published: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


class Source(Section, ABC):
    """A data set; its fields are its section of params.yaml."""

    @abstractmethod
    def download(
        self, path: Path, raw: Path, *, seed: int, progress: ProgressCallback | None = None
    ) -> None:
        """Put the data set into `raw`, which is empty or does not exist; all of it or nothing.

        Args:
            path: What the user names as data.path.
            raw: Folder to fill.
            seed: Of the whole pipeline.
            progress: Called with (done, total) files.
        """

    @abstractmethod
    def annotations(self, raw: Path) -> Annotations:
        """Read names and labels; opens no image.

        Raises:
            PlmclError: There is no image or no label, or a file breaks a rule.
        """
