import csv

import pytest

from plmcl.data.label_csv import read_label_csv
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "c.jpg", "sub/d.jpg"]


def read(tmp_path, text, files=FILES, encoding="utf-8"):
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return read_label_csv(path, files, tmp_path / "images")


def error(tmp_path, text, **options):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, text, **options)
    return str(caught.value)


def test_labels_are_split_at_semicolons(tmp_path):
    values, splits, _ = read(tmp_path, "image,labels\na.jpg,cat; dog ;\nsub/d.jpg,cat\n")
    assert values == {("a.jpg", "cat"): 1, ("a.jpg", "dog"): 1, ("sub/d.jpg", "cat"): 1}
    assert splits == {}


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(tmp_path):
    text = "image,labels\r\na.jpg,cat\r\nb.jpg,dog\r\n"
    expected = {("a.jpg", "cat"): 1, ("b.jpg", "dog"): 1}
    assert read(tmp_path, text)[0] == expected
    assert read(tmp_path, text, encoding="utf-8-sig")[0] == expected


def test_official_splits_are_read(tmp_path):
    _, splits, _ = read(tmp_path, "image,labels,split\na.jpg,cat,train\nb.jpg,,test\nc.jpg,cat,\n")
    assert splits == {"a.jpg": "train", "b.jpg": "test"}


def test_columns_come_in_any_order_and_others_are_passed_over(tmp_path):
    values, splits, _ = read(tmp_path, "Split,note, Labels ,Image\nval,x,cat,a.jpg\n")
    assert (values, splits) == ({("a.jpg", "cat"): 1}, {"a.jpg": "val"})


@pytest.mark.parametrize(
    "label",
    ["None", "NA", "null", "nan", "N/A", "no", "on", "true", "007", "1e3", "-1", "0", "", " "],
)
def test_no_label_is_taken_for_a_value_case_21(tmp_path, label):
    values, _, _ = read(tmp_path, f"image,labels\na.jpg,{label}\n")
    assert values == ({("a.jpg", label): 1} if label.strip() else {})


def test_names_survive_a_round_trip_case_18(tmp_path):
    images = [
        "a,b.jpg",
        "my cat.jpg",
        'quo"te.jpg',
        "new\nline.jpg",
        "😀/🐈.jpg",
        " lead.jpg",
        "é.jpg",
    ]
    labels = ["a,b", "my cat", 'quo"te', "new\nline", "😀", "'", "é"]
    path = tmp_path / "labels.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "labels"])
        writer.writerows([image, ";".join(labels)] for image in images)
    values, _, _ = read_label_csv(path, images, tmp_path)
    assert values == {(image, label): 1 for image in images for label in labels}


def test_a_row_without_labels_is_an_unlabeled_image_case_47(tmp_path):
    assert read(tmp_path, "image,labels\na.jpg,\nb.jpg,;\n\nc.jpg,cat\n")[0] == {
        ("c.jpg", "cat"): 1
    }


def test_rows_of_the_same_image_are_merged(tmp_path):
    text = "image,labels,split\na.jpg,cat,\n./a.jpg,dog;cat,val\nsub//d.jpg,cat,\n"
    values, splits, _ = read(tmp_path, text)
    assert set(values) == {("a.jpg", "cat"), ("a.jpg", "dog"), ("sub/d.jpg", "cat")}
    assert splits == {"a.jpg": "val"}


def test_an_image_in_two_splits_is_refused(tmp_path):
    message = error(tmp_path, "image,labels,split\na.jpg,cat,val\na.jpg,cat,test\n")
    assert "line 3: 'a.jpg' is in split 'test' here and in 'val' above" in message


def test_absent_images_are_counted_and_five_are_named(tmp_path):
    names = [f"x{i}.jpg" for i in range(7)]
    rows = "".join(f"{name},cat\n" for name in [*names, *names, "a.jpg"])
    message = error(tmp_path, "image,labels\n" + rows)
    assert "7 of 8 images are not among the 4 usable files in" in message
    assert "'x0.jpg', 'x1.jpg', 'x2.jpg', 'x3.jpg', 'x4.jpg', …" in message
    assert "x5" not in message


@pytest.mark.parametrize("name", ["../x.jpg", "sub/../../x.jpg", "/etc/x.jpg", "", "."])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path, name):
    message = error(tmp_path, f"image,labels\n{name},cat\n")
    assert f"labels.csv, line 2: {name!r} must be a path below" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "columns image,labels (and maybe split), found ''"),
        ("image;labels\na.jpg;cat\n", "found 'image;labels'"),
        ("file,labels\na.jpg,cat\n", "found 'file,labels'"),
        ("image,labels\na.jpg,cat,dog\n", "line 2: 3 cells where the header has 2"),
        ("image,labels\na.jpg\n", "line 2: 1 cells where the header has 2"),
        ('image,labels\na.jpg,"cat\n', "line 2: unexpected end of data"),
        ("image,labels,split\na.jpg,cat,training\n", "line 2: split must be train, val, test"),
        ("image,labels\na.jpg," + "x" * 200_000 + "\n", "field larger than field limit"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, text, words):
    message = error(tmp_path, text)
    assert words in message
    assert str(tmp_path / "labels.csv") in message


def test_other_encodings_are_refused(tmp_path):
    message = error(tmp_path, "image,labels\na.jpg,café\n", encoding="cp1252")
    assert "not UTF-8 (it holds the byte 0xe9); save it as UTF-8" in message
    assert "not UTF-8" in error(tmp_path, "image,labels\na.jpg,cat\n", encoding="utf-16")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PlmclError, match=r"none\.csv: No such file or directory"):
        read_label_csv(tmp_path / "none.csv", FILES, tmp_path)
