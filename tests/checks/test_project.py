import shutil
import subprocess

import pytest
from project import ROOT, SMALL, edit_params, environment

from plmcl.checks import project
from plmcl.params import load_params

UNREACHABLE = "no route"


def there(url):
    return None


def gone(url):
    return UNREACHABLE


@pytest.fixture
def params(tmp_path):
    """A folder with a small params.yaml; called with changes, it gives the parameters."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    edit_params(tmp_path / "params.yaml", SMALL)

    def change(**changes):
        named = {name.replace("__", "."): value for name, value in changes.items()}
        edit_params(tmp_path / "params.yaml", named)
        return load_params(tmp_path / "params.yaml")

    (tmp_path / "data/inputs").mkdir(parents=True)
    return change


def data(tmp_path, params, ask=gone):
    return [(f.status, f.found, f.advice) for f in project.data(tmp_path, params, ask)]


def test_each_mistake_in_params_is_a_line(tmp_path, params):
    params(train__mode="linear")
    edit_params(tmp_path / "params.yaml", {"methods.plmcl.alpha": "x", "sources.coco.year": 1})
    found = list(project.project_findings(tmp_path, gone))
    assert [f.status for f in found] == ["problem", "problem"]
    assert "methods.plmcl.alpha" in found[0].found
    assert "sources.coco.year" in found[1].found


def test_a_valid_run_is_looked_at_in_every_part(tmp_path, params, monkeypatch):
    monkeypatch.setenv("PLMCL_CORES", "2")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    params(train__threads=4)
    found = list(project.project_findings(tmp_path, gone))
    assert [(f.name, f.status) for f in found] == [
        ("params.yaml", "ok"),
        ("params.yaml", "warning"),  # 4 threads on 2 cores
        ("data", "ok"),
        ("weights", "ok"),
        ("MLflow", "ok"),
        ("DVC", "ok"),
    ]
    assert not (tmp_path / "mlflow.db").exists()


def test_drawn_pictures_need_nothing(tmp_path, params):
    ((status, found, _),) = data(tmp_path, params())
    assert (status, found) == ("ok", "scenes: drawn here; nothing is read or fetched")


def test_data_path_must_be_there(tmp_path, params):
    ((status, found, advice),) = data(tmp_path, params(data__path="nowhere"))
    assert status == "problem"
    assert found == f"data.path: {tmp_path / 'nowhere'} is not there"
    assert advice.startswith("make it")


def test_a_folder_is_read_as_the_run_will_read_it(tmp_path, params):
    for name in ("cat/1.jpg", "dog/2.jpg", "dog/3.jpg"):
        path = tmp_path / "data/inputs" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    changed = params(data__source="folder")
    ((status, found, _),) = data(tmp_path, changed)
    assert status == "ok"
    assert found == f"folder: 3 images and 2 labels in {tmp_path / 'data/inputs'}"


def test_a_folder_without_images_is_a_problem_of_one_line(tmp_path, params):
    changed = params(data__source="folder")
    found = list(project.guarded("data", lambda: project.data(tmp_path, changed, gone)))
    assert [f.status for f in found] == ["problem"]


def test_archives_that_cannot_be_fetched_are_named_with_where_to_put_them(tmp_path, params):
    changed = params(data__source="cub")
    ((status, found, advice),) = data(tmp_path, changed)
    assert status == "problem"
    assert found == (
        "cub: CUB_200_2011.tgz has to be fetched, and cannot be: data.caltech.edu: no route"
    )
    assert advice.startswith(f"put CUB_200_2011.tgz into {tmp_path / 'data/inputs'}")
    ((status, found, _),) = data(tmp_path, changed, there)
    assert (status, found) == (
        "ok",
        "cub: CUB_200_2011.tgz has to be fetched (1.1 GiB); there: data.caltech.edu",
    )


def test_archives_on_the_disk_need_no_network(tmp_path, params):
    (tmp_path / "data/inputs/CUB_200_2011.tgz").touch()
    ((status, found, _),) = data(tmp_path, params(data__source="cub"))
    assert (status, found) == ("ok", "cub: all 1 archives are on the disk")


def test_a_disk_too_small_for_the_archives_is_a_problem(tmp_path, params, monkeypatch):
    free = shutil._ntuple_diskusage(2**31, 0, 2**31)
    monkeypatch.setattr(project.shutil, "disk_usage", lambda _: free)
    (status, found, advice), _ = data(tmp_path, params(data__source="cub"), there)
    assert (status, found) == ("problem", "cub: 2.0 GiB free, and its archives have 1.1 GiB")
    assert advice.startswith("make room for 3.2 GiB")


@pytest.mark.parametrize(
    ("changes", "ask", "status", "found"),
    [
        ({"weights": "none"}, gone, "ok", "none: training starts at random"),
        (
            {"weights": "package", "backbone": "tf_efficientnet_lite0"},
            gone,
            "ok",
            "efficientnet-lite0-57934424.pth, out of a package",
        ),
        ({"weights": "mine.pt"}, gone, "problem", "model.weights: mine.pt is not a file"),
        (
            {"weights": "imagenet", "backbone": "resnet50"},
            gone,
            "problem",
            "https://download.pytorch.org/models/resnet50-0676ba61.pth cannot be fetched: no route",
        ),
        (
            {"weights": "imagenet", "backbone": "resnet50"},
            there,
            "ok",
            "resnet50-0676ba61.pth has to be fetched; there: download.pytorch.org",
        ),
    ],
)
def test_weights_are_there_or_can_be_had_or_the_place_for_them_is_named(
    params, monkeypatch, tmp_path, changes, ask, status, found
):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    changed = params(**{f"model__{name}": value for name, value in changes.items()})
    (finding,) = project.weights(changed, ask)
    assert (finding.status, finding.found) == (status, found)
    assert (finding.advice == "") == (status == "ok")


def test_weights_in_torchs_cache_are_not_asked_for(params, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    (tmp_path / "hub/checkpoints/resnet50-0676ba61.pth").touch()
    changed = params(model__weights="imagenet", model__backbone="resnet50")
    (finding,) = project.weights(changed, gone)
    assert finding.found == "resnet50-0676ba61.pth is in torch's cache"


def test_an_mlflow_server_is_asked_for_its_health_and_its_password_stays_unsaid(
    tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@tracking.example/")
    (finding,) = project.mlflow(tmp_path, lambda url: asked.append(url) or UNREACHABLE)
    assert asked == ["https://me:secret@tracking.example/health"]
    assert (finding.status, finding.found) == ("problem", "https://tracking.example/: no route")
    (finding,) = project.mlflow(tmp_path, there)
    assert finding.status == "ok"


@pytest.mark.slow
def test_dvc_needs_a_repository_and_says_how_much_of_the_lock_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", environment()["PATH"])
    for name in ("dvc.yaml", "dvc.lock"):
        (tmp_path / name).write_text("")
    (finding,) = project.dvc(tmp_path)
    assert (finding.status, finding.found) == ("problem", "no .dvc folder here")
    subprocess.run(["dvc", "init", "--no-scm", "--quiet"], cwd=tmp_path, check=True)
    here, away = "a" * 32, "b" * 32
    (tmp_path / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  one:\n    cmd: x\n    outs:\n"
        f"    - path: a\n      md5: {here}\n    - path: b\n      md5: {away}\n"
    )
    cached = tmp_path / ".dvc/cache/files/md5/aa" / here[2:]
    cached.parent.mkdir(parents=True)
    cached.touch()
    (finding,) = project.dvc(tmp_path)
    assert finding.status == "ok"
    assert finding.found.startswith("1 of 2 recorded outputs in ")


def test_untracked_code_is_named_case_82(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert list(project.untracked(tmp_path)) == []
    (tmp_path / "src").mkdir()
    for name in ("src/new.py", "notes.txt"):
        (tmp_path / name).touch()
    (finding,) = project.untracked(tmp_path)
    assert (finding.status, finding.found) == ("warning", "untracked: src/new.py")
