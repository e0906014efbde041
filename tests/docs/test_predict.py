"""The columns on the page of prediction are those that are written, and its example runs."""

import numpy as np
from pages import blocks, column, read
from PIL import Image
from tiny_model import SIZE, make_model

from plmcl.inference import Tagger
from plmcl.scoring.formats import COLUMNS
from plmcl.scoring.inputs import Input
from plmcl.scoring.shards import Output, Scoring, cut
from plmcl.session import CPU

PAGE = read("docs/predict.md")


def test_the_columns_are_those_that_are_written():
    assert column(PAGE, "in the file") == [list(COLUMNS)]


def test_the_example_reads_what_the_index_lists(tmp_path, monkeypatch):
    pixels = np.full((SIZE, SIZE, 3), (255, 0, 0), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "red.png")
    inputs = [Input(f"{number}.png", str(tmp_path / "red.png")) for number in range(7)]
    tagger = Tagger(make_model(tmp_path / "model.onnx"), providers=[CPU], threads=1)
    scoring, output = Scoring(tagger.sha256, 4, "cpu"), Output(str(tmp_path / "scores"))
    shards = [(scoring.shard_name(shard), shard) for shard in cut(inputs, 2)]
    for _, shard in shards:
        output.score(tagger, scoring, shard, {}, threads=1)
    output.score(tagger, scoring, inputs[:1], {}, threads=1)  # of a run without an index
    output.write_index(iter(shards))
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(PAGE, "python")
    names = {}
    exec(example, names)
    rows = names["table"].to_pylist()
    assert sorted(row["file"] for row in rows) == [f"{number}.png" for number in range(7)]
    assert all(row["labels"] == ["red"] and row["error"] is None for row in rows)
