"""What differs between two runs: parameters, data, code and versions, and the figures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plmcl.errors import PlmclError
from plmcl.run_record import RunRecord

# Of the machine and the moment: they differ between any two runs and explain no figure.
INCIDENTAL = frozenset({"host", "DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV"})


@dataclass(frozen=True)
class Difference:
    """A key whose values differ.

    Attributes:
        key: A parameter's dotted path, a tag, or a figure as `test/<name>`.
        first: In the first run; None where it has no such key.
        second: In the second.
    """

    key: str
    first: object
    second: object


def differences(first: Path, second: Path) -> list[Difference]:
    """All that differs between two runs: parameters and tags first, then figures.

    Args:
        first: A run's folder (reports/runs/<setting>-<method>), with run.json and, once it is
            evaluated, metrics.json.
        second: The other's.

    Raises:
        PlmclError: A folder holds no run, or a file of it cannot be read.
    """
    records = [RunRecord.read(folder / "run.json") for folder in (first, second)]
    tags = [{k: v for k, v in record.tags.items() if k not in INCIDENTAL} for record in records]
    return [
        *_differing(records[0].params, records[1].params),
        *_differing(tags[0], tags[1]),
        *_differing(_figures(first), _figures(second)),
    ]


def _differing(first: Mapping[str, object], second: Mapping[str, object]) -> list[Difference]:
    keys = [*first, *(key for key in second if key not in first)]
    pairs = ((key, first.get(key), second.get(key)) for key in keys)
    return [Difference(key, one, other) for key, one, other in pairs if one != other]


def _figures(folder: Path) -> dict[str, object]:
    path = folder / "metrics.json"
    if not path.exists():
        return {}
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlmclError(f"{path}: not JSON: {error}; run the evaluate stage again") from None
    if not isinstance(metrics, dict):
        raise PlmclError(f"{path}: not a JSON object; run the evaluate stage again")
    return {f"test/{name}": value for name, value in metrics.items()}
