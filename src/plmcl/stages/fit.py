"""From a folder of photos to a tagger: the same stages, chained, without git, DVC or MLflow."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from ruamel.yaml import YAML

from plmcl.data.manifest import Unlisted
from plmcl.errors import PlmclError
from plmcl.evaluation import Evaluation
from plmcl.methods import make_method
from plmcl.params import Params, load_params
from plmcl.presets import read_preset
from plmcl.report import write_report
from plmcl.run_record import RunRecord
from plmcl.schemas import ObservedLabels, Splits, read_table
from plmcl.stages import check, evaluate, export, ingest, split, train
from plmcl.stages.job import refuse_without_negatives
from plmcl.stages.paths import Paths


@dataclass(frozen=True)
class Request:
    """What the user asks for, where it differs from presets/fit.yaml.

    Attributes:
        photos: Folder of images.
        labels: File or folder of labels, in any format; None: one sub-folder a tag.
        unlisted: What a label that is not listed for an image means.
        minus_one: What -1 in the labels means.
        setting: Label setting; `given` takes the labels as they are.
        methods: Trained one after the other; the best on the validation split is exported.
        labels_per_photo: k; None: counted where the labels are complete, else the preset's.
        fine_tune: Whether all weights are trained after the head.
    """

    photos: Path
    labels: Path | None
    unlisted: Unlisted
    minus_one: Literal["refuse", "negative", "unknown"]
    setting: str
    methods: Sequence[str]
    labels_per_photo: float | None
    fine_tune: bool


def run(request: Request, out: Path) -> Path:
    """Make a tagger in `out`; the path of model.onnx there.

    Raises:
        PlmclError: There are no images, the labels do not fit them, or a name is unknown; or
            `torchrun` started several processes.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise PlmclError(
            "torchrun: fit works in one process; several GPUs train in a project whose data.source "
            "is folder, by torchrun -m plmcl.stages.train SETTING METHOD"
        )
    if not request.photos.is_dir():
        raise PlmclError(f"{request.photos}: not a folder")
    if out.resolve().is_relative_to(request.photos.resolve()):
        raise PlmclError(f"--out: {out} lies among the photos in {request.photos}; choose another")
    out.mkdir(parents=True, exist_ok=True)
    params = write_params(request, out / "params.yaml")
    check.run(params)
    paths = Paths.of_photos(out, request.photos.resolve())
    manifest = ingest.run(paths, params)
    print(_say_k(request, params))
    split.run(paths, params, [request.setting])
    # Said now, and not after the methods before it have been trained.
    observed = read_table(paths.observed(request.setting), ObservedLabels)
    for name in request.methods:
        has_negatives = bool((observed["value"] == 0).any())
        made = make_method(name, params.methods)
        refuse_without_negatives(name, made, request.setting, has_negatives)
    results: dict[str, tuple[RunRecord, Evaluation]] = {}
    for method in request.methods:
        record = train.run(paths, params, request.setting, method, track=False)
        assert record is not None
        evaluation = evaluate.run(paths, params, request.setting, method, track=False)
        results[method] = record, evaluation
    best = max(results, key=lambda method: results[method][0].best_selection)
    print()
    print(_table(request.setting, results, best))
    print(_say_thresholds(paths.run(request.setting, best)))
    exported = export.run(paths, params, request.setting, best)
    tagger = out / "model.onnx"
    shutil.copyfile(exported, tagger)
    runs = [paths.run(request.setting, method) for method in request.methods]
    splits = read_table(paths.splits / "splits.parquet", Splits)
    write_report(runs, manifest, splits, paths.images, out / "report.html")
    print(
        f"\nThe tagger: {tagger} ({best})\nWhat it learned: {out / 'report.html'}\n"
        f"Try it: plmcl predict --model {tagger} {request.photos}"
    )
    return tagger


def write_params(request: Request, path: Path) -> Params:
    """Write the params.yaml of a request: the preset, with what the user said in its place."""
    values = read_preset("fit")
    values["methods"] = read_preset("methods")
    values["grid"] = {"settings": [request.setting], "methods": list(request.methods)}
    values["data"]["path"] = str(request.photos.resolve())
    values["sources"]["folder"] |= {
        "labels": None if request.labels is None else str(request.labels.resolve()),
        "unlisted": request.unlisted,
        "minus_one": request.minus_one,
    }
    if request.labels_per_photo is not None or request.unlisted == "negative":
        values["labels"]["per_image"] = request.labels_per_photo
    if request.fine_tune:
        values["train"]["mode"] = "linear_init"
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(values, file)  # round trip: the preset's comments stay
    return load_params(path)


def _say_k(request: Request, params: Params) -> str:
    if params.labels.per_image is None:
        return "labels a photo: counted, since the labels are complete"
    assumed = "" if request.labels_per_photo else " (assumed; say better: --labels-per-photo K)"
    return f"labels a photo: {params.labels.per_image:g}{assumed}"


def _say_thresholds(run: Path) -> str:
    rules = pd.read_csv(run / "per_label.csv", keep_default_na=False)["threshold_rule"]
    counted = ", ".join(f"{count} by {rule}" for rule, count in rules.value_counts().items())
    return f"thresholds, on the validation split: {counted}"


def _table(setting: str, results: dict[str, tuple[RunRecord, Evaluation]], best: str) -> str:
    figure = results[best][0].selection_key
    lines = [f"{'method':<12} {figure:<26} test ({setting})"]
    for method, (record, evaluation) in results.items():
        mark = "  <- exported: best on the validation split" if method == best else ""
        lines.append(
            f"{method:<12} {record.best_selection:<26.3f} {evaluate.summary(evaluation)}{mark}"
        )
    return "\n".join(lines)
