"""Pipelines of their own: one that is killed and goes on, one under the paper's protocol."""

import json
import signal
import subprocess
import time

import pandas as pd
import psutil
import pytest
from project import environment, make_project, run_command, run_to_splits

from plmcl.run_record import RunRecord
from plmcl.stages import evaluate, train

pytestmark = pytest.mark.slow


def test_a_killed_training_goes_on_where_it_stopped(tmp_path):
    """Cases 66 and 81: DVC hands no signal on, and removes a stage's outputs before it runs."""
    changes = {"train.mode": "linear", "grid.methods": ["plmcl"]}
    changes |= {"train.linear": {"epochs": 200, "batch_size": 4, "learning_rate": 1e-3, "views": 2}}
    project = make_project(tmp_path / "killed", changes)
    run_to_splits(project)
    # DVC starts a stage through $SHELL or this one, which may stay between the two, as dash does.
    shell = {"SHELL": "/bin/sh"}
    command = ["dvc", "repro", "--single-item", "train@sspl-40-plmcl"]
    process = subprocess.Popen(
        command, cwd=project, env=environment() | shell, stdout=subprocess.DEVNULL
    )
    commits = project / ".plmcl/checkpoints/sspl-40-plmcl"
    deadline = time.monotonic() + 120
    while not list(commits.glob("*/epoch-*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    (stage,) = psutil.Process(process.pid).children()
    stage.suspend()  # a busy machine could let it end before DVC does
    seen = sorted(commit.name for commit in commits.glob("*/epoch-*"))
    process.send_signal(signal.SIGTERM)  # to DVC alone
    assert process.wait(60) == -signal.SIGTERM
    stage.resume()
    assert psutil.wait_procs([stage], timeout=120)[0] == [stage]

    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    ids = [client.get_experiment_by_name("plmcl").experiment_id]
    (run,) = client.search_runs(ids)
    left = sorted(commit.name for commit in commits.glob("*/epoch-*"))
    assert run.info.status == "KILLED", f"stopped when it had {seen}, it left {left}"

    done = run_command(*command, cwd=project)
    assert "goes on after epoch" in done.stdout
    (resumed,) = client.search_runs(ids)
    assert resumed.info.run_id == run.info.run_id
    assert resumed.info.status == "FINISHED"
    assert not list(commits.glob("*"))


def test_the_papers_protocol_trains_on_all_images_and_says_that_it_chose_on_test(tmp_path):
    changes = {"split.protocol": "paper", "train.mode": "linear", "grid.methods": ["epr"]}
    project = make_project(tmp_path / "paper", changes)
    params, paths = run_to_splits(project)
    train.run(paths, params, "sspl-40", "epr", track=False)
    evaluate.run(paths, params, "sspl-40", "epr", track=False)
    splits = pd.read_parquet(project / "data/splits/splits.parquet")["split"].value_counts()
    assert splits.to_dict() == {"train": 48, "test": 12}
    record = RunRecord.read(project / "reports/runs/sspl-40-epr/run.json")
    assert record.selection_key == "selected_on_test/mAP"
    # The optimistic figure is the reported one, by definition.
    metrics = json.loads((project / "reports/runs/sspl-40-epr/metrics.json").read_text())
    assert metrics["mAP"] == pytest.approx(record.best_selection, abs=1e-6)
