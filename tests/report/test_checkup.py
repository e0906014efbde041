"""Tests of how a checkup is told."""

import json

import pandas as pd
import pytest
from PIL import Image

from plmcl.data.doctor.checkup import Checkup
from plmcl.errors import PlmclError
from plmcl.report.checkup import LINES, in_words, json_lines, write_checkup

REST = {"sha256": "", "dhash": "", "width": 0, "height": 0, "bytes": 0}


@pytest.fixture
def checkup(tmp_path):
    rows = [
        ("<b>.png", "ok", ""),
        ("b.png", "converted", "CMYK to RGB"),
        ("c{path}.jpg", "empty", "empty file (0 bytes)"),
        ("é.txt", "other_file", "suffix .txt"),
    ]
    files = pd.DataFrame(rows, columns=["path", "status", "reason"]).assign(**REST)
    for name in ("<b>.png", "b.png"):
        Image.new("RGB", (8, 8), "red").save(tmp_path / name)
    alike = pd.DataFrame({"first": ["<b>.png"], "second": ["b.png"], "distance": [2]})
    return Checkup(tmp_path, files, alike)


def test_in_words(checkup):
    assert in_words(checkup).splitlines() == [
        f"4 files in {checkup.folder}",
        "         1 ok               can be used as it is",
        "         1 converted        can be used, and needed a conversion",
        "         1 empty            0 bytes",
        "         1 other_file       the suffix is not an image's",
        "",
        "passed over by name: 1 x suffix .txt",
        "",
        "1 set aside:",
        "  c{path}.jpg: empty: empty file (0 bytes)",
        "",
        "1 pairs that look alike:",
        "  <b>.png and b.png (2 of 128 bits)",
    ]


def test_long_lists_are_cut_and_counted(tmp_path):
    names = [f"{i:03d}.jpg" for i in range(LINES + 5)]
    files = pd.DataFrame({"path": names, "status": "empty", "reason": "0 bytes"}).assign(**REST)
    alike = pd.DataFrame({"first": [], "second": [], "distance": []})
    lines = in_words(Checkup(tmp_path, files, alike)).splitlines()
    assert lines[-1] == "  and 5 more"
    assert len(lines) == 2 + 2 + LINES + 1


def test_a_name_cannot_command_the_terminal_or_break_a_line(tmp_path):
    names = ["\x1b[2Jbad.jpg", "two\nlines.jpg", "\u202egpj.exe", "é 😀.jpg"]
    files = pd.DataFrame({"path": names, "status": "empty", "reason": ""}).assign(**REST)
    alike = pd.DataFrame({"first": [], "second": [], "distance": []})
    lines = in_words(Checkup(tmp_path, files, alike)).splitlines()[-4:]
    assert [line.split(":")[0].strip() for line in lines] == [
        "\\x1b[2Jbad.jpg", "two\\nlines.jpg", "\\u202egpj.exe", "é 😀.jpg"
    ]  # fmt: skip


def test_json_lines_hold_every_file(checkup):
    read = [json.loads(line) for line in json_lines(checkup)]
    assert [file["path"] for file in read] == checkup.files["path"].tolist()
    assert read[1] == {"path": "b.png", "status": "converted", "reason": "CMYK to RGB"} | REST


def test_the_page_shows_pictures_and_escapes_names(checkup, tmp_path):
    write_checkup(checkup, tmp_path / "out" / "checkup.html")
    page = (tmp_path / "out" / "checkup.html").read_text(encoding="utf-8")
    assert "2 of 4 files can be used" in page
    assert page.count('<img src="data:image/jpeg;base64,') == 3  # a pair and one converted
    assert "&lt;b&gt;.png" in page
    assert "<b>.png" not in page
    assert "c{path}.jpg" in page
    assert "2 of 128 bits differ" in page
    assert "CMYK to RGB" in page
    assert "Passed over by name: <bdi>1 x suffix .txt</bdi>." in page


def test_a_pair_is_shown_without_a_picture_that_is_gone(checkup, tmp_path):
    (tmp_path / "<b>.png").unlink()
    write_checkup(checkup, tmp_path / "checkup.html")
    page = (tmp_path / "checkup.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 2  # the other of the pair, and one converted
    assert "&lt;b&gt;.png" in page


def test_a_page_that_cannot_be_written_is_one_clear_error(checkup, tmp_path):
    (tmp_path / "file").write_text("x")
    for place, reason in (("", "Is a directory"), ("file/x.html", "File exists|Not a directory")):
        with pytest.raises(PlmclError, match=f"cannot be written: ({reason})"):
            write_checkup(checkup, tmp_path / place)
