import pytest

from plmcl.data.formats import format_names, read_labels
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

INDEX = ImageIndex(["a.jpg"])

FILES = {
    "csv": {"labels.csv": "image,labels\na.jpg,cat\n"},
    "coco": {
        "x.json": ' {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": '
        '[{"image_id": 1, "category_id": 1}], "categories": [{"id": 1, "name": "cat"}]}'
    },
    "label_studio": {"x.json": '\ufeff[{"image": "a.jpg", "choice": "cat"}]'},
    "voc": {"a.xml": "<annotation><object><name>cat</name></object></annotation>"},
    "yolo": {"classes.txt": "cat", "a.txt": "0 0.5 0.5 0.1 0.1"},
}


def write(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name if len(files) == 1 and not name.endswith("xml") else tmp_path


def error(path, format):
    with pytest.raises(PlmclError) as caught:
        read_labels(path, INDEX, Options(), format=format)
    return str(caught.value)


def test_the_folder_is_the_list_of_formats():
    assert format_names() == ["coco", "csv", "label_studio", "parquet", "voc", "yolo"]


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_recognised_by_names_and_first_bytes(tmp_path, name):
    path = write(tmp_path, FILES[name])
    for format in ("auto", name):
        found = read_labels(path, INDEX, Options(), format=format)
        assert list(found.labels.itertuples(index=False, name=None)) == [("a.jpg", "cat", 1)]


def test_tables_with_tabs_are_refused_with_advice(tmp_path):
    path = write(tmp_path, {"labels.tsv": "image\tlabels\na.jpg\tcat\n"})
    assert "put commas between the columns" in error(path, "auto")


def test_what_no_format_recognises_is_refused_with_all_of_them(tmp_path):
    expected = "looks like no label format; say which it is: coco, csv, label_studio, parquet, voc"
    assert expected in error(write(tmp_path, {"labels.xlsx": "PK"}), "auto")
    assert expected in error(write(tmp_path, {"labels.json": "7"}), "auto")
    (tmp_path / "empty").mkdir()
    assert expected in error(tmp_path / "empty", "auto")


def test_what_two_formats_recognise_is_refused_with_both(tmp_path):
    path = write(tmp_path, FILES["voc"] | FILES["yolo"])
    assert "may be voc or yolo; say which it is" in error(path, "auto")
    assert read_labels(path, INDEX, Options(), format="voc").named == {"a.jpg"}


def test_a_format_that_is_not_there_is_refused(tmp_path):
    path = write(tmp_path, FILES["csv"])
    for format in ("excel", "base", "_table"):
        assert f"unknown label format {format!r}; known: coco, csv" in error(path, format)
    assert "none.csv: not found" in error(tmp_path / "none.csv", "auto")
