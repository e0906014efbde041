"""Stage export: the chosen weights as one self-describing ONNX file, refused if it differs.

Further files in fewer bits lie beside it, if they are asked for and good enough.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from plmcl import schemas
from plmcl.calibration import Calibration
from plmcl.data.images import Recipe, load
from plmcl.data.loading import ImageRows, sequential_batches
from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.evaluation import evaluate, selection_score
from plmcl.export import export_onnx
from plmcl.inference import Card
from plmcl.models import load_classifier
from plmcl.params import Params, load_params
from plmcl.run_record import RunRecord
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths
from plmcl.variants import Batches, write_variants

PARITY_IMAGES = 16
CALIBRATION_IMAGES = 128  # of the training split, for the ranges of int8


def run(paths: Paths, params: Params, setting: str, method: str) -> Path:
    """Export a trained and evaluated model; the path of model.onnx.

    Args:
        paths: Of the project.
        params: All of them.
        setting: Such as `sspl-40`.
        method: Such as `plmcl`.
    """
    torch.set_num_threads(params.train.threads)
    manifest = Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    model, record = load_classifier(paths.model(setting, method) / "model.pt", manifest.label_names)
    run_record = RunRecord.read(paths.run(setting, method) / "run.json")
    per_label = pd.read_csv(
        paths.run(setting, method) / "per_label.csv",
        keep_default_na=False,
        dtype={
            "label": str,
            "threshold": np.float32,
            "threshold_rule": str,
            "slope": np.float32,
            "intercept": np.float32,
            "calibration_rule": str,
        },
    )
    calibration = Calibration(
        slopes=per_label["slope"].to_numpy(),
        intercepts=per_label["intercept"].to_numpy(),
        rules=per_label["calibration_rule"].tolist(),
    )
    recipe = Recipe.from_dict(record.recipe)
    card = Card(
        label_names=record.label_names,
        thresholds=per_label["threshold"].to_numpy(),
        threshold_rules=per_label["threshold_rule"].tolist(),
        recipe=recipe,
        setting=setting,
        method=method,
        data_sha256=record.data_sha256,
        splits_sha256=record.splits_sha256,
        code_commit=record.code_commit,
        run_id=run_record.mlflow_run_id or run_record.record_id,
        parity={},
    )
    # Of the test split first; a small data set has too few there, and a tiny one everywhere.
    names = ("test", "val", "train")
    files = [path for name in names for path in truth_rows(manifest, splits, name).paths]
    chosen = itertools.islice(itertools.cycle(files), PARITY_IMAGES)
    images = np.stack([load(paths.images / path, recipe) for path in chosen])
    path = paths.model(setting, method) / "model.onnx"
    card = export_onnx(
        model, card, images, path, tolerance=params.export.tolerance, calibration=calibration
    )
    difference = max(card.parity["max_difference"].values())
    print(
        f"{path.relative_to(paths.root)}: equals torch within {difference:.1e} on "
        f"{len(images)} images (allowed: {params.export.tolerance:g})"
    )
    judged = truth_rows(manifest, splits, "val" if params.split.protocol == "holdout" else "test")
    train = truth_rows(manifest, splits, "train").paths
    step = max(1, len(train) // CALIBRATION_IMAGES)
    for variant in write_variants(
        path,
        path.parent / "variants",
        params.export.variants,
        calibration=_batches(paths, train[::step][:CALIBRATION_IMAGES], recipe),
        judged=_batches(paths, judged.paths, recipe),
        figure=lambda probs: selection_score(evaluate(judged.targets, judged.observed, probs)),
        max_drop=params.export.max_drop,
    ):
        print(f"{variant.precision}: {'kept' if variant.kept else 'not kept'}: {variant.reason}")
    return path


def _batches(paths: Paths, files: Sequence[str], recipe: Recipe) -> Batches:
    rows = ImageRows(paths.images, files, recipe)
    return lambda: (pixels.numpy() for _, pixels in sequential_batches(rows))


def main(setting: str, method: str) -> None:
    """Export the model of METHOD under SETTING to ONNX."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params, setting, method)


if __name__ == "__main__":
    run_stage(main)
