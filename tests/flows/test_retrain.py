"""The flows on real git, DVC, MLflow and Prefect: a champion, a delivery, kills, a roll-back."""

import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from preloaded import preloaded_python
from retraining_rounds import QUICK, Project, check, prefect_states

pytestmark = pytest.mark.slow


def git(project, *arguments):
    done = subprocess.run(
        ["git", *arguments], cwd=project.root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@contextmanager
def quick_stages(project):
    """Flows that are started meanwhile find a `python` for DVC's stages that starts faster.

    It is in a virtual environment that is this one but for that.
    """
    real, python = Path(sys.prefix), project.python
    folder = project.root.parent / "quick"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").symlink_to(real / "lib")
    shutil.copy(real / "pyvenv.cfg", folder)
    for name in ("python3", "dvc"):
        (folder / "bin" / name).symlink_to(python.with_name(name))
    with preloaded_python(folder / "bin"):
        project.python = folder / "bin/python3"
        yield
    project.python = python


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with its first champion."""
    project = Project(tmp_path_factory.mktemp("retraining") / "project", QUICK)
    with project.server() as address:
        project.address = address
        with quick_stages(project):
            project.state = project.flow()
        with project.serving() as project.answers:
            yield project


def test_the_first_retraining_makes_the_first_champion(project):
    assert project.state.startswith("Promoted: v0001: the first model")
    champion = project.retraining.production.champion
    assert (champion.version, champion.record.deliveries) == ("v0001", 0)
    assert git(project, "rev-parse", "production") == champion.record.commit
    # The user's checkout has not moved, and holds nothing that it did not hold.
    assert git(project, "status", "--porcelain") == ""
    assert not (project.root / "dvc.lock").exists()


def killed(project, reached, seconds=240.0):
    """Start the flow and kill it once something is so."""
    process = project.start()
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def delivered(project):
    """A delivery whose retraining is killed twice and then goes on to its end."""
    incoming, folder = project.root / "data/incoming", project.retraining.folder
    names = []
    for file in project.draw(12, seed=1):
        (incoming / f"new-{file.name}").write_bytes(file.read_bytes())
        names.append(f"new-{file.name}")
    first = (incoming / names[0]).read_bytes()
    (incoming / "again.jpg").write_bytes(first)
    (incoming / "half.jpg").write_bytes(first[: len(first) // 2])
    (incoming / "text.jpg").write_text("no picture")
    kept = project.root / "data/received/0001"
    killed(project, lambda: kept.exists() and any(kept.iterdir()))
    trained = project.retraining.checkout.path / ".plmcl/checkpoints"
    killed(project, lambda: any(trained.glob("*/*")))  # a training of its own
    assert (folder / "child.json").exists()  # DVC and its stage are orphans now
    project.state = project.flow()
    return names


def test_case_86_kills_lose_nothing_and_the_next_run_goes_on(project, delivered):
    assert project.state.startswith("Promoted: v0002: ")
    table = pd.read_parquet(project.root / "data/received/0001.parquet").set_index("name")
    assert sorted(table.index) == sorted([*delivered, "again.jpg", "half.jpg", "text.jpg"])
    duplicates = table.index[table["status"] == "duplicate"]
    assert list(duplicates) == [delivered[0]]  # the other one of the two comes first by its name
    assert set(table.loc[["half.jpg", "text.jpg"], "status"]) == {"truncated", "not_an_image"}
    found = check(project, [*delivered, "again.jpg", "half.jpg", "text.jpg"])
    assert (found["champion"], found["versions"]) == ("v0002", 2)
    assert prefect_states(project.address) == {"Promoted": 2, "Crashed": 2}


def test_a_promoted_commit_holds_what_it_learned_from_and_has_nothing_left_to_do(
    project, delivered
):
    checkout = project.retraining.checkout.path
    images = pd.read_parquet(checkout / "data/manifests/images.parquet")
    assert images["delivery"].value_counts().to_dict() == {0: 90, 1: 12}
    again = subprocess.run(
        ["dvc", "repro"], cwd=checkout, env=project.environment, capture_output=True, text=True
    )
    assert "Data and pipelines are up to date." in again.stdout
    assert git(project, "rev-parse", "production") == git(project, "rev-parse", "retrain/v0002")


def test_nothing_new_is_skipped_with_the_reason(project, delivered):
    assert project.flow() == "Skipped: no new image since v0002 was promoted"


def test_a_bad_challenger_is_refused_and_kept_under_a_tag(project, delivered):
    before = git(project, "rev-parse", "production")
    values = {"train.linear.epochs": 1, "train.linear.learning_rate": 1e-9}
    project.set_params(values | {"retraining.start": "scratch", "gate.min_gain": -0.02})
    with quick_stages(project):
        state = project.flow("retrain", "--force")
    assert state.startswith("Refused: v0003: test mAP")
    assert "lowest allowed -2.0" in state
    assert project.retraining.production.champion.version == "v0002"
    assert git(project, "rev-parse", "production") == before
    assert "lowest allowed" in git(project, "tag", "-l", "-n9", "refused/v0003")


def test_a_roll_back_is_one_step(project, delivered):
    del project.environment["PREFECT_API_URL"]  # no server is needed, either
    assert project.flow("rollback") == "the champion is v0001 again"
    champion = project.retraining.production.champion
    assert champion.version == "v0001"
    assert git(project, "rev-parse", "production") == champion.record.commit
    assert str((project.root / "models/production/champion").readlink()) == "v0001"


def test_the_service_answers_throughout(project, delivered):
    """From the first champion over the second and back; it was asked five times a second."""
    first, second = (version.record.model_sha256 for version in
                     project.retraining.production.versions()[:2])  # fmt: skip
    deadline = time.monotonic() + 30
    while project.answers[-1][1] != first:  # the roll-back before was the last
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {status for status, _ in project.answers} == {200}
    assert {model for _, model in project.answers} == {first, second}
