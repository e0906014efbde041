import re
import subprocess
import sys
from pathlib import Path

import pytest
from data.hostile import HOSTILE, POSSIBLE, build

from plmcl.data.doctor.checkup import check_up
from plmcl.data.images import ImageProblem, Recipe, load
from plmcl.data.statuses import STATUSES, USABLE

RECIPE = Recipe(size=32, background=(255, 255, 255), max_pixels=50_000_000)
# Seen by their names or by what they stand for; nothing is opened.
BEFORE_OPENING = ("hidden", "other_file", "unreadable_name", "outside_root", "link", "not_a_file")
OPENED = [row for row in POSSIBLE if row.status not in BEFORE_OPENING]

WATCHED = """
import sys
from pathlib import Path

from plmcl.data.images import ImageProblem, Recipe, load

root = sys.argv[1]
recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=50_000_000)
files = sorted(path for path in Path(root).rglob("*") if path.is_file() and not path.is_symlink())
seen = []

def watch(event, arguments):
    kind, _, _ = event.partition(".")
    if event == "open" and not str(arguments[0]).startswith(root) or kind in (
        "subprocess", "socket", "os", "shutil", "tempfile", "ctypes", "urllib"
    ):
        seen.append((event, arguments))

def load_all():
    for file in files:
        try:
            load(file, recipe)
        except ImageProblem:
            pass

load_all()  # the first time Pillow imports what it needs
sys.addaudithook(watch)
load_all()
print(len(files), seen)
"""


def each(rows):
    return pytest.mark.parametrize("row", rows, ids=lambda row: ascii(row.listed)[1:30])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    photos = tmp_path_factory.mktemp("hostile") / "photos"
    build(photos)
    return photos


@pytest.fixture(scope="module")
def checkup(folder):
    return check_up(folder, RECIPE, record=None)


def test_there_are_enough_of_every_kind():
    assert len(HOSTILE) >= 70
    assert len({row.path for row in HOSTILE}) == len(HOSTILE)
    assert {row.status for row in HOSTILE} == set(STATUSES)


@each(POSSIBLE)
def test_each_has_its_status_and_its_reason(row, checkup):
    """Cases 1, 2, 5, 6, 8, 9, 11, 12, 13, 16, 18, 30, 32 and 84."""
    (found,) = checkup.files[checkup.files["path"] == row.listed].itertuples(index=False)
    assert found.status == row.status
    assert re.fullmatch(row.pattern, found.reason), found.reason
    assert len(found.reason) < 300


def test_each_file_has_exactly_one_row(checkup):
    assert sorted(checkup.files["path"]) == sorted(row.listed for row in POSSIBLE)


def test_what_is_used_has_a_size_and_a_hash_and_what_is_not_has_no_size(checkup):
    usable = checkup.files[checkup.files["status"].isin(USABLE)]
    assert (usable[["width", "height", "bytes"]] > 0).all(axis=None)
    assert (usable["sha256"].str.len() == 64).all()
    others = checkup.files.drop(usable.index)
    others = others[others["status"] != "duplicate"]
    assert (others[["width", "height"]] == 0).all(axis=None)
    assert (others["dhash"] == "").all()


def test_the_copy_with_more_loss_looks_like_the_picture_case_30(checkup):
    pairs = checkup.alike[["first", "second"]].to_numpy().tolist()
    assert {"cat/same.jpg", "cat/alike.jpg"} in map(set, pairs)


@pytest.mark.filterwarnings("ignore")
@each(OPENED)
def test_serving_takes_the_same_files_and_refuses_the_others_alike(row, folder):
    if row.status in (*USABLE, "duplicate"):
        assert load(folder / row.path, RECIPE).shape == (32, 32, 3)
        return
    with pytest.raises(ImageProblem) as caught:
        load(folder / row.path, RECIPE)
    assert caught.value.status == row.status
    assert re.fullmatch(row.pattern, str(caught.value))


def test_decoding_starts_no_program_and_opens_nothing_else(folder):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED, str(folder)],
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    count, _, seen = done.stdout.strip().partition(" ")
    assert int(count) > 100
    assert seen == "[]"
    assert not list(folder.parent.rglob("ran"))
