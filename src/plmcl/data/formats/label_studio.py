"""Label Studio's JSON exports: choices and the labels of regions are positives.

Both exports are read: JSON (tasks with annotations) and JSON-MIN (an annotation an item). There is
no other value than "present" here: a choice called "no" or "not sure" is a label of that name.
"""

import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from plmcl.data.cells import Cells
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import expect, label_name, read_json, shown, starts_json
from plmcl.data.listing import SUFFIXES
from plmcl.errors import PlmclError

# What a result calls its labels; and the texts of a JSON-MIN item that nobody answered.
_LABELS = (
    "choices", "labels", "rectanglelabels", "polygonlabels", "ellipselabels", "keypointlabels",
    "brushlabels",
)  # fmt: skip
_NO_ANSWER = frozenset({"created_at", "updated_at"})


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read labels: present if any annotator says so.

    A task that nobody annotated, or that all skipped, names no image.

    Raises:
        PlmclError: It is not such a file, or a file name may be any of several images.
    """
    notes: Counter[str] = Counter()
    said: dict[str, list[set[str]]] = {}  # image id -> labels of each annotation
    absent: dict[str, None] = {}
    for number, task in enumerate(expect(read_json(path), list, str(path))):
        where = f"{path}: [{number}]"
        data, annotations = _read_task(expect(task, dict, where), where, notes)
        name = _image_path(data, where)
        image_id = _find(name, index, where)
        if image_id is None:
            absent[name] = None
        elif annotations:
            said.setdefault(image_id, []).extend(annotations)
    cells = Cells()
    for image_id, opinions in said.items():
        cells.name(image_id)
        every: set[str] = set().union(*opinions)
        for label in every:
            cells.add(image_id, label, 1)
        agreed = every.intersection(*opinions)
        notes["labels on which annotators differ (taken as present)"] += len(every - agreed)
    return LabelFile(
        labels=cells.table(),
        named=cells.named,
        absent=list(absent),
        notes={words: number for words, number in notes.items() if number},
        files=[path],
    )


def recognise(path: Path) -> bool:
    """Whether it is a JSON file that holds a list."""
    return starts_json(path, b"[")


def _read_task(
    task: dict[str, Any], where: str, notes: Counter[str]
) -> tuple[dict[str, Any], list[set[str]]]:
    # what was shown, and the labels of each annotation that counts
    if "annotations" not in task:
        return task, [_read_item(task, where, notes)]
    annotations = []
    for number, entry in enumerate(expect(task["annotations"], list, f"{where}.annotations")):
        place = f"{where}.annotations[{number}]"
        cancelled = expect(entry, dict, place).get("was_cancelled", False)
        if not isinstance(cancelled, bool):
            raise PlmclError(
                f"{place}.was_cancelled: must be true or false, found {shown(cancelled)}"
            )
        if cancelled:
            notes["skipped annotations"] += 1
        else:
            annotations.append(_read_results(entry, place, notes))
    if not annotations:
        notes["tasks without an annotation"] += 1
    return expect(task.get("data"), dict, f"{where}.data"), annotations


def _read_results(annotation: dict[str, Any], where: str, notes: Counter[str]) -> set[str]:
    labels: set[str] = set()
    for number, result in enumerate(expect(annotation.get("result"), list, f"{where}.result")):
        place = f"{where}.result[{number}]"
        value = expect(result, dict, place).get("value")
        found = None if value is None else _labels(expect(value, dict, f"{place}.value"), place)
        if found is None:
            notes["answers that are no labels"] += 1
        else:
            labels |= found
    return labels


def _read_item(item: dict[str, Any], where: str, notes: Counter[str]) -> set[str]:
    # JSON-MIN: each answer under the name of its question, among the data of the task
    labels: set[str] = set()
    for key, answer in item.items():
        place = f"{where}.{key}"
        if isinstance(answer, str):
            if key in ("choice", "choices"):
                labels.add(label_name(answer, place))
            elif key not in _NO_ANSWER and not _is_image(answer):
                notes["texts that are no choices"] += 1
        for part in answer if isinstance(answer, list) else [answer]:
            if isinstance(part, dict):
                found = _labels(part, place)
                notes["answers that are no labels"] += found is None
                labels |= found or set()
    return labels


def _labels(value: dict[str, Any], where: str) -> set[str] | None:
    # None if the value is no answer with labels
    keys = [key for key in _LABELS if key in value]
    if not keys:
        return None
    return {
        label_name(label, f"{where}.{key}")
        for key in keys
        for label in expect(value[key], list, f"{where}.{key}")
    }


def _image_path(data: dict[str, Any], where: str) -> str:
    texts = [value for value in data.values() if isinstance(value, str) and _is_image(value)]
    reference = data.get("image", texts[0] if len(texts) == 1 else None)
    if not isinstance(reference, str) or reference.startswith("data:"):
        raise PlmclError(
            f"{where}: needs the path of an image under the key image, found {shown(reference)}"
        )
    return _path(reference)


def _is_image(reference: str) -> bool:
    return PurePosixPath(_path(reference)).suffix.lower() in SUFFIXES


def _path(reference: str) -> str:
    # of an upload, of a file that is served or in a bucket, or as it is
    path, _, query = reference.partition("?")
    if path.endswith("/data/local-files/") and query.startswith("d="):
        return unquote(query[2:].partition("&")[0])
    if "/data/upload/" in path:
        return unquote(path.rpartition("/")[2])
    if "://" in path:
        return unquote(path.partition("#")[0].partition("://")[2])
    return reference


def _find(path: str, index: ImageIndex, where: str) -> str | None:
    # an upload carries eight hexadecimal digits before its name
    folder, slash, name = path.rpartition("/")
    plain = re.sub(r"^[0-9a-f]{8}-", "", name)
    return index.find_name(path, where) or index.find_name(folder + slash + plain, where)
