"""Questions about images as Label Studio takes them: its configuration and its tasks."""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from plmcl.errors import PlmclError

# The names that tie a result to its question, in configurations, predictions and exports.
FROM_NAME, TO_NAME = "answer", "image"
YES, NO = "yes", "no"
# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Ask = Literal["name", "check"]


@dataclass(frozen=True)
class Question:
    """One question about one image.

    Attributes:
        image_id: Its stable id.
        path: As the manifest has it.
        ask: `name`: one label that it shows. `check`: whether it shows `label`.
        label: Of `check`; "" else.
        likely: Each answer that a model thinks likely, with its score.
    """

    image_id: str
    path: str
    ask: Ask
    label: str = ""
    likely: Mapping[str, float] | None = None


def addresses(images: Path, url: str | None) -> str:
    """What stands before an image's path, quoted, in a task.

    Args:
        images: The folder that the paths start from.
        url: A prefix of the user's (`http://host/photos/`); None for Label Studio's local files,
            whose document root is then the folder above `images`.
    """
    if url is not None:
        return url if url.endswith(("/", "=")) else f"{url}/"
    return f"/data/local-files/?d={quote(images.resolve().name)}/"


def check_not_sure(not_sure: str, label_names: Sequence[str]) -> None:
    """Refuse a text for "not sure" that could be taken for a label.

    Raises:
        PlmclError: It is empty, or a label, whatever the case.
    """
    taken = {name.strip().casefold(): name for name in label_names}
    taken |= {YES: YES, NO: NO}
    if not not_sure.strip() or not_sure.strip().casefold() in taken:
        raise PlmclError(
            f"--not-sure: {not_sure!r} is no text, or is a label as well; choose other words"
        )


def configuration(ask: Ask, label_names: Sequence[str], not_sure: str) -> str:
    """The labelling configuration: the image, and a single choice with "not sure" at its end.

    Raises:
        PlmclError: A label holds a character that XML cannot hold.
    """
    choices = [*(label_names if ask == "name" else (YES, NO)), not_sure]
    for choice in choices:
        if _NOT_XML.search(choice):
            raise PlmclError(f"label {choice!r}: holds a character that XML cannot hold")
    header = "Name one label that this photo shows." if ask == "name" else "$question"
    lines = [
        "<View>",
        f"  <Header value={_attribute(header)}/>",
        f'  <Image name="{TO_NAME}" value="$image"/>',
        f'  <Choices name="{FROM_NAME}" toName="{TO_NAME}" choice="single-radio" required="true">',
        *(f"    <Choice value={_attribute(choice)}/>" for choice in choices),
        "  </Choices>",
        "</View>",
    ]
    return "\n".join(lines) + "\n"


def tasks(
    questions: Iterable[Question], *, before: str, not_sure: str, model: str
) -> list[dict[str, Any]]:
    """One task a question; what a model thinks likely is its prediction.

    Args:
        questions: In the order in which they are to be asked.
        before: Of `addresses`.
        not_sure: The text of that choice; it travels with the task.
        model: Name of the model that the predictions are of.
    """
    made = []
    for question in questions:
        data = {
            "image": before + quote(question.path),
            "image_id": question.image_id,
            "ask": question.ask,
            "not_sure": not_sure,
        }
        if question.ask == "check":
            data |= {
                "label": question.label,
                "question": f"Does this photo show {question.label}?",
            }
        predictions = [
            {"model_version": model, "score": round(score, 6), "result": [result(choice)]}
            for choice, score in (question.likely or {}).items()
        ]
        made.append({"data": data, "predictions": predictions})
    return made


def result(choice: str) -> dict[str, Any]:
    """A choice as Label Studio writes one, in a prediction or in an annotation."""
    return {
        "from_name": FROM_NAME,
        "to_name": TO_NAME,
        "type": "choices",
        "value": {"choices": [choice]},
    }


def write_project(
    questions: Iterable[Question],
    out: Path,
    *,
    ask: Ask,
    label_names: Sequence[str],
    images: Path,
    url: str | None,
    not_sure: str,
    model: str,
) -> None:
    """Write config.xml, and tasks.json with one task a line, so that they can be compared and cut.

    Args:
        questions: All of this kind, in the order in which they are to be asked.
        out: Folder, made here.
        ask: As `Question.ask`.
        label_names: Of the data set.
        images: As `addresses`.
        url: As `addresses`.
        not_sure: Text of that choice.
        model: As `tasks`.

    Raises:
        PlmclError: As `check_not_sure` and `configuration`; nothing is written then.
    """
    check_not_sure(not_sure, label_names)
    config = configuration(ask, label_names, not_sure)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.xml").write_text(config, encoding="utf-8")
    made = tasks(questions, before=addresses(images, url), not_sure=not_sure, model=model)
    lines = ",\n".join(json.dumps(task, ensure_ascii=False) for task in made)
    (out / "tasks.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _attribute(text: str) -> str:
    """A text as the value of an XML attribute; readers make blanks of bare tabs and line ends."""
    quoted = html.escape(text)
    for character in "\t\n\r":
        quoted = quoted.replace(character, f"&#{ord(character)};")
    return f'"{quoted}"'
