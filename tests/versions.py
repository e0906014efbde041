"""Versions of a model that answers, in a git repository with an MLflow store of its own."""

import functools
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from tiny_model import make_card, make_model

from plmcl.mlflow_store import open_store
from plmcl.retraining.production import Production
from plmcl.retraining.versions import ProductionRecord, Version, sha256_of
from plmcl.run_record import RunRecord
from plmcl.schemas import write_table

LABELS = list(make_card().label_names)


@functools.cache
def _empty_database() -> bytes:
    # MLflow takes seconds to make one.
    with tempfile.TemporaryDirectory() as folder:
        open_store("of no project", Path(folder))
        return (Path(folder) / "mlflow.db").read_bytes()


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(root: Path) -> Path:
    """A repository with one commit."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def make_root(root: Path) -> Path:
    """The same, with an MLflow store in which nothing was done."""
    make_repository(root)
    (root / "mlflow.db").write_bytes(_empty_database())
    return root


def commit(root: Path, message: str) -> str:
    """A new commit, on no branch."""
    tree = git(root, "rev-parse", "HEAD^{tree}")
    return git(root, "commit-tree", tree, "-p", "HEAD", "-m", message)


def train(folder: Path, number: int, image_ids: tuple[str, ...] = ("a", "b")) -> RunRecord:
    """What a training and its evaluation leave in a folder; each number is another model."""
    (folder / "labels").mkdir(parents=True)
    make_model(folder / "model.onnx", make_card(run_id=str(number)))
    (folder / "model.pt").write_bytes(b"weights")
    (folder / "labels" / "image_ids.json").write_text(json.dumps(list(image_ids)))
    np.save(folder / "labels" / "latent.npy", np.arange(3.0 * len(image_ids)).reshape(-1, 3))
    run = RunRecord(
        name="sspl-40-an",
        experiment="plmcl",
        status="FINISHED",
        params={"seed": number},
        tags={},
        history=[{"epoch": 1, "phase": "linear", "train/loss": 0.5, "val/mAP": 0.25}],
        start_time=1,
        end_time=2,
    )
    run.write(folder / "run.json")
    (folder / "metrics.json").write_text('{"mAP": 0.5}')
    (folder / "per_label.csv").write_text("label,ap\nred,0.5\nNA,\n")
    scores = pd.DataFrame({"image_id": ["t"] * 3, "label": LABELS, "score": np.float32([1, 0, 0])})
    write_table(scores, folder / "predictions.parquet")
    return run


def stage(root: Path, number: int, **changes: object) -> Version:
    """Version `number`, not promoted."""
    name = f"v{number:04d}"
    folder = root / "made" / name
    run = train(folder, number, *([changes.pop("image_ids")] if "image_ids" in changes else []))
    values = {
        "version": name,
        "created": number,
        "setting": "sspl-40",
        "method": "an",
        "commit": commit(root, name),
        "dvc_lock_sha256": "1" * 64,
        "data_sha256": "2" * 64,
        "splits_sha256": "3" * 64,
        "model_sha256": sha256_of(folder / "model.onnx"),
        "mlflow_run_id": run.record_id,
        "deliveries": 0,
        "test_mAP": 0.5,
    }
    truth = pd.DataFrame({"image_id": ["t"] * 3, "label": LABELS, "value": np.int8([1, 0, 0])})
    return Production(root).stage(
        name,
        model_dir=folder,
        run_dir=folder,
        truth=truth,
        record=ProductionRecord(**(values | changes)),
    )


def delivery(sha256: dict[str, str], **columns: object) -> pd.DataFrame:
    """A table of `schemas.Delivery`: of files, by name, with these hashes."""
    values = {
        "name": list(sha256),
        "status": "ok",
        "reason": "",
        "sha256": list(sha256.values()),
        "dhash": "0" * 32,
        "width": np.int32(8),
        "height": np.int32(8),
        "bytes": np.int64(100),
        "label": "",
        "arrived": np.int64(1),
        "version": "",
    }
    return pd.DataFrame(values | columns)
