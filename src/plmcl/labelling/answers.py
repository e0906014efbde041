"""Label Studio's JSON export of our questions, read as decisions; never trusted."""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from plmcl.data.label_files import expect, read_json, shown
from plmcl.errors import PlmclError
from plmcl.labelling.decisions import (
    ABSENT,
    NOT_SURE,
    NOTHING,
    PRESENT,
    REFUSED,
    SKIPPED,
    table,
)
from plmcl.labelling.label_studio import FROM_NAME, NO, YES

_LONGEST = 10_000  # characters of a text that is kept
_QUESTION = ("image_id", "ask", "not_sure")


def read_export(path: Path, label_names: Sequence[str], image_ids: Collection[str]) -> pd.DataFrame:
    """Every answer of an export, one row each, with what becomes of it by itself.

    An answer about an image or a label that is not there is refused with its reason; so is one to
    a task that is none of ours. `settle` decides between answers.

    Args:
        path: The JSON export.
        label_names: The labels as they are now.
        image_ids: Of the images that there are now.

    Returns:
        `Decisions`.

    Raises:
        PlmclError: It is not such an export, or no task in it is one of ours.
    """
    tasks = expect(read_json(path), list, str(path))
    known = frozenset(image_ids)
    rows: list[dict[str, str]] = []
    ours = 0
    for number, task in enumerate(tasks):
        where = f"{path}: [{number}]"
        expect(task, dict, where)
        if "annotations" not in task or "data" not in task:
            raise PlmclError(
                f"{where}: has no data and annotations; export as JSON, not as JSON-MIN or CSV"
            )
        data = expect(task["data"], dict, f"{where}.data")
        question = _question(data)
        ours += question is not None
        for place, annotation in enumerate(
            expect(task["annotations"], list, f"{where}.annotations")
        ):
            expect(annotation, dict, f"{where}.annotations[{place}]")
            row = _row(task, data, annotation)
            if question is None:
                _refuse(row, "no task of plmcl suggest or plmcl audit")
            else:
                _judge(row, annotation, question["not_sure"], label_names, known)
            rows.append(row)
    if tasks and not ours:
        raise PlmclError(
            f"{path}: none of its {len(tasks)} tasks was made by plmcl suggest or plmcl audit; is "
            "it of another project? Labels of such a project are read by plmcl fit --labels"
        )
    return table(rows)


def settle(found: pd.DataFrame) -> pd.DataFrame:
    """Decide between answers: which of them become labels, and why the others do not.

    Of one annotator's answers to one question the newest counts. Different labels named for one
    image do not contradict each other, since it may show both: all are taken. If a label is said
    to be present and to be absent, neither is taken, until somebody changes an answer.

    Args:
        found: `Decisions`, of one export or of several; equal answers count once.

    Returns:
        `Decisions`, in the order of their first appearance.
    """
    made = ["taken", "note"]
    found = found.drop_duplicates([c for c in found if c not in made], ignore_index=True)
    refused = found["answer"] == REFUSED
    says = found["answer"].isin([PRESENT, ABSENT])
    found["taken"] = says.map({True: "yes", False: "no"})
    found.loc[~refused, "note"] = ""
    # Somebody without a name is somebody else each time.
    whose = found["who"].where(found["who"] != "", "annotation " + found["annotation"])
    asked = found["label"].where(found["ask"] == "check", "")
    keys = [found["image_id"], found["ask"], asked, whose]
    for _, rows in found[~refused].groupby([key[~refused] for key in keys], sort=False):
        newest = rows.sort_values("when", kind="stable").index[-1]
        older = [row for row in rows.index if row != newest]
        found.loc[older, made] = "no", f"answered again: {found['when'][newest]}"
    taken = found[found["taken"] == "yes"]
    for (_, label), rows in taken.groupby(["image_id", "label"], sort=False):
        if rows["answer"].nunique() > 1:
            found.loc[rows.index, made] = "no", f"said to show {label!r} and not to show it"
    return found


def labels_of(found: pd.DataFrame) -> pd.DataFrame:
    """What the taken answers say: image_id, label and value, 0 or 1; each entry once."""
    taken = found[found["taken"] == "yes"]
    value = (taken["answer"] == PRESENT).astype("int8")
    return taken[["image_id", "label"]].assign(value=value).drop_duplicates(ignore_index=True)


def _question(data: dict[str, Any]) -> dict[str, str] | None:
    # what we asked, or None if it is not ours
    fields = {key: data.get(key) for key in _QUESTION}
    if data.get("ask") == "check":
        fields["label"] = data.get("label")
    texts = {key: value for key, value in fields.items() if isinstance(value, str) and value}
    ours = len(texts) == len(fields) and texts["ask"] in ("name", "check")
    return texts if ours else None


def _row(task: dict[str, Any], data: dict[str, Any], annotation: dict[str, Any]) -> dict[str, str]:
    return {
        "image_id": _text(data.get("image_id", data.get("image"))),
        "ask": _text(data.get("ask")),
        "label": _text(data.get("label")) if data.get("ask") == "check" else "",
        "answer": NOTHING,
        "choice": "",
        "who": _who(annotation.get("completed_by")),
        "when": _text(annotation.get("updated_at") or annotation.get("created_at")),
        "task": _text(task.get("id")),
        "annotation": _text(annotation.get("id")),
        "taken": "no",
        "note": "",
    }


def _judge(
    row: dict[str, str],
    annotation: dict[str, Any],
    not_sure: str,
    label_names: Sequence[str],
    known: frozenset[str],
) -> None:
    choices = _choices(annotation.get("result"))
    if choices is None:
        _refuse(row, "an answer that is no choice")
        return
    row["choice"] = choices[0] if len(choices) == 1 else ""
    check = row["ask"] == "check"
    named = row["label"] if check else row["choice"]
    if annotation.get("was_cancelled") is True:
        row["answer"] = SKIPPED
    elif row["image_id"] not in known:
        _refuse(row, "there is no such image, or it cannot be used")
    elif len(choices) > 1:
        _refuse(row, f"{len(choices)} choices, and one was asked for: {shown('; '.join(choices))}")
    elif not choices:
        row["answer"] = NOTHING
    elif row["choice"] == not_sure:
        row["answer"] = NOT_SURE
    elif named not in label_names:
        close = difflib.get_close_matches(named, label_names, n=1)
        hint = f"; is {close[0]!r} meant?" if close else ""
        _refuse(row, f"{shown(named)} is none of the {len(label_names)} labels{hint}")
    elif check and row["choice"] not in (YES, NO):
        _refuse(row, f"{shown(row['choice'])} is neither {YES} nor {NO}")
    else:
        row["label"] = named
        row["answer"] = ABSENT if check and row["choice"] == NO else PRESENT


def _choices(results: Any) -> list[str] | None:
    # the texts chosen; None where a result is something else
    if not isinstance(results, list):
        return None
    found: list[str] = []
    for entry in results:
        value = entry.get("value") if isinstance(entry, dict) else None
        choices = value.get("choices") if isinstance(value, dict) else None
        if not isinstance(choices, list) or entry.get("from_name") != FROM_NAME:
            return None
        if not all(isinstance(choice, str) for choice in choices):
            return None
        found += map(_text, choices)
    return found


def _refuse(row: dict[str, str], reason: str) -> None:
    row["answer"], row["note"] = REFUSED, reason


def _who(value: Any) -> str:
    # a number, or an account
    if isinstance(value, dict):
        value = value.get("email") or value.get("username") or value.get("id")
    return _text(value)


def _text(value: Any) -> str:
    # of any length and of any characters: what no file holds becomes "?"
    if value is None or isinstance(value, bool | list | dict):
        return ""
    text = value if isinstance(value, str) else shown(value)
    return text[:_LONGEST].encode("utf-8", "replace").decode()
