"""What is pruned, and that nothing is that somebody can still need."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from tables import image_table
from versions import delivery, git, make_root, stage

from plmcl import schemas
from plmcl.errors import PlmclError
from plmcl.mlflow_store import open_store
from plmcl.retraining.housekeeping import keep_features, prune
from plmcl.retraining.production import Production

DAY = 24 * 3600


@pytest.fixture(autouse=True)
def _default_address(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def features(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}.npz"
    rows = np.arange(len(content), dtype=np.float32)[:, None]
    np.savez(path, content=np.array(content), features=rows)
    return path


@pytest.mark.slow
def test_prune_keeps_the_newest_and_the_champion_and_what_it_replaced(tmp_path):
    root = make_root(tmp_path)
    production = Production(root)
    for number in range(1, 8):
        version = stage(root, number)
        git(root, "branch", f"retrain/{version.version}", version.record.commit)
        if number in (1, 2, 4):
            production.promote(version)
        else:
            git(root, "tag", "-a", f"refused/{version.version}", version.record.commit, "-m", "x")
    git(root, "branch", "retrain/v0008")  # under way: not there yet
    git(root, "branch", "retrain/mine")
    production.roll_back()
    client = open_store("plmcl", root).client
    source = Path(client.get_model_version("plmcl", "3").source)

    removed = prune(root, 2)

    # v0002 is the champion, v0001 is the way back; v0006 and v0007 are the newest.
    there = ["v0001", "v0002", "v0006", "v0007"]
    assert [version.version for version in production.versions()] == there
    assert {item.what for item in removed} == {
        *(f"version {name}" for name in ("v0003", "v0004", "v0005")),
        *(f"branch retrain/{name}" for name in ("v0003", "v0004", "v0005")),
        *(f"tag refused/{name}" for name in ("v0003", "v0005")),
    }
    assert all(item.bytes > 1000 for item in removed if item.what.startswith("version"))
    branches = git(root, "branch", "--format=%(refname:short)", "--list", "retrain/*").split()
    assert set(branches) == {f"retrain/{name}" for name in (*there, "v0008", "mine")}
    assert git(root, "tag", "--list").split() == ["refused/v0006", "refused/v0007"]
    numbers = {int(found.version) for found in client.search_model_versions("name = 'plmcl'")}
    assert numbers == {1, 2}
    assert not source.exists()
    assert client.get_model_version_by_alias("plmcl", "champion").version == 2
    assert production.reconcile() == []
    assert prune(root, 2) == []


def test_prune_keeps_at_least_one(tmp_path):
    with pytest.raises(PlmclError, match="--keep: expected 1 or more, found 0"):
        prune(tmp_path, 0)


def test_only_checkpoints_that_were_long_left_are_removed(tmp_path):
    root = make_root(tmp_path)
    checkout = root / ".plmcl" / "retraining" / "checkout"
    folders = []
    for place in (root, checkout):
        for name, age in (("old", 8 * DAY), ("new", 6 * DAY)):
            folder = place / ".plmcl" / "checkpoints" / "sspl-40-an" / name
            (folder / "epoch-00001").mkdir(parents=True)
            (folder / "epoch-00001" / "state.pt").write_bytes(b"x" * 2000)
            for path in [*folder.rglob("*"), folder]:
                os.utime(path, (time.time() - age,) * 2)
            folders.append(folder)
    removed = prune(root, 1)
    assert [(item.what, item.bytes) for item in removed] == [
        ("checkpoints of sspl-40-an, abandoned", 2000)
    ] * 2
    assert [folder.exists() for folder in folders] == [False, True, False, True]


def test_features_of_images_that_nobody_has_any_more_are_removed(tmp_path):
    root = make_root(tmp_path)
    folder = root / ".plmcl" / "features" / "weights" / "view-0"
    used, unused, mixed = (features(folder, c) for c in (["a", "b"], ["x"], ["y", "d", "a"]))
    assert prune(root, 1) == []  # without a manifest nobody knows
    images = image_table(["1", "2"], sha256=["a", "b"])
    schemas.write_table(images, root / "data" / "manifests" / "images.parquet")
    delivered = delivery({"one.jpg": "d", "two.jpg": "y"}, status=["ok", "truncated"])
    schemas.write_table(delivered, root / "data" / "received" / "0001.parquet")
    before = sum(path.stat().st_size for path in (used, unused, mixed))
    (item,) = prune(root, 1)
    assert item.bytes == before - used.stat().st_size - mixed.stat().st_size > 0
    assert not unused.exists()
    with np.load(mixed) as saved:
        assert saved["content"].tolist() == ["d", "a"]
        assert saved["features"].tolist() == [[1.0], [2.0]]
    assert prune(root, 1) == []


def test_a_damaged_file_of_features_is_removed(tmp_path):
    path = tmp_path / "weights" / "view-0" / "0.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK damaged")
    assert keep_features(tmp_path, lambda content: np.ones(len(content), dtype=bool)) == 10
    assert not path.exists()
