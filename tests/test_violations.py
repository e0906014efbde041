"""Tests of the refusal of broken tables: what is listed, and how short it stays."""

import time

import numpy as np
import pandas as pd
import pytest

from plmcl.errors import PlmclError
from plmcl.schemas import Draws, Labels
from plmcl.violations import Violations


def labels(image_ids, names, values):
    frame = pd.DataFrame({"image_id": image_ids, "label": names}, dtype="str")
    return frame.assign(value=np.array(values, dtype=np.int8))


def refusal(frame, schema, report=None):
    violations = Violations("example")
    violations.check_schema("labels", frame, schema)
    with pytest.raises(PlmclError) as refused:
        violations.raise_if_any(report)
    return str(refused.value)


def listed(report):
    return pd.read_csv(report, keep_default_na=False, dtype=str)


BROKEN = labels(["a", "a", "", "b", None], ["x", "x", "x", "y", "y"], [1, 0, 7, 7, 1])


def test_the_message_worked_out_by_hand(tmp_path):
    report = tmp_path / "new" / "violations.csv"
    assert refusal(BROKEN, Labels, report).split("\n") == [
        "example: 4 rule(s) broken",
        "  labels: image_id: present: 1 row(s)",
        "  labels: image_id: str_length(1, None): 1 row(s)",
        "  labels: value: isin([0, 1]): 2 row(s)",
        "  labels: image_id, label: not twice: 2 row(s)",
        "  labels row 4: image_id '', label 'y', found '': image_id: present",
        "  labels row 2: image_id '', label 'x', found '': image_id: str_length(1, None)",
        "  labels row 2: image_id '', label 'x', found '7': value: isin([0, 1])",
        "  labels row 3: image_id 'b', label 'y', found '7': value: isin([0, 1])",
        "  labels row 0: image_id 'a', label 'x', found 'x': image_id, label: not twice",
        "  labels row 1: image_id 'a', label 'x', found 'x': image_id, label: not twice",
        f"  all rows: {report}",
    ]
    assert listed(report)["row"].tolist() == ["4", "2", "2", "3", "0", "1"]
    assert listed(report)["found"].tolist() == ["", "", "7", "7", "x", "x"]


def test_the_second_pass_is_clean_once_all_listed_rows_are_fixed(tmp_path):
    """Case 91."""
    report = tmp_path / "violations.csv"
    refusal(BROKEN, Labels, report)
    bad = listed(report)["row"].astype(int).unique()
    violations = Violations("example")
    violations.check_schema("labels", BROKEN.drop(index=bad), Labels)
    violations.raise_if_any(report)
    corrected = BROKEN.copy()
    corrected["image_id"] = [f"{i}" if i in bad else v for i, v in enumerate(BROKEN["image_id"])]
    corrected["value"] = np.array(
        [0 if i in bad else v for i, v in enumerate(BROKEN["value"])], np.int8
    )
    violations = Violations("example")
    violations.check_schema("labels", corrected, Labels)
    violations.raise_if_any(report)
    assert not report.exists()  # that of the first pass


@pytest.mark.parametrize("texts", [["i", "x"], ["😀" * 50, 'a,"b"\n' * 50]])
def test_a_badly_wrong_table_is_refused_briefly_and_listed_whole(tmp_path, texts):
    """Case 90: 20,000 images x 80 labels, all wrong, though here fewer."""
    num_rows = 20_000
    frame = labels([texts[0]] * num_rows, [texts[1]] * num_rows, [7] * num_rows)
    message = refusal(frame, Labels, tmp_path / "violations.csv")
    assert len(message.encode()) < 2000
    assert "isin([0, 1]): 20000 row(s)" in message
    assert "image_id, label: not twice: 20000 row(s)" in message
    assert message.endswith(f"all rows: {tmp_path / 'violations.csv'}")
    assert len(listed(tmp_path / "violations.csv")) == 2 * num_rows


@pytest.mark.slow
def test_half_a_million_broken_rows_take_seconds(tmp_path):
    """Case 90; pandera's own report of the repeated rows takes minutes."""
    frame = labels(["i"] * 500_000, ["x"] * 500_000, [7] * 500_000)
    start = time.process_time()
    assert len(refusal(frame, Labels, tmp_path / "violations.csv").encode()) < 2000
    assert time.process_time() - start < 20


def test_only_ten_rules_are_told():
    violations = Violations("example")
    frame = labels(["a"], ["x"], [1])
    for i in range(25):
        violations.add_rows("labels", frame, f"rule {i}", np.array([True]))
    with pytest.raises(PlmclError, match=r"rule 9: 1 row\(s\)\n  and 15 more rules\n") as refused:
        violations.raise_if_any()
    assert len(str(refused.value).split("\n")) == 1 + 10 + 1 + 10


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (
            BROKEN.drop(columns="value"),
            "columns: image_id, label, value: found image_id, label(\n|$)",
        ),
        (BROKEN.assign(more=1), "found image_id, label, value, more"),
        (BROKEN.assign(value=[0.0, 1, 0, 1, 0]), "value: of type int8: found float64"),
        (BROKEN.assign(image_id=range(5)), "image_id: of type string.*: found int64"),
        (BROKEN.astype({"label": "category"}), "label: of type string.*: found category"),
        (pd.concat([BROKEN, BROKEN[["label"]]], axis=1), "columns: image_id, label, value: found"),
    ],
)
def test_other_columns_or_types_make_a_table_unsound(frame, says):
    violations = Violations("example")
    violations.check_schema("labels", frame, Labels)
    assert not violations.sound
    with pytest.raises(PlmclError, match=says):
        violations.raise_if_any()


def test_numbers_are_never_taken_for_ids():
    frame = pd.DataFrame({"image_id": [1, 2], "label": ["a", "b"], "value": np.int8([0, 1])})
    assert "image_id: of type" in refusal(frame.astype({"image_id": object}), Labels)


def test_text_of_any_dtype_and_columns_in_any_order_are_sound():
    for frame in (
        labels(["a", "b"], ["NA", "None"], [0, 1]).astype({"image_id": object}),
        labels(["a", "b"], ["x", "x"], [0, 1])[["value", "label", "image_id"]],
        labels([], [], []),
    ):
        violations = Violations("example")
        violations.check_schema("labels", frame, Labels)
        violations.raise_if_any()
        assert violations.sound


def test_a_column_that_must_be_unique_alone():
    frame = pd.DataFrame({"image_id": ["a", "b"], "label": ["", "x"]}, dtype="str")
    assert "draw_rank: not twice: 2 row(s)" in refusal(frame.assign(draw_rank=[1, 1]), Draws)


def test_known_texts_are_compared_as_text():
    violations = Violations("example")
    frame = labels(["a", "1", "01"], ["x", "NA", "nan"], [1, 1, 1])
    violations.check_known("labels", frame, "image_id", pd.Series(["a", "1"]), "known")
    violations.check_known("labels", frame, "label", pd.Series(["x", "NA"]), "known")
    with pytest.raises(PlmclError) as refused:
        violations.raise_if_any()
    assert "row 2: image_id '01', label 'nan', found '01': image_id: known" in str(refused.value)
    assert "found 'nan': label: known" in str(refused.value)
