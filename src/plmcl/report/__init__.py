"""One self-contained page that says what was learned, and how well; it needs no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from plmcl.data.duplicates import alike_across, same_bytes_across
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.report import charts, words
from plmcl.report.gallery import make_gallery, make_pairs, verdicts
from plmcl.report.page import write_page
from plmcl.report.results import FIGURES_IF_ANY, Result, read_result

__all__ = ["write_report"]

# Beyond this a reader looks things up in per_label.csv.
LABELS_SHOWN = 60
LABELS_A_CHART = 20


def write_report(
    models: Sequence[Path], manifest: Manifest, splits: pd.DataFrame, root: Path, out: Path
) -> None:
    """Write the page for some runs.

    Args:
        models: A folder for each run, `<setting>-<method>`, with run.json, history.csv,
            metrics.json, per_label.csv and predictions.parquet.
        manifest: What they were trained and judged on.
        splits: `schemas.Splits`.
        root: The folder that its paths start from; the pictures may be gone.
        out: The HTML file.

    Raises:
        PlmclError: There is no run, or a file of one is missing or wrong.
    """
    if not models:
        raise PlmclError("report: no run to report; train and evaluate one first")
    results = [read_result(folder) for folder in models]
    best = max(results, key=lambda result: (result.metrics["mAP"] is not None, result.value or 0))
    tiles = make_gallery(best, manifest, root)
    labels = _shown_labels(best.per_label)
    alike = alike_across(manifest, splits)
    write_page(
        "index.html.j2",
        out,
        headline=words.headline(results, best),
        subject=words.subject(results, manifest),
        remarks=words.remarks(results, best),
        best=best,
        optimistic=words.OPTIMISTIC,
        grid=_grid(results, best),
        curves=_curves(results),
        methods=_in_order([result.method for result in results]),
        selection=words.selection_name(best),
        labels=labels,
        bars=_bars(labels),
        shown=words.shown(len(labels), best),
        tiles=tiles,
        verdicts=verdicts(tiles),
        names=words.FIGURE_NAMES,
        same=same_bytes_across(manifest, splits)["image_id"].tolist(),
        alike=len(alike),
        pairs=make_pairs(alike, manifest, root),
        figures=_figures(results),
        is_tracked=any(result.record.mlflow_run_id for result in results),
    )


def _in_order(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _grid(results: Sequence[Result], best: Result) -> dict[str, Any]:
    """The table of methods (rows) and settings (columns), as the paper prints it."""
    cells = {(result.method, result.setting): result for result in results}
    settings = _in_order([result.setting for result in results])
    leaders = set()
    for setting in settings:
        rivals = [result for result in results if result.setting == setting]
        if len(rivals) > 1:
            leaders.add(max(rivals, key=lambda result: result.value or 0).folder)
    common = len({words.measured_on(result) for result in results}) == 1
    return {
        "figure": words.FIGURE_NAMES[best.figure],
        "settings": [(setting, words.setting_in_words(setting)) for setting in settings],
        "rows": [
            (method, [cells.get((method, setting)) for setting in settings])
            for method in _in_order([result.method for result in results])
        ],
        "leaders": leaders,
        "common": words.measured_on(best) if common else "",
        "details": {
            result.folder: "; ".join(
                filter(None, ["" if common else words.measured_on(result), words.trained(result)])
            )
            for result in results
        },
        "why": {result.folder: words.why_no_map(result) for result in results},
    }


def _curves(results: Sequence[Result]) -> list[tuple[str, Any]]:
    """A chart for each setting; a method has the same colour in all of them."""
    colours = {m: i for i, m in enumerate(_in_order([result.method for result in results]))}
    panels = []
    for setting in _in_order([result.setting for result in results]):
        curves = {
            colours[result.method]: result.curve
            for result in results
            if result.setting == setting and result.curve["selection"].notna().any()
        }
        percent = all(r.figure == "mAP" for r in results if r.setting == setting)
        if curves:
            panels.append((setting, charts.learning_curves(curves, percent=percent)))
    return panels


def _shown_labels(per_label: pd.DataFrame) -> pd.DataFrame:
    """The labels from the highest AP to the lowest, then those without; of many, both ends."""
    ordered = per_label.sort_values(["ap", "positives"], ascending=False, kind="stable")
    if ordered["ap"].notna().sum() > LABELS_SHOWN:
        both = ordered[ordered["ap"].notna()]
        ordered = pd.concat([both.head(LABELS_SHOWN // 2), both.tail(LABELS_SHOWN // 2)])
    ordered = ordered.head(LABELS_SHOWN)
    support = zip(ordered["positives"], ordered["negatives"], strict=True)
    return ordered.assign(why=[words.why_no_ap(int(known), int(not_)) for known, not_ in support])


def _bars(labels: pd.DataFrame) -> list[Any]:
    if labels["ap"].isna().all():
        return []
    starts = range(0, len(labels), LABELS_A_CHART)
    return [charts.label_bars(labels.iloc[start : start + LABELS_A_CHART]) for start in starts]


def _figures(results: Sequence[Result]) -> dict[str, Any]:
    """Every figure of every run, for who wants to know exactly."""
    shown = [
        name
        for name in words.FIGURE_NAMES
        if name not in FIGURES_IF_ANY or any(r.metrics[name] is not None for r in results)
    ]
    return {
        "names": [words.FIGURE_NAMES[name] for name in shown],
        "rows": [
            (result.folder.name, [words.exact(name, result.metrics[name]) for name in shown])
            for result in results
        ],
        "why": _in_order([words.why_no_map(r) for r in results if r.metrics["mAP"] is None]),
    }
