import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from plmcl.errors import PlmclError
from plmcl.inference import Prediction, Tag, to_json_line, to_record
from plmcl.scoring import formats
from plmcl.scoring.formats import format_of, json_line, write_csv, write_jsonl, write_parquet

TAGS = [Tag("x;y", 0.9, 0.5, True), Tag("NA", 0.7, 0.7, True)]
PREDICTIONS = [
    Prediction('a,"b"\n.jpg', None, TAGS),
    Prediction("b.jpg", "empty: 0 bytes", []),
    Prediction("caf\udce9 🙂.jpg", None, [Tag("x;y", 0.1, 0.5, False)]),
]
RECORDS = [to_record(prediction) for prediction in PREDICTIONS]


def written(write, records=RECORDS):
    out = io.BytesIO()
    write(iter(records), out)
    return out


def test_case_104_json_lines_have_name_score_threshold_and_decision_of_each_label():
    text = written(write_jsonl).getvalue().decode()
    assert text == "".join(f"{to_json_line(prediction)}\n" for prediction in PREDICTIONS)
    assert [json.loads(line) for line in text.splitlines()] == RECORDS
    assert RECORDS[2]["file"] == "caf\\udce9 🙂.jpg"
    assert json_line(RECORDS[1]) == b'{"file": "b.jpg", "error": "empty: 0 bytes", "labels": []}\n'


def test_csv_survives_a_real_reader():
    text = written(write_csv).getvalue().decode()
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["file", "error", "labels", "scores"]
    assert [row[:3] for row in rows] == [
        ['a,"b"\n.jpg', "", "x;y;NA"],
        ["b.jpg", "empty: 0 bytes", ""],
        ["caf\\udce9 🙂.jpg", "", ""],
    ]
    assert [json.loads(row[3]) for row in rows] == [record["labels"] for record in RECORDS]


def test_parquet_has_the_same_rows_as_columns():
    table = pq.read_table(written(write_parquet))
    assert table.column_names == ["file", "error", "labels", "scores"]
    rows = table.to_pylist()
    assert [row["file"] for row in rows] == [record["file"] for record in RECORDS]
    assert [row["error"] for row in rows] == [None, "empty: 0 bytes", None]
    assert [row["labels"] for row in rows] == [["x;y", "NA"], [], []]
    # Scores are the graph's own float32.
    nearest = float(np.float32(0.9))
    assert rows[0]["scores"][0] == {
        "label": "x;y", "score": nearest, "threshold": 0.5, "decision": True,
    }  # fmt: skip


def test_parquet_is_written_group_by_group_and_is_the_same_whenever_it_is(monkeypatch):
    monkeypatch.setattr(formats, "MAX_ROWS", 4)
    monkeypatch.setattr(formats, "MAX_CELLS", 5)
    out = written(write_parquet, [RECORDS[0]] * 4 + [RECORDS[1]] * 9)
    file = pq.ParquetFile(out)
    # 3 x 2 cells reach 5; then 1 x 2 cells and 3 empty rows are 4 rows.
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [3, 4, 4, 2]
    assert out.getvalue() == written(write_parquet, [RECORDS[0]] * 4 + [RECORDS[1]] * 9).getvalue()


def test_no_record_gives_an_empty_table_not_a_broken_one():
    assert pq.read_table(written(write_parquet, [])).num_rows == 0
    assert written(write_csv, []).getvalue() == b"file,error,labels,scores\n"


def test_the_suffix_says_the_format():
    assert format_of(Path("a.b/tags.JSONL")) == "jsonl"
    with pytest.raises(
        PlmclError, match=r"expected a suffix .jsonl, .csv or .parquet, found '.gz'"
    ):
        format_of(Path("tags.csv.gz"))
