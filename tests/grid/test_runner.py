"""Grids run for real on sixty drawn images: resumed, killed, with failures, bound to cores."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from project import ROOT, SMALL, edit_params, environment

from plmcl.errors import PlmclError
from plmcl.grid import runner, worker
from plmcl.grid.inputs import decode_images, draw_splits
from plmcl.grid.plan import Run
from plmcl.grid.pool import Part, Pool, share_out
from plmcl.grid.results import read_results, write_results
from plmcl.grid.spec import load_grid
from plmcl.grid.worker import Place
from plmcl.params import load_params
from plmcl.stages import download, ingest
from plmcl.stages.paths import Paths

GRID = """\
title: Two methods under two settings
seeds: [0, 1]
settings: [sspl-40, fspl]
params: {train: {mode: linear}}
tune: {train.linear.learning_rate: [1e-2, 1e-3]}
tune_seeds: [0]
rows:
  AN: {method: an}
  PLMCL: {method: plmcl, tune: {train.linear.learning_rate: null}}
  PLMCL again: {method: plmcl, tune: {train.linear.learning_rate: [1e-2]}}
"""
# AN: 2 settings x (2 candidates on seed 0, 1 on seed 1); PLMCL: 2 settings x 2 seeds, in two rows.
RUNS, TRAININGS = 6 + 4 + 4, 6 + 4


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A project's folder with its images and manifest, and no run yet."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "params.yaml", root)
    edit_params(root / "params.yaml", SMALL)
    params = load_params(root / "params.yaml")
    paths = Paths.of_project(root, params.data.source)
    download.run(paths, params)
    ingest.run(paths, params)
    return root


@pytest.fixture
def project(drawn, tmp_path):
    return shutil.copytree(drawn, tmp_path / "project")


def run_grid(root, text=GRID, jobs=2):
    path = root / "small.yaml"
    path.write_text(text)
    params = load_params(root / "params.yaml")
    return runner.run_grid("small", load_grid(path), params, root, jobs)


def figures(results):
    """What must not depend on when and where a run ran."""
    columns = ["row", "setting", "seed", "candidate", "selection", "val", "test", "best_epoch"]
    return results[columns].sort_values(columns[:4]).to_dict("records")


def journal(root):
    return root / ".plmcl/grid/small/runs.csv"


@pytest.fixture(scope="module")
def whole(drawn, tmp_path_factory):
    """A grid that nothing stopped: its folder and its results."""
    root = shutil.copytree(drawn, tmp_path_factory.mktemp("whole") / "project")
    results, failures = run_grid(root)
    assert failures == []
    return root, results


@pytest.mark.slow
def test_every_run_has_a_result_and_equal_ones_are_trained_once(whole):
    root, results = whole
    assert len(results) == RUNS
    assert len(read_results(journal(root))) == TRAININGS
    of_row = {row: r.drop(columns=["row", "candidate"]) for row, r in results.groupby("row")}
    pd.testing.assert_frame_equal(
        of_row["PLMCL"].reset_index(drop=True), of_row["PLMCL again"].reset_index(drop=True)
    )
    assert set(results["selection"]) == {"val/mAP"}
    assert results["test"].between(0, 1).all()
    assert set(results["device"]) == {"cpu, 1 thread"}


@pytest.mark.slow
def test_seeds_have_splits_of_their_own(whole):
    root, _ = whole
    splits = sorted((root / ".plmcl/grid/small/splits").glob("seed-*/splits.parquet"))
    one, two = (pd.read_parquet(path) for path in splits)
    assert not one.equals(two)
    assert not (root / "data/splits").exists()  # the project's own are not touched


@pytest.mark.slow
def test_a_second_time_nothing_is_trained(whole, monkeypatch):
    root, results = whole
    monkeypatch.setattr("plmcl.grid.pool.Worker", None)  # would be called for the first training
    again, failures = run_grid(root)
    assert failures == []
    assert figures(again) == figures(results)


@pytest.mark.slow
def test_a_run_is_the_same_training_as_the_stages(whole):
    """The same splits, training and evaluation as the stages', to the last digit."""
    from plmcl.stages import evaluate, split, train

    root, results = whole
    root = shutil.copytree(root, root.parent / "stages")
    edit_params(root / "params.yaml", {"train.mode": "linear", "seed": 1})
    params = load_params(root / "params.yaml")
    paths = Paths.of_project(root, params.data.source)
    split.run(paths, params, ["fspl"])
    record = train.run(paths, params, "fspl", "plmcl", track=False)
    evaluation = evaluate.run(paths, params, "fspl", "plmcl", track=False)
    row = results.query("row == 'PLMCL' and setting == 'fspl' and seed == 1").iloc[0]
    assert row["val"] == record.best_selection
    assert row["test"] == pytest.approx(evaluation.metrics["mAP"], abs=1e-6)


SCRIPT = """
import sys
from pathlib import Path
from plmcl.cli import main
if __name__ == "__main__":
    sys.argv = ["plmcl", "grid", "small.yaml", "--jobs", sys.argv[1], "--no-track"]
    main()
"""


def start(root, jobs):
    (root / "small.yaml").write_text(GRID)
    (root / "grid.py").write_text(SCRIPT)
    inside = environment(PYTHONPATH=str(ROOT / "src"))
    return subprocess.Popen(
        [sys.executable, "grid.py", str(jobs)],
        cwd=root,
        env=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_results(root, process, number):
    deadline = time.monotonic() + 120
    while not journal(root).exists() or journal(root).read_text().count("\n") < 1 + number:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on_where_it_stopped(project, whole):
    """Twice: by SIGKILL, and once it has gone on by SIGTERM."""
    for how, number, jobs in ((signal.SIGKILL, 2, 2), (signal.SIGTERM, 4, 1)):
        process = start(project, jobs)
        wait_for_results(project, process, number)
        workers = children(process.pid)
        assert len(workers) >= jobs
        process.send_signal(how)
        process.wait(30)
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in workers):  # no worker is left behind
            assert time.monotonic() < deadline
            time.sleep(0.1)
        done = read_results(journal(project))
        assert number <= len(done) < TRAININGS
    results, failures = run_grid(project, jobs=1)
    assert failures == []
    assert figures(results) == figures(whole[1])
    # What was done before was not done again.
    kept = read_results(journal(project)).head(len(done))
    pd.testing.assert_frame_equal(kept, done)


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_does_not_count_as_done(project):
    text = GRID[: GRID.index("params:")] + (
        "params: {train: {mode: end_to_end}}\nrows: {BCE: {method: bce}, AN: {method: an}}"
    )
    results, failures = run_grid(project, text, jobs=1)
    assert sorted(results["row"]) == ["AN"] * 4
    assert len(failures) == 4
    assert min(map(str, failures)).startswith("BCE, fspl, seed 0: bce needs observed negatives")
    assert set(read_results(journal(project))["row"]) == {"AN"}
    # The fine-tunings share one file of decoded images.
    assert len(list((project / ".plmcl/grid/small/pixels").glob("*.npy"))) == 1


@pytest.mark.slow
def test_a_defect_of_a_method_is_named_and_its_traceback_kept(project, monkeypatch):
    text = GRID[: GRID.index("tune:")] + "rows: {AN: {method: an}}"
    source = shutil.copytree(ROOT / "src", project / "src")
    path = source / "plmcl/methods/an.py"
    sound, defect = path.read_text(), "return 1 / 0 + cross_entropy("
    path.write_text(sound.replace("return cross_entropy(", defect))
    assert defect in path.read_text()
    (project / "small.yaml").write_text(text)
    monkeypatch.syspath_prepend(source)  # of the worker, too
    with pytest.raises(PlmclError, match="no run has a result") as refused:
        make_tables(project, jobs=1)
    assert "AN, sspl-40, seed 0: ZeroDivisionError: division by zero" in str(refused.value)
    log = (project / ".plmcl/grid/small/logs/worker-0.txt").read_text()
    assert "methods/an.py" in log


@pytest.mark.slow
def test_a_fine_tuning_gives_the_same_from_decoded_images_as_from_files(place, monkeypatch):
    params = load_params(place.project.root / "params.yaml")
    train = params.train.model_copy(update={"mode": "end_to_end"})
    run = Run("AN", "an", "fspl", 0, "", params.model_copy(update={"train": train}))
    draw_splits([run], place)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "DECODED_BYTES", 0)
        decode_images([run], place)
        assert not place.pixels.exists()
        from_files = worker.train(run, place)
    decode_images([run], place)
    shutil.rmtree(place.project.raw)
    decoded = worker.train(run, place)  # there are no files now
    assert (decoded.val, decoded.test) == (from_files.val, from_files.test)


@pytest.mark.slow
def test_a_run_of_the_head_alone_decodes_nothing_for_others(whole):
    assert not (whole[0] / ".plmcl/grid/small/pixels").exists()


@pytest.fixture
def place(project):
    place = Place(Paths.of_project(project, "scenes"), project / ".plmcl/grid/small", "cpu")
    place.logs.mkdir(parents=True)
    return place


def without_splits(place, number):
    """Runs that end at once: nobody has drawn their splits."""
    params = load_params(place.project.root / "params.yaml")
    return {str(seed): Run("AN", "an", "fspl", seed, "", params) for seed in range(number)}


@pytest.mark.slow
def test_workers_have_their_cores_and_gpu_and_one_that_dies_is_replaced_and_its_run_named(place):
    before = os.sched_getaffinity(0), os.environ.get("CUDA_VISIBLE_DEVICES")
    core = frozenset({min(before[0])})
    with Pool([Part(core, "7")], place) as pool:
        answers = pool.run(without_splits(place, 3))
        assert next(answers)[0] == "0"
        first = pool.workers[0].process.pid
        assert os.sched_getaffinity(first) == core
        variables = Path(f"/proc/{first}/environ").read_bytes().split(b"\0")
        assert b"CUDA_VISIBLE_DEVICES=7" in variables
        os.kill(first, signal.SIGKILL)
        key, answer = next(answers)
        assert key == "1"
        assert "the process died" in str(answer)
        key, answer = next(answers)
        assert key == "2"
        assert "splits.parquet: not found" in str(answer)
        second = pool.workers[0].process.pid
        assert os.sched_getaffinity(second) == core
        # One that dies while it has nothing to do costs no run.
        os.kill(second, signal.SIGKILL)
        pool.workers[0].process.join()
        ((key, answer),) = pool.run(without_splits(place, 1))
        assert "splits.parquet: not found" in str(answer)
    assert before == (os.sched_getaffinity(0), os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert not any(Path(f"/proc/{pid}").exists() for pid in (first, second))


def make_tables(root, **changes):
    arguments = {"root": root, "jobs": 2, "files": [], "out": None, "track": False} | changes
    return runner.run(root / "small.yaml", **arguments)


@pytest.mark.slow
def test_results_and_tables_are_written_printed_and_kept_by_mlflow(whole, tmp_path, capsys):
    import mlflow

    root = shutil.copytree(whole[0], tmp_path / "project")
    assert make_tables(root, track=True) == []
    out = root / "reports/grids/small"
    assert figures(read_results(out / "results.csv")) == figures(whole[1])
    printed = capsys.readouterr().out
    assert "12 runs, 0 of them to be trained" in printed
    assert (out / "table.md").read_text().strip() in printed
    client = mlflow.MlflowClient(f"sqlite:///{root}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("plmcl").experiment_id])
    assert (run.info.run_name, run.info.status) == ("grid-small", "FINISHED")
    artifacts = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert artifacts == {path.name for path in out.iterdir()}


@pytest.mark.slow
def test_tables_of_what_two_machines_did_need_neither_data_nor_training(whole, tmp_path, capsys):
    root = tmp_path / "elsewhere"
    root.mkdir()
    for name in ("params.yaml", "small.yaml"):
        shutil.copy(whole[0] / name, root)
    halves = [root / "one.csv", root / "two.csv"]
    write_results(whole[1].head(9), halves[0])
    write_results(whole[1].tail(9), halves[1])  # four are in both
    assert make_tables(root, files=halves, out=root / "tables") == []
    assert figures(read_results(root / "tables/results.csv")) == figures(whole[1])
    others = whole[1].assign(row="another " + whole[1]["row"])
    write_results(others, root / "other.csv")
    make_tables(root, files=[*halves, root / "other.csv"])
    assert "14 results are of no row and setting of this grid: left out" in capsys.readouterr().out
    with pytest.raises(PlmclError, match="no run has a result"):
        make_tables(root, files=[root / "other.csv"])


def test_without_a_manifest_it_says_which_stage_to_run(tmp_path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    with pytest.raises(PlmclError, match="run the ingest stage first"):
        run_grid(tmp_path)


@pytest.mark.slow
def test_a_grid_that_is_being_run_is_not_run_twice(project):
    with (
        runner._alone(project / ".plmcl/grid/small"),
        pytest.raises(PlmclError, match="another process runs this grid"),
    ):
        run_grid(project)


def test_shares_cover_the_cores_without_overlap(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for jobs in (1, 2, 4, 8):
        parts = share_out(jobs, [])
        assert sorted(core for part in parts for core in part.cores) == list(range(8))
        assert {len(part.cores) for part in parts} == {8 // jobs}
    assert [len(part.cores) for part in share_out(3, [])] == [2, 2, 2]
    assert not set.intersection(*(set(part.cores) for part in share_out(3, [])))


def test_more_jobs_than_cores_take_them_in_turn_and_gpus_likewise(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 6})
    parts = share_out(5, ["0", "1"])
    assert [tuple(part.cores) for part in parts] == [(4,), (6,), (4,), (6,), (4,)]
    assert [part.gpu for part in parts] == ["0", "1", "0", "1", "0"]
    assert [part.gpu for part in share_out(2, [])] == ["", ""]
