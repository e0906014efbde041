"""A worktree of its own, on real git and DVC; the user's checkout stays as it is."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from project import edit_params, environment, make_project
from ruamel.yaml import YAML

from plmcl.errors import PlmclError
from plmcl.retraining.checkout import PRODUCTION, Checkout, fast_forward, user_commit


def git(folder, *arguments):
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def state(folder):
    """All of a checkout that a retraining must leave alone."""
    files = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {".git", ".plmcl"} & set(path.relative_to(folder).parts)
    }
    return git(folder, "status", "--porcelain"), git(folder, "rev-parse", "--symbolic-full-name",
                                                     "HEAD"), files  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture
def project(made, tmp_path):
    """A project whose user has edited one file and not committed it."""
    git(made.parent, "clone", "-q", str(made), str(tmp_path / "project"))
    root = tmp_path / "project"
    (root / "dvc.yaml").write_text((root / "dvc.yaml").read_text() + "# mine\n")
    return root


@pytest.mark.slow
def test_a_retraining_has_a_branch_and_the_users_checkout_stays_as_it_is(project, caplog):
    before = state(project)
    checkout = Checkout(project)
    assert checkout.head == ""
    base = checkout.open("retrain/v0001")
    assert base == user_commit(project) == checkout.head
    assert "not committed, so not part of the retraining: 'dvc.yaml'" in caplog.text
    assert "# mine" not in (checkout.path / "dvc.yaml").read_text()
    checkout.set_params({"train.warm_start": "v0001", "seed": 7})
    params = (checkout.path / "params.yaml").read_text()
    assert YAML(typ="safe").load(params)["train"]["warm_start"] == "v0001"
    assert params.startswith("# Every number of the pipeline.")  # comments stay
    commit = checkout.commit("Retrain v0001")
    assert git(project, "log", "-1", "--format=%s", "retrain/v0001") == "Retrain v0001"
    assert checkout.is_clean
    assert checkout.commit("nothing changed") == commit
    assert state(project) == before
    # Shared, and not copied.
    assert (checkout.path / ".plmcl/features").resolve() == project / ".plmcl/features"
    cache = subprocess.run(["dvc", "cache", "dir"], cwd=checkout.path, env=environment(),
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert Path(cache.stdout.strip()) == project / ".dvc/cache"


@pytest.mark.slow
def test_the_promoted_commit_is_merged_into_the_users_newer_one(project):
    checkout = Checkout(project)
    checkout.open("retrain/v0001")
    (checkout.path / "dvc.lock").write_text("promoted: 1\n")
    checkout.set_params({"data.deliveries": "v0001"})
    git(project, "branch", PRODUCTION, checkout.commit("Retrain v0001"))
    (project / "dvc.lock").write_text("mine: 1\n")
    edit_params(project / "params.yaml", {"seed": 3})
    git(project, "add", "-A")
    git(project, "commit", "-qm", "mine")
    (checkout.path / "half.txt").write_text("of a round that was given up")
    checkout.open("retrain/v0002")
    values = YAML(typ="safe").load((checkout.path / "params.yaml").read_text())
    assert (values["seed"], values["data"]["deliveries"]) == (3, "v0001")
    assert (checkout.path / "dvc.lock").read_text() == "promoted: 1\n"
    assert not (checkout.path / "half.txt").exists()


@pytest.mark.slow
def test_a_fast_forward_moves_the_users_branch_unless_that_changes_an_edited_file(project):
    git(project, "checkout", "-q", "--", "dvc.yaml")
    checkout = Checkout(project)
    checkout.open("retrain/v0001")
    checkout.set_params({"seed": 5})
    commit = checkout.commit("Retrain v0001")
    edit_params(project / "params.yaml", {"seed": 9})
    before = state(project)
    assert "params.yaml" in fast_forward(project, commit)
    assert state(project) == before
    git(project, "checkout", "-q", "--", "params.yaml")
    assert fast_forward(project, commit) == ""
    assert user_commit(project) == commit


@pytest.mark.slow
def test_inputs_that_only_the_users_checkout_has_are_named(project):
    edit_params(project / "params.yaml", {"data.path": "data/photos"})
    git(project, "commit", "-qam", "photos")
    (project / "data/photos").mkdir()
    (project / "data/photos/a.jpg").write_text("a")
    checkout = Checkout(project)
    with pytest.raises(PlmclError, match=r"data\.path: data/photos is in .* neither by git nor"):
        checkout.open("retrain/v0001")
    # What the message advises.
    subprocess.run(["dvc", "add", "-q", "data/photos"], cwd=project, env=environment(), check=True)
    git(project, "add", "data/photos.dvc")
    git(project, "commit", "-qm", "tracked")
    checkout.open("retrain/v0001")
    assert (checkout.path / "data/photos/a.jpg").read_text() == "a"


def test_a_folder_without_git_says_what_to_do(tmp_path):
    with pytest.raises(PlmclError, match=r"not a git repository with a commit.*git init"):
        Checkout(tmp_path).open("retrain/v0001")


@pytest.fixture
def opened(project):
    checkout = Checkout(project)
    checkout.open("retrain/v0001")
    return checkout


def test_a_command_that_fails_ends_with_its_last_words_and_its_log(opened, tmp_path):
    said = []
    code = "print('one'); print('two'); raise SystemExit(3)"
    with pytest.raises(PlmclError, match=r"failed: one / two; all it said: .*log\.txt"):
        opened.run([sys.executable, "-c", code], tmp_path / "log.txt", said.append)
    assert said == ["one", "two"]
    assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"


STAGE = """
import subprocess, sys
stage = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(stage.pid, flush=True)
stage.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_retraining_that_ends_leaves_no_stage_behind(opened, tmp_path, how):
    code = f"""
import signal, sys
from pathlib import Path
from plmcl.retraining.checkout import Checkout
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
Checkout(Path({str(opened.root)!r})).run(
    [sys.executable, "-c", {STAGE!r}], Path("log.txt"), lambda line: print(line, flush=True)
)"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    stage = psutil.Process(int(process.stdout.readline()))
    parent = stage.parent()
    process.send_signal(how)
    process.wait(30)
    if how == signal.SIGKILL:
        assert stage.is_running()
        opened.open("retrain/v0001")  # the next retraining
    psutil.wait_procs([stage, parent], timeout=10)
    deadline = time.monotonic() + 10
    while stage.is_running() and stage.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
