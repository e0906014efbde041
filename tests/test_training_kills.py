"""Trainings that end before their time, wherever they are: they go on as if nothing had been."""

import signal
import time

import mlflow
import pytest
from training_kills import RUN, Training, make_small, measure, results, wait_for
from training_scenarios import dropping_a_signal, training, without_room

from plmcl.run_record import RunRecord

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_small(tmp_path_factory.mktemp("kills") / "project", epochs=2)


def test_three_random_kills_change_no_byte_of_weights_and_label_state_case_61(project):
    """One each within steps, evaluation and save; label state in files, in memory, in files."""
    report = measure(project, 3, seed=1)
    assert report["same as the uninterrupted training"] == 3
    assert [kill["label state"] for kill in report["kills"]] == [
        "in files",
        "in memory",
        "in files",
    ]


def test_a_full_disk_and_signals_end_a_run_which_goes_on_as_itself_case_61_case_66(project):
    def stored():
        client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
        ids = [client.get_experiment_by_name("plmcl").experiment_id]
        (only,) = client.search_runs(ids)
        return only

    def run():
        return stored().info.run_id, stored().info.status

    expected = results(project)  # of the test before this one
    assert Training(project, without_room).wait() == 2
    run_id, status = run()
    assert status == "FAILED"
    seen = {run_id}
    for number, place in (
        (signal.SIGTERM, "steps"),
        (signal.SIGINT, "evaluation"),
        (signal.SIGTERM, "save"),
    ):
        process = Training(project, training)
        wait_for(process, place, 1)
        process.send(number)
        if number == signal.SIGTERM:
            time.sleep(0.007)  # so much later comes that of DVC's other thread
            process.send(number)
        assert process.wait() == 128 + number
        run_id, status = run()
        assert status == "KILLED"
        seen.add(run_id)
    assert Training(project, dropping_a_signal).wait() == 128 + signal.SIGTERM
    assert run() == (*seen, "KILLED")
    assert Training(project, training).wait() == 0
    assert run() == (*seen, "FINISHED")
    # Of all epochs, although this process trained none of them.
    kept = {
        name: value for name, value in stored().data.metrics.items() if name.startswith("kept/")
    }
    epoch, value = RunRecord.read(project / "reports/runs" / RUN / "run.json").best
    assert kept == {"kept/epoch": epoch, "kept/val/mAP": value}
    assert results(project) == expected
