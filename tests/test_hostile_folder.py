"""All hostile files among 1,000 good ones: exactly the usable are trained on, measured, tagged."""

import csv
import json
import re
import shutil
import sys
from typing import NamedTuple

import pandas as pd
import pytest
from data.hostile import POSSIBLE, build
from data.image_bytes import drawn
from PIL import Image
from project import ROOT, SMALL, edit_params, run_command

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.statuses import USABLE
from plmcl.labels.store import LabelStore
from plmcl.params import load_params
from plmcl.stages import evaluate, export, ingest, split, train
from plmcl.stages.paths import Paths

pytestmark = pytest.mark.slow

GOOD = 1000
SETTING, METHOD = "sspl-40", "plmcl"
LABELS = {"red": (255, 0, 0), "blue": (0, 0, 255), "NA": (255, 255, 0)}
# Passed over by name, so that a file of labels cannot name them.
BY_NAME = ("hidden", "other_file", "unreadable_name", "outside_root", "link", "not_a_file")


class Run(NamedTuple):
    """What the stages made of the folder."""

    paths: Paths
    printed: str
    predicted: dict[str, str | None]
    stderr: str

    @property
    def usable(self) -> set[str]:
        """The good files, and the hostile ones that are said to be usable."""
        return {good(i) for i in range(GOOD)} | {
            row.path for row in POSSIBLE if row.status in USABLE
        }


def good(number: int) -> str:
    return f"good/{number:04d}.png"


def labels_of(number: int) -> list[str]:
    # Two of three labels, in turn; every tenth image has none.
    return [] if number % 10 == 9 else [n for i, n in enumerate(LABELS) if i != number % 3]


def picture(number: int) -> Image.Image:
    """A drawn picture with a band of colour for each label."""
    image = drawn(10_000 + number)
    for place, name in enumerate(LABELS):
        if name in labels_of(number):
            image.paste(LABELS[name], (16 * place, 0, 16 * place + 12, 10))
    return image


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Everything from ingest to `plmcl predict`, once."""
    folder = tmp_path_factory.mktemp("hostile")
    photos, out = folder / "photos", folder / "out"
    build(photos)
    (photos / "good").mkdir()
    for number in range(GOOD):
        picture(number).save(photos / good(number))
    listed = [row for row in POSSIBLE if row.status not in BY_NAME]
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "labels"])
        table.writerows([good(i), ";".join(labels_of(i))] for i in range(GOOD))
        # Whoever wrote the labels did not know that some files are broken.
        table.writerows([row.path, "red"] for row in listed)
    out.mkdir()
    shutil.copy(ROOT / "params.yaml", out)
    changes = {
        "data.source": "folder",
        "sources.folder.labels": str(folder / "labels.csv"),
        "sources.folder.unlisted": "negative",
        "train.mode": "linear",
    }
    edit_params(out / "params.yaml", SMALL | changes)
    params, paths = load_params(out / "params.yaml"), Paths.of_photos(out, photos)
    printed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *texts, **_: printed.append(" ".join(texts)))
        ingest.run(paths, params)
        split.run(paths, params, [SETTING])
        train.run(paths, params, SETTING, METHOD, track=False)
        evaluate.run(paths, params, SETTING, METHOD, track=False)
        model = export.run(paths, params, SETTING, METHOD)
    done = run_command(
        sys.executable, "-m", "plmcl.cli", "predict", "--model", str(model), str(photos),
        cwd=folder, check=False, PYTHONPATH=str(ROOT / "src"),
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    predicted = {line["file"].removeprefix(f"{photos}/"): line["error"] for line in lines}
    assert len(predicted) == len(lines)
    return Run(paths, "\n".join(printed), predicted, done.stderr)


def ids(path: str, run: Run) -> set[str]:
    return set(pd.read_parquet(run.paths.root / path)["image_id"])


def test_every_hostile_file_has_the_status_of_the_table(run):
    images = Manifest.read(run.paths.manifests).images.set_index("image_id")
    expected = {row.path: row.status for row in POSSIBLE if row.status not in BY_NAME}
    found = images["status"][~images.index.str.startswith("good/")].to_dict()
    assert found == expected


def test_the_files_add_up(run):
    first, aside, second, *_ = run.printed.splitlines()
    assert aside.startswith("set aside, 65: 'answer.jpg (not_an_image)', ")
    by_status = sum(int(count) for count in re.findall(r"(\d+) \w", first.partition(": ")[2]))
    assert first.startswith("files: ")
    by_name = sum(int(count) for count in re.findall(r"(\d+) x ", second))
    assert second.startswith("passed over by name: ")
    assert by_status + by_name == GOOD + len(POSSIBLE)
    counted = pd.Series([row.status for row in POSSIBLE]).value_counts()
    for status in set(counted.index) - set(BY_NAME) - {"ok"}:
        assert f"{counted[status]} {status}" in first
    assert f"{counted['ok'] + GOOD} ok" in first


def test_exactly_the_usable_files_are_trained_on_and_measured(run):
    """Cases 4, 21 and 24: nothing stands in for a bad file, and NA is a label."""
    splits = schemas.read_table(run.paths.splits / "splits.parquet", schemas.Splits)
    assert set(splits["image_id"]) == run.usable
    part = {name: set(rows) for name, rows in splits.groupby("split")["image_id"]}
    store = LabelStore.load(run.paths.model(SETTING, METHOD) / "labels")
    assert set(store.image_ids) == part["train"]
    assert ids(f"reports/runs/{SETTING}-{METHOD}/predictions.parquet", run) == part["test"]
    assert ids(f"data/splits/observed/{SETTING}.parquet", run) <= part["train"]
    metrics = json.loads((run.paths.run(SETTING, METHOD) / "metrics.json").read_text())
    assert metrics["images_scored"] == len(part["test"])
    assert part["train"] | part["val"] | part["test"] == run.usable
    per_label = pd.read_csv(run.paths.run(SETTING, METHOD) / "per_label.csv", keep_default_na=False)
    assert per_label["label"].tolist() == ["NA", "blue", "red"]


def test_predict_tags_the_usable_and_refuses_the_others_with_their_status(run):
    rows = {row.path: row for row in POSSIBLE if row.status not in BY_NAME}
    assert set(run.predicted) == set(rows) | {good(i) for i in range(GOOD)}
    # Bytes that are there twice are tagged twice.
    twice = {path for path, row in rows.items() if row.status == "duplicate"}
    tagged = {path for path, error in run.predicted.items() if error is None}
    assert tagged == run.usable | twice
    for path, error in run.predicted.items():
        if error is not None:
            status, _, reason = error.partition(": ")
            assert status == rows[path].status
            assert re.fullmatch(rows[path].pattern, reason)
    refused = len(run.predicted) - len(tagged)
    assert f"{refused} of {len(run.predicted)} could not be read" in run.stderr
    assert "Traceback" not in run.stderr
