"""Stage train: one method under one setting; writes the model, the label state, the run record."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from plmcl import tracking
from plmcl.checkpoint import Checkpoints
from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.distribution import agree
from plmcl.errors import PlmclError
from plmcl.evaluation import AP_FLAVOUR
from plmcl.labels.figures import (
    GROUP,
    PseudoLabelFigures,
    has_pseudo_labels,
    looked_at,
    no_changes,
)
from plmcl.models import ModelRecord, save_classifier
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.run_record import RunRecord
from plmcl.schemas import Splits, read_table
from plmcl.signals import exit_if_told
from plmcl.stages.entry import run_stage
from plmcl.stages.job import PHASES, Job, prepare
from plmcl.stages.paths import Paths
from plmcl.training import Fitted

# Where a training's numbers come from.
CODE = tuple(
    f"plmcl.{name}"
    for name in (
        *(
            "averaging",
            "capture",
            "data",
            "distribution",
            "evaluation",
            "features",
            "heads",
            "labels",
            "methods",
            "models",
            "ordering",
        ),
        *("pooling", "ranking", "share", "stages.job", "training", "warm"),
    )
)


def run(
    paths: Paths, params: Params, setting: str, method_name: str, *, track: bool = True
) -> RunRecord | None:
    """Train and write everything.

    Where `torchrun` started several processes, all of them call this; rank 0 writes and speaks.

    Args:
        paths: Of the project.
        params: All of them.
        setting: Such as `sspl-40`.
        method_name: Such as `plmcl`.
        track: Whether MLflow is told while it runs.

    Returns:
        The record of the run; None on other ranks than 0.
    """
    job = prepare(paths, params, setting, method_name)
    training = identity(paths, params, setting, method_name, job)
    checkpoints = Checkpoints(paths.checkpoints / f"{setting}-{method_name}" / training)
    agree("the identity of the training", training)
    if not job.fabric.is_global_zero:
        job.fabric.barrier()  # until rank 0 has the checkpoints to itself
        job.fit(
            checkpoints=checkpoints,
            on_epoch=lambda entry: None,
            progress=lambda done, total: exit_if_told(),
        )
        return None
    with checkpoints.held(), show_progress(f"train {setting}-{method_name}") as progress:
        job.fabric.barrier()
        record = _record(paths, params, setting, method_name, job, checkpoints)
        resumed = f", goes on after epoch {checkpoints.epoch}" if checkpoints.epoch else ""
        print(
            f"{record.name}: {len(job.train)} images, {int(job.observations.observed.sum())} "
            f"labels known, {job.params.train.mode}, on {job.place}, {job.precision}{resumed}"
        )
        if job.start is not None:
            print(job.start.text)
        figures = _figures(paths, job)

        def train(on_epoch: Any) -> Fitted:
            return job.fit(
                checkpoints=checkpoints,
                on_epoch=on_epoch,
                progress=progress,
                figures=None if figures is None else figures.after,
            )

        if track:
            with tracking.start_run(record, root=paths.root) as mlflow_run:
                # Written before the first epoch: a resumed training goes on as the same run.
                record.write(checkpoints.directory / "run.json")
                fitted = train(
                    lambda entry: mlflow_run.log(
                        {key: value for key, value in entry.items() if "/" in key},
                        entry["epoch"],
                        phase=entry["phase"],
                    )
                )
                # Inside: what MLflow says of the kept epoch is of all, also those before a resume;
                # and a run without its model is a failed run.
                record.history = fitted.history
                _save(paths, setting, method_name, job, fitted, record, figures)
        else:
            fitted = train(lambda entry: None)
            _save(paths, setting, method_name, job, fitted, record, figures)
            record.status, record.history = "FINISHED", fitted.history
        _write_record(paths.run(setting, method_name), record)
        shutil.rmtree(checkpoints.directory)
    name, value = fitted.best_score
    print(f"{record.name}: best epoch {fitted.best_epoch}, {name} {value:.3f}")
    return record


def _save(
    paths: Paths,
    setting: str,
    method_name: str,
    job: Job,
    fitted: Fitted,
    record: RunRecord,
    figures: PseudoLabelFigures | None,
) -> None:
    name, value = fitted.best_score
    model_record = ModelRecord(
        backbone=job.params.model.backbone,
        pooling=job.params.model.pooling,
        head=job.params.model.head,
        label_names=job.label_names,
        recipe=job.recipe.to_dict(),
        setting=setting,
        method=method_name,
        weights=job.weights.source,
        weights_sha256=job.weights.sha256,
        best_epoch=fitted.best_epoch,
        selection=name,
        selection_value=value,
        data_sha256=paths.data_sha256(),
        splits_sha256=paths.splits_sha256(setting),
        code_commit=record.tags["code_commit"],
    )
    save_classifier(job.model, model_record, paths.model(setting, method_name) / "model.pt")
    job.store.save(paths.model(setting, method_name) / "labels")
    _write_most_changed(paths.run(setting, method_name), job.label_names, figures)


def _figures(paths: Paths, job: Job) -> PseudoLabelFigures | None:
    """What looks at the pseudo labels, if there are any; the truth is read for it alone."""
    if not has_pseudo_labels(job.store):
        return None
    splits = read_table(paths.splits / "splits.parquet", Splits)
    shown = splits["image_id"].isin(looked_at(job.train.image_ids))
    truth = truth_rows(Manifest.read(paths.manifests), splits[shown], "train")
    known = job.observations
    return PseudoLabelFigures(job.store, job.method, known.targets, known.observed, truth)


def _write_most_changed(
    run_folder: Path, label_names: list[str], figures: PseudoLabelFigures | None
) -> None:
    """pseudo_labels.csv; without a row for a method that keeps none."""
    run_folder.mkdir(parents=True, exist_ok=True)
    rows = no_changes() if figures is None else figures.most_changed()
    rows = rows.assign(label=[label_names[column] for column in rows["label"]])
    rows.to_csv(run_folder / "pseudo_labels.csv", index=False, lineterminator="\n")


def _write_record(run_folder: Path, record: RunRecord) -> None:
    run_folder.mkdir(parents=True, exist_ok=True)
    record.write(run_folder / "run.json")
    history = pd.DataFrame(
        {
            "epoch": [entry["epoch"] for entry in record.history],
            "phase": [entry["phase"] for entry in record.history],
            "train_loss": [entry["train/loss"] for entry in record.history],
            "selection": [entry[record.selection_key] for entry in record.history],
        }
    )
    recorded = dict.fromkeys(k for e in record.history for k in e if k.startswith(GROUP))
    for key in recorded:
        column = key.replace("/", "_")
        history[column] = [entry.get(key) for entry in record.history]
    history.to_csv(run_folder / "history.csv", index=False, lineterminator="\n")


def _record(
    paths: Paths,
    params: Params,
    setting: str,
    method_name: str,
    job: Job,
    checkpoints: Checkpoints,
) -> RunRecord:
    started = checkpoints.directory / "run.json"
    if started.exists():
        try:
            return RunRecord.read(started)
        except PlmclError:
            print(f"{started}: damaged; it goes on as another MLflow run", file=sys.stderr)
    tags = tracking.environment_tags() | {
        "setting": setting,
        "method": method_name,
        "seed": str(params.seed),
        "protocol": params.split.protocol,
        "ap": AP_FLAVOUR,
        "device": job.place,
        "precision": job.precision,
        "backbone_weights": job.weights.source,
        "backbone_weights_sha256": job.weights.sha256,
        "data_sha256": paths.data_sha256(),
        "splits_sha256": paths.splits_sha256(setting),
        "code_commit": tracking.code_commit(paths.root),
    }
    checkpoints.directory.mkdir(parents=True, exist_ok=True)
    return RunRecord(
        name=f"{setting}-{method_name}",
        experiment=params.tracking.experiment,
        params=used_params(params, method_name),
        tags=tags,
    )


def used_params(params: Params, method_name: str) -> dict[str, Any]:
    """The params that a run with a method uses, and no others: flat, by dotted path."""
    used: dict[str, Any] = {"seed": params.seed, "data.source": params.data.source}
    used |= {"labels.per_image": params.labels.per_image}
    phases = {phase for names in PHASES.values() for phase in names}
    unused = phases - set(PHASES[params.train.mode])
    for name, section in (
        ("image", params.image.model_dump(mode="json")),
        ("split", params.split.model_dump()),
        ("model", params.model.model_dump()),
        ("train", params.train.model_dump(exclude=unused)),
        (f"methods.{method_name}", params.methods[method_name]),
    ):
        used |= _flat(name, section)
    return used


def _flat(prefix: str, values: Any) -> dict[str, Any]:
    if isinstance(values, dict):
        return {
            k: v
            for key, value in values.items()
            for k, v in _flat(f"{prefix}.{key}", value).items()
        }
    return {prefix: values if not isinstance(values, list) else json.dumps(values)}


def identity(paths: Paths, params: Params, setting: str, method_name: str, job: Job) -> str:
    """Of a training: another value, other data or other code is another training."""
    code = sorted(
        (name, hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest())
        for name, module in sys.modules.items()
        if name.startswith(CODE) and module.__file__
    )
    parts = [
        used_params(params, method_name),
        paths.data_sha256(),
        paths.splits_sha256(setting),
        job.weights.sha256,
        job.start.sha256 if job.start else "",
        code,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def main(setting: str, method: str) -> None:
    """Train METHOD under SETTING."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params, setting, method)


if __name__ == "__main__":
    run_stage(main)
