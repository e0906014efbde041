import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from plmcl.data.doctor.record import SCHEMA, ExaminationRecord, find


def rows(*paths, size=10, mtime=5, status="ok"):
    n = len(paths)
    columns = {
        "path": list(paths),
        "bytes": [size] * n,
        "mtime_ns": [mtime] * n,
        "status": [status] * n,
        "reason": [""] * n,
        "sha256": ["s"] * n,
        "dhash": ["d"] * n,
        "width": [1] * n,
        "height": [2] * n,
    }
    return pa.table(columns).cast(SCHEMA)


def found(table, paths, sizes, mtimes):
    paths = pa.array(paths, pa.large_string())
    return find(table, paths, np.array(sizes, np.int64), np.array(mtimes, np.int64)).tolist()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_added_is_found_by_path_size_and_time(tmp_path):
    ExaminationRecord(tmp_path / "new" / "r", "facts").add(rows("a", "b\n"))
    table = ExaminationRecord(tmp_path / "new" / "r", "facts").read()
    assert table.equals(rows("a", "b\n"))
    assert found(table, ["c", "b\n", "a"], [10, 10, 10], [5, 5, 5]) == [-1, 1, 0]
    assert found(table, ["a", "a", "a"], [10, 11, 10], [5, 5, 6]) == [0, -1, -1]


def test_nothing_is_known_at_first_and_nothing_kept_without_a_folder(tmp_path):
    for folder in (None, tmp_path / "none"):
        table = ExaminationRecord(folder, "facts").read()
        assert table.num_rows == 0
        assert found(table, ["a"], [1], [1]) == [-1]
    ExaminationRecord(None, "facts").add(rows("a"))
    ExaminationRecord(None, "facts").replace(rows("a"))
    assert names(tmp_path) == []


def test_the_latest_row_of_a_path_counts(tmp_path):
    ExaminationRecord(tmp_path, "facts").add(rows("a", mtime=5, status="empty"))
    ExaminationRecord(tmp_path, "facts").add(rows("a", mtime=6, status="truncated"))
    table = ExaminationRecord(tmp_path, "facts").read()
    assert found(table, ["a", "a"], [10, 10], [5, 6]) == [-1, 0]
    assert table["status"][0].as_py() == "truncated"


def test_rows_under_other_facts_are_left_out_and_removed_in_the_end(tmp_path):
    ExaminationRecord(tmp_path, "old").add(rows("a"))
    record = ExaminationRecord(tmp_path, "new")
    assert record.read().num_rows == 0
    record.add(rows("b"))
    record.replace(rows("b"))
    assert ExaminationRecord(tmp_path, "new").read().equals(rows("b"))
    assert len(names(tmp_path)) == 1


def test_parts_become_one_file(tmp_path):
    record = ExaminationRecord(tmp_path, "facts")
    record.add(rows("a"))
    record.add(rows("b", "c"))
    assert len(names(tmp_path)) == 2
    record.replace(rows("a", "b", "c"))
    assert len(names(tmp_path)) == 1
    before = names(tmp_path)
    again = ExaminationRecord(tmp_path, "facts")
    again.replace(again.read())  # nothing new: nothing is written
    assert names(tmp_path) == before


def test_another_process_loses_nothing(tmp_path):
    one = ExaminationRecord(tmp_path, "facts")
    assert one.read().num_rows == 0
    ExaminationRecord(tmp_path, "facts").add(rows("b"))
    one.add(rows("a"))
    one.replace(rows("a"))
    table = ExaminationRecord(tmp_path, "facts").read()
    assert sorted(table["path"].to_pylist()) == ["a", "b"]


@pytest.mark.parametrize("damage", ["cut", "text", "columns", "nulls", "folder"])
def test_a_damaged_file_is_left_out_with_a_warning(tmp_path, caplog, damage):
    record = ExaminationRecord(tmp_path, "facts")
    record.add(rows("a"))
    path = tmp_path / "1-1.parquet"
    if damage == "cut":
        content = next(tmp_path.glob("*.parquet")).read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_text("no parquet")
    elif damage == "columns":
        pyarrow.parquet.write_table(rows("b").drop_columns("sha256"), path)
    elif damage == "nulls":
        columns = rows("b").to_pydict() | {"reason": [None]}
        pyarrow.parquet.write_table(pa.table(columns), path)
    else:
        path.mkdir()
    with caplog.at_level(logging.WARNING):
        record = ExaminationRecord(tmp_path, "facts")
        assert record.read().equals(rows("a"))
    assert "1-1.parquet: left out" in caplog.text
    record.replace(rows("a", "b"))
    assert ExaminationRecord(tmp_path, "facts").read().equals(rows("a", "b"))


def test_a_single_part_is_not_written_again(tmp_path):
    record = ExaminationRecord(tmp_path, "facts")
    record.read()
    record.add(rows("a", "b"))
    before = names(tmp_path)
    record.replace(rows("a", "b"))
    assert names(tmp_path) == before


@pytest.mark.parametrize("place", ["file", "file/r", "x" * 300])
def test_a_record_that_cannot_be_kept_is_one_warning(tmp_path, caplog, place):
    (tmp_path / "file").write_text("a file")
    record = ExaminationRecord(tmp_path / place, "facts")
    assert record.read().num_rows == 0
    record.add(rows("a"))
    record.add(rows("b"))
    record.replace(rows("a", "b"))
    assert len(caplog.messages) == 1
    assert "nothing is kept of this examination" in caplog.text


def test_what_was_kept_stays_where_nothing_more_can_be_written(tmp_path, caplog, monkeypatch):
    for path in ("a", "b"):
        ExaminationRecord(tmp_path, "facts").add(rows(path))
    record = ExaminationRecord(tmp_path, "facts")
    both = record.read()

    def disk_is_full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyarrow.parquet, "write_table", disk_is_full)
    record.replace(both)
    assert caplog.messages == [
        f"{tmp_path}: nothing is kept of this examination: No space left on device"
    ]
    assert ExaminationRecord(tmp_path, "facts").read().equals(both)
