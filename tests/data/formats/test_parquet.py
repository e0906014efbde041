import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plmcl.data.formats import csv, parquet
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "c.jpg", "sub/d.jpg"]


def read(tmp_path, columns, **options):
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table(columns), path)
    return parquet.read(path, ImageIndex(FILES), Options(**options))


def cells(found):
    rows = found.labels.itertuples(index=False, name=None)
    return {(image_id, label): value for image_id, label, value in rows}


def error(tmp_path, columns, **options):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, columns, **options)
    assert str(tmp_path / "labels.parquet") in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["cat; dog", None, "NA"]),
        pa.array(["cat; dog", "", "NA"], pa.large_string()),
        pa.array(["cat; dog", None, "NA"]).dictionary_encode(),
        pa.array([["cat", "dog"], None, ["NA"]]),
        pa.array([["cat", "dog", "cat"], [], ["NA"]], pa.large_list(pa.large_string())),
    ],
    ids=["text", "large", "dictionary", "list", "large list"],
)
def test_labels_of_an_image_are_a_text_or_a_list(tmp_path, labels):
    found = read(
        tmp_path,
        {
            "image": ["a.jpg", "b.jpg", "sub/d.jpg"],
            "picture": [b"\xff\xd8", None, b""],  # passed over
            "labels": labels,
            "Split": ["train", None, ""],
        },
    )
    assert cells(found) == {("a.jpg", "cat"): 1, ("a.jpg", "dog"): 1, ("sub/d.jpg", "NA"): 1}
    assert found.named == {"a.jpg", "b.jpg", "sub/d.jpg"}
    assert found.splits == {"a.jpg": "train"}


def test_a_label_in_a_list_may_hold_a_semicolon(tmp_path):
    assert cells(read(tmp_path, {"image": ["a.jpg"], "labels": [["a;b"]]})) == {("a.jpg", "a;b"): 1}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 0, None], pa.int8()),
        pa.array([1, 0, None], pa.uint64()),
        pa.array([True, False, None]),
        pa.array([1.0, -0.0, None]),
        pa.array([1.0, 0.0, np.nan], pa.float32()),
        pa.array(["1", "0", ""]),
    ],
    ids=["int8", "uint64", "bool", "float64", "NaN", "text"],
)
def test_values_are_numbers_of_any_type_and_null_is_unknown_case_33(tmp_path, values):
    """Case 33: three states."""
    expected = {("a.jpg", "cat"): 1, ("b.jpg", "cat"): 0}
    found = read(tmp_path, {"image": ["a.jpg", "b.jpg", "c.jpg"], "cat": values})
    assert (cells(found), found.unlisted) == (expected, "unknown")
    assert (found.label_names, found.named) == (["cat"], {"a.jpg", "b.jpg", "c.jpg"})
    single = {"image": ["a.jpg", "b.jpg", "c.jpg"], "label": ["cat"] * 3, "value": values}
    found = read(tmp_path, single)
    assert (cells(found), found.unlisted) == (expected, None)
    assert list(found.unknown.itertuples(index=False, name=None)) == [("c.jpg", "cat")]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.string()])
def test_minus_one_is_refused_until_somebody_says_what_it_means_case_46(tmp_path, kind):
    """Case 46: -1 in a column of numbers."""
    columns = {"image": ["a.jpg", "b.jpg"], "cat": pa.array([1, -1]).cast(kind)}
    assert "row 2, column 'cat': found -1, which means absent in some" in error(tmp_path, columns)
    assert read(tmp_path, columns, minus_one="negative").unlisted == "negative"
    assert read(tmp_path, columns, minus_one="unknown").unlisted == "unknown"


@pytest.mark.parametrize("value", [0.5, 1.0000001, 2.0, np.inf])
def test_any_other_value_is_refused(tmp_path, value):
    message = error(tmp_path, {"image": ["a.jpg"], "cat": [value]})
    assert f"row 1, column 'cat': must be 1, 0 or blank, found '{value}'" in message


def test_it_says_what_the_same_table_says_as_csv(tmp_path):
    frame = pd.DataFrame({"image": FILES, "dog": [1, None, 0, 1], "cat": [0, 0, 1, None]})
    frame = frame.astype({"dog": "Int8", "cat": "Int8"})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    frame.to_parquet(tmp_path / "labels.parquet", index=False)
    index = ImageIndex(FILES)
    from_csv = csv.read(tmp_path / "labels.csv", index, Options())
    found = parquet.read(tmp_path / "labels.parquet", index, Options())
    pd.testing.assert_frame_equal(found.labels, from_csv.labels)
    assert (found.named, found.label_names) == (from_csv.named, from_csv.label_names)


def test_rows_are_read_in_batches(tmp_path):
    files = [f"{number}.jpg" for number in range(10_000)]
    path = tmp_path / "labels.parquet"
    labels = [f"label {number % 7}" for number in range(10_000)]
    pq.write_table(pa.table({"image": files, "labels": labels}), path, row_group_size=3_000)
    found = parquet.read(path, ImageIndex(files), Options())
    assert cells(found) == dict.fromkeys(zip(files, labels, strict=True), 1)


def test_a_long_text_that_is_stored_once_is_not_read_a_thousand_times(tmp_path):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000), pa.array(["x" * (1 << 20)]))
    for labels in (text, pa.ListArray.from_arrays(pa.array(range(3001), pa.int32()), text)):
        message = error(tmp_path, {"image": ["a.jpg"] * 3000, "labels": labels})
        assert (tmp_path / "labels.parquet").stat().st_size < 1_000_000  # of 3 GB
        assert "column 'labels': a text of 1048576 bytes; at most 131072 are read" in message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": [1, 2], "labels": ["a", "b"]}, "column 'image': cannot be of type int64"),
        ({"image": [b"a.jpg"], "labels": ["a"]}, "column 'image': cannot be of type dictionary"),
        ({"image": [["a.jpg"]], "labels": ["a"]}, "column 'image': cannot be of type list"),
        ({"image": ["a.jpg"], "labels": [[["a"]]]}, "column 'labels': cannot be of type list"),
        ({"image": ["a.jpg"], "labels": [{"a": 1}]}, "column 'labels': cannot be of type struct"),
        ({"image": ["a.jpg"], "label": [7]}, "column 'label': cannot be of type int64"),
        ({"image": ["a.jpg"], "cat": [["1"]]}, "column 'cat': cannot be of type list"),
        ({"image": ["a.jpg", None], "cat": [1, 1]}, "row 2: '' must be a path below"),
        ({"image": ["a.jpg"], "labels": [["a", None]]}, "row 1: a label must not be empty"),
        ({"image": ["a.jpg"], "labels": ["a"], "split": ["x"]}, "row 1: split must be train"),
        ({"image": ["a.jpg"]}, "needs the columns image,labels"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(tmp_path, columns, words):
    assert words in error(tmp_path, columns)


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    for data in (b"", b"image,labels\n", b"PAR1" * 10):
        path.write_bytes(data)
        with pytest.raises(PlmclError, match=r"labels\.parquet: not a readable Parquet file"):
            parquet.read(path, ImageIndex(FILES), Options())
    with pytest.raises(PlmclError, match="No such file"):
        parquet.read(tmp_path / "none.parquet", ImageIndex(FILES), Options())


def test_a_small_file_with_very_many_rows_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    column = pa.array(["a.jpg"]).take(pa.array(np.zeros(1 << 20, dtype=np.int32)))
    table = pa.table({"image": column, "label": column})
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(20):
            writer.write_table(table)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(PlmclError, match=r"20971520 rows; at most 20000000 are read"):
        parquet.read(path, ImageIndex(["a.jpg"]), Options())
