import hashlib
import os
import threading

import numpy as np
import pytest
from PIL import Image

from plmcl.data.doctor import Finding, examine, examine_all
from plmcl.data.images import Recipe

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def save(path, size=(30, 20), **options):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return path


def test_a_good_file_has_its_hash_and_size(tmp_path):
    path = save(tmp_path / "a.jpg")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert examine(path, RECIPE) == Finding("ok", "", sha256, 30, 20)


def test_width_and_height_are_those_after_turning_case_8(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    finding = examine(save(tmp_path / "a.jpg", (40, 20), exif=exif), RECIPE)
    assert (finding.width, finding.height) == (20, 40)


def test_a_bad_file_keeps_its_hash_but_has_no_size_case_1(tmp_path):
    content = save(tmp_path / "a.png").read_bytes()
    path = tmp_path / "half.png"
    path.write_bytes(content[: len(content) // 2])
    finding = examine(path, RECIPE)
    assert finding.status == "truncated"
    assert finding.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (finding.width, finding.height) == (0, 0)


def test_too_many_pixels_is_a_finding_case_9(tmp_path):
    finding = examine(save(tmp_path / "a.png", (101, 100)), RECIPE)
    assert finding.status == "too_large"
    assert finding.reason == "101x100 pixels; the limit (image.max_pixels) is 10000"


def test_what_cannot_be_read_is_a_finding(tmp_path):
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    reasons = {
        name: examine(tmp_path / name, RECIPE)
        for name in ("gone.jpg", "folder.jpg", "pipe.jpg", "loop.jpg")
    }
    assert {name: (f.status, f.reason, f.sha256) for name, f in reasons.items()} == {
        "gone.jpg": ("unreadable", "the file has vanished", ""),
        "folder.jpg": ("unreadable", "not a regular file", ""),
        "pipe.jpg": ("unreadable", "not a regular file", ""),
        "loop.jpg": ("unreadable", "the file has vanished", ""),
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_finding(tmp_path):
    path = save(tmp_path / "a.jpg")
    path.chmod(0)
    assert examine(path, RECIPE).reason == "Permission denied"


def test_findings_keep_the_order_and_report_progress(tmp_path):
    files = [f"{i:02d}.png" for i in range(20)]
    for i, name in enumerate(files):
        save(tmp_path / name, (10 + i, 5))
    (tmp_path / files[7]).write_bytes(b"")
    calls = []
    findings = examine_all(
        tmp_path,
        files,
        RECIPE,
        progress=lambda done, total: calls.append((done, total, threading.current_thread())),
    )
    assert [f.width for f in findings] == [0 if i == 7 else 10 + i for i in range(20)]
    assert findings[7].status == "empty"
    assert [call[:2] for call in calls] == [(i + 1, 20) for i in range(20)]
    assert {call[2] for call in calls} == {threading.main_thread()}


def test_nothing_is_changed_or_deleted(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"<html>")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    examine_all(tmp_path, ["a.png", "b.png"], RECIPE)
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    }


def test_no_file_is_no_finding(tmp_path):
    assert examine_all(tmp_path, [], RECIPE) == []
