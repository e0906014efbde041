import os
import shutil

import numpy as np
import pandas as pd
import pytest

from plmcl import schemas
from plmcl.errors import PlmclError
from plmcl.retraining.delivered import Waiting, accepted, last_delivery, snapshot, waiting

STATUSES = ["ok", "converted", "duplicate", "truncated"]


def received(store, number, names, arrived=5):
    """A complete delivery whose files take the statuses in turn."""
    table = pd.DataFrame(
        {
            "name": list(names),
            "status": [STATUSES[i % 4] for i in range(len(names))],
        }
    ).assign(reason="", sha256="", dhash="", width=np.int32(1), height=np.int32(1))
    table = table.assign(bytes=np.int64(1), label="", arrived=np.int64(arrived), version="")
    texts = ("name", "status", "reason", "sha256", "dhash", "label", "version")
    table = table.astype(dict.fromkeys(texts, "str"))
    schemas.write_table(table, store / f"{number:04d}.parquet")
    for name in table["name"][accepted(table)]:
        (store / f"{number:04d}" / name).parent.mkdir(parents=True, exist_ok=True)
        (store / f"{number:04d}" / name).write_text(f"{number} {name}")
    (store / f"{number:04d}-quarantine").mkdir()


def test_only_accepted_images_wait(tmp_path):
    assert waiting(tmp_path / "none", 0) == Waiting(0, 0)
    received(tmp_path, 1, "abcde", arrived=7)
    received(tmp_path, 2, "abc", arrived=9)
    received(tmp_path, 3, "", arrived=9)
    assert waiting(tmp_path, 0) == Waiting(5, 7)
    assert waiting(tmp_path, 1) == Waiting(2, 9)
    assert waiting(tmp_path, 3) == Waiting(0, 0)


def test_a_snapshot_holds_the_tables_and_the_accepted_images(tmp_path):
    store, target = tmp_path / "store", tmp_path / "deliveries" / "v0001"
    received(store, 1, ["a.jpg", "sub/b.jpg", "c.jpg", "d.jpg"])
    received(store, 12, ["a.jpg"])
    assert last_delivery(store) == 12
    snapshot(store, target, 12)
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert there == {
        "0001.parquet", "0001/a.jpg", "0001/sub/b.jpg", "0012.parquet", "0012/a.jpg"
    }  # fmt: skip
    assert (target / "0012/a.jpg").read_text() == "12 a.jpg"
    assert (target / "0012/a.jpg").samefile(store / "0012/a.jpg")
    assert list(target.parent.iterdir()) == [target]
    received(store, 13, ["e.jpg"])
    assert not (target / "0013").exists()
    with pytest.raises(PlmclError, match="v0001: exists"):
        snapshot(store, target, 13)
    snapshot(store, target.with_name("v0002"), 1)
    assert sorted(path.name for path in target.with_name("v0002").iterdir()) == [
        "0001",
        "0001.parquet",
    ]


def test_a_snapshot_is_copied_where_there_are_no_links(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    received(tmp_path / "store", 1, ["a.jpg"])
    snapshot(tmp_path / "store", tmp_path / "v0001", 1)
    assert (tmp_path / "v0001/0001/a.jpg").read_text() == "1 a.jpg"
    assert not (tmp_path / "v0001/0001/a.jpg").samefile(tmp_path / "store/0001/a.jpg")


def test_nothing_received_has_no_last_delivery(tmp_path):
    assert last_delivery(tmp_path / "none") == 0


def test_no_snapshot_is_half_made(tmp_path):
    store = tmp_path / "store"
    received(store, 1, ["a.jpg", "b.jpg"])
    (store / "0001/b.jpg").unlink()
    with pytest.raises(PlmclError, match=r"0001/b\.jpg: is in a delivery's table, and not there"):
        snapshot(store, tmp_path / "v0001", 1)
    assert not (tmp_path / "v0001").exists()
    (store / "0001/b.jpg").write_text("back")
    snapshot(store, tmp_path / "v0001", 1)  # what was left of the first try is no matter
    shutil.rmtree(tmp_path / "v0001")
    (store / "moving.json").write_text('{"number": 1, "source": "", "tags_sha256": ""}')
    with pytest.raises(PlmclError, match="delivery 1 is not complete"):
        snapshot(store, tmp_path / "v0001", 1)
