"""A copy of the project with small params, in a folder and a git repository of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from plmcl.params import Params, load_params
from plmcl.stages import download, ingest, split
from plmcl.stages.paths import Paths

ROOT = Path(__file__).resolve().parents[1]

# Small enough for seconds, and every stage, phase and branch of the pipeline still runs.
SMALL = {
    "grid": {"settings": ["sspl-40"], "methods": ["an", "plmcl"]},
    "sources.scenes": {
        "images": 60,
        "labels": 4,
        "size": 48,
        "labels_per_image": 1.5,
        "clutter": 2,
    },
    "image.size": 32,
    "model": {
        "backbone": "test_efficientnet",
        "weights": "none",
        "pooling": "mean",
        "head": "linear",
    },
    "train.mode": "linear_init",
    "train.threads": 1,
    "train.linear": {"epochs": 3, "batch_size": 8, "learning_rate": 1e-2, "views": 2},
    "train.fine_tune": {
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "head_rate": 1.0,
        "batch_norm": "train",
        "augmentation": "flip",
        "ema_decay": 0.0,
        "compile": False,
    },
}


def edit_params(path: Path, changes: dict) -> None:
    """Set dotted keys of a params.yaml."""
    yaml = YAML()
    values = yaml.load(path.read_text())
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        section = values
        for parent in parents:
            section = section[parent]
        section[last] = value
    with path.open("w") as file:
        yaml.dump(values, file)


def make_project(folder: Path, changes: dict | None = None) -> Path:
    """A copy of this project's files with small params, in a git repository of its own."""
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "data/inputs", "data/deliveries/none", "data/warm/none"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    (folder / ".dvc").mkdir()
    for name in (
        "dvc.yaml",
        "params.yaml",
        ".dvcignore",
        ".gitignore",
        ".dvc/config",
        ".dvc/.gitignore",
    ):
        shutil.copy(ROOT / name, folder / name)
    edit_params(folder / "params.yaml", SMALL | (changes or {}))
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "small"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def run_to_splits(root: Path) -> tuple[Params, Paths]:
    """Run what comes before training in a project's folder, in this process; params and paths."""
    params = load_params(root / "params.yaml")
    paths = Paths.of_project(root, params.data.source)
    download.run(paths, params)
    ingest.run(paths, params)
    split.run(paths, params, params.grid.settings)
    return params, paths


def environment(**extra: str) -> dict[str, str]:
    """The environment of a stage: this interpreter first on PATH, no MLflow elsewhere."""
    values = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_WAIT_POLICY": "passive",
        "DVC_NO_ANALYTICS": "1",
    }
    for name in ("MLFLOW_TRACKING_URI", "PYTHONPATH"):
        values.pop(name, None)
    return values | extra


def run_command(
    *command: str, cwd: Path, check: bool = True, **extra: str
) -> subprocess.CompletedProcess:
    """Run a command in a project; what it printed is in the failure's message."""
    done = subprocess.run(
        command, cwd=cwd, env=environment(**extra), capture_output=True, text=True, timeout=600
    )
    if check and done.returncode:
        pytest.fail(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done
