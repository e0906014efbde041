import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import plmcl
from plmcl.data.doctor import examination
from plmcl.data.doctor.examination import COLUMNS, examine_all
from plmcl.data.doctor.finding import Finding, examine
from plmcl.data.images import Recipe

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def save(path, size=(30, 20), *, mode="RGB", age=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.linear_gradient("L").resize(size).convert(mode).save(path)
    set_age(path, age)
    return path


def set_age(path, seconds):
    """Make a file so many seconds old: the youngest are not trusted to stay as they are."""
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture
def opened(monkeypatch):
    """Names of the files that were opened, in the order in which they were asked for."""
    names = []
    examine_in_workers = examination.examine_in_workers

    def spy(root, asked, *arguments, **options):
        names.extend(asked)
        return examine_in_workers(root, asked, *arguments, **options)

    monkeypatch.setattr(examination, "examine_in_workers", spy)
    return names


def test_a_row_is_a_path_and_its_finding_in_the_order_of_the_files(tmp_path):
    files = [f"{i:02d}.png" for i in range(20)][::-1]
    for i, name in enumerate(files):
        save(tmp_path / name, (10 + i, 5), mode="L" if i == 3 else "RGB")
    (tmp_path / files[7]).write_bytes(b"")
    (tmp_path / files[8]).unlink()
    table = examine_all(tmp_path, files, RECIPE, record=None)
    findings = [examine(tmp_path / name, RECIPE) for name in files]
    expected = pd.DataFrame(findings, columns=list(Finding._fields))
    expected.insert(0, "path", files)
    assert table.to_dict("list") == expected[COLUMNS].to_dict("list")
    assert table["width"].tolist() == [0 if i in (7, 8) else 10 + i for i in range(20)]
    assert table["status"].tolist()[3] == "converted"
    assert table["reason"].tolist()[3] == "grey to RGB"
    assert table["status"].tolist()[7:9] == ["empty", "unreadable"]
    assert table["sha256"][0] == hashlib.sha256((tmp_path / files[0]).read_bytes()).hexdigest()
    dtypes = {name: str(kind) for name, kind in table.dtypes.items()}
    numbers = {"width": "int32", "height": "int32", "bytes": "int64"}
    assert dtypes == dict.fromkeys(COLUMNS, "str") | numbers


@pytest.mark.parametrize("record", [None, "record"])
def test_no_file_is_an_empty_table(tmp_path, record):
    record = record and tmp_path / record
    table = examine_all(tmp_path, [], RECIPE, record=record)
    assert (list(table.columns), len(table)) == (COLUMNS, 0)


def test_progress_comes_from_the_callers_thread_and_ends_with_all(tmp_path):
    files = [save(tmp_path / f"{i}.png").name for i in range(20)]
    calls = []

    def progress(done, total):
        calls.append((done, total, threading.current_thread()))

    for expected in (20, 20):  # examined, then known
        calls.clear()
        examine_all(tmp_path, files, RECIPE, record=tmp_path / "record", progress=progress)
        assert calls[-1][:2] == (expected, 20)
        done = [call[0] for call in calls]
        assert done == sorted(set(done))
        assert {call[2] for call in calls} == {threading.main_thread()}


def test_nothing_is_changed_or_deleted(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"<html>")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    examine_all(tmp_path, ["a.png", "b.png"], RECIPE, record=None)
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()
    }


# --------------------------------------------------------------------------------------- record


def test_only_new_and_changed_files_are_opened_again_case_83(tmp_path, opened):
    root, record = tmp_path / "photos", tmp_path / "record"
    files = [f"{i}.png" for i in range(6)]
    for name in files:
        save(root / name)
    (root / "3.png").write_bytes(b"<html>")
    set_age(root / "3.png", 100)
    first = examine_all(root, files, RECIPE, record=record)
    assert opened == files
    opened.clear()
    pd.testing.assert_frame_equal(examine_all(root, files, RECIPE, record=record), first)
    assert opened == []

    save(root / "1.png", (40, 20))  # other size
    save(root / "2.png", age=50)  # other time
    save(root / "new.png")
    (root / "0.png").rename(root / "moved.png")
    files = ["moved.png", "new.png", *files[1:]]
    second = examine_all(root, files, RECIPE, record=record)
    assert opened == ["moved.png", "new.png", "1.png", "2.png"]
    assert second["path"].tolist() == files
    assert second["width"].tolist() == [30, 30, 40, 30, 0, 30, 30]
    assert len(list(record.iterdir())) == 1


@pytest.mark.parametrize("change", ["time", "name", "content", "gone", "new", "one of two"])
def test_after_any_change_the_second_run_opens_and_writes_nothing(tmp_path, opened, change):
    root, record = tmp_path / "photos", tmp_path / "record"
    files = [save(root / name).name for name in ("a.png", "b.png")]
    examine_all(root, files, RECIPE, record=record)
    if change == "time":
        set_age(root / "b.png", 50)
    elif change == "name":
        files[1] = (root / "b.png").rename(root / "c.png").name
    elif change == "content":
        save(root / "b.png", (40, 20))
    elif change == "gone":
        files.remove("b.png")
    elif change == "new":
        files.append(save(root / "c.png").name)
    else:
        files.remove("a.png")
        save(root / "b.png", (40, 20))
    examine_all(root, files, RECIPE, record=record)
    kept = list(record.iterdir())
    opened.clear()
    examine_all(root, files, RECIPE, record=record)
    assert opened == []
    assert list(record.iterdir()) == kept
    assert len(kept) == 1


def test_a_record_that_cannot_be_written_costs_a_warning_only(tmp_path, caplog):
    save(tmp_path / "a.png")
    (tmp_path / "file").write_text("x")
    table = examine_all(tmp_path, ["a.png"], RECIPE, record=tmp_path / "file" / "record")
    assert table["status"].tolist() == ["ok"]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "change",
    [{"max_pixels": 10_001}, {"background": (0, 0, 1)}, {"rules": 2}, {"pillow": "0"}],
)
def test_what_a_finding_depends_on_makes_all_files_new(tmp_path, opened, monkeypatch, change):
    save(tmp_path / "a.png")
    examine_all(tmp_path, ["a.png"], RECIPE, record=tmp_path / "record")
    if "rules" in change:
        monkeypatch.setattr(examination, "RULES", change["rules"])
    elif "pillow" in change:
        monkeypatch.setattr(examination.PIL, "__version__", change["pillow"])
    recipe = Recipe(32, change.get("background", (0, 0, 0)), change.get("max_pixels", 10_000))
    opened.clear()
    examine_all(tmp_path, ["a.png"], recipe, record=tmp_path / "record")
    assert opened == ["a.png"]


def test_the_models_input_size_makes_no_file_new(tmp_path, opened):
    save(tmp_path / "a.png")
    examine_all(tmp_path, ["a.png"], RECIPE, record=tmp_path / "record")
    opened.clear()
    examine_all(tmp_path, ["a.png"], Recipe(64, (0, 0, 0), 10_000), record=tmp_path / "record")
    assert opened == []


def test_a_file_that_was_just_written_is_not_trusted(tmp_path, opened):
    save(tmp_path / "young.png", age=1)
    save(tmp_path / "future.png", age=-100)
    save(tmp_path / "old.png", age=10)
    files = ["young.png", "future.png", "old.png"]
    for _ in range(2):
        opened.clear()
        examine_all(tmp_path, files, RECIPE, record=tmp_path / "record")
    assert opened == ["young.png", "future.png"]


def test_what_may_pass_is_tried_again(tmp_path, opened):
    files = ["gone.png", "cut.png", "folder.png"]
    cut = save(tmp_path / "cut.png")
    cut.write_bytes(cut.read_bytes()[:50])
    set_age(cut, 100)
    (tmp_path / "folder.png").mkdir()
    set_age(tmp_path / "folder.png", 100)
    for _ in range(2):
        opened.clear()
        table = examine_all(tmp_path, files, RECIPE, record=tmp_path / "record")
        assert table["status"].tolist() == ["unreadable", "truncated", "unreadable"]
    assert opened == ["gone.png", "folder.png"]


def test_a_damaged_record_costs_time_only(tmp_path, opened, caplog):
    save(tmp_path / "a.png")
    first = examine_all(tmp_path, ["a.png"], RECIPE, record=tmp_path / "record")
    next((tmp_path / "record").iterdir()).write_bytes(b"PAR1 what is this")
    opened.clear()
    again = examine_all(tmp_path, ["a.png"], RECIPE, record=tmp_path / "record")
    pd.testing.assert_frame_equal(again, first)
    assert opened == ["a.png"]
    assert "left out" in caplog.text


def test_a_killed_examination_goes_on_where_it_stopped(tmp_path, opened):
    root, record = tmp_path / "photos", tmp_path / "record"
    files = [save(root / f"{i:04d}.png").name for i in range(400)]
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from plmcl.data.doctor import examination; from plmcl.data.images import Recipe\n"
        "examination._PART_FILES = 50\n"
        "root, record = map(Path, sys.argv[1:])\n"
        "def stop(done, total):\n"
        "    if done > 200: os.kill(os.getpid(), signal.SIGKILL)\n"
        "examination.examine_all(root, sorted(os.listdir(root)), Recipe(32, (0, 0, 0), 10_000),\n"
        "                   record=record, progress=stop)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(root), str(record)],
        env=os.environ | {"PYTHONPATH": str(Path(plmcl.__file__).parents[1])},
    )
    assert killed.returncode == -signal.SIGKILL
    table = examine_all(root, files, RECIPE, record=record)
    assert (table["status"] == "ok").all()
    assert 0 < len(opened) <= 250
    assert len(list(record.iterdir())) == 1
    pd.testing.assert_frame_equal(table, examine_all(root, files, RECIPE, record=None))
