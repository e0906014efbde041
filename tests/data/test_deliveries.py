"""Deliveries: tables worked by hand, laid over a base set that stays what it is."""

import dataclasses
import hashlib
import os

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tables import label_table

from plmcl.data.deliveries import append_deliveries, read_deliveries
from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations
from plmcl.errors import PlmclError
from plmcl.schemas import Delivery, Images, Labels, read_table, write_table

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def save(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(path)


def save_gradient(path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    gradient = np.add.outer(np.arange(64), 3 * np.arange(64)).astype(np.uint8)
    Image.fromarray(gradient).save(path, **options)


def deliver(folder, number, tags, dropped=None, **changes):
    """Write the table of a delivery: of files that lie there, and of dropped (sha256, tag)."""
    found = []
    for name, tag in tags.items():
        content = (folder / f"{number:04d}" / name).read_bytes()
        status = "ok" if content else "empty"
        found.append((name, status, hashlib.sha256(content).hexdigest(), tag))
    found += [(name, "duplicate", *row) for name, row in (dropped or {}).items()]
    table = pd.DataFrame(found, columns=["name", "status", "sha256", "label"])
    table = table.assign(reason="", dhash="", width=8, height=6, bytes=9, arrived=0, version="")
    types = {name: column.dtype.type for name, column in Delivery.to_schema().columns.items()}
    table = table.assign(**changes)[list(types)].astype(types)
    write_table(table, folder / f"{number:04d}.parquet")


@pytest.fixture
def base(tmp_path) -> Manifest:
    """a.png and b.png, and a broken c.png; all that is not listed is absent."""
    raw = tmp_path / "data/raw/pets"
    save(raw / "a.png", 1)
    save_gradient(raw / "b.png")
    (raw / "c.png").write_bytes(b"")
    values = {("a.png", "cat"): 1, ("b.png", "dog"): 1}
    annotations = Annotations(".", ["a.png", "b.png", "c.png"], {}, label_table(values),
                              ["cat", "dog"], "negative")  # fmt: skip
    return ingest(annotations, raw, RECIPE, below="raw/pets")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data/deliveries/v0001"


def append(base, folder):
    return append_deliveries(base, folder, RECIPE, below="deliveries/v0001")


def rows(frame, *columns):
    return list(frame[list(columns)].itertuples(index=False, name=None))


def test_tables_are_read_in_the_order_of_their_numbers(folder):
    for number in (10000, 2, 1):
        save(folder / f"{number:04d}/x.png", number % 250)
        deliver(folder, number, {"x.png": ""})
    (folder / "README.md").write_text("not a table")
    save(folder / "notes.parquet/x.png", 1)
    found = read_deliveries(folder)
    assert [number for number, _ in found] == [1, 2, 10000]
    assert found[0][1]["name"].tolist() == ["x.png"]
    assert read_deliveries(folder / "nowhere") == []


def test_delivered_images_come_after_the_base_set_which_stays(base, folder, tmp_path):
    save(folder / "0001/new.png", 20)
    save(folder / "0001/deep/er.png", 21)
    save_gradient(folder / "0002/like b.jpg", quality=80)
    deliver(folder, 1, {"new.png": "dog", "deep/er.png": ""})
    deliver(folder, 2, {"like b.jpg": "cat"})
    found = append(base, folder)
    assert rows(found.images, "image_id", "path", "status", "delivery") == [
        ("a.png", "raw/pets/a.png", "ok", 0),
        ("b.png", "raw/pets/b.png", "converted", 0),
        ("c.png", "raw/pets/c.png", "empty", 0),
        ("delivered/0001/deep/er.png", "deliveries/v0001/0001/deep/er.png", "ok", 1),
        ("delivered/0001/new.png", "deliveries/v0001/0001/new.png", "ok", 1),
        ("delivered/0002/like b.jpg", "deliveries/v0001/0002/like b.jpg", "converted", 2),
    ]
    assert all((tmp_path / "data" / path).exists() for path in found.images["path"])
    assert rows(found.labels, "image_id", "label", "value") == [
        ("a.png", "cat", 1),
        ("b.png", "dog", 1),
        ("delivered/0001/new.png", "dog", 1),
        ("delivered/0002/like b.jpg", "cat", 1),
    ]
    assert rows(found.near_duplicates, "image_id", "other_id") == [
        ("b.png", "delivered/0002/like b.jpg")
    ]
    restricted = found.images[found.images["delivery"] == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(restricted, base.images)
    pd.testing.assert_frame_equal(found.labels[:2], base.labels)
    assert found.closed.tolist() == ["a.png", "b.png", "c.png"]
    found.write(tmp_path / "manifest")  # it keeps its contract
    pd.testing.assert_frame_equal(
        read_table(tmp_path / "manifest/images.parquet", Images), found.images
    )
    read_table(tmp_path / "manifest/labels.parquet", Labels)


def test_no_delivery_changes_nothing(base, folder):
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("none yet")
    assert append(base, folder) is base


def test_a_later_delivery_changes_no_row_of_an_earlier_one(base, folder):
    for number in (1, 2):
        save(folder / f"{number:04d}/x.png", 20 + number)
        deliver(folder, number, {"x.png": "dog"})
    both = append(base, folder)
    (folder / "0002.parquet").unlink()
    one = append(base, folder)
    pd.testing.assert_frame_equal(both.images[:4], one.images)
    pd.testing.assert_frame_equal(both.labels[:3], one.labels)


def test_the_first_with_some_bytes_is_kept_and_takes_the_tags_of_the_others(base, folder, caplog):
    """A base image comes first, then the deliveries by number, whatever the names are."""
    save(folder / "0001/z.png", 20)
    save(folder / "0002/a.png", 20)
    save(folder / "0002/base.png", 1)  # a.png of the base set
    deliver(folder, 1, {"z.png": "dog"})
    deliver(folder, 2, {"a.png": "cat", "base.png": "dog"})
    found = append(base, folder)
    assert rows(found.images[3:], "image_id", "status", "reason") == [
        ("delivered/0001/z.png", "ok", ""),
        ("delivered/0002/a.png", "duplicate", "same bytes as delivered/0001/z.png"),
        ("delivered/0002/base.png", "duplicate", "same bytes as a.png"),
    ]
    # What is known of a.png decides what figures are worth: a delivery does not change it.
    pd.testing.assert_frame_equal(found.labels[:2], base.labels)
    assert rows(found.labels[2:], "image_id", "label") == [
        ("delivered/0001/z.png", "dog"),
        ("delivered/0001/z.png", "cat"),
    ]
    assert "tags of delivered files that the base set has: 1, not used" in caplog.text


def test_a_duplicate_that_was_dropped_on_arrival_leaves_its_tag(base, folder):
    save(folder / "0001/x.png", 20)
    deliver(folder, 1, {"x.png": ""})
    sha256 = read_deliveries(folder)[0][1]["sha256"].iloc[0]
    save(folder / "0002/y.png", 21)
    dropped = {"again.png": (sha256, "cat"), "twice.png": (sha256, "cat"), "gone.png": ("0", "dog")}
    deliver(folder, 2, {"y.png": ""}, dropped)
    found = append(base, folder)
    assert found.images["image_id"].tolist()[3:] == ["delivered/0001/x.png", "delivered/0002/y.png"]
    assert rows(found.labels[2:], "image_id", "label") == [("delivered/0001/x.png", "cat")]


def test_what_was_quarantined_is_no_image(base, folder):
    save(folder / "0001/x.png", 20)
    (folder / "0001/bad.png").write_bytes(b"")
    deliver(folder, 1, {"x.png": "", "bad.png": "cat"})
    found = append(base, folder)
    assert found.images["image_id"].tolist()[3:] == ["delivered/0001/x.png"]
    assert len(found.labels) == 2


def test_a_file_that_was_damaged_since_is_found(base, folder):
    for name, shade in (("cut.png", 20), ("gone.png", 21), ("other.png", 22), ("well.png", 23)):
        save(folder / "0001" / name, shade)
    deliver(folder, 1, {"cut.png": "cat", "gone.png": "", "other.png": "", "well.png": ""})
    (folder / "0001/cut.png").write_bytes((folder / "0001/cut.png").read_bytes()[:40])
    (folder / "0001/gone.png").unlink()
    save(folder / "0001/other.png", 99)  # a sound image, and not the one that was received
    found = append(base, folder)
    assert rows(found.images[3:], "image_id", "status", "width") == [
        ("delivered/0001/cut.png", "truncated", 0),
        ("delivered/0001/gone.png", "unreadable", 0),
        ("delivered/0001/other.png", "unreadable", 0),
        ("delivered/0001/well.png", "ok", 8),
    ]
    assert found.images["reason"].iloc[5] == "its bytes are not those that were received"
    assert found.usable["image_id"].tolist() == ["a.png", "b.png", "delivered/0001/well.png"]
    # As in the base set, whoever repairs the file finds its tag.
    assert rows(found.labels[2:], "image_id", "label") == [("delivered/0001/cut.png", "cat")]


def test_a_tag_that_is_no_label_is_refused_with_its_file(base, folder):
    save(folder / "0001/x.png", 20)
    deliver(folder, 1, {"x.png": "zebra"})
    with pytest.raises(PlmclError, match=r"0001/x\.png: label 'zebra' is not one of the 2 labels"):
        append(base, folder)
    wider = dataclasses.replace(base, label_names=["cat", "dog", "zebra"])
    assert append(wider, folder).labels["label"].iloc[-1] == "zebra"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": "../x.png"}, "name: a path that stays below its folder: 1 row"),
        ({"name": "/etc/x.png"}, "name: a path that stays below its folder: 1 row"),
        ({"status": "fine"}, "status: one of plmcl.data.statuses, or forgotten: 1 row"),
    ],
)
def test_a_table_that_breaks_its_contract_is_refused(folder, changes, rule):
    save(folder / "0001/x.png", 20)
    deliver(folder, 1, {"x.png": ""}, **changes)
    with pytest.raises(PlmclError, match=rule):
        read_deliveries(folder)


def test_a_second_look_opens_only_what_is_new(base, folder, tmp_path):
    save(folder / "0001/x.png", 20)
    deliver(folder, 1, {"x.png": ""})
    old = 1_600_000_000
    os.utime(folder / "0001/x.png", (old, old))
    arguments = {"below": "deliveries/v0001", "record": tmp_path / "examined"}
    first = append_deliveries(base, folder, RECIPE, **arguments)
    content = (folder / "0001/x.png").read_bytes()
    (folder / "0001/x.png").write_bytes(bytes(len(content)))  # the same size and time of change
    os.utime(folder / "0001/x.png", (old, old))
    second = append_deliveries(base, folder, RECIPE, **arguments)
    pd.testing.assert_frame_equal(second.images, first.images)
