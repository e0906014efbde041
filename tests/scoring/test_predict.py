import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tiny_model import make_card, make_model

from plmcl.errors import PlmclError
from plmcl.inference import tag_files, to_json_line
from plmcl.scoring.predict import predict
from plmcl.session import CPU

OPTIONS = {"output": None, "batch_size": 4, "providers": [CPU], "require_gpu": False}


@pytest.fixture
def expected(tagger, photos):
    files = sorted(str(path) for path in photos.rglob("[!.]*.[pj]*g"))
    return [to_json_line(p) for p in tag_files(tagger, files, batch_size=4)]


def test_the_three_formats_say_the_same(model, photos, tmp_path, expected):
    for name in ("tags.jsonl", "tags.csv", "tags.parquet"):
        outcome = predict([str(photos)], model, out=tmp_path / name, **OPTIONS)
        assert (outcome.listed.total, outcome.errors) == (25, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tags.csv", "tags.jsonl", "tags.parquet",
    ]  # fmt: skip
    assert (tmp_path / "tags.jsonl").read_text().splitlines() == expected
    with (tmp_path / "tags.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "tags.parquet").to_pylist()
    for line, row, cells in zip(map(json.loads, expected), rows, table, strict=True):
        assert row["file"] == cells["file"] == line["file"]
        assert (row["error"] or None) == cells["error"] == line["error"]
        assert json.loads(row["scores"]) == line["labels"]
        assert [(c["label"], c["score"], c["decision"]) for c in cells["scores"]] == [
            (t["label"], float(np.float32(t["score"])), t["decision"]) for t in line["labels"]
        ]


def test_standard_output_gets_lines_as_a_file_does(model, photos, capfdbinary, expected):
    outcome = predict([str(photos)], model, out=None, **OPTIONS)
    assert capfdbinary.readouterr().out.decode().splitlines() == expected
    assert outcome.errors == 1


def test_a_list_on_standard_input_is_answered_line_for_line(model, photos, tmp_path, monkeypatch):
    odd = os.fsencode(tmp_path) + b"/caf\xe9\n.png"
    shutil.copy(photos / "a/02.png", odd)
    given = odd + b"\0" + bytes(photos / "b/broken.jpg") + b"\0"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    outcome = predict(["-", str(photos / "a/02.png")], model, out=tmp_path / "t.jsonl", **OPTIONS)
    assert (outcome.listed.total, outcome.errors) == (3, 1)
    first, broken, last = map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines())
    assert first["file"] == f"{tmp_path}/caf\\udce9\n.png"
    assert first["labels"] == last["labels"]
    assert broken["error"] == "not_an_image: looks like HTML or XML"


def test_an_address_gives_what_the_files_give(model, photos, tmp_path, expected):
    import fsspec

    files = fsspec.filesystem("memory")
    files.put(str(photos), "/p", recursive=True)
    try:
        predict(["memory://p"], model, out=tmp_path / "t.jsonl", **OPTIONS)
    finally:
        files.rm("/", recursive=True)
    text = (tmp_path / "t.jsonl").read_text()
    assert text.replace("memory://p/", f"{photos}/").splitlines() == expected


def test_options_that_cannot_work_are_refused(model, photos, tmp_path):
    with pytest.raises(PlmclError, match="--format parquet: needs --out FILE"):
        predict([str(photos)], model, out=None, **OPTIONS | {"output": "parquet"})
    with pytest.raises(PlmclError, match="standard input can be read once only"):
        predict(["-", "-"], model, out=None, **OPTIONS)
    with pytest.raises(PlmclError, match="expected a suffix"):
        predict([str(photos)], model, out=tmp_path / "tags.txt", **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_case_93_a_provider_that_is_not_there_is_refused_and_nothing_written(
    model, photos, tmp_path
):
    with pytest.raises(PlmclError, match="asked for CUDAExecutionProvider"):
        predict(
            [str(photos)], model, out=tmp_path / "t.csv",
            **OPTIONS | {"providers": ["CUDAExecutionProvider"]},
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------- restarting


def start(model, out, *arguments):
    command = [sys.executable, "-m", "plmcl.cli", "predict", "--model", model, "--out", out]
    return subprocess.Popen(
        [*command, "--batch-size", "4", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """1,200 names of one image that takes a while; each seventh is of none."""
    folder = tmp_path_factory.mktemp("many")
    pixels = np.random.default_rng(1).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((99, 101)).save(folder / "0000.png", optimize=True)
    for number in range(1, 1200):
        path = folder / f"{number:04}.png"
        if number % 7:
            path.symlink_to("0000.png")
        else:
            path.touch()
    return folder


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_bytes_of_one_that_was_not(model, many, tmp_path):
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    outcome = predict([str(many)], model, out=whole, **OPTIONS)
    assert outcome.errors == 171

    answers = tmp_path / "killed.parquet.partial/answers.jsonl"
    process = start(model, killed, many)
    while process.poll() is None and not (answers.exists() and answers.stat().st_size > 2**15):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was over before it could be killed"
    assert not killed.exists()
    left = answers.read_bytes()
    # A torn line, as a kill may leave it at any place.
    answers.write_bytes(left[:-7])
    kept = left[:-7].count(b"\n") // 4 * 4
    assert 0 < kept < 1100

    other = make_model(tmp_path / "other.onnx", make_card(method="an"))
    with pytest.raises(PlmclError, match="begun with another model"):
        predict([str(many)], other, out=killed, **OPTIONS)
    (many / "later.png").symlink_to("0000.png")  # the inputs are those of the first start
    try:
        process = start(model, killed, many)
        _, said = process.communicate()
    finally:
        (many / "later.png").unlink()
    assert process.returncode == 3
    assert "171 of 1200 could not be read" in said
    assert killed.read_bytes() == whole.read_bytes()
    assert not answers.parent.exists()


def test_a_run_that_was_killed_at_the_very_end_is_finished(model, photos, tmp_path, monkeypatch):
    from plmcl.scoring.partial import Partial

    def kill(*_):
        raise KeyboardInterrupt

    out = tmp_path / "t.csv"
    with monkeypatch.context() as patch:
        patch.setattr(Partial, "finish", kill)
        with pytest.raises(KeyboardInterrupt):
            predict([str(photos)], model, out=out, **OPTIONS)
    assert predict([str(photos)], model, out=out, **OPTIONS).errors == 1
    again = tmp_path / "again.csv"
    predict([str(photos)], model, out=again, **OPTIONS)
    assert out.read_bytes() == again.read_bytes()


def test_another_list_is_refused_for_what_a_run_has_begun(model, photos, tmp_path, monkeypatch):
    from plmcl.scoring.partial import Partial

    def kill(*_):
        raise KeyboardInterrupt

    def run(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        return predict(["-"], model, out=tmp_path / "t.jsonl", **OPTIONS)

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "finish", kill)
        with pytest.raises(KeyboardInterrupt):
            run(bytes(photos / "a/02.png"))
    with pytest.raises(PlmclError, match="begun with another list"):
        run(bytes(photos / "c/00.png"))
    assert run(bytes(photos / "a/02.png")).listed.total == 1
