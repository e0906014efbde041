"""Tests of a folder's checkup: one row a file, what is there twice, and moving bad files aside."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from plmcl.data.doctor.checkup import Checkup, check_up, quarantine
from plmcl.data.images import Recipe
from plmcl.errors import PlmclError

RECIPE = Recipe(size=32, background=(255, 255, 255), max_pixels=10_000)


def picture(seed):
    noise = np.random.default_rng(seed).integers(0, 255, (12, 9, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((90, 60), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "photos"
    (root / "cat").mkdir(parents=True)
    picture(1).save(root / "cat" / "a.png")
    picture(1).save(root / "near.jpg", quality=70)
    (root / "twice.png").write_bytes((root / "cat" / "a.png").read_bytes())
    picture(2).convert("CMYK").save(root / "ink.jpg")
    (root / "half.png").write_bytes((root / "cat" / "a.png").read_bytes()[:900])
    (root / "empty.jpg").write_bytes(b"")
    (root / ".hidden.jpg").write_bytes(b"x")
    (root / "labels.csv").write_text("image,labels\n")
    (root / "out.jpg").symlink_to("/etc/hostname")
    (root / os.fsdecode(b"\xe9.jpg")).write_bytes(b"x")
    return root


def check(folder):
    return check_up(folder, RECIPE, record=None)


def statuses(checkup):
    return dict(zip(checkup.files["path"], checkup.files["status"], strict=True))


def test_every_file_has_one_row(folder):
    checkup = check(folder)
    assert statuses(checkup) == {
        ".hidden.jpg": "hidden",
        "\\xe9.jpg": "unreadable_name",
        "cat/a.png": "ok",
        "empty.jpg": "empty",
        "half.png": "truncated",
        "ink.jpg": "converted",
        "labels.csv": "other_file",
        "near.jpg": "ok",
        "out.jpg": "outside_root",
        "twice.png": "duplicate",
    }
    assert checkup.files["path"].is_unique
    assert (checkup.files.loc[~checkup.files["status"].eq("ok"), "reason"] != "").all()
    assert checkup.usable["path"].tolist() == ["cat/a.png", "ink.jpg", "near.jpg"]
    assert checkup.set_aside["path"].tolist() == [
        "\\xe9.jpg", "empty.jpg", "half.png", "out.jpg", "twice.png"
    ]  # fmt: skip
    row = checkup.files.set_index("path").loc["twice.png"]
    assert row["reason"] == "same bytes as cat/a.png"
    assert (row["width"], row["height"]) == (90, 60)


def test_pictures_that_look_alike_are_paired(folder):
    pairs = check(folder).alike
    assert pairs[["first", "second"]].to_numpy().tolist() == [["cat/a.png", "near.jpg"]]
    assert pairs["distance"].between(0, 10).all()


def test_a_folder_without_images_and_an_empty_one(tmp_path):
    assert check(tmp_path).files.empty
    (tmp_path / "notes.txt").write_text("x")
    assert statuses(check(tmp_path)) == {"notes.txt": "other_file"}
    with pytest.raises(PlmclError, match="gone: not found"):
        check(tmp_path / "gone")


def test_quarantine_moves_what_cannot_be_used_and_loses_nothing(folder, tmp_path):
    before = {p.relative_to(folder): p.lstat().st_size for p in folder.rglob("*")}
    target = tmp_path / "aside"
    assert quarantine(check(folder), target) == 3
    log = pd.read_csv(target / "quarantine.csv", keep_default_na=False)
    assert log["path"].tolist() == ["empty.jpg", "half.png", "out.jpg"]
    assert log["status"].tolist() == ["empty", "truncated", "outside_root"]
    roots = (folder, target / "files")
    after = {p.relative_to(r): p.lstat().st_size for r in roots for p in r.rglob("*")}
    assert after == before
    # What is left can be used, was never an image, or is there twice.
    assert set(statuses(check(folder)).values()) == {
        "ok", "converted", "duplicate", "hidden", "other_file", "unreadable_name"
    }  # fmt: skip


def test_quarantine_leaves_a_folder_of_which_nothing_is_known(tmp_path):
    files = pd.DataFrame(
        [("a.jpg", "empty", "0 bytes"), ("deep/", "unreadable", "a folder that cannot be read")],
        columns=["path", "status", "reason"],
    ).assign(sha256="", dhash="", width=0, height=0, bytes=0)
    (tmp_path / "photos" / "deep").mkdir(parents=True)
    (tmp_path / "photos" / "a.jpg").touch()
    checkup = Checkup(tmp_path / "photos", files, files[:0])
    assert quarantine(checkup, tmp_path / "aside") == 1
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["deep"]


@pytest.mark.parametrize("where", ["photos/aside", "full"])
def test_quarantine_refuses_a_place_that_would_mix_things_up(folder, tmp_path, where):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(PlmclError, match=r"lies in|is not an empty folder"):
        quarantine(check(folder), tmp_path / where)
    assert (folder / "empty.jpg").exists()


def test_a_folder_named_like_the_quarantines_table_is_moved_too(tmp_path):
    (tmp_path / "photos" / "quarantine.csv").mkdir(parents=True)
    for name in ("a.jpg", "quarantine.csv/b.jpg"):
        (tmp_path / "photos" / name).touch()
    target = tmp_path / "aside"
    assert quarantine(check(tmp_path / "photos"), target) == 2
    assert (target / "files" / "quarantine.csv" / "b.jpg").is_file()
    assert pd.read_csv(target / "quarantine.csv")["path"].tolist() == [
        "a.jpg", "quarantine.csv/b.jpg"
    ]  # fmt: skip


def test_a_quarantine_that_cannot_be_made_or_filled_is_one_clear_error(
    folder, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("x")
    with pytest.raises(PlmclError, match=r"file/aside: cannot be written: Not a directory"):
        quarantine(check(folder), tmp_path / "file" / "aside")
    (folder / "sub").mkdir()
    (folder / "empty.jpg").rename(folder / "sub" / "empty.jpg")
    checkup, mkdir = check(folder), Path.mkdir

    def disk_is_full(path, *arguments, **options):
        if path.name == "sub":
            raise OSError(28, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", disk_is_full)
    with pytest.raises(PlmclError, match=r"sub/empty\.jpg: cannot be moved: .*No space"):
        quarantine(checkup, tmp_path / "aside")
    assert (folder / "sub" / "empty.jpg").exists()


def test_what_is_passed_over_by_name_is_told_with_its_reason(folder):
    (folder / "phone.HEIC").touch()
    assert [(file.path, file.status) for file in check(folder).passed_over] == [
        (".hidden.jpg", "hidden"), ("labels.csv", "other_file"), ("phone.HEIC", "other_file")
    ]  # fmt: skip
