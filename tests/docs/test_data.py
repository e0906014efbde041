"""The label files on docs/data.md say what the page says of them."""

import pytest
from docs.photographs import folder_source, rows, write_photos
from pages import blocks, column, read

from plmcl.data.formats import format_names
from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest

PAGE = read("docs/data.md")
POSITIVES = [("beach.jpg", "sand", 1), ("beach.jpg", "sea", 1), ("tower.jpg", "building", 1)]
# Nobody looked for sea in tower.jpg.
THREE_STATES = [
    ("beach.jpg", "building", 0), ("beach.jpg", "sand", 1), ("beach.jpg", "sea", 1),
    ("street.jpg", "building", 0), ("street.jpg", "sand", 0), ("street.jpg", "sea", 0),
    ("tower.jpg", "building", 1), ("tower.jpg", "sand", 0),
]  # fmt: skip
COMPLETE = [*THREE_STATES, ("tower.jpg", "sea", 0)]


@pytest.fixture
def photos(tmp_path):
    """The photographs of which the examples speak."""
    write_photos(tmp_path / "photos", ["beach.jpg", "tower.jpg", "street.jpg", "new.jpg"])
    return tmp_path / "photos"


def test_every_format_is_in_the_table():
    assert sorted(*column(PAGE, "format")) == format_names()


@pytest.mark.parametrize(
    ("language", "number", "file", "said", "if_negative"),
    [
        ("csv", 0, "labels.csv", POSITIVES, COMPLETE),
        ("csv", 1, "labels.csv", THREE_STATES, THREE_STATES),
        ("csv", 2, "labels.csv", THREE_STATES, THREE_STATES),
        ("json", 0, "labels.json", POSITIVES, COMPLETE),
        ("json", 1, "labels.json", POSITIVES, COMPLETE),
    ],
)
def test_a_file_of_labels(photos, language, number, file, said, if_negative):
    (photos / file).write_text(blocks(PAGE, language)[number])
    found = folder_source(labels=file).annotations(photos)
    assert rows(found.labels) == said
    assert set(found.label_names) == {"sea", "sand", "building"}
    found = folder_source(labels=file, unlisted="negative").annotations(photos)
    assert rows(found.labels) == if_negative


def test_a_folder_of_voc_files(photos):
    (photos / "xml").mkdir()
    (photos / "xml" / "beach.xml").write_text(*blocks(PAGE, "xml"))
    found = folder_source(labels="xml").annotations(photos)
    assert rows(found.labels) == [("beach.jpg", "building", 0), *POSITIVES[:2]]
    assert rows(found.difficult) == [("beach.jpg", "building")]
    found = folder_source(labels="xml", difficult="ignore").annotations(photos)
    assert rows(found.labels) == POSITIVES[:2]


def test_a_folder_of_yolo_files(photos):
    (photos / "yolo").mkdir()
    _, classes, objects = blocks(PAGE, "text")
    (photos / "yolo" / "classes.txt").write_text(classes)
    (photos / "yolo" / "beach.txt").write_text(objects)
    found = folder_source(labels="yolo").annotations(photos)
    assert rows(found.labels) == POSITIVES[:2]
    assert found.label_names == ["sea", "sand", "building"]


def test_a_parquet_file(photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    exec(*blocks(PAGE, "python"), {})
    found = folder_source(labels="labels.parquet").annotations(photos)
    assert rows(found.labels) == POSITIVES
    found = folder_source(labels="labels.parquet", unlisted="negative").annotations(photos)
    assert rows(found.labels) == COMPLETE


def test_folders_of_tags(tmp_path):
    write_photos(tmp_path, blocks(PAGE, "text")[0].splitlines())
    root, recipe = tmp_path / "photos", Recipe(32, (0, 0, 0), max_pixels=20_000)
    manifest = ingest(folder_source().annotations(root), root, recipe)
    assert rows(manifest.labels) == [
        ("building/2024/tower.jpg", "building", 1),
        ("sand/beach.jpg", "sand", 1),
        ("sand/beach.jpg", "sea", 1),
    ]
    assert manifest.usable["image_id"].tolist() == [
        "building/2024/tower.jpg", "new.jpg", "sand/beach.jpg"
    ]  # fmt: skip
