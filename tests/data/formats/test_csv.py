import csv as csv_module
import io

import pandas as pd
import pytest

from plmcl.data.formats import csv
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "c.jpg", "sub/d.jpg"]


def read(tmp_path, text, files=FILES, encoding="utf-8", **options):
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return csv.read(path, ImageIndex(files), Options(**options))


def cells(found):
    rows = found.labels.itertuples(index=False, name=None)
    return {(image_id, label): value for image_id, label, value in rows}


def unknown(found):
    return set(found.unknown.itertuples(index=False, name=None))


def error(tmp_path, text, **options):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, text, **options)
    assert str(tmp_path / "labels.csv") in str(caught.value)
    return str(caught.value)


# One row an image, labels with `;` between them.


def test_labels_are_split_at_semicolons(tmp_path):
    found = read(tmp_path, "image,labels\na.jpg,cat; dog ;\nsub/d.jpg,cat\n")
    assert cells(found) == {("a.jpg", "cat"): 1, ("a.jpg", "dog"): 1, ("sub/d.jpg", "cat"): 1}
    assert (found.splits, found.label_names, found.unlisted, found.notes) == ({}, None, None, {})
    assert found.named == {"a.jpg", "sub/d.jpg"}
    assert found.files == [tmp_path / "labels.csv"]


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(tmp_path):
    text = "image,labels\r\na.jpg,cat\r\nb.jpg,dog\r\n"
    expected = {("a.jpg", "cat"): 1, ("b.jpg", "dog"): 1}
    assert cells(read(tmp_path, text)) == expected
    assert cells(read(tmp_path, text, encoding="utf-8-sig")) == expected
    assert cells(read(tmp_path, text.replace("\n", ""))) == expected  # as old Macs end lines


def test_official_splits_are_read(tmp_path):
    text = "image,labels,split\na.jpg,cat,train\nb.jpg,,test\nc.jpg,cat,\n"
    assert read(tmp_path, text).splits == {"a.jpg": "train", "b.jpg": "test"}


def test_columns_come_in_any_order_and_others_are_passed_over(tmp_path):
    found = read(tmp_path, "Split,note, Labels ,Image,note\nval,x,cat,a.jpg,y\n")
    assert (cells(found), found.splits) == ({("a.jpg", "cat"): 1}, {"a.jpg": "val"})


@pytest.mark.parametrize(
    "label",
    ["None", "NA", "null", "nan", "N/A", "no", "on", "true", "007", "1e3", "-1", "0", "", " "],
)
def test_no_label_is_taken_for_a_value_case_21(tmp_path, label):
    """Case 21: a label may be called NA or None."""
    for text in (f"image,labels\na.jpg,{label}\n", f"image,label,value\na.jpg,{label},1\n"):
        found = read(tmp_path, text)
        assert cells(found) == ({("a.jpg", label): 1} if label.strip() else {})
    if label.strip():
        assert cells(read(tmp_path, f"image,{label}\na.jpg,1\n")) == {("a.jpg", label): 1}


def test_names_survive_a_round_trip_case_18(tmp_path):
    """Case 18: blanks, commas, quotes and line breaks in names."""
    images = ["a,b.jpg", "my cat.jpg", 'quo"te.jpg', "new\nline.jpg", "😀/🐈.jpg", " lead.jpg"]
    labels = ["a,b", "my cat", 'quo"te', "new\nline", "😀", "'", "é"]
    expected = {(image, label): 1 for image in images for label in labels}
    long = [["image", "labels"], *([image, ";".join(labels)] for image in images)]
    wide = [["image", *labels], *([image, *("1" for _ in labels)] for image in images)]
    single = [["image", "label"], *([image, label] for image in images for label in labels)]
    for rows in (long, wide, single):
        file = io.StringIO(newline="")
        csv_module.writer(file).writerows(rows)
        assert cells(read(tmp_path, file.getvalue(), images)) == expected


def test_a_row_without_labels_is_an_unlabeled_image_case_47(tmp_path):
    """Case 47: an empty label list is an image without labels."""
    found = read(tmp_path, "image,labels\na.jpg,\nb.jpg,;\n\nc.jpg,cat\n")
    assert cells(found) == {("c.jpg", "cat"): 1}
    assert found.named == {"a.jpg", "b.jpg", "c.jpg"}
    found = read(tmp_path, "image,label\na.jpg,\nb.jpg, \nc.jpg,cat\n")
    assert cells(found) == {("c.jpg", "cat"): 1}
    assert found.named == {"a.jpg", "b.jpg", "c.jpg"}


def test_rows_of_the_same_image_are_merged(tmp_path):
    text = "image,labels,split\na.jpg,cat,\n./a.jpg,dog;cat,val\nsub//d.jpg,cat,\n"
    found = read(tmp_path, text)
    assert set(cells(found)) == {("a.jpg", "cat"), ("a.jpg", "dog"), ("sub/d.jpg", "cat")}
    assert found.splits == {"a.jpg": "val"}


def test_an_image_in_two_splits_is_refused(tmp_path):
    message = error(tmp_path, "image,labels,split\na.jpg,cat,val\na.jpg,cat,test\n")
    assert "line 3: 'a.jpg' is in split 'test' here and in 'val' above" in message


def test_absent_images_are_listed_once_each(tmp_path):
    found = read(tmp_path, "image,labels\nz.jpg,cat\na.jpg,cat\ny.jpg,dog\nz.jpg,dog\n")
    assert found.absent == ["z.jpg", "y.jpg"]
    assert (cells(found), found.named) == ({("a.jpg", "cat"): 1}, {"a.jpg"})


@pytest.mark.parametrize("name", ["../x.jpg", "sub/../../x.jpg", "/etc/x.jpg", "", "."])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path, name):
    message = error(tmp_path, f"image,labels\n{name},cat\n")
    assert f"labels.csv, line 2: {name!r} must be a path below" in message


# One row a cell.


def test_a_cell_a_row_says_yes_no_or_unknown_case_33(tmp_path):
    """Case 33: real partial labels, with three states."""
    text = "image,label,value\na.jpg,cat,1\na.jpg,dog,0\na.jpg,cow,\nb.jpg,cat, 0 \nb.jpg,dog,1\n"
    found = read(tmp_path, text)
    assert cells(found) == {
        ("a.jpg", "cat"): 1, ("a.jpg", "dog"): 0, ("b.jpg", "cat"): 0, ("b.jpg", "dog"): 1,
    }  # fmt: skip
    assert unknown(found) == {("a.jpg", "cow")}
    assert (found.label_names, found.unlisted) == (None, None)


def test_a_cell_a_row_without_a_value_is_a_positive(tmp_path):
    found = read(tmp_path, "image,label,split\na.jpg,cat,val\na.jpg,dog;x,\n")
    assert cells(found) == {("a.jpg", "cat"): 1, ("a.jpg", "dog;x"): 1}
    assert found.splits == {"a.jpg": "val"}


def test_a_cell_that_is_said_to_be_both_is_present_and_counted(tmp_path):
    found = read(tmp_path, "image,label,value\na.jpg,cat,1\na.jpg,cat,0\nb.jpg,cat,0\n")
    assert cells(found) == {("a.jpg", "cat"): 1, ("b.jpg", "cat"): 0}
    assert found.notes == {"labels said to be present and to be absent (taken as present)": 1}


# One column a label.


def test_a_column_a_label_says_yes_no_or_unknown_case_33(tmp_path):
    """Case 33: blank is unknown, and the header is the order of the labels."""
    text = "image,dog,cat,split\na.jpg,1,0,train\nb.jpg, 1 ,,val\nc.jpg,,,\n"
    found = read(tmp_path, text)
    assert cells(found) == {("a.jpg", "dog"): 1, ("a.jpg", "cat"): 0, ("b.jpg", "dog"): 1}
    assert (found.label_names, found.unlisted) == (["dog", "cat"], "unknown")
    assert found.named == {"a.jpg", "b.jpg", "c.jpg"}
    assert found.splits == {"a.jpg": "train", "b.jpg": "val"}


def test_where_nothing_is_unknown_only_positives_are_kept(tmp_path):
    found = read(tmp_path, "image,dog,cat\na.jpg,1,0\nb.jpg,0,0\n")
    assert (cells(found), found.unlisted) == ({("a.jpg", "dog"): 1}, "negative")
    assert found.named == {"a.jpg", "b.jpg"}


def test_two_rows_of_an_image_with_a_column_a_label(tmp_path):
    found = read(tmp_path, "image,dog,cat\na.jpg,1,0\na.jpg,0,0\n")
    assert (cells(found), found.unlisted) == ({("a.jpg", "dog"): 1, ("a.jpg", "cat"): 0}, "unknown")
    assert list(found.notes.values()) == [1]
    found = read(tmp_path, "image,dog,cat\na.jpg,,0\na.jpg,0,\n")  # one knows what the other not
    assert cells(found) == {("a.jpg", "dog"): 0, ("a.jpg", "cat"): 0}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("image,cat,dog\na.jpg,1,0\nb.jpg,0,-1\n", "line 3, column 'dog'"),
        ("image,label,value\na.jpg,cat,-1\n", "line 2, column value"),
    ],
)
def test_minus_one_is_refused_until_somebody_says_what_it_means_case_46(tmp_path, text, place):
    """Case 46: -1 is absent in some data sets and not annotated in others."""
    message = error(tmp_path, text)
    assert f"{place}: found -1, which means absent in some files and not annotated" in message
    assert "sources.folder.minus_one is negative or unknown" in message


def test_minus_one_is_what_the_user_says_case_46(tmp_path):
    """Case 46: the two meanings."""
    wide = "image,cat,dog\na.jpg,1,-1\nb.jpg,-1,0\n"
    found = read(tmp_path, wide, minus_one="negative")
    assert (cells(found), found.unlisted) == ({("a.jpg", "cat"): 1}, "negative")
    found = read(tmp_path, wide, minus_one="unknown")
    assert cells(found) == {("a.jpg", "cat"): 1, ("b.jpg", "dog"): 0}
    assert found.unlisted == "unknown"
    single = "image,label,value\na.jpg,cat,-1\na.jpg,dog,1\n"
    assert cells(read(tmp_path, single, minus_one="negative"))["a.jpg", "cat"] == 0
    found = read(tmp_path, single, minus_one="unknown")
    assert cells(found) == {("a.jpg", "dog"): 1}
    assert unknown(found) == {("a.jpg", "cat")}


@pytest.mark.parametrize("value", ["yes", "no", "2", "1.00", "0.5", "x", "nan", "True", "--1"])
def test_any_other_value_is_refused_case_34(tmp_path, value):
    """Case 34: one documented encoding."""
    message = error(tmp_path, f"image,cat,dog\na.jpg,1,0\nb.jpg,1,{value}\n")
    assert f"line 3, column 'dog': must be 1, 0 or blank, found '{value}'" in message
    message = error(tmp_path, f"image,label,value\na.jpg,cat,{value}\n")
    assert f"line 2, column value: must be 1, 0 or blank, found '{value}'" in message


@pytest.mark.parametrize(
    ("column", "meant"), [("lables", "labels"), ("Lable", "label"), ("lebels", "labels")]
)
def test_a_column_that_may_be_called_labels_is_asked_for(tmp_path, column, meant):
    message = error(tmp_path, f"image,{column}\na.jpg,1\nb.jpg,cat\n")
    assert f"labels.csv, line 3: unknown column {column!r}; is {meant!r} meant?" in message
    assert message.endswith("must be 1, 0 or blank, found 'cat'")
    # A label may be called so.
    assert cells(read(tmp_path, f"image,{column}\na.jpg,1\n")) == {("a.jpg", column): 1}


def test_a_column_that_may_be_called_value_is_not_passed_over(tmp_path):
    message = error(tmp_path, "image,label,vlaue\na.jpg,cat,0\n")
    assert message.endswith("labels.csv: unknown column 'vlaue'; is 'value' meant?")
    assert cells(read(tmp_path, "image,label,who\na.jpg,cat,0\n")) == {("a.jpg", "cat"): 1}


def test_what_pandas_writes_of_a_column_with_blanks_is_read(tmp_path):
    frame = pd.DataFrame({"image": ["a.jpg", "b.jpg"], "cat": [1, None], "dog": [0, 1]})
    path = tmp_path / "wide.csv"
    frame.to_csv(path, index=False)
    assert "a.jpg,1.0,0" in path.read_text()
    found = read(tmp_path, path.read_text())
    assert cells(found) == {("a.jpg", "cat"): 1, ("a.jpg", "dog"): 0, ("b.jpg", "dog"): 1}


# What is no such file.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs the columns image,labels"),
        ("image\na.jpg\n", "needs the columns image,labels"),
        ("image,split\na.jpg,val\n", "needs the columns image,labels"),
        ("file,labels\na.jpg,cat\n", "found 'file,labels'"),
        ("image;labels\na.jpg;cat\n", "put commas between the columns"),
        ("image\tcat\tdog\na.jpg\t1\t0\n", "put commas between the columns"),
        ("image,labels,Image\na.jpg,cat,b.jpg\n", "two columns are called image"),
        ("image,cat,cat\na.jpg,1,0\n", "columns, name 2: 'cat' stands there twice"),
        (",image,cat\n0,a.jpg,1\n", "columns, name 1: a label must not be empty"),
        ("image,labels\na.jpg,cat,dog\n", "line 2: 3 cells where the header has 2"),
        ("image,labels\na.jpg\n", "line 2: 1 cells where the header has 2"),
        ('image,labels\na.jpg,"cat\n', "line 2: unexpected end of data"),
        ("image,labels,split\na.jpg,cat,training\n", "line 2: split must be train, val, test"),
        ("image,labels\na.jpg,c\0t\n", "line 2: 'c\\x00t' holds what is no character"),
        ("image,labels\na.jpg," + "x" * 200_000 + "\n", "field larger than field limit"),
    ],
)
def test_a_broken_file_is_named_with_its_place(tmp_path, text, words):
    assert words in error(tmp_path, text)


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path):
    message = error(tmp_path, "image,labels\n" + "x," * (1 << 23))
    assert "a line is longer than 16777216 characters" in message


def test_other_encodings_are_refused(tmp_path):
    message = error(tmp_path, "image,labels\na.jpg,café\n", encoding="cp1252")
    assert "not UTF-8 (it holds the byte 0xe9); save it as UTF-8" in message
    assert "not UTF-8" in error(tmp_path, "image,labels\na.jpg,cat\n", encoding="utf-16")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlmclError, match=r"none\.csv: No such file or directory"):
        csv.read(tmp_path / "none.csv", ImageIndex(FILES), Options())
