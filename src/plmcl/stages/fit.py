"""From a folder of photos to a tagger: the same stages, chained, without git, DVC or MLflow."""

import shutil
from pathlib import Path

import pandas as pd
from ruamel.yaml import YAML

from plmcl.data.sources.base import Annotations
from plmcl.evaluation import Evaluation
from plmcl.methods import make_method
from plmcl.params import Params, load_params
from plmcl.report import write_report
from plmcl.run_record import RunRecord, best_run
from plmcl.schemas import ObservedLabels, Splits, read_table
from plmcl.stages import evaluate, export, ingest, split, train
from plmcl.stages.job import refuse_without_negatives
from plmcl.stages.paths import Paths
from plmcl.stages.request import Request, in_options


def run(request: Request, annotations: Annotations, out: Path) -> Path:
    """Make a tagger in `out`; the path of model.onnx there.

    Args:
        request: What the user asks for.
        annotations: What `survey` found of it.
        out: A folder; made if it is not there.

    Raises:
        PlmclError: Too few images can be used, or a method cannot learn from such labels.
    """
    out.mkdir(parents=True, exist_ok=True)
    params = write_params(request, out / "params.yaml")
    paths = Paths.of_photos(out, request.photos.resolve())
    manifest = ingest.run(paths, params, annotations)
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
    best = best_run({method: record for method, (record, _) in results.items()})
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
    """Write the params.yaml of a request, and read it."""
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(request.values(), file)  # round trip: the preset's comments stay
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
    # All were judged on the same test images: what one lacks, all lack.
    if why := evaluate.why_no_map(results[best][1]):
        lines.append(f"test mAP is n/a: {in_options(why)}")
    return "\n".join(lines)
