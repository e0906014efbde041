"""What the page says in words: sentences, names, and figures as people read them."""

import math

from plmcl.grid.published import read_published
from plmcl.report.results import Result

FIGURE_NAMES = {
    "mAP": "mAP",
    "mAP_empty_as_zero": "mAP, a label without a positive counted as 0",
    "mAP_unknown_as_negative": "mAP, unknown counted as absent",
    "mAP_difficult_negative": "mAP, difficult objects counted as absent (published protocol)",
    "mAP_difficult_ignored": "mAP, difficult objects ignored",
    "mean_reciprocal_rank": "mean reciprocal rank",
    "calibration_error": "expected calibration error",
    "brier": "Brier score",
    "precision": "precision (micro, at the labels' thresholds)",
    "recall": "recall (the same)",
    "f1": "F1 (the same)",
    "labels": "labels",
    "labels_averaged": "labels averaged",
    "labels_without_positives": "labels without a known positive",
    "labels_without_negatives": "labels without a known negative",
    "images_scored": "test images scored",
    "images_known": "those of which a label is known",
    "known_cells": "known entries (image x label)",
}
_SETTINGS = {
    "ffl": "all labels of every image",
    "fspl": "one label of every image",
    "given": "the labels as given",
    "fpl": "{}\u00a0% of all entries",
    "sfl": "all labels of {}\u00a0% of the images",
    "sspl": "one label of {}\u00a0% of the images, none of the others",
}
OPTIMISTIC = "optimistic: chosen on the test split"


def setting_in_words(setting: str) -> str:
    """What training may see under a setting such as `sspl-40`."""
    kind, _, percent = setting.partition("-")
    return _SETTINGS.get(kind, "{}").format(percent or setting)


def published(result: Result) -> str:
    """The paper's figure for a run such as this; empty where it has none."""
    params = result.record.params
    smoothed = "-LS" if params.get(f"methods.{result.method}.smoothing") else ""
    modes = read_published().tables.get(str(params.get("model.backbone")), {})
    rows = modes.get(str(params.get("data.source")), {}).get(str(params.get("train.mode")), {})
    printed = rows.get(f"{result.method.upper()}{smoothed}", {}).get(result.setting)
    return "" if printed is None else f"the paper: {printed:.1f}"


def selection_name(result: Result) -> str:
    """What epochs are chosen by, and on which split."""
    name = result.record.selection_key.partition("/")[2] or result.figure
    return f"{FIGURE_NAMES.get(name, name)} on the {selection_split(result)} split"


def selection_split(result: Result) -> str:
    """The split that epochs are chosen on."""
    return "test" if result.is_optimistic else "validation"


def why_no_map(result: Result) -> str:
    """Why a run has no mAP; empty if it has one."""
    metrics = result.metrics
    if metrics["mAP"] is not None:
        return ""
    if not result.per_label["negatives"].any():
        return (
            "every label that is known on the test images is a positive one, and on those alone "
            "any model has an average precision of 1"
        )
    return (
        "no label has both a known positive and a known negative test image "
        f"({metrics['labels_without_positives']} of {metrics['labels']} labels have no positive, "
        f"{metrics['labels_without_negatives']} no negative)"
    )


def shown(number: int, kept: Result) -> str:
    """Which labels are not shown, if not all are."""
    total = len(kept.per_label)
    if number == total:
        return ""
    if number > int(kept.per_label["ap"].notna().sum()):
        which = f"{number} of {total:,} labels are shown, those with an AP first"
    else:
        which = f"the {number // 2} highest and the {number // 2} lowest of {total:,} are shown"
    return f"{which[0].upper()}{which[1:]}; all are in per_label.csv."


def why_no_ap(positives: int, negatives: int) -> str:
    """Why a label has no AP; empty if it has one."""
    if positives and negatives:
        return ""
    lacking = [
        word for word, known in (("positive", positives), ("negative", negatives)) if not known
    ]
    return f"no {' or '.join(lacking)}"


def measured_on(result: Result) -> str:
    """How many labels and images a run's figure comes from."""
    metrics = result.metrics
    images = labeled(result, "image")
    if metrics["mAP"] is None:
        return images
    return f"{metrics['labels_averaged']} of {metrics['labels']} labels averaged, {images}"


def labeled(result: Result, noun: str) -> str:
    """The images that a run's figure comes from: those of which something is known."""
    scored, known = result.metrics["images_scored"], result.metrics["images_known"]
    return count(known, noun if known == scored else f"labeled {noun}")


def trained(result: Result) -> str:
    """How a run's training went, as far as it is recorded."""
    time = "" if result.seconds is None else f"trained in {duration(result.seconds)}"
    if result.record.status == "FINISHED":
        return time
    return f"{time or 'training'}, {result.record.status.lower()}"


def figure(result: Result) -> str:
    """A run's figure: mAP in percent, a reciprocal rank as it is."""
    if result.value is None:
        return "n/a"
    return f"{100 * result.value:.1f}" if result.figure == "mAP" else f"{result.value:.3f}"


def exact(name: str, value: float | None) -> str:
    """One of the metrics, by its name."""
    if value is None:
        return "n/a"
    if name.startswith("mAP"):
        return f"{100 * value:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def percent(share: float) -> str:
    """Such as "41.7"; "n/a" for NaN."""
    return "n/a" if math.isnan(share) else f"{100 * share:.1f}"


def count(number: float | None, noun: str) -> str:
    """Such as "1,507 images"."""
    return f"{number or 0:,.0f} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Such as "3 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}\u00a0h {minutes}\u00a0min"
    return f"{minutes}\u00a0min {rest}\u00a0s" if minutes else f"{rest}\u00a0s"
