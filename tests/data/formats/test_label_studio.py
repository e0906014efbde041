import json

import pytest

from plmcl.data.formats import label_studio
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "sub/c d.jpg", "0a1b2c3d-e.jpg"]


def task(image, *annotations, **more):
    """A task of the full export; an annotation is a list of results, or what stands there."""
    made = [
        {"result": a, "was_cancelled": False} if isinstance(a, list) else a for a in annotations
    ]
    return {"id": 1, "data": {"image": image}, "annotations": made, "predictions": []} | more


def choices(*names):
    return {"type": "choices", "from_name": "tag", "value": {"choices": list(names)}}


def box(*names):
    return {"type": "rectanglelabels", "value": {"x": 1, "rectanglelabels": list(names)}}


def read(tmp_path, value):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(value))
    return label_studio.read(path, ImageIndex(FILES), Options())


def rows(found):
    return list(found.labels.itertuples(index=False, name=None))


def error(tmp_path, value):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, value)
    assert str(tmp_path / "export.json") in str(caught.value)
    return str(caught.value)


def test_choices_and_regions_are_labels(tmp_path):
    found = read(
        tmp_path,
        [
            task("a.jpg", [choices("sea", "sky"), box("boat"), box("boat", "not sure")]),
            task("b.jpg", [], [{"type": "textarea", "value": {"text": ["nice"]}}]),
        ],
    )
    names = ["boat", "not sure", "sea", "sky"]
    assert rows(found) == [("a.jpg", name, 1) for name in names]
    assert found.named == {"a.jpg", "b.jpg"}  # somebody looked at b.jpg and chose nothing
    assert (found.label_names, found.unlisted) == (None, None)
    assert found.notes == {"answers that are no labels": 1}


def test_a_task_that_all_skipped_is_unlabeled_and_counted(tmp_path):
    skipped = {"result": [choices("sea")], "was_cancelled": True}
    found = read(tmp_path, [task("a.jpg", skipped), task("b.jpg", skipped, [choices("sky")])])
    assert rows(found) == [("b.jpg", "sky", 1)]
    assert found.named == {"b.jpg"}
    assert found.notes == {"skipped annotations": 2, "tasks without an annotation": 1}


def test_present_if_any_annotator_says_so_and_differences_are_counted(tmp_path):
    found = read(tmp_path, [task("a.jpg", [choices("sea", "sky")], [choices("sea")], [box("sea")])])
    assert rows(found) == [("a.jpg", "sea", 1), ("a.jpg", "sky", 1)]
    assert found.notes == {"labels on which annotators differ (taken as present)": 1}


def test_the_small_export_has_an_annotation_an_item(tmp_path):
    found = read(
        tmp_path,
        [
            {
                "image": "a.jpg",
                "id": 1,
                "annotator": 1,
                "choice": "sea",
                "created_at": "2026-01-01",
            },
            {"image": "a.jpg", "id": 1, "annotator": 2, "tags": {"choices": ["sea", "sky"]}},
            {"image": "b.jpg", "id": 2, "label": [{"x": 1, "rectanglelabels": ["boat"]}]},
            {"image": "sub/c d.jpg", "id": 3, "author": "me", "place": {"x": 1}},
        ],
    )
    assert rows(found) == [("a.jpg", "sea", 1), ("a.jpg", "sky", 1), ("b.jpg", "boat", 1)]
    assert found.named == {"a.jpg", "b.jpg", "sub/c d.jpg"}
    assert found.notes == {
        "labels on which annotators differ (taken as present)": 1,
        "texts that are no choices": 1,
        "answers that are no labels": 1,
    }


@pytest.mark.parametrize(
    ("reference", "image_id"),
    [
        ("a.jpg", "a.jpg"),
        ("/data/upload/3/1a2b3c4d-a.jpg", "a.jpg"),
        ("https://studio.example/data/upload/3/1a2b3c4d-a.jpg", "a.jpg"),
        ("1a2b3c4d-a.jpg", "a.jpg"),
        ("/data/upload/3/0a1b2c3d-e.jpg", "0a1b2c3d-e.jpg"),  # the name of the image itself
        ("/data/local-files/?d=photos/sub/c%20d.jpg", "sub/c d.jpg"),
        ("http://localhost:8080/data/local-files/?d=sub/c%20d.jpg&x=1", "sub/c d.jpg"),
        ("s3://bucket/photos/sub/c d.jpg", "sub/c d.jpg"),
        ("https://host.example/sub/c%20d.jpg?token=x.png#y", "sub/c d.jpg"),
        ("s3://bucket/other/c d.jpg", None),
        ("/data/upload/3/1a2b3c4d-x.jpg", None),
    ],
)
def test_images_are_found_behind_addresses(tmp_path, reference, image_id):
    found = read(tmp_path, [task(reference, [choices("sea")])])
    assert rows(found) == ([] if image_id is None else [(image_id, "sea", 1)])
    assert len(found.absent) == (image_id is None)


def test_the_image_may_have_another_key_if_it_is_the_only_one(tmp_path):
    data = {"img": "a.jpg", "caption": "a boat"}
    assert rows(read(tmp_path, [task("", [choices("sea")], data=data)])) == [("a.jpg", "sea", 1)]
    two = {"left": "a.jpg", "right": "b.jpg"}
    message = error(tmp_path, [task("", [choices("sea")], data=two)])
    assert "[0]: needs the path of an image under the key image, found null" in message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "must be a list, found an object"),
        ([7], "[0]: must be an object, found 7"),
        ([{"id": 1}], "[0]: needs the path of an image under the key image, found null"),
        ([task(7, [])], "[0]: needs the path of an image under the key image, found 7"),
        ([task("data:image/png;base64,iVBO", [])], "found 'data:image/png"),
        ([task("", [])], "[0]: '' must name an image"),
        ([task("a.jpg", [], data=[])], "[0].data: must be an object, found a list"),
        ([task("a.jpg", annotations=None)], "[0].annotations: must be a list, found null"),
        ([task("a.jpg", 7)], "[0].annotations[0]: must be an object, found 7"),
        ([task("a.jpg", {})], "[0].annotations[0].result: must be a list, found null"),
        ([task("a.jpg", {"result": [], "was_cancelled": 1})], "was_cancelled: must be true or"),
        ([task("a.jpg", [7])], "[0].annotations[0].result[0]: must be an object, found 7"),
        ([task("a.jpg", [{"value": 7}])], "result[0].value: must be an object, found 7"),
        ([task("a.jpg", [{"value": {"choices": "x"}}])], "choices: must be a list, found 'x'"),
        ([task("a.jpg", [choices("x", 7)])], "choices: must be a text, found 7"),
        ([task("a.jpg", [choices("")])], "choices: a label must not be empty"),
        ([{"image": "a.jpg", "choice": " "}], "[0].choice: a label must not be empty"),
    ],
)
def test_what_is_no_such_export_is_refused_with_the_place(tmp_path, value, words):
    assert words in error(tmp_path, value)
