"""The examples on the pages are run as they stand there."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from pages import blocks, column, read, tables
from PIL import Image
from project import run_command
from tables import manifest

from plmcl.evaluation import difficult_both_ways, evaluate
from plmcl.labels.settings import Setting, make_draws, observe

# ----------------------------------------------------------------------------- docs/settings.md


def test_the_four_images_of_the_settings_page_are_what_the_code_shows():
    page = read("docs/settings.md")
    shows, drawn, shown = tables(page)[1:4]
    names = ["airplane", "anchor", "umbrella"]
    values = {(row["image"], name): 1 for row in shows for name in names if row[name] == "1"}
    ids = pd.Series([row["image"] for row in shows], dtype="str")
    truth = manifest(ids.tolist(), values, names)
    splits = pd.DataFrame({"image_id": ids, "split": pd.Series(["train"] * 4, dtype="str")})
    draws = make_draws(truth, ids, seed=2, draw="hash")

    expected = [(row["image"], row["positive drawn"], int(row["turn"])) for row in drawn]
    found = list(draws.itertuples(index=False, name=None))
    assert [(i, "none: it has no positive" if label == "" else label, turn)
            for i, label, turn in found] == expected  # fmt: skip

    assert "given" not in column(page, "setting")[1]
    for row in shown:
        setting = Setting.parse(row["setting"].strip("`"))
        observed = observe(setting, truth=truth, splits=splits, draws=draws, seed=2)
        cells = {(r.image_id, r.label): str(r.value) for r in observed.itertuples()}
        for image_id in ids:
            said = " ".join(cells.get((image_id, name), ".") for name in names)
            assert row[image_id] == said, (setting, image_id)


# ----------------------------------------------------------------------------- docs/pipeline.md


def test_the_figures_are_those_in_metrics_json():
    known = np.ones((2, 2), dtype=bool)
    probs = np.array([[0.9, 0.2], [0.3, 0.8]])
    both_ways = set(difficult_both_ways(np.eye(2), known, ~known, probs))
    (listed,) = column(read("docs/pipeline.md"), "in metrics.json")
    assert {name for cell in listed for name in cell.replace("`", "").split(", ")} == {
        *evaluate(np.eye(2), known, probs).metrics, *both_ways, "files_not_used",
        "brier_uncalibrated", "brier", "labels_calibrated", "calibration_error",
        "precision", "recall", "f1",
    }  # fmt: skip
    assert set(*column(read("docs/settings.md"), "in metrics.json")) == both_ways


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
