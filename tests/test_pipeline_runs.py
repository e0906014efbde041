"""Pipelines of their own: one that is killed and goes on, one under the paper's protocol."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from project import environment, make_project, run_command

from plmcl.params import load_params
from plmcl.run_record import RunRecord
from plmcl.stages import download, evaluate, ingest, split, train
from plmcl.stages.paths import Paths

pytestmark = pytest.mark.slow


def test_a_killed_training_goes_on_where_it_stopped(tmp_path):
    """Case 81: the state lies outside the outputs, which DVC removes before a stage runs."""
    changes = {"train.mode": "linear", "grid.methods": ["plmcl"]}
    changes |= {"train.linear": {"epochs": 30, "batch_size": 4, "learning_rate": 1e-3, "views": 2}}
    project = make_project(tmp_path / "killed", changes)
    run_command("dvc", "repro", "split", cwd=project)
    whole = shutil.copytree(project, tmp_path / "whole")
    command = [sys.executable, "-m", "plmcl.stages.train", "sspl-40", "plmcl"]
    inside = environment(PYTHONPATH="src")
    process = subprocess.Popen(command, cwd=project, env=inside, stdout=subprocess.DEVNULL)
    commits = project / ".plmcl/checkpoints/sspl-40-plmcl"
    deadline = time.monotonic() + 120
    while not list(commits.glob("*/epoch-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    ids = [client.get_experiment_by_name("plmcl").experiment_id]
    (run,) = client.search_runs(ids)
    assert run.info.status == "KILLED"

    done = run_command("dvc", "repro", "train", cwd=project)
    assert "goes on after epoch" in done.stdout
    (resumed,) = client.search_runs(ids)
    assert resumed.info.run_id == run.info.run_id
    assert resumed.info.status == "FINISHED"
    weights = torch.load(project / "models/sspl-40-plmcl/model.pt", weights_only=True)["weights"]

    params = load_params(whole / "params.yaml")
    train.run(Paths.of_project(whole, params.data.source), params, "sspl-40", "plmcl", track=False)
    expected = torch.load(whole / "models/sspl-40-plmcl/model.pt", weights_only=True)["weights"]
    assert weights.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.equal(weights[name], values), name
    for name in ("latent.npy", "velocity.npy", "image_ids.json"):
        path = Path("models/sspl-40-plmcl/labels", name)
        assert (project / path).read_bytes() == (whole / path).read_bytes(), name
    assert not list(commits.glob("*"))


def test_the_papers_protocol_trains_on_all_images_and_says_that_it_chose_on_test(tmp_path):
    changes = {"split.protocol": "paper", "train.mode": "linear", "grid.methods": ["epr"]}
    project = make_project(tmp_path / "paper", changes)
    params = load_params(project / "params.yaml")
    paths = Paths.of_project(project, params.data.source)
    download.run(paths, params)
    ingest.run(paths, params)
    split.run(paths, params, ["sspl-40"])
    train.run(paths, params, "sspl-40", "epr", track=False)
    evaluate.run(paths, params, "sspl-40", "epr", track=False)
    splits = pd.read_parquet(project / "data/splits/splits.parquet")["split"].value_counts()
    assert splits.to_dict() == {"train": 48, "test": 12}
    record = RunRecord.read(project / "reports/runs/sspl-40-epr/run.json")
    assert record.selection_key == "selected_on_test/mAP"
    # The optimistic figure is the reported one, by definition.
    metrics = json.loads((project / "reports/runs/sspl-40-epr/metrics.json").read_text())
    assert metrics["mAP"] == pytest.approx(record.best_selection, abs=1e-6)
