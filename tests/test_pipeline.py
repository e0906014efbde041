"""The pipeline as DVC runs it, small: exact dependencies, no-op repeats, interruption, equality."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from preloaded import preloaded_python
from project import (
    ROOT,
    edit_params,
    environment,
    make_project,
    run_command,
    run_to_splits,
)
from ruamel.yaml import YAML

from plmcl.data.sources import source_names
from plmcl.params import Section, load_params
from plmcl.run_record import RunRecord
from plmcl.stages import evaluate, track, train

pytestmark = pytest.mark.slow

STAGES = (
    ["check", "download", "ingest", "split", "report"]
    + [f"{verb}@sspl-40-{m}" for verb in ("train", "evaluate", "export") for m in ("an", "plmcl")]
)  # fmt: skip

# Of the stages that read a source: the one that is configured here, scenes, needs none of these.
OF_OTHER_SOURCES = {
    "src/plmcl/data/archives",
    "src/plmcl/data/downloads",
    "src/plmcl/data/sources/official.py",
    "src/plmcl/data/sources/published.py",
    "src/plmcl/data/sources/reading.py",
    "src/plmcl/grid/published.yaml",  # read by the report, and no module
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory):
    """PATH with a `python` that starts stages faster."""
    with preloaded_python(tmp_path_factory.mktemp("bin")) as folder:
        yield f"{folder}:{environment()['PATH']}"


@pytest.fixture(scope="module")
def project(tmp_path_factory, preloaded, traces):
    """A project after its first `dvc repro`, every stage of which was watched."""
    folder = make_project(tmp_path_factory.mktemp("project") / "plmcl")
    run_command("dvc", "repro", cwd=folder, PATH=preloaded, TRACES=str(traces))
    return folder


def locked(project):
    return YAML(typ="safe").load((project / "dvc.lock").read_text())["stages"]


def test_every_stage_ran_and_left_a_report_and_an_onnx_file(project):
    assert set(locked(project)) == set(STAGES)
    assert (project / "models/sspl-40-plmcl/model.onnx").stat().st_size > 10_000
    assert "sspl-40" in (project / "reports/index.html").read_text()


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_only_files_among_its_dependencies(project, traces, stage):
    read = json.loads((traces / f"{stage.replace('/', '_')}.json").read_text())
    declared = [dep["path"] for dep in locked(project)[stage]["deps"]]
    hidden = [f for f in read if not any(f == d or f.startswith(f"{d}/") for d in declared)]
    assert not hidden
    unused = [
        d
        for d in declared
        if d.startswith("src/")
        and not d.endswith(".yaml")  # read, and not imported
        and not any(f == d or f.startswith(f"{d}/") for f in read)
    ]
    assert set(unused) <= OF_OTHER_SOURCES


def test_the_stages_that_read_a_source_depend_on_all_that_any_source_imports():
    names = source_names()
    imports = ", ".join(f"plmcl.data.sources.{name}" for name in names)
    code = f"""import sys, {imports}
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("plmcl")), sep="\\n")"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT / "src"
    )
    read = [str(Path(file).relative_to(ROOT)) for file in done.stdout.split()]
    assert "src/plmcl/data/sources/official.py" in read
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    for stage in ("check", "download", "ingest"):
        deps = stages[stage]["deps"]
        declared = [dep.replace("${data.source}", name) for dep in deps for name in names]
        assert not [f for f in read if not any(f == d or f.startswith(f"{d}/") for d in declared)]


class Watched:
    """Params that note which keys are used."""

    def __init__(self, values, path, used):
        self._values, self._path, self._used = values, path, used

    def _at(self, key, value):
        path = f"{self._path}.{key}" if self._path else key
        if isinstance(value, Section) or (key in ("sources", "methods") and not self._path):
            return Watched(value, path, self._used)
        self._used.add(path)
        return value

    def __getattr__(self, key):
        value = getattr(self._values, key)
        if callable(value) or key.startswith("model_"):  # the whole section, as by model_dump
            self._used.add(self._path)
            return value
        return self._at(key, value)

    def __getitem__(self, key):
        return self._at(key, self._values[key])

    def __contains__(self, key):
        return key in self._values


def test_a_stage_uses_only_params_that_it_declares(project, monkeypatch):
    """Case 80: a value that a stage uses and does not declare would not make it run again."""
    monkeypatch.chdir(project)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.rmtree(project / "data/raw/scenes")  # as DVC does before the stage
    hidden = {}
    for stage in STAGES:
        if stage == "check":
            continue
        used: set[str] = set()
        verb, _, item = stage.partition("@")
        module = __import__(f"plmcl.stages.{verb}", fromlist=["main"])
        with monkeypatch.context() as patch:
            patch.setattr(
                module, "load_params", lambda path, u=used: Watched(load_params(path), "", u)
            )
            module.main(*item.rsplit("-", 1)) if item else module.main()
        declared = locked(project)[stage]["params"]["params.yaml"]
        assert used, stage
        hidden[stage] = [
            u for u in used if not any(u == d or u.startswith(f"{d}.") for d in declared)
        ]
    assert not any(hidden.values()), hidden
    run_command("dvc", "checkout", "--force", cwd=project)


def test_a_second_repro_does_nothing_and_is_quick(project):
    start = processor_seconds()
    done = run_command("dvc", "repro", cwd=project)
    assert "Data and pipelines are up to date" in done.stdout
    assert "Running stage" not in done.stdout
    assert processor_seconds() - start < 10  # 4 s


def processor_seconds():
    """Of all processes that this one has waited for; unlike a clock's, not those of others."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def changed(project):
    done = run_command("dvc", "status", "--json", cwd=project)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"methods.plmcl.alpha": 5.0}, {"check", "train@sspl-40-plmcl"}),
        ({"methods.bce.smoothing": 0.1}, {"check"}),
        ({"export.tolerance": 1e-3}, {"check", "export@sspl-40-an", "export@sspl-40-plmcl"}),
        ({"sources.folder.images": "x"}, {"check"}),
        ({"retraining.min_images": 7, "gate.resamples": 7}, {"check"}),
        ({"split.val": 0.25}, {"check", "split", "train@sspl-40-an", "train@sspl-40-plmcl"}),
    ],
)
def test_a_changed_param_runs_what_uses_it_alone(project, changes, stages):
    before = (project / "params.yaml").read_text()
    edit_params(project / "params.yaml", changes)
    try:
        assert changed(project) == stages
    finally:
        (project / "params.yaml").write_text(before)


def test_a_changed_method_file_trains_that_method_alone(project):
    path = project / "src/plmcl/methods/plmcl.py"
    before = path.read_text()
    path.write_text(before + "\n# changed\n")
    try:
        assert changed(project) == {"check", "train@sspl-40-plmcl"}
    finally:
        path.write_text(before)


def test_a_new_method_trains_that_method_alone(project):
    """One file and one section: what is there already stays as it is."""
    before = (project / "params.yaml").read_text()
    path = project / "src/plmcl/methods/an_new.py"
    path.write_text((project / "src/plmcl/methods/an.py").read_text())
    changes = {"methods.an_new": {"smoothing": 0.1}, "grid.methods": ["an", "plmcl", "an_new"]}
    edit_params(project / "params.yaml", changes)
    try:
        new = {f"{verb}@sspl-40-an_new" for verb in ("train", "evaluate", "export")}
        assert changed(project) == {"check", "report"} | new
    finally:
        path.unlink()
        (project / "params.yaml").write_text(before)


def test_a_misspelt_key_is_named_before_anything_is_downloaded(project):
    before = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(before.replace("momentum: 0.7", "momentm: 0.7"))
    try:
        done = run_command("dvc", "repro", cwd=project, check=False)
        assert done.returncode != 0
        assert "methods.plmcl" in done.stderr
        assert "momentm: unknown key; did you mean 'momentum'?" in done.stderr
        assert "download" not in done.stdout
    finally:
        (project / "params.yaml").write_text(before)


def test_metrics_and_plots_are_shown(project):
    done = run_command("dvc", "metrics", "show", "--json", cwd=project)
    files = json.loads(done.stdout)[""]["data"]
    metrics = files["reports/runs/sspl-40-plmcl/metrics.json"]["data"]
    assert 0 <= metrics["mAP"] <= 1
    done = run_command("dvc", "plots", "show", "--json", cwd=project)
    assert "reports/runs/sspl-40-an/history.csv" in done.stdout


def test_runs_are_in_mlflow_with_curves_test_figures_and_comparable_tags(project):
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("plmcl")
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id])
        if "DVC_STAGE" in run.data.tags
    ]
    assert {run.data.tags["DVC_STAGE"] for run in runs} == {
        "train@sspl-40-an",
        "train@sspl-40-plmcl",
    }
    for run in runs:
        metrics = json.loads(
            (project / "reports/runs" / run.info.run_name / "metrics.json").read_text()
        )
        assert run.info.status == "FINISHED"
        assert run.data.metrics["test/mAP"] == pytest.approx(metrics["mAP"])
        assert len(client.get_metric_history(run.info.run_id, "train/loss")) == 4
        assert run.data.params["train.mode"] == "linear_init"
        assert {"setting", "method", "seed", "splits_sha256", "code_commit"} <= set(run.data.tags)


def test_track_fills_an_mlflow_that_lacks_the_runs(project, monkeypatch):
    uri = f"sqlite:///{project}/other.db"
    first = run_command("plmcl", "track", cwd=project, MLFLOW_TRACKING_URI=uri)
    assert "restored 2 runs: sspl-40-an, sspl-40-plmcl" in first.stdout
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert track.run(project) == []


def test_an_experiment_runs_with_other_values(project, preloaded, tmp_path):
    copy = shutil.copytree(project, tmp_path / "copy", symlinks=True)
    (copy / "mlflow.db").unlink()  # it holds absolute paths (case 76)
    run_command("dvc", "exp", "run", "-n", "small-alpha", "-S", "methods.plmcl.alpha=2.0",
                "train@sspl-40-plmcl", cwd=copy, PATH=preloaded)  # fmt: skip
    shown = json.loads(run_command("dvc", "exp", "show", "--json", cwd=copy).stdout)
    assert "small-alpha" in json.dumps(shown)
    record = RunRecord.read(copy / "reports/runs/sspl-40-plmcl/run.json")
    assert record.params["methods.plmcl.alpha"] == 2.0
    assert record.tags["DVC_EXP_NAME"] == "small-alpha"


def test_two_clones_give_identical_splits_and_metrics(project, tmp_path):
    """On CPU, with the same lock, processor type and train.threads; DVC or no DVC."""
    other = make_project(tmp_path / "clone")
    params, paths = run_to_splits(other)
    train.run(paths, params, "sspl-40", "plmcl", track=False)
    evaluate.run(paths, params, "sspl-40", "plmcl", track=False)
    names = ["splits.parquet", "draws.parquet", "observed/sspl-40.parquet"]
    files = [f"data/splits/{name}" for name in names] + [
        f"reports/runs/sspl-40-plmcl/{name}"
        for name in ("metrics.json", "history.csv", "per_label.csv", "predictions.parquet")
    ]
    for file in files:
        assert (other / file).read_bytes() == (project / file).read_bytes(), file
