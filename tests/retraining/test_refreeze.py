import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from project import ROOT
from tables import manifest
from versions import LABELS, git, stage

from plmcl import schemas
from plmcl.errors import PlmclError
from plmcl.params import load_params
from plmcl.retraining import refreeze as refreeze_module
from plmcl.retraining.production import Production
from plmcl.retraining.refreeze import refreeze
from plmcl.stages.paths import Paths

RED, GREEN, BLUE = LABELS
# Red and green of each image, blue is 7; a colour's probability is sigmoid((colour - 128) / 64).
COLOURS = {"a": (0, 200), "b": (50, 100), "c": (200, 0), "d": (100, 50)}


def write_split(root: Path, test: list[str], truth: dict[tuple[str, str], int], **kept) -> None:
    """The project's manifest and splits: `test` is the test split, the others are trained on."""
    (root / "data" / "raw").mkdir(parents=True, exist_ok=True)
    for name, (red, green) in COLOURS.items():
        Image.new("RGB", (20, 10), (red, green, 7)).save(root / "data" / "raw" / f"{name}.png")
    paths = Paths.of_project(root, load_params(root / "params.yaml").data.source)
    ids = sorted(COLOURS)
    manifest(
        ids, truth, **({"label_names": LABELS} | kept), path=[f"raw/{name}.png" for name in ids]
    ).write(paths.manifests)
    splits = pd.DataFrame(
        {"image_id": ids, "split": ["test" if name in test else "train" for name in ids]}
    )
    schemas.write_table(splits, paths.splits / "splits.parquet")


@pytest.fixture
def root(tmp_path) -> Path:
    """A project whose champion, v0001, was trained on a and b and scored on an image t."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    write_split(tmp_path, ["c", "d"], {("c", RED): 1, ("d", GREEN): 1})
    champion = stage(tmp_path, 1, image_ids=("a", "b"))
    scores = pd.DataFrame(
        {"image_id": ["t"] * 3, "label": LABELS, "score": np.float32([0.9, 0.2, 0.1])}
    )
    schemas.write_table(scores, champion.path / "predictions.parquet")
    (tmp_path / "models" / "production" / "champion").symlink_to("v0001")
    return tmp_path


def files(root: Path) -> dict[str, bytes]:
    folder = root / "models" / "production" / "v0001"
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_the_champion_is_scored_on_the_present_split(root):
    earlier = files(root)
    said = refreeze(root)
    scored = Production(root).champion.scored()
    colours = np.array([[200, 0, 7], [100, 50, 7]])
    assert scored.predictions.to_dict("list") == {
        "image_id": [*"cccddd"],
        "label": [*LABELS, *LABELS],
        "score": pytest.approx((1 / (1 + np.exp((128 - colours) / 64))).ravel().tolist()),
    }
    assert scored.truth.values.tolist() == [
        ["c", RED, 1],
        ["c", GREEN, 0],
        ["c", BLUE, 0],
        ["d", RED, 0],
        ["d", GREEN, 1],
        ["d", BLUE, 0],
    ]
    assert said == [
        "v0001 scored on the present test split: test mAP 100.0 on 2 images, before test mAP n/a "
        "on 1 images (new images: 2, images that are gone: 1)"
    ]
    now = files(root)
    assert sorted(now) == [
        "predictions-1.parquet",
        "predictions.parquet",
        "truth-1.parquet",
        "truth.parquet",
    ]
    assert now["predictions-1.parquet"] == earlier["predictions.parquet"]
    assert now["truth-1.parquet"] == earlier["truth.parquet"]


def test_an_unchanged_split_changes_nothing(root):
    refreeze(root)
    before = files(root)
    assert refreeze(root) == [
        "v0001 was scored on this very test split: nothing has changed",
    ]
    assert files(root) == before


def test_each_split_that_it_was_scored_on_is_kept(root):
    refreeze(root)
    second = files(root)
    write_split(root, ["c", "d"], {("c", RED): 1, ("d", GREEN): 1, ("d", RED): 1})
    assert refreeze(root)[0].endswith("(labels that changed: 1)")
    now = files(root)
    assert now["predictions-2.parquet"] == second["predictions.parquet"]
    assert now["truth-2.parquet"] == second["truth.parquet"]
    assert now["truth.parquet"] != second["truth.parquet"]


@pytest.mark.parametrize("written", [0, 1])
def test_killed_between_its_files_it_starts_again(root, monkeypatch, written):
    earlier = files(root)
    left = [written]

    def write(table: pd.DataFrame, path: Path) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        schemas.write_table(table, path)

    with monkeypatch.context() as patched:
        patched.setattr(refreeze_module.schemas, "write_table", write)
        with pytest.raises(KeyboardInterrupt):
            refreeze(root)
    refreeze(root)
    now = files(root)
    assert len(now) == 4
    assert now["predictions-1.parquet"] == earlier["predictions.parquet"]
    assert now["truth-1.parquet"] == earlier["truth.parquet"]
    assert Production(root).champion.scored().predictions["image_id"].tolist() == [*"cccddd"]


def test_images_that_the_champion_was_trained_on_are_counted(root):
    write_split(root, ["b", "c", "d"], {("c", RED): 1, ("d", GREEN): 1})
    assert refreeze(root)[1] == (
        "v0001 was trained on 1 of these test images: its figure is too good, and no training can "
        "start from it (retraining.start: scratch)"
    )


def test_a_label_that_is_gone_has_no_truth(root):
    write_split(root, ["c", "d"], {("c", RED): 1}, label_names=[BLUE, RED])
    assert refreeze(root)[1:] == [f"nothing is known of its labels {GREEN} any more"]
    scored = Production(root).champion.scored()
    truth = {tuple(row) for row in scored.truth.values.tolist()}
    assert truth == {("c", RED, 1), ("c", BLUE, 0), ("d", RED, 0), ("d", BLUE, 0)}
    assert list(scored.predictions["label"].unique()) == LABELS


def test_an_image_that_cannot_be_read_changes_nothing(root):
    before = files(root)
    (root / "data" / "raw" / "d.png").write_bytes(b"no image")
    with pytest.raises(PlmclError, match=r"d\.png: .*run the ingest stage again"):
        refreeze(root)
    assert files(root) == before


def test_without_a_champion_there_is_nothing_to_score(root):
    (root / "models" / "production" / "champion").unlink()
    with pytest.raises(PlmclError, match="no champion yet"):
        refreeze(root)
