import errno
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from data.image_bytes import drawn, jpeg
from fsspec.implementations.memory import MemoryFile
from tables import image_table

from plmcl import schemas
from plmcl.data.images import Recipe
from plmcl.data.listing import SUFFIXES
from plmcl.errors import PlmclError
from plmcl.retraining import store
from plmcl.retraining.arrival import receive, waiting
from plmcl.retraining.places import UnreachableError

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)
LABELS = ["cat", "dog"]
LONG_AGO = 1_700_000_000


def picture(seed):
    return jpeg(drawn(seed))


def drop(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (LONG_AGO, LONG_AGO))


def scan(root, incoming=None, **more):
    options = {
        "label_names": LABELS,
        "known": root / "images.parquet",
        "settle_seconds": 5.0,
        "record": root / "record",
    }
    incoming = str(root / "incoming") if incoming is None else incoming
    return receive(incoming, root / "received", RECIPE, **(options | more))


def table(root, number):
    return schemas.read_table(root / "received" / f"{number:04d}.parquet", schemas.Delivery)


def rows(root, number, *columns):
    return list(table(root, number)[list(columns)].itertuples(index=False, name=None))


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# A first delivery of every kind: three that are new (one nested, of the same name), a copy of one
# of them, a copy of a known image, a bad JPEG, a text, and files that are no images by name.
DELIVERED = {
    "a.jpg": picture(1),
    "b.jpg": picture(2),
    "sub/a.jpg": picture(3),
    "c.jpg": picture(1),
    "old.jpg": picture(9),
    "cut.jpg": picture(4)[:300],
    "text.jpg": b"<html>404",
}
LEFT = {"notes.txt": b"x", "._a.jpg": b"", "__MACOSX/a.jpg": picture(5)}


def deliver(root):
    drop(root / "incoming", DELIVERED | LEFT)
    known = image_table(["base/old"], sha256=sha256(picture(9)))
    schemas.write_table(known, root / "images.parquet")


def assert_received_once(root, delivered=DELIVERED, *, emptied=True):
    """Every delivered file is in exactly one table, once, and its bytes are where it says."""
    store = root / "received"
    numbers = sorted(int(path.stem) for path in store.glob("*.parquet"))
    found = pd.concat([table(root, number).assign(number=number) for number in numbers])
    assert sorted(found["name"]) == sorted(delivered)
    accepted = found[found["status"] == "ok"]
    assert accepted["sha256"].is_unique
    expected = {}
    for name, status, digest, number in zip(
        found["name"], found["status"], found["sha256"], found["number"], strict=True
    ):
        assert digest == sha256(delivered[name])
        if status == "ok":
            expected[f"{number:04d}/{name}"] = delivered[name]
        elif status != "duplicate":
            expected[f"{number:04d}-quarantine/{name}"] = delivered[name]
        elif digest != sha256(picture(9)):
            assert digest in set(accepted["sha256"])
    there = {
        name: data
        for name, data in content(store).items()
        if Path(name).suffix in SUFFIXES | {".tmp", ".json"}
    }
    assert there == expected
    assert {path.name for path in store.iterdir()} == {
        place for number in numbers
        for place in (f"{number:04d}.parquet", f"{number:04d}", f"{number:04d}-quarantine")
    }  # fmt: skip
    if emptied:
        left = content(root / "incoming")
        assert {name for name in left if name in delivered} == set()


def test_each_file_gets_its_place_and_its_reason_cases_1_12_13(tmp_path):
    deliver(tmp_path)
    receipt = scan(tmp_path, now=1_800_000_000.5)
    assert receipt.number == 1
    assert (receipt.accepted, receipt.duplicates, receipt.waiting) == (3, 2, 0)
    assert receipt.quarantined == {"not_an_image": 1, "truncated": 1}
    assert receipt.passed_over == {"__MACOSX": 1, "hidden": 1, "suffix .txt": 1}
    assert rows(tmp_path, 1, "name", "status", "label", "arrived", "version") == [
        ("a.jpg", "ok", "", 1_800_000_000_500, ""),
        ("b.jpg", "ok", "", 1_800_000_000_500, ""),
        ("c.jpg", "duplicate", "", 1_800_000_000_500, ""),
        ("cut.jpg", "truncated", "", 1_800_000_000_500, ""),
        ("old.jpg", "duplicate", "", 1_800_000_000_500, ""),
        ("sub/a.jpg", "ok", "", 1_800_000_000_500, ""),
        ("text.jpg", "not_an_image", "", 1_800_000_000_500, ""),
    ]
    assert dict(rows(tmp_path, 1, "name", "reason"))["c.jpg"] == (
        "same bytes as delivered/0001/a.jpg"
    )
    assert dict(rows(tmp_path, 1, "name", "reason"))["old.jpg"] == "same bytes as base/old"
    assert rows(tmp_path, 1, "sha256", "width", "height", "bytes")[0] == (
        sha256(DELIVERED["a.jpg"]), 48, 32, len(DELIVERED["a.jpg"]),
    )  # fmt: skip
    assert_received_once(tmp_path)
    assert content(tmp_path / "incoming") == LEFT
    assert str(receipt) == (
        "delivery 1: 3 new images, 2 duplicates, 2 quarantined (1 not_an_image, 1 truncated); "
        "passed over: 1 x __MACOSX, 1 x hidden, 1 x suffix .txt"
    )


def test_nothing_new_is_no_delivery(tmp_path):
    deliver(tmp_path)
    scan(tmp_path)
    before = content(tmp_path / "received")
    receipt = scan(tmp_path)
    assert (receipt.number, receipt.accepted, receipt.waiting) == (None, 0, 0)
    assert content(tmp_path / "received") == before
    assert str(receipt).startswith("nothing new; passed over: ")


def test_a_later_delivery_knows_the_earlier_ones_by_their_bytes(tmp_path):
    drop(tmp_path / "incoming", {"a.jpg": picture(1)})
    assert scan(tmp_path).number == 1
    # Same name, size and time, other bytes: nothing may be remembered of the first.
    first, other = (picture(seed).ljust(5000, b"\0") for seed in (3, 4))
    drop(tmp_path / "incoming", {"a.jpg": first, "b.jpg": picture(1)})
    receipt = scan(tmp_path)
    assert (receipt.number, receipt.accepted, receipt.duplicates) == (2, 1, 1)
    assert rows(tmp_path, 2, "name", "status", "reason") == [
        ("a.jpg", "ok", ""),
        ("b.jpg", "duplicate", "same bytes as delivered/0001/a.jpg"),
    ]
    drop(tmp_path / "incoming", {"a.jpg": other})
    assert scan(tmp_path).accepted == 1
    assert (tmp_path / "received/0003/a.jpg").read_bytes() == other


def test_a_file_that_may_still_be_written_to_waits(tmp_path):
    drop(tmp_path / "incoming", {"a.jpg": picture(1), "b.jpg": picture(2), "c.jpg": picture(3)})
    now = time.time()
    os.utime(tmp_path / "incoming/b.jpg", (now, now - 4))
    os.utime(tmp_path / "incoming/c.jpg", (now, now + 3600))  # another machine's clock
    receipt = scan(tmp_path, now=now)
    assert (receipt.number, receipt.accepted, receipt.waiting) == (1, 2, 1)
    assert list(content(tmp_path / "incoming")) == ["b.jpg"]
    assert (scan(tmp_path, now=now).number, scan(tmp_path, now=now).waiting) == (None, 1)
    assert scan(tmp_path, now=now + 2).number == 2


def test_a_file_that_changes_before_it_is_moved_is_not_taken_for_what_it_was(tmp_path, monkeypatch):
    drop(tmp_path / "incoming", {"a.jpg": picture(1), "b.jpg": picture(2), "c.jpg": picture(1)})
    finish = store.Store.finish

    def change_first(self):
        if (tmp_path / "received/0001.parquet").exists():
            (tmp_path / "incoming/a.jpg").write_bytes(picture(7))
        return finish(self)

    monkeypatch.setattr(store.Store, "finish", change_first)
    receipt = scan(tmp_path)
    # c.jpg was a copy of a.jpg, and is the only one left with these bytes
    assert (receipt.accepted, receipt.duplicates, receipt.waiting) == (1, 0, 2)
    monkeypatch.undo()
    assert rows(tmp_path, 1, "name", "status") == [("b.jpg", "ok")]
    assert scan(tmp_path, settle_seconds=0).accepted == 2
    assert (tmp_path / "received/0002/a.jpg").read_bytes() == picture(7)
    assert (tmp_path / "received/0002/c.jpg").read_bytes() == picture(1)


def test_links_are_no_deliveries_case_84(tmp_path):
    drop(tmp_path / "incoming", {"a.jpg": picture(1)})
    drop(tmp_path / "elsewhere", {"secret.jpg": picture(2)})
    (tmp_path / "incoming/b.jpg").symlink_to("a.jpg")
    (tmp_path / "incoming/c.jpg").symlink_to(tmp_path / "elsewhere/secret.jpg")
    (tmp_path / "incoming/folder").symlink_to(tmp_path / "elsewhere")
    receipt = scan(tmp_path)
    assert (receipt.accepted, sum(receipt.passed_over.values())) == (1, 3)
    assert list(content(tmp_path / "received/0001")) == ["a.jpg"]
    assert content(tmp_path / "elsewhere") == {"secret.jpg": picture(2)}


def test_a_second_name_of_a_file_cannot_change_what_was_received(tmp_path):
    drop(tmp_path / "incoming", {"a.jpg": picture(1)})
    os.link(tmp_path / "incoming/a.jpg", tmp_path / "mine.jpg")
    scan(tmp_path)
    (tmp_path / "mine.jpg").write_bytes(b"other")
    assert (tmp_path / "received/0001/a.jpg").read_bytes() == picture(1)


def test_a_name_that_is_not_utf8_stays_where_it_is(tmp_path):
    drop(tmp_path / "incoming", {"a b,'é🙂\n.jpg": picture(1)})
    (tmp_path / "incoming" / os.fsdecode(b"\xff.jpg")).write_bytes(picture(2))
    receipt = scan(tmp_path)
    assert receipt.passed_over == {"the name is not UTF-8; rename it": 1}
    assert rows(tmp_path, 1, "name") == [("a b,'é🙂\n.jpg",)]


@pytest.mark.parametrize(
    ("incoming", "rule"),
    [
        ("nowhere", "nowhere: not found, or not a folder"),
        ("received/in", "must not lie in"),
        (".", "must not lie in"),
        ("file://{root}", "must not lie in"),
        ("s3://user:pass@bucket/x?key=secret", "install s3fs"),
        ("nothing://x", "begin with nothing:// cannot be read here"),
    ],
)
def test_a_place_that_cannot_be_received_from_is_refused(tmp_path, incoming, rule):
    (tmp_path / "received/in").mkdir(parents=True)
    place = incoming.format(root=tmp_path) if "://" in incoming else str(tmp_path / incoming)
    with pytest.raises(PlmclError, match=rule) as caught:
        scan(tmp_path, place)
    assert "retraining.incoming" in str(caught.value)
    assert "pass" not in str(caught.value)
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------------------------ tags


def test_a_folder_called_like_a_label_tags_its_files(tmp_path):
    files = {"2024/cat/a.jpg": picture(1), "cat/dog/b.jpg": picture(2), "elk/c.jpg": picture(3)}
    drop(tmp_path / "incoming", files | {"cat.jpg": picture(4)})
    scan(tmp_path)
    assert rows(tmp_path, 1, "name", "label") == [
        ("2024/cat/a.jpg", "cat"),
        ("cat.jpg", ""),
        ("cat/dog/b.jpg", "dog"),
        ("elk/c.jpg", ""),
    ]


def test_a_tag_file_says_it_instead_and_is_kept(tmp_path):
    drop(tmp_path / "incoming", {"dog/a, b.jpg": picture(1), "dog/c.jpg": picture(2)})
    tags = b'\xef\xbb\xbffile,other,label\n"dog/a, b.jpg",1, cat \n'
    drop(tmp_path / "incoming", {"labels.csv": tags})
    receipt = scan(tmp_path)
    assert rows(tmp_path, 1, "name", "label") == [("dog/a, b.jpg", "cat"), ("dog/c.jpg", "")]
    assert (tmp_path / "received/0001-labels.csv").read_bytes() == tags
    assert content(tmp_path / "incoming") == {}
    assert receipt.passed_over == {}


@pytest.mark.parametrize(
    ("tags", "rule"),
    [
        ("file,label\na.jpg,cow\n", "'a.jpg' has the label 'cow'; it must be one of the 2 labels"),
        ("file,label\nb.jpg,cat\n", "names files that are no images there: 1, 'b.jpg'"),
        ("file,label\na.jpg,cat\na.jpg,dog\n", "'a.jpg' has 2 labels .'cat', 'dog'.; it must be"),
        ("image,label\na.jpg,cat\n", "columns file,label"),
        ("file,label\na.jpg,cat,dog\n", "columns file,label: CSV parse error"),
        ("", "columns file,label: Empty CSV file"),
    ],
)
def test_a_wrong_tag_is_refused_before_anything_is_moved(tmp_path, tags, rule):
    files = {"a.jpg": picture(1), "labels.csv": tags.encode()}
    drop(tmp_path / "incoming", files)
    with pytest.raises(PlmclError, match=rule) as caught:
        scan(tmp_path)
    assert "labels.csv" in str(caught.value)
    assert content(tmp_path / "incoming") == files
    assert not (tmp_path / "received").exists()


def test_a_tag_file_waits_for_its_files_and_they_for_it(tmp_path):
    files = {"a.jpg": picture(1), "b.jpg": picture(2), "labels.csv": b"file,label\nb.jpg,cat\n"}
    drop(tmp_path / "incoming", files)
    now = time.time()
    for late in ("b.jpg", "labels.csv"):
        os.utime(tmp_path / "incoming" / late, (now, now))
        receipt = scan(tmp_path, now=now)
        assert (receipt.number, receipt.waiting) == (None, 2)
        os.utime(tmp_path / "incoming" / late, (LONG_AGO, LONG_AGO))
    assert content(tmp_path / "incoming") == files
    scan(tmp_path, now=now)
    assert rows(tmp_path, 1, "name", "label") == [("a.jpg", ""), ("b.jpg", "cat")]


# ------------------------------------------------------------------------------- addresses


@pytest.fixture
def bucket():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


def put(bucket, files):
    for name, data in files.items():
        bucket.pipe(f"/bucket/{name}", data)


def test_an_address_is_copied_from_and_never_emptied(tmp_path, bucket):
    put(bucket, DELIVERED | LEFT)
    known = image_table(["base/old"], sha256=sha256(picture(9)))
    schemas.write_table(known, tmp_path / "images.parquet")
    receipt = scan(tmp_path, "memory://bucket", settle_seconds=0)
    assert (receipt.number, receipt.accepted, receipt.duplicates) == (1, 3, 2)
    assert receipt.quarantined == {"not_an_image": 1, "truncated": 1}
    assert receipt.passed_over == {"__MACOSX": 1, "hidden": 1, "suffix .txt": 1}
    assert_received_once(tmp_path, emptied=False)
    assert all(rows(tmp_path, 1, "version"))
    assert {name: bucket.cat(f"/bucket/{name}") for name in DELIVERED} == DELIVERED
    assert scan(tmp_path, "memory://bucket", settle_seconds=0).number is None


def test_what_has_changed_at_an_address_is_new(tmp_path, bucket):
    put(bucket, {"a.jpg": picture(1), "b.jpg": picture(2)})
    scan(tmp_path, "memory://bucket", settle_seconds=0)
    put(bucket, {"a.jpg": picture(3), "c.jpg": picture(2)})
    receipt = scan(tmp_path, "memory://bucket", settle_seconds=0)
    assert rows(tmp_path, receipt.number, "name", "status", "reason") == [
        ("a.jpg", "ok", ""),
        ("c.jpg", "duplicate", "same bytes as delivered/0001/b.jpg"),
    ]
    assert scan(tmp_path, "memory://bucket", settle_seconds=0).number is None


def test_a_local_address_is_copied_from(tmp_path):
    deliver(tmp_path)
    address = f"file://{tmp_path}/incoming"
    drop(tmp_path / "incoming", {"labels.csv": b"file,label\na.jpg,dog\n"})
    assert scan(tmp_path, address).accepted == 3
    assert rows(tmp_path, 1, "name", "label")[0] == ("a.jpg", "dog")
    assert (tmp_path / "received/0001-labels.csv").read_bytes() == b"file,label\na.jpg,dog\n"
    assert set(content(tmp_path / "incoming")) == {*DELIVERED, *LEFT, "labels.csv"}
    assert scan(tmp_path, address).number is None
    # The tag file may go on to name what was received before.
    drop(tmp_path / "incoming", {"new.jpg": picture(20)})
    drop(tmp_path / "incoming", {"labels.csv": b"file,label\na.jpg,dog\nnew.jpg,cat\n"})
    assert scan(tmp_path, address).number == 2
    assert rows(tmp_path, 2, "name", "label") == [("new.jpg", "cat")]


def test_a_file_that_is_gone_when_it_is_fetched_is_left_out(tmp_path, bucket, monkeypatch):
    put(bucket, {"a.jpg": picture(1)})
    get = type(bucket).get_file

    def gone(self, path, *rest, **more):
        self.rm(path)
        return get(self, path, *rest, **more)

    monkeypatch.setattr(type(bucket), "get_file", gone)
    assert scan(tmp_path, "memory://bucket", settle_seconds=0).number is None


def test_an_address_that_fails_is_named_without_what_the_library_said(
    tmp_path, bucket, monkeypatch
):
    def fail(self, path, **more):
        raise PermissionError(13, "Forbidden")

    monkeypatch.setattr(type(bucket), "find", fail)
    with pytest.raises(UnreachableError) as caught:
        scan(tmp_path, "memory://me:secret@bucket?token=secret")
    assert str(caught.value) == "memory://bucket: cannot be read now: PermissionError: Forbidden"


def test_no_name_at_an_address_leads_out_of_the_store(tmp_path, bucket):
    names = ["../up.jpg", "x/../../up.jpg", "/root.jpg", "good.jpg"]
    for seed, name in enumerate(names):
        path = f"/bucket/{name}"
        bucket.store[path] = MemoryFile(bucket, path, picture(seed))
    receipt = scan(tmp_path, "memory://bucket", settle_seconds=0)
    assert rows(tmp_path, 1, "name", "status") == [("good.jpg", "ok")]
    assert receipt.passed_over == {"the name is no plain path": 3}
    assert {path.name for path in tmp_path.iterdir()} == {"received"}


# ----------------------------------------------------------------------------------- kills


class Killed(BaseException):
    pass


CALLS = ("replace", "unlink", "fsync", "mkdir", "rmdir")


def kill_at(monkeypatch, number, *, after, across):
    """Die before or after the `number`-th change of the file system; whether that came is told."""
    count = itertools.count(1)
    died = []

    def wrap(name, call):
        def changed(*arguments, **more):
            if died:
                raise Killed
            due = next(count) == number
            if due and not after:
                died.append(name)
                raise Killed
            try:
                if name == "replace" and across and "incoming" in str(arguments[0]):
                    raise OSError(errno.EXDEV, "Invalid cross-device link")
                return call(*arguments, **more)
            finally:
                if due:
                    died.append(name)
                    raise Killed

        return changed

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))
    monkeypatch.setattr(shutil, "copyfile", wrap("copyfile", shutil.copyfile))
    return died


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True], ids=["one file system", "two file systems"])
def test_a_kill_at_any_step_loses_nothing_and_takes_nothing_twice(tmp_path, monkeypatch, across):
    some = {name: DELIVERED[name] for name in ("a.jpg", "sub/a.jpg", "c.jpg", "cut.jpg")}
    tags = b"file,label\na.jpg,dog\n"
    drop(tmp_path / "prepared/incoming", some | {"labels.csv": tags})

    def end(*_):
        raise Killed

    # What the doctor found is kept, so that the steps alone take time.
    monkeypatch.setattr("plmcl.retraining.arrival.name_duplicates", end)
    with pytest.raises(Killed):
        scan(tmp_path / "prepared")
    monkeypatch.undo()
    assert list((tmp_path / "prepared/record").iterdir())
    # Until the table is there, nothing is moved.
    for step in itertools.count(10 if across else 1):
        root = tmp_path / "trial"
        shutil.copytree(tmp_path / "prepared", root)
        with monkeypatch.context() as patch, suppress(Killed):
            died = kill_at(patch, step, after=False, across=across)
            scan(root)
        scan(root)
        assert (root / "received/0001-labels.csv").read_bytes() == tags
        (root / "received/0001-labels.csv").unlink()
        assert rows(root, 1, "name", "label")[0] == ("a.jpg", "dog")
        assert_received_once(root, some)
        assert content(root / "incoming") == {}
        if not died:
            break
        shutil.rmtree(root)
    assert step > 30


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 4, 9, 14, 19, 24])
def test_a_kill_while_an_address_is_copied_from(tmp_path, bucket, monkeypatch, step):
    put(bucket, DELIVERED)
    known = image_table(["base/old"], sha256=sha256(picture(9)))
    schemas.write_table(known, tmp_path / "images.parquet")
    with monkeypatch.context() as patch:
        died = kill_at(patch, step, after=True, across=False)
        with pytest.raises(Killed):
            scan(tmp_path, "memory://bucket", settle_seconds=0)
    assert died
    scan(tmp_path, "memory://bucket", settle_seconds=0)
    assert_received_once(tmp_path, emptied=False)


@pytest.mark.slow
@pytest.mark.parametrize("moves", [0, 3])
def test_sigkill_while_files_are_moved(tmp_path, moves):
    deliver(tmp_path)
    program = f"""
import os, signal
from pathlib import Path
from test_arrival import scan
replace, left = os.replace, [{moves}]
def dying(source, target):
    if "incoming" in str(source):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
    replace(source, target)
os.replace = dying
scan(Path({str(tmp_path)!r}))
"""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "received/moving.json").exists()
    assert scan(tmp_path).number is None
    assert_received_once(tmp_path)
    assert waiting(tmp_path / "received", 0).count == 3


def test_a_full_disk_is_said_and_the_next_scan_goes_on(tmp_path, monkeypatch):
    deliver(tmp_path)
    replace = os.replace

    def full(source, target):
        if "incoming" in str(source):
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(PlmclError, match=r"a\.jpg: No space left on device; nothing is lost"):
            scan(tmp_path)
    scan(tmp_path)
    assert_received_once(tmp_path)
