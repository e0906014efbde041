"""Tests of the tables' contracts, of their bytes on disk, and of the checks between tables."""

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from tables import image_table

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.splits import make_splits
from plmcl.errors import PlmclError
from plmcl.labels.settings import Setting, make_draws, observe

NAMES = ["cat", "dog", "elk", "no", "NA", "a,b"]
IDS = [f"{i:02d}" for i in range(30)]


def labels(rows):
    frame = pd.DataFrame(rows, columns=["image_id", "label", "value"])
    return frame.astype({"image_id": "str", "label": "str", "value": np.int8})


# Each image i but 00 and 01 has the labels i mod 4 and i mod 3; the last two arrived later.
TRUTH = Manifest(
    images=image_table(IDS, sha256=IDS, delivery=[0] * 28 + [1] * 2),
    labels=labels([(i, NAMES[k], 1) for i in IDS[2:] for k in sorted({int(i) % 4, int(i) % 3})]),
    label_names=NAMES,
    unlisted="negative",
)
SPLITS = make_splits(TRUTH, seed=0, val=0.2, test=0.2, protocol="holdout", draw="hash")
TRAIN = sorted(set(SPLITS.loc[SPLITS["split"] == "train", "image_id"]) - set(IDS[28:]))
DRAWS = make_draws(TRUTH, TRAIN, seed=0, draw="hash")


def observed(name, truth=TRUTH):
    return observe(Setting.parse(name), truth=truth, splits=SPLITS, draws=DRAWS, seed=0)


def validate(name, tmp_path, table, **changes):
    tables = {"draws": DRAWS, "splits": SPLITS, "manifest": TRUTH} | changes
    setting = Setting.parse(name)
    schemas.validate_observed(table, setting=setting, **tables, report_to=tmp_path)


def refusal(name, tmp_path, table, **changes):
    with pytest.raises(PlmclError) as refused:
        validate(name, tmp_path, table, **changes)
    return str(refused.value)


# ------------------------------------------------------------------------------ on disk

EXAMPLE = labels([("a", "NA", 0), ("a", "😀", 1), ("b", "None", 1), ("c", "a,b\n", 1)])


def test_a_table_comes_back_as_it_was(tmp_path):
    schemas.write_table(EXAMPLE, tmp_path / "new" / "labels.parquet")
    found = schemas.read_table(tmp_path / "new" / "labels.parquet", schemas.Labels)
    pd.testing.assert_frame_equal(found, EXAMPLE)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["labels.parquet"]


def test_the_same_rows_are_the_same_bytes_however_they_are_held(tmp_path):
    parts = pd.concat([EXAMPLE[:1], EXAMPLE[1:]])  # two chunks of text
    parts.index = pd.Index([5, 6, 7, 9])
    objects = EXAMPLE.astype({"image_id": object, "label": object})
    arrow = EXAMPLE.astype({"label": "string"})
    written = set()
    for i, frame in enumerate([EXAMPLE, EXAMPLE.copy(), parts, objects, arrow]):
        schemas.write_table(frame, tmp_path / f"{i}")
        written.add((tmp_path / f"{i}").read_bytes())
    assert len(written) == 1


def test_another_process_writes_the_same_bytes(tmp_path):
    folders = [str(Path(schemas.__file__).parents[1]), str(Path(__file__).parent)]
    program = f"""
import sys; sys.path[:0] = {folders!r}
from pathlib import Path
import test_schemas as t
t.schemas.write_table(t.observed("fpl-40"), Path({str(tmp_path / "other")!r}))
t.schemas.write_table(t.DRAWS, Path({str(tmp_path / "draws")!r}))
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONHASHSEED": "7"})
    schemas.write_table(observed("fpl-40"), tmp_path / "here")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "here").read_bytes()
    schemas.write_table(DRAWS, tmp_path / "here")
    assert (tmp_path / "draws").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_file_holds_no_version_and_no_index(tmp_path):
    schemas.write_table(EXAMPLE, tmp_path / "labels.parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "labels.parquet")
    assert file.schema_arrow.names == ["image_id", "label", "value"]
    assert file.schema_arrow.metadata is None
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_long_table_is_the_same_bytes_however_it_is_cut(tmp_path):
    numbers = np.random.default_rng(0).permutation(60_000)
    frame = labels([(f"a name of some length {i}", "x", 1) for i in numbers])
    schemas.write_table(frame, tmp_path / "whole")
    schemas.write_table(pd.concat([frame[:777], frame[777:]]), tmp_path / "cut")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "cut").read_bytes()


def test_a_write_that_fails_leaves_the_earlier_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "labels.parquet"
    schemas.write_table(EXAMPLE, path)
    before = path.read_bytes()

    def disk_is_full(table, where, **options):
        where.write_bytes(before[:50])
        raise OSError("No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", disk_is_full)
    with pytest.raises(PlmclError, match=r"labels\.parquet: cannot be written: No space"):
        schemas.write_table(EXAMPLE[:2], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_below_a_file_or_over_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "labels.parquet", tmp_path):
        with pytest.raises(PlmclError, match="cannot be written"):
            schemas.write_table(EXAMPLE, path)


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(
        PlmclError, match=r"labels\.parquet: not found; run the stage that writes it"
    ):
        schemas.read_table(tmp_path / "labels.parquet", schemas.Labels)


@pytest.mark.parametrize("data", [b"", b"<html>404", b"PAR1" + bytes(40) + b"PAR1"])
def test_another_file_is_refused(tmp_path, data):
    (tmp_path / "labels.parquet").write_bytes(data)
    with pytest.raises(PlmclError, match=r"labels\.parquet: not a readable Parquet file: \w+"):
        schemas.read_table(tmp_path / "labels.parquet", schemas.Labels)


def test_half_a_file_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    schemas.write_table(EXAMPLE, path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(PlmclError, match="not a readable Parquet file"):
        schemas.read_table(path, schemas.Labels)


def test_a_table_of_another_contract_is_refused(tmp_path):
    schemas.write_table(EXAMPLE, tmp_path / "labels.parquet")
    with pytest.raises(PlmclError, match="columns: image_id, split: found image_id, label, value"):
        schemas.read_table(tmp_path / "labels.parquet", schemas.Splits)


@pytest.mark.parametrize(
    ("schema", "column", "values", "rule"),
    [
        (schemas.Images, "image_id", ["a", "a"], "image_id: not twice: 2 row"),
        (schemas.Images, "image_id", ["a", ""], "image_id: str_length"),
        (schemas.Images, "path", ["a", ""], "path: str_length"),
        (schemas.Images, "width", np.array([1, -1], dtype=np.int32), "width: greater_than_or"),
        (schemas.Images, "height", np.array([1, 2], dtype=np.int64), "height: of type int32"),
        (schemas.Images, "split", ["", "validation"], "split: isin"),
        (schemas.Images, "status", ["ok", ""], "status: one of plmcl.data.statuses"),
        (schemas.Images, "delivery", np.array([0, -1], dtype=np.int32), "delivery: greater_than"),
        (schemas.Splits, "split", ["train", ""], "split: isin"),
        (schemas.Splits, "image_id", ["a", "a"], "image_id: not twice"),
        (schemas.Draws, "draw_rank", [0, -1], "draw_rank: greater_than_or"),
        (schemas.Draws, "draw_rank", [1, 1], "draw_rank: not twice: 2 row"),
        (schemas.Labels, "value", np.array([0, 2], dtype=np.int8), "value: isin"),
        (schemas.ObservedLabels, "value", np.array([-1, 1], dtype=np.int8), "value: isin"),
        (schemas.ObservedLabels, "label", ["x", ""], "label: str_length"),
        (schemas.Predictions, "score", np.float32([0.5, 1.5]), "score: in_range"),
        (schemas.Predictions, "score", np.float32([0.5, np.nan]), "score: present: 1 row"),
        (schemas.Predictions, "score", np.float64([0.5, 0.5]), "score: of type float32"),
    ],
)
def test_each_contract_refuses_what_it_must(tmp_path, schema, column, values, rule):
    good = {
        schemas.Images: image_table(["a", "b"]),
        schemas.Splits: pd.DataFrame({"image_id": ["a", "b"], "split": ["train", "val"]}),
        schemas.Draws: pd.DataFrame(
            {"image_id": ["a", "b"], "label": ["", "x"], "draw_rank": [1, 0]}
        ),
        schemas.Labels: labels([("a", "x", 1), ("b", "x", 0)]),
        schemas.ObservedLabels: labels([("a", "x", 1), ("b", "x", 0)]),
        schemas.Predictions: labels([("a", "x", 1), ("b", "x", 0)])
        .drop(columns="value")
        .assign(score=np.float32([0, 1])),
    }[schema]
    schemas.write_table(good, tmp_path / "table")
    pd.testing.assert_frame_equal(schemas.read_table(tmp_path / "table", schema), good)
    schemas.write_table(good.assign(**{column: values}), tmp_path / "table")
    with pytest.raises(PlmclError, match=rule.replace("(", r"\(")):
        schemas.read_table(tmp_path / "table", schema)


def test_pandera_itself_accepts_and_refuses_by_the_same_classes():
    schemas.Labels.validate(EXAMPLE)
    with pytest.raises(Exception, match="isin"):
        schemas.Labels.validate(EXAMPLE.assign(value=np.array([0, 1, 1, 7], dtype=np.int8)))


# ------------------------------------------------------------------------------ manifest


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"label_names": ["cat", "dog", "cat"]}, "label_names: label: not twice: 2 row"),
        ({"label_names": []}, "label_names: at least one"),
        ({"label_names": [*NAMES, ""]}, "label_names: label: str_length"),
        ({"label_names": NAMES[1:]}, r"labels: label: in label_names: \d+ row"),
        ({"images": image_table(IDS[:-1])}, r"labels: image_id: in images: 2 row"),
        ({"images": image_table([*IDS, "00"])}, "images: image_id: not twice: 2 row"),
        ({"labels": labels([("05", "cat", 1), ("05", "cat", 0)])}, "image_id, label: not twice: 2"),
    ],
)
def test_a_manifest_whose_tables_disagree_is_refused(tmp_path, change, rule):
    schemas.validate_manifest(TRUTH, report_to=tmp_path)
    with pytest.raises(PlmclError, match=rule):
        schemas.validate_manifest(dataclasses.replace(TRUTH, **change), report_to=tmp_path)
    assert (tmp_path / "violations.csv").exists()


def test_rows_of_all_rules_are_listed_in_one_pass(tmp_path):
    """Case 91: a bad value does not hide an unknown image or label."""
    bad = labels([("05", "cat", 7), ("99", "cat", 1), ("05", "cow", 1), ("06", "NA", 0)])
    with pytest.raises(PlmclError):
        schemas.validate_manifest(dataclasses.replace(TRUTH, labels=bad), report_to=tmp_path)
    report = pd.read_csv(tmp_path / "violations.csv", keep_default_na=False, dtype=str)
    assert sorted(report["row"]) == ["0", "1", "2"]
    fixed = bad.drop(index=report["row"].astype(int))
    schemas.validate_manifest(dataclasses.replace(TRUTH, labels=fixed), report_to=tmp_path)


# ------------------------------------------------------------------------------ observed


def test_the_example_is_what_the_tests_below_take_it_for():
    assert len(TRAIN) == 18
    assert set(DRAWS.loc[DRAWS["label"] == "", "image_id"]) == {"00", "01"} & set(TRAIN) != set()
    assert len(observed("sspl-50")) in (8, 9)


@pytest.mark.parametrize("name", ["ffl", "fpl-30", "fspl", "sfl-50", "sspl-50", "given"])
def test_what_observe_gives_is_accepted(tmp_path, name):
    validate(name, tmp_path, observed(name))
    assert list(tmp_path.iterdir()) == []


def test_known_negatives_are_compared_with_the_listed_ones(tmp_path):
    rows = [(i, "cat", int(i) % 2) for i in TRAIN]
    truth = dataclasses.replace(TRUTH, labels=labels(rows), unlisted="unknown")
    draws = make_draws(truth, TRAIN, seed=0, draw="hash")
    validate("ffl", tmp_path, labels(rows), manifest=truth, draws=draws)
    unlisted = labels([*rows, (TRAIN[0], "dog", 0)])
    message = refusal("ffl", tmp_path, unlisted, manifest=truth, draws=draws)
    assert "value: as in the truth: 1 row" in message


def test_labels_as_given_are_compared_with_the_listed_ones(tmp_path):
    rows = [(i, "cat", int(i) % 2) for i in TRAIN]
    truth = dataclasses.replace(TRUTH, labels=labels(rows), unlisted="unknown")
    draws = make_draws(truth, TRAIN, seed=0, draw="hash")
    validate("given", tmp_path, labels(rows), manifest=truth, draws=draws)
    more = labels([*rows, (TRAIN[0], "dog", 0)])
    message = refusal("given", tmp_path, more, manifest=truth, draws=draws)
    assert "value: as in the truth: 1 row" in message


def other_id(split):
    return SPLITS.loc[SPLITS["split"] == split, "image_id"].iloc[0]


def rows_of(table, image_id):
    return table["image_id"] == image_id


FSPL = observed("fspl")
FIRST = FSPL["image_id"].iloc[0]
LATE = DRAWS.loc[(DRAWS["draw_rank"] >= 9) & (DRAWS["label"] != "")].iloc[0]


@pytest.mark.parametrize(
    ("name", "row", "rules"),
    [
        ("fspl", (other_id("test"), "cat", 1), ["image_id: a training image", "in draws"]),
        ("fspl", (other_id("val"), "cat", 1), ["image_id: a training image"]),
        ("fspl", ("29", NAMES[1], 1), ["image_id: in draws"]),  # arrived later
        ("fspl", ("99", "cat", 1), ["image_id: a training image"]),
        ("fspl", (FIRST, "cow", 1), ["label: in label_names", "value: as in the truth"]),
        ("fspl", (FIRST, "NA", 0), ["one positive an image and nothing else: 2 row"]),
        ("fspl", ("00", "cat", 1), ["value: as in the truth: 1 row", "label: the one drawn"]),
        ("sspl-50", (LATE["image_id"], LATE["label"], 1), ["draw_rank: below 9: 1 row"]),
        ("sfl-50", (LATE["image_id"], "NA", 0), ["draw_rank: below 9: 1 row"]),
        ("given", (other_id("test"), "cat", 0), ["image_id: a training image: 1 row"]),
        ("given", ("29", "elk", 0), ["value: as in the truth: 1 row"]),  # of 29 only its tags
    ],
)
def test_a_row_that_must_not_be_observed_is_refused(tmp_path, name, row, rules):
    message = refusal(name, tmp_path, pd.concat([observed(name), labels([row])], ignore_index=True))
    for rule in rules:
        assert rule in message
    assert (tmp_path / f"violations-{name}.csv").exists()


def test_a_positive_that_is_not_true_is_refused(tmp_path):
    table = observed("ffl")
    table.loc[table.index[table["value"] == 0][3], "value"] = np.int8(1)
    assert "value: as in the truth: 1 row(s)" in refusal("ffl", tmp_path, table)


def test_another_positive_than_the_drawn_one_is_refused(tmp_path):
    image_id = next(i for i in TRAIN if (TRUTH.labels["image_id"] == i).sum() == 2)
    true = set(TRUTH.labels.loc[TRUTH.labels["image_id"] == image_id, "label"])
    table = observed("fspl")
    (other,) = true - set(table.loc[rows_of(table, image_id), "label"])
    table.loc[rows_of(table, image_id), "label"] = other
    message = refusal("fspl", tmp_path, table)
    assert "1 rule(s) broken\n  observed: label: the one drawn: 1 row(s)" in message


def test_too_few_labeled_images_are_refused_by_name(tmp_path):
    """The number of labeled images is round(p*N) less those without a positive."""
    table = observed("sspl-50")
    message = refusal("sspl-50", tmp_path, table[2:])
    assert "draws: labeled in its turn: 2 row(s)" in message
    assert f"image_id '{table['image_id'].iloc[0]}'" in message


def test_an_image_in_two_splits_is_refused(tmp_path):
    twice = pd.DataFrame({"image_id": [TRAIN[0]], "split": ["test"]}, dtype="str")
    splits = pd.concat([SPLITS, twice], ignore_index=True)
    message = refusal("fspl", tmp_path, observed("fspl"), splits=splits)
    assert "splits: image_id: not twice: 2 row(s)" in message


def test_splits_and_draws_must_cover_their_images(tmp_path):
    table = observed("fspl")
    message = refusal("fspl", tmp_path, table, splits=SPLITS[~rows_of(SPLITS, other_id("test"))])
    assert "images: image_id: in splits: 1 row(s)" in message
    status = TRUTH.images["status"].mask(TRUTH.images["image_id"] == other_id("test"), "empty")
    unusable = dataclasses.replace(TRUTH, images=TRUTH.images.assign(status=status))
    message = refusal("fspl", tmp_path, table, manifest=unusable)
    assert "splits: image_id: a usable image: 1 row(s)" in message
    message = refusal("fspl", tmp_path, table, draws=DRAWS[~rows_of(DRAWS, "00")])
    assert "splits: image_id: in draws: 1 row(s)" in message
    stray = DRAWS.assign(image_id=DRAWS["image_id"].replace("00", "29"))
    message = refusal("fspl", tmp_path, table, draws=stray)
    assert "draws: image_id: a training image of the base set: 1 row(s)" in message


def test_a_draw_that_is_no_positive_of_its_image_is_refused(tmp_path):
    draws = DRAWS.assign(label=DRAWS["label"].replace("", "elk"))
    message = refusal("fspl", tmp_path, observed("fspl"), draws=draws)
    number = len({"00", "01"} & set(TRAIN))
    assert f"draws: label: a positive of the image: {number} row(s)" in message


def test_turns_are_a_permutation(tmp_path):
    draws = DRAWS.assign(draw_rank=DRAWS["draw_rank"] + 1)
    message = refusal("fspl", tmp_path, observed("fspl"), draws=draws)
    assert "draws: draw_rank: below the number of images: 1 row(s)" in message


def test_fixing_all_listed_rows_leaves_a_second_pass_clean(tmp_path):
    """Case 91, over all rules between tables."""
    good = observed("ffl")
    bad = [("99", "cat", 1), (FIRST, "cow", 1), (other_id("test"), "cat", 1), ("", "cat", 0)]
    table = pd.concat([good, labels(bad)], ignore_index=True)
    table["value"] = np.where(table.index % 7 == 0, 7, table["value"]).astype(np.int8)
    refusal("ffl", tmp_path, table)
    report = pd.read_csv(tmp_path / "violations-ffl.csv", keep_default_na=False, dtype=str)
    assert set(report["table"]) == {"observed"}
    validate("ffl", tmp_path, table.drop(index=report["row"].astype(int).unique()))


def test_everything_wrong_still_gives_a_short_message(tmp_path):
    """Case 90: 20,000 images x 80 labels, all wrong, though here fewer."""
    table = labels([(f"😀 {i}", f"label {j} 😀", 7) for i in range(500) for j in range(80)])
    message = refusal("sspl-50", tmp_path, table)
    assert len(message.encode()) < 2000
    assert "observed: value: isin([0, 1]): 40000 row(s)" in message
    digest = hashlib.sha256((tmp_path / "violations-sspl-50.csv").read_bytes()).hexdigest()
    refusal("sspl-50", tmp_path, table)
    again = hashlib.sha256((tmp_path / "violations-sspl-50.csv").read_bytes()).hexdigest()
    assert digest == again
