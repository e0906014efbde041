"""Where everything is: the only place that knows paths."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from plmcl.errors import PlmclError


@dataclass(frozen=True)
class Paths:
    """The files of a project.

    Attributes:
        root: The project's folder.
        raw: The folder of a source's images and annotations.
        images: The folder that the paths in the manifest are below.
    """

    root: Path
    raw: Path
    images: Path

    @classmethod
    def of_project(cls, root: Path, source: str) -> "Paths":
        """The layout that dvc.yaml names."""
        return cls(root, root / "data" / "raw" / source, root / "data")

    @classmethod
    def of_photos(cls, root: Path, photos: Path) -> "Paths":
        """Everything in `root` but the images, which stay in their folder."""
        return cls(root, photos, photos)

    @property
    def params_ok(self) -> Path:
        """Written by `check`: params.yaml holds no mistake that can be seen beforehand."""
        return self.root / "data" / "params.ok"

    def deliveries(self, version: str) -> Path:
        """The images that were delivered since the base set, as of a retraining; `none` too."""
        return self.root / "data" / "deliveries" / version

    def warm(self, version: str) -> Path:
        """The champion's model.pt and labels/ that a retraining starts from; `none` too."""
        return self.root / "data" / "warm" / version

    @property
    def received(self) -> Path:
        """The store of all deliveries; outside git and DVC."""
        return self.root / "data" / "received"

    @property
    def production(self) -> Path:
        """The promoted models, and which of them is the champion; outside git and DVC."""
        return self.root / "models" / "production"

    @property
    def retraining(self) -> Path:
        """Lock, checkout and progress of retrainings; outside git and DVC."""
        return self.root / ".plmcl" / "retraining"

    @property
    def manifests(self) -> Path:
        """Written by `ingest`."""
        return self.root / "data" / "manifests"

    @property
    def splits(self) -> Path:
        """Written by `split`."""
        return self.root / "data" / "splits"

    def observed(self, setting: str) -> Path:
        """The labels that training may see under a setting; written by `split`."""
        return self.splits / "observed" / f"{setting}.parquet"

    def model(self, setting: str, method: str) -> Path:
        """Written by `train` (model.pt, labels/) and `export` (model.onnx)."""
        return self.root / "models" / _run_name(setting, method)

    def run(self, setting: str, method: str) -> Path:
        """What is known of a run; written by `train` and `evaluate`."""
        return self.root / "reports" / "runs" / _run_name(setting, method)

    @property
    def report(self) -> Path:
        """Written by `report`."""
        return self.root / "reports" / "index.html"

    @property
    def checkpoints(self) -> Path:
        """Trainings under way; outside git and DVC."""
        return self.root / ".plmcl" / "checkpoints"

    @property
    def features(self) -> Path:
        """Cached features; outside git and DVC, and may be deleted."""
        return self.root / ".plmcl" / "features"

    @property
    def examined(self) -> Path:
        """What the doctor found in earlier examinations; outside git and DVC, may be deleted."""
        return self.root / ".plmcl" / "examined" / self.raw.name

    @property
    def examined_deliveries(self) -> Path:
        """The same, of the delivered images."""
        return self.root / ".plmcl" / "examined" / "deliveries"

    def data_sha256(self) -> str:
        """Of the images, their labels and the label list."""
        names = ("images.parquet", "labels.parquet", "difficult.parquet", "labels.json")
        return _sha256([self.manifests / name for name in names])

    def splits_sha256(self, setting: str) -> str:
        """Of the splits and of the labels that training may see."""
        return _sha256([self.splits / "splits.parquet", self.observed(setting)])


def record_of(folder: Path) -> Path:
    """Where the doctor keeps what it found in a folder that belongs to no project."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return user_cache_path("plmcl") / "examined" / name


def _run_name(setting: str, method: str) -> str:
    name = f"{setting}-{method}"
    if not re.fullmatch(r"[a-z0-9_-]+", name):
        raise PlmclError(f"{name!r} names no run: expected a setting and a method, sspl-40 plmcl")
    return name


def _sha256(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
