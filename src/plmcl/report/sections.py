"""What the page shows of scores, pseudo labels and cost, as values for the template."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plmcl.labels.effort import SECONDS_A_LABEL, hours
from plmcl.reliability import decide_at, decide_by_label, reliability
from plmcl.report import charts, score_charts, words
from plmcl.report.pseudo_labels import draw_figures, draw_histograms, read_course
from plmcl.report.results import Result
from plmcl.report.scores import Scores, cooccurrence, thresholds_of

# Of more runs, those with the highest figures are drawn: lines must be told apart.
RUNS = 8
PSEUDO_LABEL_RUNS = 3
LABELS = 16
PAIRS = 5
CUTS = np.linspace(0, 1, 101)


def highest(results: Sequence[Result], number: int) -> list[Result]:
    """So many of the results, those with the highest figures; in their order."""
    chosen = sorted(results, key=lambda result: result.value or 0, reverse=True)[:number]
    return [result for result in results if result in chosen]


def score_section(
    results: Sequence[Result],
    scores: Mapping[Path, Scores],
    label_names: Sequence[str],
    colours: Mapping[str, int],
) -> dict[str, Any]:
    """Calibration and thresholds of the runs of one setting; {} where nothing can be said.

    Args:
        results: Of one setting.
        scores: By folder.
        label_names: All.
        colours: Number of a method's colour.
    """
    judged = [result for result in results if scores[result.folder].is_judged]
    if not judged:
        return {}
    curves, cuts, rows = {}, [], []
    for result in highest(judged, RUNS):
        mine = scores[result.folder]
        cells = mine.targets, mine.observed, mine.probs
        curve = reliability(*cells)
        own = decide_by_label(*cells, thresholds_of(result, label_names))
        curves[colours[result.method]] = curve
        chart = score_charts.threshold_curves(CUTS, decide_at(*cells, CUTS), own.f1[0])
        cuts.append((result.method, chart))
        values = (curve.error, own.precision[0], own.recall[0], own.f1[0])
        rows.append((result.method, [words.percent(value) for value in values]))
    return {
        "curves": score_charts.reliability_curves(curves),
        "cuts": cuts,
        "rows": rows,
        "methods": [result.method for result in highest(judged, RUNS)],
        "left_out": len(judged) - len(rows),
    }


def pair_section(kept: Result, scores: Scores, label_names: Sequence[str]) -> dict[str, Any]:
    """Which labels come together, in truth and as predicted; {} where nothing can be said."""
    if not scores.is_judged:
        return {}
    found = cooccurrence(scores, thresholds_of(kept, label_names), label_names, LABELS)
    shares = np.concatenate([found.truth, found.predicted])
    largest = float(np.nanmax(shares)) if np.isfinite(shares).any() else 0.0
    if len(found.labels) < 2 or not largest:
        return {}
    return {
        "truth": score_charts.share_map(found.labels, found.truth, largest),
        "predicted": score_charts.share_map(found.labels, found.predicted, largest),
        "largest": words.percent(largest),
        "labels": len(found.labels),
        "pairs": [
            (a, b, images, words.percent(true), words.percent(predicted))
            for a, b, images, true, predicted in found.farthest(PAIRS)
        ],
    }


def pseudo_label_section(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The course of the pseudo labels of each run that has any."""
    found = [(result, course) for result in results if (course := read_course(result)) is not None]
    shown = highest([result for result, _ in found], PSEUDO_LABEL_RUNS)
    return [
        {
            "name": result.folder.name,
            "result": result,
            "histograms": draw_histograms(course),
            "right": draw_figures(course, ("precision", "recall"), percent=True),
            "trust": draw_figures(course, ("confidence", "weight"), percent=True),
            "has_weight": "weight" in course.figures,
            "velocity": draw_figures(course, ("velocity",), percent=False),
        }
        for result, course in found
        if result in shown
    ]


def cost_section(
    results: Sequence[Result], *, num_train: int, num_labels: int, colours: Mapping[str, int]
) -> dict[str, Any]:
    """Hours of annotation of each setting, and mAP against them where there are several.

    Args:
        results: All.
        num_train: Training images.
        num_labels: L.
        colours: Number of a method's colour.
    """
    settings = dict.fromkeys(result.setting for result in results)
    prices = {s: hours(s, num_train=num_train, num_labels=num_labels) for s in settings}
    priced = {setting: price for setting, price in prices.items() if not np.isnan(price)}
    points: dict[str, list[tuple[float, float]]] = {}
    for result in sorted(results, key=lambda result: priced.get(result.setting, 0)):
        if result.setting in priced and result.metrics["mAP"] is not None:
            point = priced[result.setting], float(result.metrics["mAP"])
            points.setdefault(result.method, []).append(point)
    several = len({price for line in points.values() for price, _ in line}) > 1
    return {
        "prices": [(setting, f"{price:,.1f}") for setting, price in priced.items()],
        "seconds": f"{SECONDS_A_LABEL:.1f}",
        "methods": list(points) if several else [],
        "chart": charts.cost_curves({colours[m]: line for m, line in points.items()})
        if several
        else None,
    }
