"""Stage evaluate: the chosen weights on the fixed test split; figures, per-label table, scores."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from plmcl import schemas, tracking
from plmcl.calibration import Calibration, brier, fit_calibration, sigmoid
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows, sequential_batches
from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows, difficult_cells, positives_per_image, truth_rows
from plmcl.evaluation import Evaluation, difficult_both_ways, evaluate, predict_logits
from plmcl.models import Classifier, load_classifier
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.reliability import both_known, decide_by_label, reliability
from plmcl.run_record import RunRecord
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths
from plmcl.thresholds import Thresholds, fit_thresholds


def run(
    paths: Paths, params: Params, setting: str, method: str, *, track: bool = True
) -> Evaluation:
    """Evaluate a trained model and write everything.

    Args:
        paths: Of the project.
        params: All of them.
        setting: Such as `sspl-40`.
        method: Such as `plmcl`.
        track: Whether the figures are added to the MLflow run.
    """
    torch.set_num_threads(params.train.threads)
    manifest = Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    model, record = load_classifier(paths.model(setting, method) / "model.pt", manifest.label_names)
    recipe = Recipe.from_dict(record.recipe)
    test = truth_rows(manifest, splits, "test")
    logits = _predict(model, ImageRows(paths.images, test.paths, recipe), "test")
    if params.split.protocol == "holdout":
        cut = truth_rows(manifest, splits, "val")
        cut_logits = _predict(model, ImageRows(paths.images, cut.paths, recipe), "val")
        calibration = fit_calibration(cut.targets, cut.observed, cut_logits)
    else:
        # The paper's protocol holds no validation split: its thresholds see the test split too.
        cut, cut_logits = test, logits
        calibration = Calibration.none(logits.shape[1], "no validation split is held out")
    probs = calibration.probabilities(logits)
    evaluation = evaluate(test.targets, test.observed, probs)
    errors = {
        "brier_uncalibrated": brier(test.targets, test.observed, sigmoid(logits)),
        "brier": brier(test.targets, test.observed, probs),
    }
    for name, values in errors.items():
        defined = values[~np.isnan(values)]
        evaluation.metrics[name] = float(defined.mean()) if len(defined) else None
    evaluation.metrics["labels_calibrated"] = calibration.count
    evaluation.metrics["files_not_used"] = len(manifest.images) - len(manifest.usable)
    difficult = difficult_cells(manifest, test)
    if difficult.any():
        evaluation.metrics.update(
            difficult_both_ways(test.targets, test.observed, difficult, probs)
        )
    thresholds = fit_thresholds(
        cut.targets,
        cut.observed,
        calibration.probabilities(cut_logits),
        positives_per_image(params.labels.per_image, manifest, splits),
    )
    if both_known(test.targets, test.observed):
        evaluation.metrics["calibration_error"] = reliability(
            test.targets, test.observed, probs
        ).error
        decided = decide_by_label(test.targets, test.observed, probs, thresholds.values)
        for name, (value,) in vars(decided).items():
            evaluation.metrics[name] = None if np.isnan(value) else float(value)
    per_label = per_label_table(manifest.label_names, evaluation, thresholds, calibration)
    per_label = per_label.assign(**errors)
    _write(paths.run(setting, method), manifest, test, probs, evaluation, per_label)
    if track:
        run_record = RunRecord.read(paths.run(setting, method) / "run.json")
        tracking.log_evaluation(run_record, evaluation.metrics, per_label, root=paths.root)
    return evaluation


def per_label_table(
    label_names: list[str],
    evaluation: Evaluation,
    thresholds: Thresholds,
    calibration: Calibration,
) -> pd.DataFrame:
    """One row a label: AP (missing where not defined), support, threshold, calibration; rules."""
    return pd.DataFrame(
        {
            "label": label_names,
            "ap": evaluation.average_precision,
            "positives": evaluation.positives,
            "negatives": evaluation.negatives,
            "unknown": evaluation.unknown,
            "threshold": thresholds.values,
            "threshold_rule": thresholds.rules,
            "slope": calibration.slopes,
            "intercept": calibration.intercepts,
            "calibration_rule": calibration.rules,
        }
    )


def summary(evaluation: Evaluation) -> str:
    """The headline figure in a few words, with what it leaves out; `why_no_map` goes with it."""
    metrics = evaluation.metrics
    if metrics["mAP"] is not None:
        text = (
            f"test mAP {100 * metrics['mAP']:.1f} (mean over {metrics['labels_averaged']} of "
            f"{metrics['labels']} labels, {metrics['images_known']} labeled images)"
        )
        negative, ignored = (metrics.get(f"mAP_difficult_{way}") for way in ("negative", "ignored"))
        if negative is not None and ignored is not None:
            text += (
                f"; difficult objects as negatives, the published protocol, {100 * negative:.1f}; "
                f"ignored {100 * ignored:.1f}"
            )
        return text
    rank = metrics["mean_reciprocal_rank"]
    if rank is None:
        return "test mAP n/a"
    return f"test mAP n/a, mean reciprocal rank of the known labels {rank:.3f}"


def why_no_map(evaluation: Evaluation) -> str:
    """Why there is no mAP, and what to do; empty if there is one."""
    metrics = evaluation.metrics
    if metrics["mAP"] is not None:
        return ""
    if metrics["mean_reciprocal_rank"] is None:
        return f"no known positive label on {metrics['images_scored']} test images"
    return (
        "no label has known positives and known negatives there, and among positives alone any "
        "model has AP 1. For a real figure label some images completely and set "
        "sources.folder.unlisted to negative"
    )


def _predict(model: Classifier, images: ImageRows, split: str) -> NDArray[np.float32]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    with show_progress(f"predict {split}") as progress:

        def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            for rows, pixels in sequential_batches(images):
                yield rows, pixels.to(device)
                progress(int(rows[-1]) + 1, len(images))

        return predict_logits(model, batches(), len(images))


def _write(
    folder: Path,
    manifest: Manifest,
    test: Rows,
    probs: NDArray[np.float32],
    evaluation: Evaluation,
    per_label: pd.DataFrame,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(evaluation.metrics, indent=2, allow_nan=False)
    (folder / "metrics.json").write_text(text + "\n", encoding="utf-8")
    per_label.to_csv(folder / "per_label.csv", index=False, lineterminator="\n")
    scores = pd.DataFrame(
        {
            "image_id": np.repeat(np.array(test.image_ids, dtype=object), probs.shape[1]),
            "label": np.tile(np.array(manifest.label_names, dtype=object), len(probs)),
            "score": probs.ravel(),
        }
    )
    schemas.write_table(scores, folder / "predictions.parquet")


def main(setting: str, method: str) -> None:
    """Evaluate METHOD under SETTING on the test split."""
    params = load_params(Path("params.yaml"))
    evaluation = run(Paths.of_project(Path.cwd(), params.data.source), params, setting, method)
    why = why_no_map(evaluation)
    print(f"{setting}-{method}: {summary(evaluation)}{f': {why}' if why else ''}")


if __name__ == "__main__":
    run_stage(main)
