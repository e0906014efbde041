"""The examples on the pages are run as they stand there."""

import importlib
import math
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from pages import blocks, column, read, tables
from PIL import Image
from project import ROOT, SMALL, edit_params, run_command
from ruamel.yaml import YAML

from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import label_table
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate
from plmcl.labels.settings import Setting, make_draws, observe
from plmcl.methods.base import Schedule
from plmcl.params import load_params
from plmcl.stages import check, download, ingest, split, train
from plmcl.stages.paths import Paths

# ----------------------------------------------------------------------------- docs/settings.md


def test_the_four_images_of_the_settings_page_are_what_the_code_shows():
    page = read("docs/settings.md")
    truth, drawn, shown = tables(page)[1:4]
    names = ["bus", "car", "cat"]
    values = {(row["image"], name): 1 for row in truth for name in names if row[name] == "1"}
    ids = pd.Series([row["image"] for row in truth], dtype="str")
    manifest = Manifest(pd.DataFrame(), label_table(values), names, "negative")
    splits = pd.DataFrame({"image_id": ids, "split": pd.Series(["train"] * 4, dtype="str")})
    draws = make_draws(manifest.labels, ids, seed=2)

    expected = [(row["image"], row["positive drawn"], int(row["turn"])) for row in drawn]
    found = list(draws.itertuples(index=False, name=None))
    assert [(i, "none: it has no positive" if label == "" else label, turn)
            for i, label, turn in found] == expected  # fmt: skip

    assert "given" not in column(page, "setting")[1]
    for row in shown:
        setting = Setting.parse(row["setting"].strip("`"))
        observed = observe(setting, truth=manifest, splits=splits, draws=draws, seed=2)
        cells = {(r.image_id, r.label): str(r.value) for r in observed.itertuples()}
        for image_id in ids:
            said = " ".join(cells.get((image_id, name), ".") for name in names)
            assert row[image_id] == said, (setting, image_id)


# ----------------------------------------------------------------------------- docs/pipeline.md


def test_the_figures_are_those_in_metrics_json():
    known = np.ones((2, 2), dtype=bool)
    metrics = evaluate(np.eye(2), known, np.array([[0.9, 0.2], [0.3, 0.8]])).metrics
    cells = column(read("docs/pipeline.md"), "in metrics.json")[0]
    assert {name for cell in cells for name in cell.replace("`", "").split(", ")} == set(metrics)


# ------------------------------------------------------------------------------- docs/extend.md

METHOD, SOURCE = blocks(read("docs/extend.md"), "python")
METHOD_PARAMS, SOURCE_PARAMS = blocks(read("docs/extend.md"), "yaml")


def install(monkeypatch, package, folder):
    """Let a package have modules in another folder as well, as if they were its own."""
    module = importlib.import_module(package)
    monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
    return module


def sections(text, name):
    return YAML(typ="safe").load(text)[name]


@pytest.fixture
def ensembling(monkeypatch, tmp_path):
    (tmp_path / "ensembling.py").write_text(METHOD)
    methods = install(monkeypatch, "plmcl.methods", tmp_path)
    assert "ensembling" in methods.method_names()
    yield methods.make_method("ensembling", sections(METHOD_PARAMS, "methods"))
    del sys.modules["plmcl.methods.ensembling"]


def test_the_new_method_is_the_loop_over_its_entries(ensembling):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, generator=generator, requires_grad=True)
    targets = (torch.rand(4, 3, generator=generator) < 0.5).float()
    observed = torch.rand(4, 3, generator=generator) < 0.5
    labels = ensembling.initial_state(targets, observed)
    for _ in range(2):
        labels = ensembling.update(logits, targets, observed, labels)
    assert not labels["mean"].requires_grad
    value = ensembling.loss(
        logits, targets, observed, labels, schedule=Schedule(3, 4), positives_per_image=1.5
    )
    total = count = 0.0
    for row in range(4):
        for column_ in range(3):
            p = float(torch.sigmoid(logits.detach()[row, column_]))
            mean = 0.6 * (0.6 * 0.5 + 0.4 * p) + 0.4 * p
            assert float(labels["mean"][row, column_]) == pytest.approx(mean)
            known = bool(observed[row, column_])
            target = float(targets[row, column_]) if known else mean
            entry = -target * math.log(p) - (1 - target) * math.log(1 - p)
            total += entry if known else 0.75 * entry
            count += p
    expected = total / 12 + ((count / 4 - 1.5) / 3) ** 2
    assert float(value.detach()) == pytest.approx(expected, rel=1e-5)


@pytest.fixture
def jsonl(monkeypatch, tmp_path):
    package = tmp_path / "sources" / "jsonl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    sources = install(monkeypatch, "plmcl.data.sources", package.parent)
    assert "jsonl" in sources.source_names()
    yield sources.make_source("jsonl", sections(SOURCE_PARAMS, "sources"))
    del sys.modules["plmcl.data.sources.jsonl"]


@pytest.fixture
def three_states(tmp_path):
    folder = tmp_path / "inputs"
    (folder / "a").mkdir(parents=True)
    for name in ("a/b.jpg", "c.jpg", "d.jpg"):
        Image.new("RGB", (40, 40), "teal").save(folder / name)
    lines = ['{"image": "a/b.jpg", "yes": ["cat"], "no": ["dog"]}', '{"image": "c.jpg"}']
    (folder / "labels.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_new_source_reads_yes_no_and_unknown(jsonl, three_states, tmp_path):
    raw = tmp_path / "raw"
    jsonl.download(three_states, raw, seed=0)
    found = jsonl.annotations(raw)
    assert found.files == ["a/b.jpg", "c.jpg", "d.jpg"]
    assert (found.label_names, found.unlisted) == (["cat", "dog"], "unknown")
    assert found.ignored == {"suffix .jsonl": 1}
    assert list(found.labels.itertuples(index=False, name=None)) == [
        ("a/b.jpg", "cat", 1),
        ("a/b.jpg", "dog", 0),
    ]


def test_the_new_source_copies_nothing_when_an_image_is_absent(jsonl, three_states, tmp_path):
    (three_states / "labels.jsonl").write_text('{"image": "e.jpg", "yes": ["cat"]}\n')
    with pytest.raises(PlmclError, match=r"labels\.jsonl, line 1: no image 'e\.jpg'"):
        jsonl.download(three_states, tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


@pytest.mark.slow
def test_both_go_through_the_stages(ensembling, jsonl, tmp_path):
    """The new method on the new source, from the download to the pseudo labels that are kept."""
    project = tmp_path / "project"
    inputs = project / "data/inputs"
    inputs.mkdir(parents=True)
    lines = []
    for number in range(40):
        colour = (250, 30, number) if number % 2 else (number, 30, 250)
        Image.new("RGB", (40, 40), colour).save(inputs / f"{number}.png")
        words = ["red", "blue"] if number % 2 else ["blue", "red"]
        lines.append(f'{{"image": "{number}.png", "yes": ["{words[0]}"], "no": ["{words[1]}"]}}')
    (inputs / "labels.jsonl").write_text("\n".join(lines) + "\n")
    new = {"methods.ensembling": sections(METHOD_PARAMS, "methods")["ensembling"]}
    new |= {"sources.jsonl": sections(SOURCE_PARAMS, "sources")["jsonl"]}
    new |= {"data.source": "jsonl", "labels.per_image": 1.0}
    new |= {"grid": {"settings": ["given"], "methods": ["ensembling"]}}
    shutil.copy(ROOT / "params.yaml", project / "params.yaml")
    edit_params(project / "params.yaml", SMALL | new)
    params = load_params(project / "params.yaml")
    paths = Paths.of_project(project, "jsonl")
    check.run(params)
    download.run(paths, params)
    ingest.run(paths, params)
    split.run(paths, params, ["given"])
    train.run(paths, params, "given", "ensembling", track=False)
    state = np.load(paths.model("given", "ensembling") / "labels" / "mean.npy")
    assert state.shape == (26, 2)  # 40, less 8 for the test and 6 for the validation split
    assert (state != 0.5).all()


# --------------------------------------------------------------------------------- docs/onnx.md


@pytest.mark.slow
def test_the_snippet_without_plmcl_gives_what_predict_gives(tmp_path):
    from plmcl.card import Card
    from plmcl.data.images import Recipe, load
    from plmcl.export import export_onnx
    from plmcl.inference import Tagger, tag_files
    from plmcl.models import build_classifier

    recipe = Recipe(size=48, background=(255, 255, 255), max_pixels=10**6)
    rng = np.random.default_rng(0)
    files = []
    for number in range(8):
        pixels = rng.integers(0, 256, (60, 90, 3), dtype=np.uint8)
        exif = Image.Exif()
        exif[0x0112] = number % 8 + 1
        files.append(tmp_path / f"{number}.jpg")
        Image.fromarray(pixels).save(files[-1], exif=exif)
    images = np.stack([load(file, recipe) for file in files])
    model = build_classifier("test_efficientnet", num_labels=3, seed=0)
    with torch.no_grad():
        probs = torch.sigmoid(model.eval()(torch.from_numpy(images))).numpy()
    card = Card(
        label_names=["sea", "a;b", "NA"],
        thresholds=np.median(probs, axis=0),
        threshold_rules=["median"] * 3,
        recipe=recipe,
        setting="given",
        method="an",
        data_sha256="",
        splits_sha256="",
        code_commit="",
        run_id="",
        parity={},
    )
    path = tmp_path / "model.onnx"
    export_onnx(model, card, images, path, tolerance=1e-4)
    (snippet,) = blocks(read("docs/onnx.md"), "python")
    (tmp_path / "snippet.py").write_text(snippet)
    done = run_command(sys.executable, "snippet.py", path.name, *[f.name for f in files],
                       cwd=tmp_path)  # fmt: skip
    expected = [
        f"{file.name} {[tag.label for tag in prediction.labels if tag.decision]}"
        for file, prediction in zip(
            files, tag_files(Tagger(path), files, batch_size=8), strict=True
        )
    ]
    assert done.stdout.splitlines() == expected
