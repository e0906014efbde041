"""Tests of the manifest's round trip, with label names that other readers lose."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import image_table

from plmcl.data.manifest import Manifest, label_names_sha256
from plmcl.errors import PlmclError

NAMES = ["NA", "None", "null", "nan", "no", "on", "007", "1e3", "a,b", "it's", 'say "x"']
NAMES += [
    '""\\"name"',
    "two\nlines",
    "tab\t",
    " space ",
    "😀",
    "é",
    "e\u0301",
    "\u2028",
    "True",
    "-",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


def manifest(label_names, image_ids=("a,b.jpg", "my cat 3.jpg", "😀.jpg"), unlisted="unknown"):
    labels = pd.DataFrame({"image_id": image_ids[0], "label": label_names}, dtype="str")
    labels = labels.assign(value=np.arange(len(label_names), dtype=np.int8) % 2)
    return Manifest(image_table(image_ids, height=2), labels, list(label_names), unlisted)


def assert_same(found, expected):
    pd.testing.assert_frame_equal(found.images, expected.images)
    pd.testing.assert_frame_equal(found.labels, expected.labels)
    assert found.label_names == expected.label_names
    assert found.unlisted == expected.unlisted


def test_names_that_other_readers_lose_come_back(tmp_path):
    """Cases 18, 21 and 42."""
    written = manifest(NAMES)
    written.write(tmp_path)
    assert_same(Manifest.read(tmp_path), written)


@given(st.lists(texts, min_size=1, unique=True), st.lists(texts, min_size=1, unique=True))
@settings(max_examples=20, deadline=None)
def test_any_text_comes_back(tmp_path_factory, names, image_ids):
    path = tmp_path_factory.mktemp("manifest")
    written = manifest(names, image_ids, "negative")
    written.write(path)
    assert_same(Manifest.read(path), written)


def test_the_same_manifest_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        manifest(NAMES).write(tmp_path / name)
    for file in ("images.parquet", "labels.parquet", "labels.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_label_list_is_readable_json_in_order(tmp_path):
    manifest(["b", "a", "😀"]).write(tmp_path)
    text = (tmp_path / "labels.json").read_text(encoding="utf-8")
    assert json.loads(text)["label_names"] == ["b", "a", "😀"]
    assert "😀" in text
    assert text.endswith("}\n")


def test_the_checksum_depends_on_names_and_order():
    sums = {label_names_sha256(names) for names in (["a", "b"], ["b", "a"], ["a,b"], ['a","b'])}
    assert len(sums) == 4


def test_a_label_list_edited_by_hand_is_refused(tmp_path):
    """Case 42."""
    manifest(["a", "b"]).write(tmp_path)
    path = tmp_path / "labels.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"b"', '"c"'), encoding="utf-8")
    with pytest.raises(PlmclError, match=r"labels\.json: label_names were edited by hand"):
        Manifest.read(tmp_path)


def test_a_manifest_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(PlmclError, match=r"labels\.json: not found; run the ingest stage first"):
        Manifest.read(tmp_path)


def test_a_broken_manifest_is_not_written(tmp_path):
    with pytest.raises(PlmclError, match="manifest: 1 rule"):
        manifest(["a", "b"], image_ids=("x", "x")).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["violations.csv"]


def test_only_images_with_status_ok_are_usable():
    example = manifest(["a"])
    example.images["status"] = pd.Series(["ok", "truncated", "duplicate"], dtype="str")
    assert example.usable["image_id"].tolist() == ["a,b.jpg"]
