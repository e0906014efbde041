"""The files of one run, read and checked."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from plmcl.errors import PlmclError
from plmcl.run_record import RunRecord, best_run

FIGURES = (
    "mAP",
    "mAP_empty_as_zero",
    "mAP_unknown_as_negative",
    "labels",
    "labels_averaged",
    "labels_without_positives",
    "labels_without_negatives",
    "images_scored",
    "images_known",
    "mean_reciprocal_rank",
    "known_cells",
)
# Only data sets with difficult objects, or with known negatives, have these.
FIGURES_IF_ANY = (
    "mAP_difficult_negative",
    "mAP_difficult_ignored",
    "calibration_error",
    "brier",
    "precision",
    "recall",
    "f1",
)
CHANGED = ("image_id", "label", "observed", "pseudo_label")
PER_LABEL = ("label", "ap", "positives", "negatives", "unknown", "threshold", "threshold_rule")


@dataclass(frozen=True)
class Result:
    """One run: a method under a setting.

    Attributes:
        folder: Where its files are.
        record: Of the training.
        metrics: `FIGURES` and `FIGURES_IF_ANY` on the test split, as fractions and counts; None
            is "not defined".
        per_label: `PER_LABEL`; `ap` is NaN where not defined.
        changed: `CHANGED`: the training images that pseudo labels changed most, that one first;
            empty for a method without them.
        curve: `epoch`, `phase`, `train_loss`, `selection`; NaN where not recorded.
    """

    folder: Path
    record: RunRecord
    metrics: dict[str, float | None]
    per_label: pd.DataFrame
    changed: pd.DataFrame
    curve: pd.DataFrame

    @property
    def setting(self) -> str:
        """Such as `sspl-40`: what the folder's name `<setting>-<method>` begins with."""
        return self.folder.name.rpartition("-")[0]

    @property
    def method(self) -> str:
        """Such as `plmcl`."""
        return self.folder.name.rpartition("-")[2]

    @property
    def figure(self) -> str:
        """Which of the metrics counts: mAP, or the mean reciprocal rank where there is none."""
        return "mAP" if self.metrics["mAP"] is not None else "mean_reciprocal_rank"

    @property
    def value(self) -> float | None:
        """Of `figure`."""
        return self.metrics[self.figure]

    @property
    def is_optimistic(self) -> bool:
        """Whether its epoch was chosen on the split that it is judged on."""
        return self.record.tags.get("protocol") == "paper"

    @property
    def selection(self) -> float | None:
        """Of the best epoch, on the split that epochs are chosen on."""
        best = self.record.best_selection
        return None if math.isnan(best) else best

    @property
    def seconds(self) -> float | None:
        """From the beginning of the training to its end, pauses included."""
        start, end = self.record.start_time, self.record.end_time
        return None if start is None or end is None else (end - start) / 1000


def kept_of(results: Sequence[Result]) -> Result:
    """The run whose model is kept."""
    return results[best_run(dict(enumerate(result.record for result in results)))]


def read_result(folder: Path) -> Result:
    """Read the files that `train` and `evaluate` wrote for a run.

    Raises:
        PlmclError: A file is missing, or does not hold what it should.
    """
    return Result(
        folder=folder,
        record=RunRecord.read(folder / "run.json"),
        metrics=_read_metrics(folder / "metrics.json"),
        per_label=_read_csv(
            folder / "per_label.csv", PER_LABEL, texts=("label", "threshold_rule"), stage="evaluate"
        ),
        changed=_read_csv(
            folder / "pseudo_labels.csv", CHANGED, texts=("image_id", "label"), stage="train"
        ),
        curve=_read_csv(
            folder / "history.csv",
            ("epoch", "phase", "train_loss", "selection"),
            texts=("phase",),
            stage="train",
        ),
    )


def _read_metrics(path: Path) -> dict[str, float | None]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no figure")

    if not path.exists():
        raise PlmclError(f"{path}: not found; run the evaluate stage first")
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
        metrics = {name: values[name] for name in FIGURES}
        metrics |= {name: values.get(name) for name in FIGURES_IF_ANY}
    except (ValueError, KeyError, TypeError) as error:
        raise PlmclError(f"{path}: {error}; run the evaluate stage again") from None
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise PlmclError(f"{path}: {name} must be a number or null, found {value!r}")
    return metrics


def _read_csv(path: Path, columns: Sequence[str], *, texts: Sequence[str], stage: str) -> Any:
    """Columns named in `texts` stay as they are; the others are numbers, empty is NaN."""
    if not path.exists():
        raise PlmclError(f"{path}: not found; run the {stage} stage first")
    try:
        frame = pd.read_csv(path, keep_default_na=False, dtype=str, encoding="utf-8")
        numbers = {
            name: [float(text) if text else math.nan for text in frame[name]]
            for name in columns
            if name not in texts
        }
    except (ValueError, KeyError) as error:
        raise PlmclError(f"{path}: {error}; run the {stage} stage again") from None
    missing = [name for name in columns if name not in frame]
    if missing:
        raise PlmclError(f"{path}: no column {missing[0]!r}; run the {stage} stage again")
    return frame.assign(**numbers)[list(columns)]
