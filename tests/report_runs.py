"""Runs as `train` and `evaluate` leave them, for tests of the report: three labels, few images."""

import json

import numpy as np
import pandas as pd
from tables import image_table

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.run_record import RunRecord

CAT, NA, HOSTILE = "cat", "NA", "<script>alert('1')</script> & $x_1$"
LABELS = [CAT, NA, HOSTILE]
IMAGES = ["a.png", "b.png", "<b>c</b>.png", "d.png"]
TRUTH = {"a.png": [CAT, HOSTILE], "b.png": [NA], "<b>c</b>.png": [CAT]}
SCORES = {"a.png": [0.9, 0.6, 0.2], "b.png": [0.1, 0.5, 0.1], "<b>c</b>.png": [0.4, 0.1, 0.1]}
METRICS = {
    "mAP": 0.75,
    "mAP_empty_as_zero": 0.5,
    "mAP_unknown_as_negative": 0.625,
    "labels": 3,
    "labels_averaged": 2,
    "labels_without_positives": 1,
    "labels_without_negatives": 0,
    "images_scored": 3,
    "images_known": 3,
    "mean_reciprocal_rank": 0.8,
    "known_cells": 9,
}
POSITIVES_ONLY = METRICS | {
    "mAP": None,
    "mAP_empty_as_zero": None,
    "labels_averaged": 0,
    "labels_without_negatives": 3,
}

NOT_CHANGED = "image_id,label,observed,pseudo_label\n"

SPLITS = pd.DataFrame({"image_id": IMAGES[:3], "split": ["train", "val", "test"]}, dtype="str")


def make_manifest(unlisted="negative"):
    status = ["ok", "converted", "ok", "truncated"]
    images = image_table(IMAGES, sha256=IMAGES, status=status)
    rows = [(image, label) for image, labels in TRUTH.items() for label in labels]
    labels = pd.DataFrame(rows, columns=["image_id", "label"]).assign(value=np.int8(1))
    return Manifest(images, labels, LABELS, unlisted)


def make_run(
    folder,
    *,
    metrics=METRICS,
    ap=(1.0, 0.5, None),
    negatives=(1, 2, 3),
    selection=(0.5, 0.7, 0.6),
    changed=NOT_CHANGED,
    **record,
):
    folder.mkdir(parents=True)
    values = {
        "name": folder.name,
        "experiment": "plmcl",
        "status": "FINISHED",
        "params": {"data.source": "folder", "model.backbone": "tf_efficientnet_lite0"},
        "tags": {"protocol": "holdout", "seed": "0"},
        "history": [
            {"epoch": epoch, "phase": "linear", "train/loss": 1.0, "val/mAP": value}
            for epoch, value in enumerate(selection, 1)
        ],
        "start_time": 0,
        "end_time": 200_000,
    }
    RunRecord(**(values | record)).write(folder / "run.json")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    pd.DataFrame(
        {
            "label": LABELS,
            "ap": ap,
            "positives": [2, 1, 0],
            "negatives": negatives,
            "unknown": 0,
            "threshold": np.array([0.5, 0.5, 0.25], np.float32),
            "threshold_rule": "best F1",
        }
    ).to_csv(folder / "per_label.csv", index=False, lineterminator="\n")
    (folder / "pseudo_labels.csv").write_text(changed)
    epochs = range(1, len(selection) + 1)
    curve = pd.DataFrame({"epoch": epochs, "phase": "linear", "train_loss": 1.0})
    curve.assign(selection=selection).to_csv(folder / "history.csv", index=False)
    rows = [
        (image, label, score)
        for image, scores in SCORES.items()
        for label, score in zip(LABELS, scores, strict=True)
    ]
    scores = pd.DataFrame(rows, columns=["image_id", "label", "score"])
    schemas.write_table(scores.astype({"score": np.float32}), folder / "predictions.parquet")
    return folder
