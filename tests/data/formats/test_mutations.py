"""Damaged label files end in a message or in sound labels; hundreds of each format."""

import json
import os
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data.mutations import mutate

from plmcl.data.formats import format_names, read_labels
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError
from plmcl.schemas import Difficult, Labels

IMAGES = ["a.jpg", "b.jpg", "sub/c d.jpg"]
MUTATIONS = int(os.environ.get("PLMCL_MUTATIONS", "300"))


def _coco():
    return {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(IMAGES)],
        "annotations": [
            {"id": i, "image_id": i % 3, "category_id": i % 2, "iscrowd": i % 2} for i in range(6)
        ],
        "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
    }


def _studio():
    answer = [
        {"type": "choices", "value": {"choices": ["cat", "dog"]}},
        {"type": "rectanglelabels", "value": {"x": 1, "rectanglelabels": ["cat"]}},
    ]
    return [
        {"data": {"image": name}, "annotations": [{"result": answer, "was_cancelled": False}]}
        for name in ("/data/upload/1/0a1b2c3d-a.jpg", "s3://x/b.jpg")
    ] + [{"image": "sub/c d.jpg", "choice": "cat", "annotator": 1}]


def _parquet(columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"image": IMAGES} | columns), sink)
    return sink.getvalue().to_pybytes()


VOC = (
    b"<annotation><filename>a.jpg</filename><object><name>cat</name><difficult>1</difficult>"
    b"</object><object><name>dog</name></object></annotation>"
)
SOUND = {
    "csv long": {"x.csv": b'image,labels,split\na.jpg,cat;dog,train\n"sub/c d.jpg",cat,\n'},
    "csv single": {"x.csv": b"image,label,value\na.jpg,cat,1\nb.jpg,dog,0\nb.jpg,cat,\n"},
    "csv wide": {"x.csv": b"image,cat,dog\na.jpg,1,0\nb.jpg,,1\nsub/c d.jpg,0,0\n"},
    "parquet long": {"x.parquet": _parquet({"labels": [["cat"], None, ["dog", "cat"]]})},
    "parquet single": {"x.parquet": _parquet({"label": ["cat"] * 3, "value": [1.0, None, 0.0]})},
    "parquet wide": {"x.parquet": _parquet({"cat": [1, 0, None], "dog": [True, False, True]})},
    "coco": {"x.json": json.dumps(_coco()).encode()},
    "label_studio": {"x.json": json.dumps(_studio()).encode()},
    "voc": {"a.xml": VOC, "b.xml": VOC.replace(b"a.jpg", b"b.jpg")},
    "yolo": {
        "classes.txt": b"cat\ndog\n",
        "data.yaml": b"path: ../x\nnames:\n  0: cat\n  1: dog\nnc: 2\n",
        "a.txt": b"0 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.1 0.1\n",
        "b.txt": b"",
    },
}


def read(folder, files, format, options):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    path = folder if format in ("voc", "yolo") else folder / next(iter(files))
    return read_labels(path, ImageIndex(IMAGES), options, format=format)


@pytest.mark.parametrize("name", SOUND)
def test_the_files_are_sound_before_they_are_damaged(tmp_path, name):
    found = read(tmp_path, SOUND[name], name.split()[0], Options())
    assert ("a.jpg", "cat") in zip(found.labels["image_id"], found.labels["label"], strict=True)


def test_each_format_is_damaged():
    assert {name.split()[0] for name in SOUND} == set(format_names())


@pytest.mark.parametrize("name", SOUND)
def test_a_damaged_file_ends_in_a_message_or_in_sound_labels(tmp_path, name):
    rng = random.Random(name)
    messages = []
    for _ in range(MUTATIONS):
        folder = tmp_path / "labels"
        folder.mkdir()
        files = dict(SOUND[name])
        victim = rng.choice(list(files))
        files[victim] = mutate(files[victim], rng)
        options = Options(
            rng.choice(["refuse", "negative", "unknown"]),
            rng.choice(["keep", "drop"]),
            rng.choice(["negative", "ignore"]),
        )
        try:
            found = read(folder, files, name.split()[0], options)
        except PlmclError as error:
            messages.append(str(error))
        else:
            Labels.validate(found.labels)
            Difficult.validate(found.difficult)
            Difficult.validate(found.unknown)
            assert set(found.labels["image_id"]) <= found.named <= set(IMAGES)
        shutil.rmtree(folder)
    assert len(messages) > MUTATIONS / 4
    assert max(map(len, messages)) < 2000
