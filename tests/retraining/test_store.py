import pytest

from plmcl.errors import PlmclError
from plmcl.retraining.store import Store


def test_deliveries_are_counted_by_their_tables(tmp_path):
    assert Store(tmp_path / "none").numbers() == []
    for name in ("0002.parquet", "10000.parquet", "0003", "3.parquet", "0004.parquet.tmp"):
        (tmp_path / name).touch()
    assert Store(tmp_path).numbers() == [2, 10000]
    assert Store(tmp_path).next_number == 10001


def test_what_was_begun_without_a_table_is_cleared_away(tmp_path):
    (tmp_path / "moving.json").write_text('{"number": 1, "source": "x", "tags_sha256": ""}')
    (tmp_path / ".partial/fetched").mkdir(parents=True)
    (tmp_path / ".partial/fetched/a.jpg").touch()
    Store(tmp_path).check_complete()
    assert Store(tmp_path).finish() == []
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_named(tmp_path):
    (tmp_path / "0001.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlmclError, match=r"0001\.parquet: not a readable Parquet file"):
        Store(tmp_path).read(["name"])
    (tmp_path / "moving.json").write_text('{"number": 1}')
    with pytest.raises(PlmclError, match=r"moving\.json: not what was written there"):
        Store(tmp_path).finish()
