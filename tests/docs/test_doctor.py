"""What docs/doctor.md prints is what the doctor prints, and its commands do what it says."""

import json
import os
import shlex
import subprocess

import pytest
from docs.photographs import picture
from pages import blocks, read, tables
from typer.testing import CliRunner

from plmcl.cli import app
from plmcl.data.doctor.checkup import BY_NAME
from plmcl.data.statuses import STATUSES, USABLE

PAGE = read("docs/doctor.md")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """The folder of which the page prints a checkup."""
    root = tmp_path / "photos"
    (root / "old").mkdir(parents=True)
    picture(0).save(root / "beach.jpg")
    (root / "copy of beach.jpg").write_bytes((root / "beach.jpg").read_bytes())
    picture(0).save(root / "old" / "beach.jpg", quality=30)
    picture(1).convert("CMYK").save(root / "print.jpg")
    picture(2).save(root / "half.png")
    (root / "half.png").write_bytes((root / "half.png").read_bytes()[:3000])
    (root / "download.jpg").write_text("<html>404</html>")
    for name in ("empty.jpg", "phone.heic", ".DS_Store"):
        (root / name).touch()
    for path in files(root):
        os.utime(path, (10**9, 10**9))  # of a file that has just changed nothing is kept
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def doctor(*arguments):
    return CliRunner().invoke(app, ["doctor", "photos", *arguments])


@pytest.mark.usefixtures("photos")
def test_the_words_and_the_json_line_are_those_of_the_page(tmp_path):
    done = doctor()
    assert [done.stdout] == blocks(PAGE, "text")
    assert done.exit_code == 3
    (line,) = map(json.loads, blocks(PAGE, "json"))
    assert line in map(json.loads, doctor("--json").stdout.splitlines())
    assert (tmp_path / "cache" / "plmcl" / "examined").is_dir()


def test_quarantine_moves_what_cannot_be_used_and_the_commands_bring_it_back(photos):
    before = files(photos)
    assert doctor("--quarantine", "aside").exit_code == 3
    assert [path.name for path in before if not path.exists()] == [
        "download.jpg", "empty.jpg", "half.png"
    ]  # fmt: skip
    for line in blocks(PAGE, "sh")[2].splitlines():
        subprocess.run(shlex.split(line), check=True)
    assert files(photos) == before


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "photos"], "is a directory"),
        (["--parquet", "photos"], "is a directory"),
        (["--html", "file/x.html"], "can be written to"),
        (["--parquet", "file/new/x"], "can be written to"),
        (["--quarantine", "file/aside"], "can be written to"),
        (["--quarantine", "file"], "is not an empty folder"),
        (["--quarantine", "photos/aside"], "lies in photos"),
        (["--max-pixels", "178956971"], "less than or equal to 178956970"),
    ],
)
def test_a_place_or_limit_that_cannot_be_is_refused_before_the_examination(
    tmp_path, arguments, said
):
    (tmp_path / "file").touch()
    done = doctor(*arguments)
    words = " ".join((done.stderr + str(done.exception)).replace("│", " ").split())
    assert said in words
    assert done.exit_code != 3
    assert done.stdout == ""
    assert not (tmp_path / "cache").exists()


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_table_of_statuses_is_that_of_the_code():
    (statuses,) = (table for table in tables(PAGE) if "status" in table[0])
    assert {row["status"].strip("`"): row["meaning"] for row in statuses} == STATUSES
    for row in statuses:
        status = row["status"].strip("`")
        stays = status in ("duplicate", "unreadable_name")
        aside = "no" if status in USABLE + BY_NAME else "stays" if stays else "moved"
        assert row["set aside"] == aside, status
