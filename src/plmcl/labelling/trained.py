"""A finished training, found by its folder: a project's, or what `plmcl fit` made."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.models import load_classifier
from plmcl.params import Params, load_params
from plmcl.run_record import RunRecord, best_run
from plmcl.schemas import ObservedLabels, Splits, read_table
from plmcl.stages.job import Job, prepare
from plmcl.stages.paths import Paths


@dataclass(frozen=True)
class Trained:
    """A training, with the data that it was made from.

    Attributes:
        paths: Of the project.
        params: All of them.
        setting: Such as `sspl-40`; `given` for a user's own labels.
        method: Such as `ridge`.
        manifest: All images, and all that is known of their labels.
        splits: `schemas.Splits`.
        observed: `schemas.ObservedLabels`: what training could see of the training images.
        tags: Of the run: seed, hashes of the data and the splits, versions.
    """

    paths: Paths
    params: Params
    setting: str
    method: str
    manifest: Manifest
    splits: pd.DataFrame
    observed: pd.DataFrame
    tags: dict[str, str]

    @property
    def name(self) -> str:
        """Of the run."""
        return f"{self.setting}-{self.method}"

    @property
    def identity(self) -> dict[str, str | float]:
        """What a result is of, so that two of them can be compared: run, seed, hashes, versions."""
        kept = ("seed", "data_sha256", "splits_sha256", "code_commit", "python", "torch")
        return {"run": self.name, **{key: self.tags[key] for key in kept if key in self.tags}}

    def prepare(self) -> Job:
        """The training, set up again, before its first step."""
        return prepare(self.paths, self.params, self.setting, self.method, manifest=self.manifest)

    def load(self, job: Job) -> None:
        """Give a job the weights that this training ended with.

        Raises:
            PlmclError: The model is of another label list or other data than is there now.
        """
        path = self.paths.model(self.setting, self.method) / "model.pt"
        model, record = load_classifier(path, self.manifest.label_names)
        for what, then, now in (
            ("the images or their labels", record.data_sha256, self.paths.data_sha256()),
            ("the splits", record.splits_sha256, self.paths.splits_sha256(self.setting)),
        ):
            if then != now:
                raise PlmclError(f"{path}: {what} changed since this training; train again")
        with torch.no_grad():
            job.model.load_state_dict(model.state_dict())


def open_trained(folder: Path, run: str | None = None) -> Trained:
    """Find a training in a folder.

    Args:
        folder: A project, or the `--out` of `plmcl fit`.
        run: Its name (`sspl-40-ridge`); None: of those of the one setting that was trained, the
            one that is best on the validation split, which is what `plmcl fit` exports.

    Raises:
        PlmclError: The folder holds no training, several settings to choose from, or none of
            that name; or its images are gone.
    """
    file = folder / "params.yaml"
    if not file.exists():
        raise PlmclError(f"{folder}: holds no params.yaml; name a project or what plmcl fit made")
    params = load_params(file)
    paths = _paths(folder.resolve(), params)
    runs = {
        record.name: record
        for record in map(RunRecord.read, sorted(folder.glob("reports/runs/*/run.json")))
        if (folder / "models" / record.name / "model.pt").exists()
    }
    record = _choose(runs, run, folder)
    setting, method = record.tags["setting"], record.tags["method"]
    return Trained(
        paths=paths,
        params=params,
        setting=setting,
        method=method,
        manifest=Manifest.read(paths.manifests),
        splits=read_table(paths.splits / "splits.parquet", Splits),
        observed=read_table(paths.observed(setting), ObservedLabels),
        tags=record.tags,
    )


def _choose(runs: dict[str, RunRecord], run: str | None, folder: Path) -> RunRecord:
    names = ", ".join(runs) or "none"
    if not runs:
        raise PlmclError(f"{folder}: nothing was trained there; run plmcl fit or dvc repro first")
    if run is not None:
        if run not in runs:
            raise PlmclError(f"--run {run}: not trained in {folder}; trained are: {names}")
        return runs[run]
    settings = {record.tags["setting"] for record in runs.values()}
    if len(settings) > 1:
        raise PlmclError(f"{folder}: choose a run, since several settings are there: --run {names}")
    return runs[best_run(runs)]


def _paths(root: Path, params: Params) -> Paths:
    source = params.data.source
    project, photos = Paths.of_project(root, source), Path(params.data.path)
    if project.raw.is_dir():
        return project
    if source == "folder" and photos.is_absolute():
        if not photos.is_dir():
            raise PlmclError(f"{root}/params.yaml: data.path: the photos are not at {photos}")
        return Paths.of_photos(root, photos)
    raise PlmclError(f"{project.raw}: the images are not there; run the download stage")
