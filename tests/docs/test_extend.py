"""The method, the label format and the source on docs/extend.md do what the page says."""

import importlib
import math
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from docs.photographs import folder_source, rows, write_photos
from pages import blocks, read
from PIL import Image
from project import ROOT, SMALL, edit_params, run_to_splits
from ruamel.yaml import YAML

from plmcl.errors import PlmclError
from plmcl.methods.base import Batch, Context
from plmcl.params import load_params
from plmcl.stages import check, train

METHOD, FORMAT, SOURCE = blocks(read("docs/extend.md"), "python")
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
    context = Context(epoch=3, epochs=4, step=0, learning_rate=1e-3, positives_per_image=1.5)
    batch = Batch(logits, targets, observed, ensembling.initial_state(targets, observed))
    for _ in range(2):
        batch = replace(batch, labels=ensembling.update(batch, context))
    labels = batch.labels
    assert not labels["mean"].requires_grad
    value = ensembling.loss(batch, context)
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
    package = tmp_path / "formats"
    package.mkdir()
    (package / "jsonl.py").write_text(FORMAT)
    formats = install(monkeypatch, "plmcl.data.formats", package)
    assert "jsonl" in formats.format_names()
    yield
    del sys.modules["plmcl.data.formats.jsonl"]


def label_lines(folder, *lines):
    write_photos(folder, ["a/b.jpg", "c.jpg", "d.jpg"])
    (folder / "labels.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.usefixtures("jsonl")
def test_the_new_format_reads_yes_no_and_unknown(tmp_path):
    lines = ('{"image": "a/b.jpg", "yes": ["cat"], "no": ["dog"]}', '{"image": "c.jpg"}')
    label_lines(tmp_path / "inputs", *lines)
    source = folder_source(labels="labels.jsonl", unlisted="negative")
    source.download(tmp_path / "inputs", tmp_path / "raw", seed=0)
    found = source.annotations(tmp_path / "raw")
    assert found.files == ["a/b.jpg", "c.jpg", "d.jpg"]
    assert (found.label_names, found.unlisted, found.passed_over) == (["cat", "dog"], "unknown", [])
    assert rows(found.labels) == [("a/b.jpg", "cat", 1), ("a/b.jpg", "dog", 0)]


@pytest.mark.usefixtures("jsonl")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"image": "e.jpg", "yes": ["cat"]}', "1 of 2 images found .*not there: 'e.jpg'"),
        ('{"image": "c.jpg", "yes": "cat"}', "line 2, yes: must be a list, found 'cat'"),
        ('{"yes": ["cat"]}', "line 2, image: must be a text, found null"),
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
    ],
)
def test_the_new_format_refuses_what_breaks_its_rules(tmp_path, line, says):
    label_lines(tmp_path, '{"image": "a/b.jpg", "yes": ["cat"]}', line)
    with pytest.raises(PlmclError, match=says):
        folder_source(labels="labels.jsonl").annotations(tmp_path)


@pytest.fixture
def named(monkeypatch, tmp_path):
    package = tmp_path / "sources" / "named"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    sources = install(monkeypatch, "plmcl.data.sources", package.parent)
    assert "named" in sources.source_names()
    yield sources.make_source("named", sections(SOURCE_PARAMS, "sources"))
    del sys.modules["plmcl.data.sources.named"]


def test_the_new_source_reads_split_and_labels_of_each_name(named, tmp_path):
    inputs, raw = tmp_path / "inputs", tmp_path / "raw"
    write_photos(inputs, ["train/sea+sand.0001.jpg", "test/building.0002.jpg"])
    (inputs / "notes.txt").touch()
    named.download(inputs, raw, seed=0)
    found = named.annotations(raw)
    assert found.files == ["test/building.0002.jpg", "train/sea+sand.0001.jpg"]
    assert list(found.splits.values()) == ["test", "train"]
    assert (found.label_names, found.unlisted) == (["building", "sand", "sea"], "negative")
    assert rows(found.labels) == [
        ("test/building.0002.jpg", "building", 1),
        ("train/sea+sand.0001.jpg", "sand", 1),
        ("train/sea+sand.0001.jpg", "sea", 1),
    ]
    assert [entry.path for entry in named.annotations(inputs).passed_over] == ["notes.txt"]


def test_the_new_source_copies_nothing_when_something_is_wrong(named, tmp_path):
    write_photos(tmp_path / "inputs", ["train/sea.jpg", "more/sand.jpg"])
    with pytest.raises(PlmclError, match=r"sand\.jpg: must lie in train or test"):
        named.download(tmp_path / "inputs", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


@pytest.mark.slow
def test_both_go_through_the_stages(ensembling, named, tmp_path):
    """The new method on the new source, from the download to the pseudo labels that are kept."""
    project = tmp_path / "project"
    inputs = project / "data/inputs"
    for number in range(40):
        colour = (250, 30, number) if number % 2 else (number, 30, 250)
        split_name, label = "test" if number < 8 else "train", "red" if number % 2 else "blue"
        path = inputs / split_name / f"{label}.{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), colour).save(path)
    new = {"methods.ensembling": sections(METHOD_PARAMS, "methods")["ensembling"]}
    new |= {"sources.named": sections(SOURCE_PARAMS, "sources")["named"]}
    new |= {"data": sections(SOURCE_PARAMS, "data")}
    new |= {"grid": {"settings": ["sspl-40"], "methods": ["ensembling"]}}
    shutil.copy(ROOT / "params.yaml", project / "params.yaml")
    edit_params(project / "params.yaml", SMALL | new)
    check.run(load_params(project / "params.yaml"))
    params, paths = run_to_splits(project)
    train.run(paths, params, "sspl-40", "ensembling", track=False)
    state = np.load(paths.model("sspl-40", "ensembling") / "labels" / "mean.npy")
    assert state.shape == (26, 2)  # 32 to train on, less 6 for the validation split
    assert (state != 0.5).all()
