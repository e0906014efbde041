import math
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from plmcl import mlflow_store, tracking
from plmcl.errors import PlmclError
from plmcl.run_record import RunRecord
from plmcl.tracking import log_evaluation, restore, start_run

SRC = Path(__file__).parents[1] / "src"
PER_LABEL = pd.DataFrame(
    {
        "label": ["NA", 'a,"b"\n', "🐈 <b>"],
        "ap": [0.5, math.nan, 1.0],
        "positives": [1, 0, 2],
        "negatives": [1, 2, 0],
        "unknown": [0, 0, 0],
        "threshold": [0.5, 0.25, 0.75],
        "threshold_rule": ["best F1", "k", "best F1"],
    }
)


@pytest.fixture(autouse=True)
def _default_address(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One store for the module: MLflow takes seconds to make one."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture
def client(root):
    return mlflow_store.open_store("plmcl", root).client


def record(**changes):
    values = {
        "name": "sspl-40-plmcl",
        "experiment": "plmcl",
        "params": {"seed": 0, "train.linear.learning_rate": 1e-3, "model.weights": None},
        "tags": {"protocol": "holdout"},
    }
    return RunRecord(**(values | changes))


def without_kept(stored):
    return {k: v for k, v in stored.data.metrics.items() if not k.startswith("kept/")}


def python(code, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(SRC)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# --- a run ------------------------------------------------------------------------------------


def test_a_run_holds_params_tags_and_curves(root, client):
    mine = record()
    with start_run(mine, root=root) as run:
        assert client.get_run(run.run_id).info.status == mine.status == "RUNNING"
        run.log({"train/loss": 0.5, "val/mAP": 0.25}, 1, phase="linear")
        run.log({"train/loss": 0.25, "val/mAP": 0.75}, 2, phase="fine_tune")
    stored = client.get_run(mine.mlflow_run_id)
    assert stored.info.status == mine.status == "FINISHED"
    assert stored.info.run_name == "sspl-40-plmcl"
    assert (stored.info.start_time, stored.info.end_time) == (mine.start_time, mine.end_time)
    assert stored.data.params == {
        "seed": "0",
        "train.linear.learning_rate": "0.001",
        "model.weights": "null",
    }
    assert stored.data.tags["protocol"] == "holdout"
    curve = client.get_metric_history(mine.mlflow_run_id, "val/mAP")
    assert [(point.step, point.value) for point in curve] == [(1, 0.25), (2, 0.75)]
    assert stored.data.metrics["kept/val/mAP"] == 0.75
    assert mine.history == [
        {"epoch": 1, "phase": "linear", "train/loss": 0.5, "val/mAP": 0.25},
        {"epoch": 2, "phase": "fine_tune", "train/loss": 0.25, "val/mAP": 0.75},
    ]


def test_the_kept_epoch_and_its_figure_are_there_whatever_came_after_it(root, client):
    """MLflow's lists of runs show the latest value of a metric."""
    mine = record(tags={"DVC_EXP_NAME": "wet-moss"})
    with start_run(mine, root=root) as run:
        for epoch, value in enumerate([0.25, 0.75, 0.75, 0.5], 1):
            run.log({"train/loss": 0.5, "val/mAP": value}, epoch)
    again = record(name="x", history=mine.history, tags=mine.tags, status="FINISHED")
    assert restore(again, None, None, root=root)
    (restored,) = client.search_runs(
        [client.get_experiment_by_name("plmcl").experiment_id],
        f"tags.`{mlflow_store.RECORD_ID}` = '{again.record_id}'",
    )
    for stored in (client.get_run(mine.mlflow_run_id), restored):
        assert stored.data.metrics["val/mAP"] == 0.5
        assert stored.data.metrics["kept/val/mAP"] == 0.75
        assert stored.data.metrics["kept/epoch"] == 2
    assert stored.info.run_name == "x (wet-moss)"


def test_an_epoch_is_one_call_however_many_metrics_it_has(root, client, monkeypatch):
    calls = []
    log_batch = type(client).log_batch
    with start_run(record(), root=root) as run:
        monkeypatch.setattr(
            type(client), "log_batch", lambda *a, **k: calls.append(k) or log_batch(*a, **k)
        )
        run.log({f"train/{i}": float(i) for i in range(50)}, 1)
    assert len(calls) == 1
    assert len(calls[0]["metrics"]) == 50


def test_more_params_than_a_call_may_hold_are_all_logged_and_long_ones_cut(root, client):
    mine = record(params={f"p.{i}": i for i in range(250)} | {"long": "x" * 7000})
    with start_run(mine, root=root):
        pass
    stored = client.get_run(mine.mlflow_run_id).data
    assert len(stored.params) == 251
    assert stored.params["p.249"] == "249"
    assert stored.params["long"] == "x" * 5999 + "…"
    assert stored.tags["param_cut"] == "long"
    assert mine.params["long"] == "x" * 7000


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("diverged"), "FAILED"),
        (SystemExit(), "FAILED"),
        (SystemExit(0), "FAILED"),
        (SystemExit("bye"), "FAILED"),
        (SystemExit(2), "FAILED"),
        (SystemExit(128 + signal.SIGTERM), "KILLED"),
        (KeyboardInterrupt(), "KILLED"),
    ],
)
def test_case_72_a_run_that_does_not_end_well_says_so(root, client, error, status):
    mine = record()
    with pytest.raises(type(error)) as caught, start_run(mine, root=root):
        raise error
    assert caught.value is error
    stored = client.get_run(mine.mlflow_run_id).info
    assert stored.status == mine.status == status
    assert stored.end_time == mine.end_time


WAIT = """
import signal, sys, time
from pathlib import Path
from plmcl.run_record import RunRecord
from plmcl.tracking import start_run
def stop(number, frame): raise SystemExit(128 + number)
signal.signal(signal.SIGTERM, stop)
record = RunRecord(record_id=sys.argv[2], name="x", experiment="plmcl", params={}, tags={})
with start_run(record, root=Path(sys.argv[1])) as run:
    print(run.run_id, flush=True)
    time.sleep(60)
"""


@pytest.mark.usefixtures("signals_end")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO metrics", "UPDATE runs SET status"],
    ids=["as metrics are written", "as the run is marked FINISHED"],
)
def test_case_72_signals_within_a_transaction_leave_no_locked_database(
    root, client, statement, times
):
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    sent = []

    def send(connection, cursor, executed, *_):
        if not sent and statement in executed:
            sent.append(executed)
            for _ in range(times):
                signal.raise_signal(signal.SIGTERM)

    event.listen(Engine, "after_cursor_execute", send)
    mine = record()
    try:
        with pytest.raises(SystemExit), start_run(mine, root=root) as run:
            run.log({"train/loss": 0.5}, 1)
    finally:
        event.remove(Engine, "after_cursor_execute", send)
    assert sent
    stored = client.get_run(mine.mlflow_run_id)
    assert stored.info.status == mine.status == "KILLED"
    assert stored.data.metrics == {"train/loss": 0.5}


@pytest.mark.usefixtures("signals_end")
def test_case_72_a_signal_while_a_run_is_made_leaves_it_killed(root, client, monkeypatch):
    create, mine = mlflow_store.Store.create, record()

    def signalled(*arguments):
        made = create(*arguments)
        signal.raise_signal(signal.SIGTERM)
        return made

    monkeypatch.setattr(mlflow_store.Store, "create", signalled)
    with pytest.raises(SystemExit), start_run(mine, root=root):
        pytest.fail("the body does not begin")
    assert client.get_run(mine.mlflow_run_id).info.status == mine.status == "KILLED"


@pytest.mark.usefixtures("signals_end")
def test_case_72_a_dropped_signal_ends_a_run_as_killed(root, client):
    mine = record()

    def body():
        with start_run(mine, root=root), suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        body()
    assert client.get_run(mine.mlflow_run_id).info.status == "KILLED"


@pytest.mark.usefixtures("signals_end")
def test_case_72_a_second_signal_does_not_break_into_the_end_of_a_run(root, client, monkeypatch):
    mine, now = record(), tracking._now

    def signalled_now():
        signal.raise_signal(signal.SIGTERM)
        return now()

    def body():
        with start_run(mine, root=root):
            monkeypatch.setattr(tracking, "_now", signalled_now)  # which the end asks for the time
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit):
        body()
    assert client.get_run(mine.mlflow_run_id).info.status == mine.status == "KILLED"


@pytest.mark.slow
def test_case_72_sigterm_kills_the_run_and_sigkill_is_noticed_by_the_next(root, client):
    stopped, shot = python(WAIT, root, "stopped"), python(WAIT, root, "shot")
    first, second = (process.stdout.readline().strip() for process in (stopped, shot))
    stopped.terminate()
    shot.kill()
    assert stopped.wait(30) == 143
    shot.wait(30)
    assert client.get_run(first).info.status == "KILLED"
    assert client.get_run(second).info.status == "RUNNING"
    with start_run(record(), root=root):
        assert client.get_run(second).info.status == "KILLED"


def test_case_72_only_dead_processes_of_this_host_are_swept(root, client):
    def running(host, pid):
        tags = {"plmcl.host": host, "plmcl.pid": str(pid)}
        experiment = client.get_experiment_by_name("plmcl").experiment_id
        return client.create_run(experiment, tags=tags).info.run_id

    here = socket.gethostname()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = {
        running(here, dead.pid): "KILLED",
        running(here, os.getpid()): "KILLED",
        running(here, "no number"): "KILLED",
        running(here, 10**30): "KILLED",
        running(here, os.getppid()): "RUNNING",
        running("elsewhere", dead.pid): "RUNNING",
    }
    mine = record()
    with start_run(mine, root=root):
        assert {run_id: client.get_run(run_id).info.status for run_id in left} == left
    assert mine.status == "FINISHED"


def test_an_unfinished_run_is_resumed_as_itself(root, client):
    mine = record()
    with suppress(KeyboardInterrupt), start_run(mine, root=root) as run:
        run.log({"val/mAP": 0.25}, 1, phase="linear")
        run.log({"val/mAP": 0.5}, 2, phase="linear")
        raise KeyboardInterrupt
    assert mine.status == "KILLED"
    first = (mine.mlflow_run_id, mine.start_time)
    with start_run(mine, root=root) as run:
        assert client.get_run(run.run_id).info.status == "RUNNING"
        run.log({"val/mAP": 0.75}, 2, phase="linear")
    assert (mine.mlflow_run_id, mine.start_time) == first
    assert [entry["val/mAP"] for entry in mine.history] == [0.25, 0.75]
    stored = client.get_run(mine.mlflow_run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics["val/mAP"] == 0.75


def test_a_finished_run_whose_record_does_not_know_is_resumed(root, client):
    mine = record()
    with start_run(mine, root=root) as run:
        run.log({"val/mAP": 0.25}, 1)
        mine.write(root / "run.json")
    before = RunRecord.read(root / "run.json")  # as of a process that ended before it wrote it
    assert before.status == "RUNNING"
    with start_run(before, root=root) as run:
        assert run.run_id == mine.mlflow_run_id
    stored = client.get_run(mine.mlflow_run_id)
    assert (stored.info.status, without_kept(stored)) == ("FINISHED", {"val/mAP": 0.25})


def test_a_finished_run_is_not_resumed(root, client):
    mine = record()
    with start_run(mine, root=root) as run:
        first = run.run_id
    with start_run(mine, root=root) as run:
        assert run.run_id != first
    assert client.get_run(first).info.status == "FINISHED"


def test_case_73_what_is_not_finite_is_a_tag_and_null_never_a_metric(root, client):
    mine = record()
    with start_run(mine, root=root) as run:
        run.log({"train/loss": math.nan, "val/mAP": 0.5}, 1)
        run.log({"train/loss": 0.5, "val/mAP": math.inf}, 2)
        run.log({"train/loss": 0.25, "val/mAP": None}, 3)
    stored = client.get_run(mine.mlflow_run_id).data
    assert stored.metrics == {
        "train/loss": 0.25,
        "val/mAP": 0.5,
        "kept/val/mAP": 0.5,
        "kept/epoch": 1,
    }
    assert stored.tags["metric_nonfinite"] == "train/loss,val/mAP"
    assert [entry["train/loss"] for entry in mine.history] == [None, 0.5, 0.25]
    assert [entry["val/mAP"] for entry in mine.history] == [0.5, None, None]


# --- evaluation and restoring -----------------------------------------------------------------


def read_artifact(client, run_id):
    path = client.download_artifacts(run_id, "per_label.csv")
    return pd.read_csv(path, keep_default_na=False, dtype=str)


def test_an_evaluation_is_added_to_the_finished_run(root, client):
    mine = record()
    with start_run(mine, root=root) as run:
        run.log({"val/mAP": 0.5}, 2)
    for _ in range(2):
        log_evaluation(mine, {"mAP": 0.75, "labels": 3, "empty": None}, PER_LABEL, root=root)
    stored = client.get_run(mine.mlflow_run_id)
    assert stored.info.status == "FINISHED"
    assert stored.info.end_time == mine.end_time
    assert without_kept(stored) == {"val/mAP": 0.5, "test/mAP": 0.75, "test/labels": 3}
    points = client.get_metric_history(mine.mlflow_run_id, "test/mAP")
    assert {point.step for point in points} == {0}  # of the run, not of an epoch
    table = read_artifact(client, mine.mlflow_run_id)
    assert table["label"].tolist() == PER_LABEL["label"].tolist()
    assert table["ap"].tolist() == ["0.5", "", "1.0"]


def ended():
    return record(
        mlflow_run_id="0" * 32,
        status="FAILED",
        tags={"protocol": "paper", "metric_nonfinite": "train/loss"},
        history=[
            {"epoch": 1, "phase": "linear", "train/loss": None, "val/mAP": 0.25},
            {"epoch": 2, "phase": "linear", "train/loss": 0.5, "val/mAP": 0.5},
        ],
        start_time=1_000,
        end_time=61_000,
    )


def everything(client):
    runs = client.search_runs([client.get_experiment_by_name("plmcl").experiment_id])
    return {run.info.run_id: run.to_dictionary() for run in runs}


def test_a_lost_run_is_restored_once_as_it_was(root, client):
    mine = ended()
    others = everything(client)
    assert restore(mine, {"mAP": 0.75, "mAP_2": None}, PER_LABEL, root=root)
    after = everything(client)
    assert not restore(mine, {"mAP": 0.75, "mAP_2": None}, PER_LABEL, root=root)
    assert everything(client) == after
    assert mine.mlflow_run_id == "0" * 32
    (run_id,) = after.keys() - others.keys()
    stored = client.get_run(run_id)
    info = stored.info
    assert (info.status, info.start_time, info.end_time) == ("FAILED", 1_000, 61_000)
    assert info.run_name == "sspl-40-plmcl"
    assert stored.data.params["train.linear.learning_rate"] == "0.001"
    assert stored.data.metrics == {"train/loss": 0.5, "val/mAP": 0.5, "test/mAP": 0.75}
    assert stored.data.tags["protocol"] == "paper"
    assert stored.data.tags["metric_nonfinite"] == "train/loss"
    curve = client.get_metric_history(run_id, "val/mAP")
    assert [(point.step, point.value) for point in curve] == [(1, 0.25), (2, 0.5)]
    (point,) = client.get_metric_history(run_id, "test/mAP")
    assert point.step == 0
    assert read_artifact(client, run_id)["positives"].tolist() == ["1", "0", "2"]


def test_a_run_that_was_deleted_is_restored_and_one_cut_off_half_way_too(root, client, monkeypatch):
    mine = ended()
    assert restore(mine, None, None, root=root)
    run = mlflow_store.open_store("plmcl", root).find(mine.record_id, None)
    client.delete_run(run.info.run_id)
    with monkeypatch.context() as patch:
        patch.setattr(type(client), "set_terminated", lambda *a, **k: 1 / 0)
        patch.setattr(tracking, "_log_evaluation", lambda *a: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore(mine, {"mAP": 0.5}, PER_LABEL, root=root)
    assert restore(mine, {"mAP": 0.5}, PER_LABEL, root=root)


def test_an_evaluation_restores_a_training_that_the_store_lacks(root, client):
    mine = ended()
    log_evaluation(mine, {"mAP": 0.75}, PER_LABEL, root=root)
    assert not restore(mine, {"mAP": 0.75}, PER_LABEL, root=root)
    stored = mlflow_store.open_store("plmcl", root).find(mine.record_id, None)
    assert stored.data.metrics == {"train/loss": 0.5, "val/mAP": 0.5, "test/mAP": 0.75}


# --- the store --------------------------------------------------------------------------------


ONE_RUN = """
import sys
from pathlib import Path
from plmcl.run_record import RunRecord
from plmcl.tracking import start_run
record = RunRecord(name=sys.argv[2], experiment="plmcl", params={"n": 1}, tags={})
with start_run(record, root=Path(sys.argv[1])) as run:
    for epoch in range(1, 6):
        run.log({"train/loss": 0.5}, epoch)
"""


@pytest.mark.slow
def test_case_75_four_processes_start_on_a_fresh_file_and_say_nothing(tmp_path):
    fresh = tmp_path / "50% done? #1 é"
    fresh.mkdir()
    # What a process that was killed while it initialised the file leaves behind.
    (fresh / "mlflow.db.partial").write_bytes(b"half a database")
    processes = [python(ONE_RUN, fresh, name) for name in "abcd"]
    assert [process.communicate()[0] for process in processes] == [""] * 4
    assert [process.returncode for process in processes] == [0] * 4
    client = mlflow_store.open_store("plmcl", fresh).client
    assert len(client.search_experiments(filter_string="name = 'plmcl'")) == 1
    runs = client.search_runs([client.get_experiment_by_name("plmcl").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["a", "b", "c", "d"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert not (fresh / "mlflow.db.partial").exists()
    rows = sqlite3.connect(fresh / "mlflow.db").execute("select count(*) from metrics")
    assert rows.fetchone() == (20,)


def test_case_75_a_locked_database_is_tried_again(monkeypatch):
    from mlflow.exceptions import MlflowException

    waits, answers = [], [MlflowException("(sqlite3) database is locked")] * 3 + ["done"]

    def answer():
        result = answers.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(time, "sleep", waits.append)
    assert mlflow_store.call("sqlite:////x/mlflow.db", answer) == "done"
    assert len(waits) == 3

    answers.extend([MlflowException("(sqlite3) database is locked")] * 4)
    with pytest.raises(PlmclError, match=r"database is locked.*PostgreSQL"):
        mlflow_store.call("sqlite:////x/mlflow.db", answer)


def test_case_76_a_moved_project_names_both_places(root, tmp_path):
    with start_run(record(), root=root):
        pass
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "mlflow.db").write_bytes((root / "mlflow.db").read_bytes())
    with (
        pytest.raises(PlmclError, match="was the project moved") as caught,
        start_run(record(), root=moved),
    ):
        pass
    assert str(root / "mlartifacts") in str(caught.value)
    assert str(moved / "mlartifacts") in str(caught.value)


def test_case_76_a_link_to_the_project_is_no_move(root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    with start_run(record(), root=link):
        pass


def test_the_address_variable_moves_database_and_artifacts(root, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/mlflow.db")
    mine = record()
    with start_run(mine, root=tmp_path):
        pass
    log_evaluation(mine, {"mAP": 0.5}, PER_LABEL, root=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert (root / "mlartifacts" / mine.mlflow_run_id).is_dir()


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"<html>404</html>" * 100)
    with (
        pytest.raises(PlmclError, match=r"mlflow\.db: .*not a database.*move it aside"),
        start_run(record(), root=tmp_path),
    ):
        pass


def test_a_deleted_experiment_is_named(root, client):
    client.delete_experiment(client.create_experiment("old"))
    with (
        pytest.raises(PlmclError, match=r"tracking.experiment 'old' was deleted"),
        start_run(record(experiment="old"), root=root),
    ):
        pass


@pytest.mark.parametrize(
    "uri",
    [
        "http://anna:s3cret@127.0.0.1:9/",
        "http://anna:p@ss/w0rd@127.0.0.1:9",
        "postgresql://anna:s3cret@127.0.0.1:9/mlflow?password=s3cret",
        "nonsense://anna:s3cret@127.0.0.1:9",
    ],
)
def test_a_store_that_cannot_be_reached_is_named_without_its_password(
    uri, tmp_path, monkeypatch, caplog, capfd
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with (
        pytest.raises(PlmclError, match=r"127\.0\.0\.1:9") as caught,
        start_run(record(), root=tmp_path),
    ):
        pass
    shown = f"{caught.value} {caplog.text} {capfd.readouterr()}"
    assert not any(secret in shown for secret in ("anna", "s3cret", "p@ss", "w0rd"))
    assert "MLFLOW_TRACKING_URI" in shown


def test_a_lost_connection_does_not_hide_the_error_of_the_training(root, client, monkeypatch):
    def gone(*arguments, **options):
        raise OSError("gone")

    def train(mine):
        with start_run(mine, root=root):
            monkeypatch.setattr(type(client), "set_terminated", gone)
            raise ValueError("diverged")

    mine = record()
    with pytest.raises(ValueError, match="diverged"):
        train(mine)
    assert mine.status == "FAILED"


# --- the rest ---------------------------------------------------------------------------------


def test_importing_the_module_imports_and_does_nothing(tmp_path):
    code = "import os, sys; a = dict(os.environ); import plmcl.tracking; "
    code += "print(sorted({'mlflow', 'torch', 'pandas'} & set(sys.modules)), a == os.environ)"
    assert python(code).communicate()[0] == "[] True\n"


def git(path, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(path), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_code_is_named_by_its_commit_and_dirty_if_src_differs(tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    assert tracking.code_commit(tmp_path) == ""
    git(tmp_path, "init")
    assert tracking.code_commit(tmp_path) == ""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "notes.txt").write_text("2")
    (tmp_path / "src" / "untracked.py").write_text("1")
    assert tracking.code_commit(tmp_path) == commit
    (tmp_path / "src" / "a.py").write_text("2")
    assert tracking.code_commit(tmp_path) == f"{commit}-dirty"
    git(tmp_path, "add", "src/a.py")
    assert tracking.code_commit(tmp_path) == f"{commit}-dirty"


def test_the_environment_names_dvcs_experiment_only_if_there_is_one(monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "train@sspl-40-plmcl")
    monkeypatch.setenv("DVC_EXP_NAME", "rusty-cat")
    monkeypatch.delenv("DVC_EXP_BASELINE_REV", raising=False)
    tags = tracking.environment_tags()
    assert tags.keys() == {"DVC_STAGE", "DVC_EXP_NAME", "host", "python", "torch"}
    assert tags["DVC_EXP_NAME"] == "rusty-cat"
    assert tags["python"] == ".".join(map(str, sys.version_info[:3]))
