"""The command line: each mistake is one clear line and an exit code; nothing heavy is imported."""

import importlib.metadata
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from project import ROOT, edit_params, environment, make_project, run_command
from ruamel.yaml import YAML

from plmcl.inference import Tagger
from plmcl.methods import method_names
from plmcl.run_record import RunRecord

pytestmark = pytest.mark.slow


def plmcl(*arguments, cwd=ROOT):
    return run_command(sys.executable, "-m", "plmcl.cli", *map(str, arguments), cwd=cwd,
                       check=False, PYTHONPATH=str(ROOT / "src"))  # fmt: skip


@pytest.fixture
def plmcl_here(monkeypatch, capsys):
    """The same in this process, which has imported everything already: for the many mistakes."""
    from plmcl.cli import main

    def run(*arguments, cwd=ROOT):
        handler = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            patch.setattr(sys, "argv", ["plmcl", *map(str, arguments)])
            with pytest.raises(SystemExit) as ended:
                main()
        signal.signal(signal.SIGTERM, handler)
        code = ended.value.code or 0
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Forty little pictures: red ones, blue ones and both; ten carry no label."""
    folder = tmp_path_factory.mktemp("my photos")
    lines = ["image,labels"]
    for i in range(40):
        red, blue = i % 3 != 0, i % 3 != 1
        image = Image.new("RGB", (64, 48), (90 + i, 120, 90))
        if red:
            image.paste((250, 10, 10), (4, 4, 30, 30))
        if blue:
            image.paste((10, 10, 250), (34, 8, 60, 40))
        image.save(folder / f"my photo, {i}.png")
        labels = ";".join(name for name, there in (("red", red), ("NA", blue)) if there)
        if i < 30:
            lines.append(f'"my photo, {i}.png",{labels}')
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def tagger(photos, tmp_path_factory):
    """The folder that `plmcl fit` fills: real weights, two methods, positive labels only."""
    out = tmp_path_factory.mktemp("out") / "tagger"
    done = plmcl("fit", photos, "--labels", photos / "labels.csv", "--out", out,
                 "--method", "an", "--method", "plmcl")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (out / "printed.txt").write_text(done.stdout)
    return out


def test_fit_goes_from_a_folder_to_a_tagger_without_git_or_dvc(tagger):
    assert (tagger / "model.onnx").exists()
    assert (tagger / "report.html").exists()
    assert YAML().load(tagger / "params.yaml")["grid"]["methods"] == ["an", "plmcl"]


def test_a_real_backbone_with_real_weights_is_equal_in_onnx(tagger):
    parity = Tagger(tagger / "model.onnx").card.parity
    assert max(parity["max_difference"].values()) < 1e-5
    assert (tagger / "model.onnx").stat().st_size < 14e6


def test_fit_says_what_it_assumed_what_the_figures_mean_and_what_to_try(tagger):
    printed = (tagger / "printed.txt").read_text()
    assert "files: 40 ok" in printed
    assert "labels a photo: 1.5 (assumed; say better: --labels-per-photo K)" in printed
    assert "test mAP n/a, mean reciprocal rank of the known labels" in printed
    assert printed.count("any model has AP 1") == 1  # of two methods
    assert "label some images completely and set --unlisted to negative" in printed
    assert f"plmcl predict --model {tagger}/model.onnx" in printed


def test_predict_answers_one_line_a_file_with_label_score_threshold_and_decision(tagger, photos):
    """Case 104."""
    done = plmcl("predict", "--model", tagger / "model.onnx", photos)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 40
    assert {tag["label"] for tag in lines[0]["labels"]} == {"red", "NA"}
    for tag in lines[0]["labels"]:
        assert tag["decision"] == (tag["score"] >= tag["threshold"])


def test_predict_answers_the_rest_when_a_file_cannot_be_read_and_says_partial(
    tagger, photos, tmp_path
):
    good = photos / "my photo, 1.png"
    bad = tmp_path / "bad.jpg"
    bad.write_text("<html>404</html>")
    done = plmcl("predict", "--model", tagger / "model.onnx", bad, good, "--format", "csv")
    assert done.returncode == 3
    assert "1 of 2 could not be read" in done.stderr
    header, first, second = done.stdout.splitlines()
    assert header.startswith("file,error,labels")
    assert "HTML" in first
    assert "my photo, 1.png" in second


def test_predict_answers_a_folder_without_images_with_its_reason(tagger, photos, tmp_path):
    done = plmcl("predict", "--model", tagger / "model.onnx", tmp_path, photos / "my photo, 1.png")
    assert done.returncode == 3
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["file"] == str(tmp_path)
    assert "no images in" in first["error"]
    assert second["error"] is None


def test_the_folder_of_the_tagger_is_not_among_the_photos(photos, plmcl_here):
    done = plmcl_here("fit", photos, "--labels", photos / "labels.csv", "--out", photos / "tagger")
    refused(done, "lies among the photos")
    assert not (photos / "tagger").exists()


def refused(done, *parts):
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


def test_no_images(tmp_path, plmcl_here):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "notes.txt").write_text("x")
    refused(plmcl_here("fit", folder, "--out", tmp_path / "out"), "no images in", "suffix .txt")


def test_a_label_file_that_names_absent_images(photos, tmp_path, plmcl_here):
    names = [f"absent {i}.png" for i in range(9)]
    table = tmp_path / "labels.csv"
    table.write_text("image,labels\n" + "".join(f"{n},red\n" for n in names))
    done = plmcl_here("fit", photos, "--labels", table, "--out", tmp_path / "out")
    refused(done, "9", "absent 0.png")
    assert "absent 8.png" not in done.stderr


def test_an_unknown_method(photos, tmp_path, plmcl_here):
    done = plmcl_here("fit", photos, "--labels", photos / "labels.csv", "--out", tmp_path / "out",
                 "--method", "plmlc")  # fmt: skip
    assert done.returncode == 2
    assert f"--method plmlc: unknown method; known: {', '.join(method_names())}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_method_that_needs_negatives_says_so(photos, tmp_path, plmcl_here):
    done = plmcl_here("fit", photos, "--labels", photos / "labels.csv", "--out", tmp_path / "out",
                 "--method", "bce")  # fmt: skip
    refused(done, "bce needs observed negatives and given shows none")


def test_an_onnx_file_that_is_not_ours(photos, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "other.onnx")
    refused(plmcl("predict", "--model", tmp_path / "other.onnx", photos), "other.onnx")


@pytest.fixture
def small(tmp_path):
    return make_project(tmp_path / "small")


def test_an_unknown_data_set_and_an_unknown_key(small, plmcl_here):
    edit_params(small / "params.yaml", {"data.source": "coko"})
    done = plmcl_here("check", cwd=small)
    assert done.returncode == 2
    known = "coco, cub, folder, nuswide, scenes, voc"
    assert f"params.yaml: sources.coko: unknown source; known: {known}" in done.stderr
    edit_params(small / "params.yaml", {"data.source": "scenes", "train.threds": 2})
    done = plmcl_here("check", cwd=small)
    assert done.returncode == 2
    assert "train.threds: unknown key; did you mean 'threads'?" in done.stderr


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"backbone": "resnet5O"}, "model.backbone: unknown 'resnet5O'"),
        ({"backbone": "resnet50.bogus"}, "model.backbone: Invalid pretrained tag (bogus)"),
        ({"weights": "weights.pt"}, "model.weights: weights.pt is not a file"),
        ({"weights": "~nobody-here/w.pt"}, "model.weights: ~nobody-here/w.pt: Could not"),
        ({"weights": "package"}, "model.weights: no package holds weights of test_efficientnet"),
        (
            {"backbone": "levit_128", "weights": "imagenet"},
            "model.weights: timm publishes no state dict of levit_128",
        ),
    ],
)
def test_a_backbone_and_weights_that_cannot_be_had_are_said_before_anything_runs(
    small, plmcl_here, model, said
):
    edit_params(small / "params.yaml", {f"model.{key}": value for key, value in model.items()})
    refused(plmcl_here("check", cwd=small), f"params.yaml: {said}")


def test_params_can_be_checked_where_nothing_else_is(tmp_path, plmcl_here):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = plmcl_here("check", cwd=tmp_path)
    assert (done.returncode, done.stdout.partition(";")[0]) == (0, "params.yaml: ok")


def test_a_label_list_that_changed_since_training(small, plmcl_here):
    """Case 15: never a re-index in silence."""
    edit_params(small / "params.yaml", {"train.mode": "linear"})
    for stage in (["download"], ["ingest"], ["split"], ["train", "sspl-40", "an"]):
        assert plmcl_here(*stage, cwd=small).returncode == 0
    edit_params(small / "params.yaml", {"sources.scenes.labels": 5})
    shutil.rmtree(small / "data/raw/scenes")
    for stage in ("download", "ingest", "split"):
        assert plmcl_here(stage, cwd=small).returncode == 0
    refused(
        plmcl_here("evaluate", "sspl-40", "an", cwd=small),
        "the label list changed since training",
        "train again",
    )


@pytest.fixture
def runs(tmp_path):
    """A folder with reports/runs of two runs."""
    for name, weight, figure in (("fspl-an", None, 0.5), ("fspl-epr", 2.0, 0.625)):
        folder = tmp_path / "reports/runs" / name
        folder.mkdir(parents=True)
        params = {"seed": 0} if weight is None else {"seed": 0, "methods.epr.weight": weight}
        RunRecord(name=name, experiment="x", params=params, tags={"torch": "2"}).write(
            folder / "run.json"
        )
        (folder / "metrics.json").write_text(json.dumps({"mAP": figure, "labels": 5}))
    return tmp_path


def test_diff_prints_what_differs_between_two_runs_in_columns(runs):
    done = plmcl("diff", "fspl-an", "reports/runs/fspl-epr", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "                    fspl-an  reports/runs/fspl-epr\n"
        "methods.epr.weight  (none)   2.0\n"
        "test/mAP            0.5      0.625\n"
    )


def test_diff_says_that_nothing_differs(runs, plmcl_here):
    done = plmcl_here("diff", "fspl-an", runs / "reports/runs/fspl-an", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no difference: same parameters, data, code, versions and figures\n"


def test_diff_refuses_what_is_no_run_by_its_file(runs, plmcl_here):
    refused(plmcl_here("diff", "fspl-an", "fspl-apr", cwd=runs), "fspl-apr/run.json: not found")
    refused(plmcl_here("diff", runs, "fspl-an", cwd=runs), f"{runs}/run.json: not found")
    (runs / "reports/runs/fspl-epr/metrics.json").write_text("[]")
    refused(plmcl_here("diff", "fspl-an", "fspl-epr", cwd=runs), "fspl-epr/metrics.json: ")


def test_a_service_without_a_model_says_what_to_name(tmp_path, plmcl_here):
    done = plmcl_here("serve", cwd=tmp_path)
    refused(done, "models/production/champion/model.onnx: no model is in production", "--model")


def test_the_version_is_the_packages(plmcl_here):
    done = plmcl_here("--version")
    assert (done.returncode, done.stdout) == (0, f"plmcl {importlib.metadata.version('plmcl')}\n")


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from typer.testing import CliRunner; from plmcl.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "print([m for m in ('torch', 'pandas', 'mlflow', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_every_command_has_help():
    from typer.testing import CliRunner

    from plmcl.cli import app

    runner = CliRunner()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert runner.invoke(app, [name, "--help"]).exit_code == 0, name
    assert shutil.which("plmcl", path=str(Path(sys.executable).parent)), "console script"
