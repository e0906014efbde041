import json

import pytest

from plmcl.data.formats import coco
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "train/c.jpg", "d.jpg"]


def document(**changes):
    """Categories 1, 3, 90 as COCO has gaps, not in the order of their names."""
    return {
        "info": {"year": 2017},
        "images": [
            {"id": 7, "file_name": "a.jpg", "width": 4, "height": 3},
            {"id": 2, "file_name": "b.jpg"},
            {"id": 5, "file_name": "train/c.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 90, "iscrowd": 0, "bbox": [0, 0, 1, 1]},
            {"id": 2, "image_id": 7, "category_id": 90, "segmentation": [[0, 0, 1, 1, 2, 0]]},
            {"id": 3, "image_id": 7, "category_id": 1, "iscrowd": 0},
            {"id": 4, "image_id": 5, "category_id": 3, "iscrowd": 1, "segmentation": {"size": []}},
            {"id": 5, "image_id": 7, "category_id": 3, "iscrowd": 1},
            {"id": 6, "image_id": 7, "category_id": 3, "iscrowd": 0},
        ],
        "categories": [
            {"id": 90, "name": "toothbrush", "supercategory": "indoor"},
            {"id": 1, "name": "person"},
            {"id": 3, "name": "car"},
        ],
    } | changes


def read(tmp_path, value, files=FILES, **options):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(value))
    return coco.read(path, ImageIndex(files), Options(**options))


def rows(found):
    return list(found.labels.itertuples(index=False, name=None))


def error(tmp_path, value):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, value)
    assert str(tmp_path / "instances.json") in str(caught.value)
    return str(caught.value)


def test_categories_keep_their_order_whatever_their_ids_case_23(tmp_path):
    """Case 23: ids with gaps shift no column."""
    found = read(tmp_path, document())
    assert found.label_names == ["toothbrush", "person", "car"]
    assert rows(found) == [
        ("a.jpg", "car", 1), ("a.jpg", "person", 1), ("a.jpg", "toothbrush", 1),
        ("train/c.jpg", "car", 1),
    ]  # fmt: skip
    assert found.unlisted is None


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (
            {"image_id": 7, "category_id": 2},
            "annotations[0].category_id: no category of the file has the id 2",
        ),
        (
            {"image_id": 7, "category_id": "90"},
            "annotations[0].category_id: no category of the file has the id '90'",
        ),
        (
            {"image_id": 8, "category_id": 1},
            "annotations[0].image_id: no image of the file has the id 8",
        ),
    ],
)
def test_an_unknown_id_is_refused_with_the_id_case_23(tmp_path, annotation, words):
    """Case 23: an annotation of what the file does not have."""
    assert words in error(tmp_path, document(annotations=[annotation]))


def test_an_image_without_an_annotation_is_kept_and_counted_case_24(tmp_path):
    """Case 24: it is named, so that a policy applies to it."""
    found = read(tmp_path, document())
    assert found.named == {"a.jpg", "b.jpg", "train/c.jpg"}
    assert found.notes["images without an annotation"] == 1


def test_crowd_regions_count_or_not_as_the_user_says_case_25(tmp_path):
    """Case 25: one image whose only car is a crowd; in another there is a single car, too."""
    kept = read(tmp_path, document(), crowd="keep")
    dropped = read(tmp_path, document(), crowd="drop")
    assert set(rows(kept)) - set(rows(dropped)) == {("train/c.jpg", "car", 1)}
    assert dropped.named == kept.named
    assert kept.notes["labels that only crowd regions give (crowd: keep)"] == 1
    assert dropped.notes["labels that only crowd regions give (crowd: drop)"] == 1


def test_ids_may_be_texts(tmp_path):
    value = document(
        images=[{"id": "x", "file_name": "C:\\set\\a.jpg"}],
        annotations=[{"image_id": "x", "category_id": "p"}],
        categories=[{"id": "p", "name": " person "}],
    )
    assert rows(read(tmp_path, value)) == [("a.jpg", "person", 1)]


def test_images_that_are_not_there_are_listed(tmp_path):
    found = read(tmp_path, document(), files=["a.jpg", "val/c.jpg"])
    assert found.absent == ["b.jpg", "train/c.jpg"]
    assert found.named == {"a.jpg"}


def test_instances_are_places_in_the_lists(tmp_path):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document()))
    found = coco.read_instances(path)
    assert found.file_names == {7: "a.jpg", 2: "b.jpg", 5: "train/c.jpg"}
    assert list(found.file_names) == [7, 2, 5]
    assert list(found.categories.items()) == [(90, "toothbrush"), (1, "person"), (3, "car")]
    assert found.image.tolist() == [0, 0, 0, 2, 0, 0]
    assert found.category.tolist() == [0, 0, 1, 2, 2, 2]
    assert found.crowd.tolist() == [False, False, False, True, True, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": None}, "images: must be a list, found null"),
        ({"annotations": {}}, "annotations: must be a list, found an object"),
        ({"categories": "x"}, "categories: must be a list, found 'x'"),
        ({"images": [7]}, "images[0]: must be an object, found 7"),
        ({"images": [{"file_name": "a.jpg"}]}, "images[0].id: must be a whole number or a text"),
        ({"images": [{"id": True, "file_name": "a.jpg"}]}, "or a text, found true"),
        ({"images": [{"id": 1.5, "file_name": "a.jpg"}]}, "or a text, found 1.5"),
        ({"images": [{"id": [], "file_name": "a.jpg"}]}, "or a text, found a list"),
        ({"images": [{"id": 1}]}, "images[0].file_name: must be a text, found null"),
        ({"images": [{"id": 1, "file_name": ""}], "annotations": []}, "'' must name an image"),
        (
            {"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}]},
            "images[1].id: 1 stands there twice",
        ),
        ({"categories": [{"id": 1, "name": ""}]}, "categories[0].name: a label must not be empty"),
        (
            {"categories": [{"id": 1, "name": "x"}, {"id": 1, "name": "y"}]},
            "categories[1].id: 1 stands there twice",
        ),
        (
            {"categories": [{"id": 1, "name": "x"}, {"id": 2, "name": "x "}]},
            "categories[1].name: 'x' is the name of two categories",
        ),
        ({"annotations": [{"image_id": 7, "caption": "a dog"}]}, "[0].category_id: must be a"),
        (
            {"annotations": [{"image_id": 7, "category_id": 1, "iscrowd": 2}]},
            "annotations[0].iscrowd: must be 0 or 1, found 2",
        ),
    ],
)
def test_what_is_no_coco_file_is_refused_with_the_place(tmp_path, changes, words):
    assert words in error(tmp_path, document(**changes))


def test_a_list_is_no_coco_file(tmp_path):
    assert "must be an object, found a list" in error(tmp_path, [])
