"""What an exported model says of itself: the `Card` in its ONNX metadata."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from plmcl.data.images import Recipe
from plmcl.errors import PlmclError

FORMAT = 2  # raised when a reader of the old metadata would misread the new
_PREFIX = "plmcl."
# JSON types of the fields that are not plain text, and of their items (of a dict: its keys).
_TYPES: dict[str, tuple[type[Collection[Any]], type]] = {
    "label_names": (list, str),
    "thresholds": (list, float),
    "threshold_rules": (list, str),
    "calibration_rules": (list, str),
    "recipe": (dict, str),
    "parity": (dict, str),
}
_FORMAT_1_LACKS = {"calibration_rules", "precision"}


@dataclass(frozen=True, eq=False)
class Card:
    """All that a served model must know of itself, beside its graph.

    Attributes:
        label_names: L names, in the order of the outputs.
        thresholds: (L,) float32; a label is decided where score >= threshold.
        threshold_rules: L texts: how each threshold was found.
        recipe: From a file to the pixels that the graph takes.
        setting: The label setting that it was trained under.
        method: The training method.
        data_sha256: Of the manifest.
        splits_sha256: Of the splits.
        code_commit: Git commit of the code.
        run_id: The tracking run that trained it.
        parity: What the export measured against torch, or for a variant against the fp32 file;
            empty before.
        calibration_rules: L texts: on what each label's scores were calibrated, or why not. The
            graph does it. Empty in files of format 1, which knew no calibration.
        precision: fp32, fp16 or int8.

    Raises:
        PlmclError: Names, thresholds and rules do not belong together, or a threshold is not a
            finite float32.
    """

    label_names: Sequence[str]
    thresholds: npt.NDArray[np.float32]
    threshold_rules: Sequence[str]
    recipe: Recipe
    setting: str
    method: str
    data_sha256: str
    splits_sha256: str
    code_commit: str
    run_id: str
    parity: Mapping[str, Any]
    calibration_rules: Sequence[str] = ()
    precision: str = "fp32"

    def __post_init__(self) -> None:
        num_labels = len(self.label_names)
        if num_labels == 0 or len(set(self.label_names)) != num_labels:
            raise PlmclError("label_names: expected one or more names, all different")
        if self.thresholds.shape != (num_labels,) or len(self.threshold_rules) != num_labels:
            raise PlmclError(
                f"thresholds: expected one and its rule for each of {num_labels} labels, found "
                f"{self.thresholds.size} thresholds and {len(self.threshold_rules)} rules"
            )
        if len(self.calibration_rules) not in (0, num_labels):
            raise PlmclError(
                f"calibration_rules: expected none, or one for each of {num_labels} labels, found "
                f"{len(self.calibration_rules)}"
            )
        if self.thresholds.dtype != np.float32 or not np.isfinite(self.thresholds).all():
            raise PlmclError("thresholds: expected finite float32 numbers")

    def to_metadata(self) -> dict[str, str]:
        """Keys `plmcl.format` and `plmcl.<field>`, each with a JSON text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {
            "label_names": list(self.label_names),
            "thresholds": [float(threshold) for threshold in self.thresholds],
            "threshold_rules": list(self.threshold_rules),
            "calibration_rules": list(self.calibration_rules),
            "recipe": self.recipe.to_dict(),
            "parity": dict(self.parity),
        }
        return {
            f"{_PREFIX}{name}": json.dumps(value, ensure_ascii=False, allow_nan=False)
            for name, value in {"format": FORMAT, **values}.items()
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "Card":
        """Read what `to_metadata` wrote; keys of others (without `plmcl.`) are passed over.

        Raises:
            PlmclError: It is not ours, is of a newer format, or a key is missing, unknown or
                wrong.
        """
        if f"{_PREFIX}format" not in metadata:
            raise PlmclError("not a model that plmcl exported: its metadata has no plmcl.format")
        # The format first: a newer one may have other keys.
        version = _parse_json(f"{_PREFIX}format", metadata[f"{_PREFIX}format"])
        if type(version) is not int or version < 1:
            raise PlmclError(f"plmcl.format: expected a number from 1, found {version!r:.80}")
        if version > FORMAT:
            raise PlmclError(
                f"plmcl.format: the file has {version!r:.80}, this plmcl reads up to {FORMAT}; "
                "upgrade plmcl"
            )
        own = {key.removeprefix(_PREFIX) for key in metadata if key.startswith(_PREFIX)}
        names = {field.name for field in fields(cls)}
        if version == 1:
            names -= _FORMAT_1_LACKS
        for name in sorted(names ^ (own - {"format"})):
            rule = "missing" if name in names else f"not a key of format {version}"
            raise PlmclError(f"plmcl.{name:.80}: {rule}")
        values = {name: _read(name, metadata[f"{_PREFIX}{name}"]) for name in sorted(names)}
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, and is refused
            values["thresholds"] = np.array(values["thresholds"], np.float64).astype(np.float32)
        values["recipe"] = Recipe.from_dict(values["recipe"])
        return cls(**values)


def _read(name: str, text: str) -> Any:
    value = _parse_json(f"{_PREFIX}{name}", text)
    kind, items = _TYPES.get(name, (str, str))
    if not isinstance(value, kind) or not all(type(item) is items for item in value):
        wanted = "text" if kind is str else f"{kind.__name__} of {items.__name__}"
        raise PlmclError(f"{_PREFIX}{name}: expected {wanted}, found {value!r:.80}")
    return value


def _parse_json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise PlmclError(f"{key}: not JSON: {text!r:.80}") from None
