"""From real photographs to a tagger."""

import json
import shutil

import numpy as np
import onnx
import pandas as pd
import pytest

from plmcl.inference import Tagger, tag_files
from plmcl.methods import method_names
from plmcl.stages import check
from plmcl.stages.fit import run, write_params
from plmcl.stages.request import Request, survey


@pytest.mark.slow
def test_photographs_of_which_few_carry_one_label_become_a_tagger(photos5, tmp_path, capsys):
    """Every fifth photo, SSPL at 40 %: 78 of 194 in training show one label, all are measured."""
    photos = tmp_path / "photos"
    photos.mkdir()
    header, *lines = (photos5 / "labels.csv").read_text().splitlines(keepends=True)
    for line in lines[::5]:
        shutil.copy(photos5 / "images" / line.split(",")[0], photos)
    (tmp_path / "labels.csv").write_text("".join([header, *lines[::5]]))
    request = Request(
        photos=photos,
        labels=tmp_path / "labels.csv",
        unlisted="negative",
        setting="sspl-40",
        methods=["epr"],
    )
    tagger = run(request, survey(request, tmp_path / "tagger"), tmp_path / "tagger")
    printed = capsys.readouterr().out
    assert "files: 302 ok" in printed
    assert "194 train images" in printed
    assert "78 labeled images" in printed
    metrics = json.loads((tmp_path / "tagger/reports/runs/sspl-40-epr/metrics.json").read_text())
    assert metrics["images_scored"] == 60
    # Chance is the mean share of positives, 0.27.
    assert metrics["mAP"] > 0.8
    card = Tagger(tagger).card
    assert card.label_names == ["bus", "car", "cat", "person", "train"]
    assert (card.setting, card.method) == ("sspl-40", "epr")
    assert len(onnx.load(tagger).graph.output) == 1
    # What evaluation scored with torch is what the file gives, from the photos on.
    scores = pd.read_parquet(tmp_path / "tagger/reports/runs/sspl-40-epr/predictions.parquet")
    expected = scores.pivot(index="image_id", columns="label", values="score")[card.label_names]
    predictions = list(
        tag_files(Tagger(tagger), [photos / name for name in expected.index], batch_size=16)
    )
    served = np.array([[tag.score for tag in p.labels] for p in predictions])
    decisions = np.array([[tag.decision for tag in p.labels] for p in predictions])
    np.testing.assert_allclose(served, expected, atol=1e-4)
    np.testing.assert_array_equal(decisions, expected.to_numpy() >= card.thresholds)
    # The first photo that the truth calls a train, through the file alone.
    (prediction,) = tag_files(Tagger(tagger), [photos5 / "images/000001.jpg"], batch_size=1)
    scores = {tag.label: tag.score for tag in prediction.labels}
    assert max(scores, key=scores.get) == "train"


def test_the_params_of_a_fit_hold_every_method_and_can_be_used_by_the_stages(tmp_path):
    request = Request(
        photos=tmp_path,
        labels=None,
        unlisted="unknown",
        setting="given",
        methods=["plmcl", "epr"],
        fine_tune=True,
    )
    params = write_params(request, tmp_path / "params.yaml")
    check.run(params)
    assert sorted(params.methods) == method_names()
    assert params.grid.methods == ("plmcl", "epr")
    assert params.train.mode == "linear_init"
