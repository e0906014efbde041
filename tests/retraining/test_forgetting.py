"""An image that a person asks to have removed is nowhere any more; the others all are."""

import hashlib
import itertools
import json
import pathlib
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from project import ROOT, edit_params
from tables import image_table
from versions import delivery, make_repository, stage

from plmcl import schemas
from plmcl.data.deliveries import read_deliveries
from plmcl.errors import PlmclError
from plmcl.retraining.forgetting import forget
from plmcl.retraining.known import name_duplicates
from plmcl.retraining.store import Store

A, B, C = (f"{letter}'s bytes".encode() for letter in "abc")
SHA256 = {content: hashlib.sha256(content).hexdigest() for content in (A, B, C)}
MD5 = {content: hashlib.md5(content).hexdigest() for content in (A, B, C)}
ANNA = "delivered/0001/party/anna.jpg"


@pytest.fixture
def known_cache(monkeypatch):
    """Where DVC's cache is; DVC itself takes a second to say so."""
    monkeypatch.setattr("plmcl.retraining.forgetting._cache", lambda root: root / ".dvc" / "cache")


def make_project(root):
    """Two deliveries, of which Anna is in both; a version that knows the first, and one both."""
    make_repository(root)
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").touch()
    for content in (A, B, C):
        put(
            root / ".dvc" / "cache" / "files" / "md5" / MD5[content][:2] / MD5[content][2:], content
        )
    for store in (
        root / "data" / "received",
        root / ".plmcl" / "retraining" / "checkout" / "data" / "deliveries" / "v0002",
    ):
        first = delivery({"party/anna.jpg": SHA256[A], "b.jpg": SHA256[B]}, label=["red", ""])
        again = delivery(
            {"c.jpg": SHA256[C], "anna again.jpg": SHA256[A]}, status=["ok", "duplicate"]
        )
        put(store / "0001" / "party" / "anna.jpg", A)
        put(store / "0001" / "b.jpg", B)
        put(store / "0002" / "c.jpg", C)
        schemas.write_table(first, store / "0001.parquet")
        schemas.write_table(again, store / "0002.parquet")
    base = image_table(["x.jpg"], sha256=hashlib.sha256(b"x").hexdigest())
    schemas.write_table(base, root / "data" / "manifests" / "images.parquet")
    stage(root, 1, image_ids=("x.jpg", "gone.jpg"))
    stage(root, 2, image_ids=("x.jpg", ANNA, "delivered/0001/b.jpg"), deliveries=1)
    stage(root, 3, image_ids=("x.jpg",), deliveries=2)
    cache = root / ".plmcl" / "features" / "weights" / "view-0"
    cache.mkdir(parents=True)
    rows = np.arange(3, dtype=np.float32)[:, None]
    np.savez(cache / "0.npz", content=np.array([SHA256[B], SHA256[A], "x"]), features=rows)
    schemas.write_table(first[["name", "sha256"]], root / ".plmcl" / "examined" / "i" / "1.parquet")
    return root


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def everything(root):
    """All that is kept of images, as the bytes or the values that it is."""
    return {
        "files": {path.read_bytes() for path in root.rglob("*") if path.suffix == ".jpg"},
        "cache": {path.name for path in (root / ".dvc" / "cache").rglob("*") if path.is_file()},
        "known": {
            (name, row.status, row.label, row.dhash)
            for name in ("data/received", ".plmcl/retraining/checkout/data/deliveries/v0002")
            for _, table in read_deliveries(root / name)
            for row in table[table["sha256"] == SHA256[A]].itertuples()
        },
        "states": [
            (json.loads((labels / "image_ids.json").read_text()), len(np.load(latent)))
            for labels in sorted((root / "models" / "production").glob("v*/labels"))
            for latent in [labels / "latent.npy"]
        ],
    }


def check_forgotten(root):
    now = everything(root)
    assert now["files"] == {B, C}
    assert now["cache"] == {MD5[B][2:], MD5[C][2:]}
    assert {row[1:] for row in now["known"]} == {("forgotten", "", "")}
    assert now["states"] == [
        (["x.jpg", "gone.jpg"], 2),
        (["x.jpg", "delivered/0001/b.jpg"], 2),
        (["x.jpg"], 1),
    ]
    labels = root / "models" / "production" / "v0002" / "labels"
    assert np.load(labels / "latent.npy").tolist() == [[0, 1, 2], [6, 7, 8]]
    assert not list(labels.parent.glob(".*"))
    with np.load(root / ".plmcl" / "features" / "weights" / "view-0" / "0.npz") as saved:
        assert saved["content"].tolist() == [SHA256[B], "x"]
        assert saved["features"].tolist() == [[0], [2]]
    (file,) = (root / ".plmcl" / "examined").rglob("*.parquet")
    assert schemas.pyarrow.parquet.read_table(file)["name"].to_pylist() == ["b.jpg"]


@pytest.mark.slow
def test_a_delivered_image_is_gone_everywhere_and_it_is_told_who_saw_it(tmp_path):
    root = make_project(tmp_path)
    (image,) = forget(root, [ANNA])
    assert image.image_ids == [ANNA, "delivered/0002/anna again.jpg"]
    assert image.sha256 == SHA256[A]  # by which it is known if it comes again
    assert image.versions == ["v0002", "v0003"]
    check_forgotten(root)
    # Once more: nothing is left to remove, and the answer is the same.
    assert [image.versions for image in forget(root, [ANNA])] == [["v0002", "v0003"]]
    check_forgotten(root)


def test_it_is_found_by_any_copy_of_it(tmp_path, known_cache):
    root = make_project(tmp_path / "project")
    copy = tmp_path / "somewhere.jpg"
    copy.write_bytes(A)
    (image,) = forget(root, [str(copy)])
    assert image.image_ids[0] == ANNA
    check_forgotten(root)
    assert copy.exists()  # it is not ours


def test_what_was_forgotten_does_not_come_in_again(tmp_path):
    store = Store(tmp_path / "data" / "received")
    gone = delivery({"anna.jpg": SHA256[A]}, status="forgotten")
    schemas.write_table(gone, store.table(1))
    examined = delivery({"new.jpg": SHA256[A], "b.jpg": SHA256[B]}).rename(columns={"name": "path"})
    name_duplicates(examined, store, tmp_path / "images.parquet")
    assert examined["status"].tolist() == ["duplicate", "ok"]
    assert examined["reason"].tolist() == ["same bytes as delivered/0001/anna.jpg", ""]


def test_what_is_not_known_or_not_ours_to_remove_is_refused_before_anything_changes(tmp_path):
    root = make_project(tmp_path)
    before = everything(root)
    with pytest.raises(PlmclError, match=r"delivered/0009/no\.jpg: no image that is known"):
        forget(root, [ANNA, "delivered/0009/no.jpg"])
    with pytest.raises(PlmclError, match=r"is x\.jpg of the base set: the source scenes puts it"):
        forget(root, [ANNA, "x.jpg"])
    edit_params(root / "params.yaml", {"data.source": "folder", "data.path": "my photos"})
    put(tmp_path / "my photos" / "x.jpg", b"x")
    with pytest.raises(
        PlmclError, match=r"x\.jpg of the base set: delete it in your own folder, my photos, then"
    ):
        forget(root, [ANNA, str(tmp_path / "my photos" / "x.jpg")])
    (tmp_path / "my photos" / "x.jpg").unlink()
    assert everything(root) == before


def test_of_a_base_image_that_its_owner_removed_the_label_state_goes(tmp_path):
    root = make_project(tmp_path)
    (image,) = forget(root, ["gone.jpg"])
    assert image.versions == ["v0001"]
    assert everything(root)["states"][0] == (["x.jpg"], 1)
    assert everything(root)["files"] == {A, B, C}


def test_a_file_in_quarantine_goes_too(tmp_path, known_cache):
    root = make_project(tmp_path)
    store = root / "data" / "received"
    bad = delivery({"bad.jpg": SHA256[B]}, status="truncated")
    schemas.write_table(bad, store / "0003.parquet")
    path = store / "0003-quarantine" / "bad.jpg"
    put(path, B)
    forget(root, ["delivered/0003/bad.jpg"])
    assert not path.exists()


class Killed(BaseException):
    """Nothing of ours catches it."""


@pytest.mark.slow
def test_killed_after_any_step_it_is_finished_by_asking_again(tmp_path, monkeypatch, known_cache):
    made = make_project(tmp_path / "made")
    for steps in itertools.count(1):
        root = Path(shutil.copytree(made, tmp_path / str(steps)))
        left = [steps]
        with monkeypatch.context() as patched:
            for name in ("replace", "unlink"):
                patched.setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name), left))
            with suppress(Killed):
                forget(root, [ANNA])
        if left[0] > 0:
            break
        forget(root, [ANNA])
        check_forgotten(root)
    assert steps > 10


def counted(function, left):
    def step(*arguments, **options):
        result = function(*arguments, **options)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return result

    return step
