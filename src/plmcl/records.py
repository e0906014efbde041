"""Records as JSON files that are there whole, or not at all, also after the power went."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from plmcl.durable import sync
from plmcl.errors import PlmclError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def write_record(record: "DataclassInstance", path: Path) -> None:
    """Write a dataclass as JSON, whole or not at all."""
    text = json.dumps(asdict(record), indent=2, ensure_ascii=False, allow_nan=False)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(f"{text}\n", encoding="utf-8")
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def read_record(cls: type[T], path: Path, *, missing: str, advice: str = "") -> T:
    """Read what `write_record` wrote, by the rules of the dataclass.

    Args:
        cls: The dataclass.
        path: Of the file.
        missing: What to say where the file is not there.
        advice: What to do about a file that breaks the rules.

    Raises:
        PlmclError: The file is not there, is not JSON, or has a missing, unknown or wrong key.
    """
    try:
        return TypeAdapter(cls).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise PlmclError(f"{path}: {missing}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"]) or "(top)"
        end = f"; {advice}" if advice else ""
        raise PlmclError(f"{path}: {key}: {problem['msg']}{end}") from None
