"""One self-contained page that says what was learned, and how well; it needs no network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plmcl.data.duplicates import alike_across, same_bytes_across
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.report import charts, top, words
from plmcl.report.gallery import (
    EXTREMES,
    IMAGES,
    Tile,
    make_changes,
    make_gallery,
    make_pairs,
    spread,
    verdicts,
)
from plmcl.report.page import write_page
from plmcl.report.results import FIGURES_IF_ANY, Result, kept_of, read_result
from plmcl.report.scores import Scores, read_scores, thresholds_of
from plmcl.report.sections import (
    cost_section,
    pair_section,
    pseudo_label_section,
    score_section,
)
from plmcl.retraining.resampling import bootstrap_maps

__all__ = ["write_report"]

# Beyond this a reader looks things up in per_label.csv.
LABELS_SHOWN = 60
LABELS_A_CHART = 20
RESAMPLES = 500
CELLS = 1_000_000  # known ones, of a test split whose images are resampled


def write_report(
    models: Sequence[Path], manifest: Manifest, splits: pd.DataFrame, root: Path, out: Path
) -> None:
    """Write the page for some runs.

    Args:
        models: A folder for each run, `<setting>-<method>`, with run.json, history.csv,
            pseudo_labels.csv, metrics.json, per_label.csv and predictions.parquet.
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
    kept = kept_of(results)
    rivals = [result for result in results if result.setting == kept.setting]
    names = manifest.label_names
    scores = {result.folder: read_scores(result.folder, manifest) for result in rivals}
    colours = {m: i for i, m in enumerate(_in_order([result.method for result in results]))}
    galleries = _galleries(kept, scores[kept.folder], manifest, root)
    courses = pseudo_label_section(rivals)
    changes = make_changes(courses[0]["result"].changed, manifest, root) if courses else []
    shown_tags = [tag for _, tiles in galleries for tile in tiles for tag in tile.tags]
    labels = _shown_labels(kept.per_label)
    alike = alike_across(manifest, splits)
    write_page(
        "index.html.j2",
        out,
        headline=top.headline(results, kept),
        subject=top.subject(results, manifest),
        remarks=top.remarks(results, kept),
        kept=kept,
        optimistic=words.OPTIMISTIC,
        grid=_grid(results, kept, _intervals(results, scores, manifest)),
        colours=colours,
        curves=_curves(results, colours),
        methods=list(colours),
        selection=words.selection_name(kept),
        labels=labels,
        bars=_bars(labels),
        shown=words.shown(len(labels), kept),
        scores=score_section(rivals, scores, names, colours),
        pairs_of_labels=pair_section(kept, scores[kept.folder], names),
        courses=courses,
        changes=changes,
        cost=cost_section(
            results,
            num_train=int((splits["split"] == "train").sum()),
            num_labels=len(names),
            colours=colours,
        ),
        galleries=galleries,
        verdicts=verdicts(shown_tags),
        change_verdicts=verdicts(tag for change in changes for tag in change.added),
        names=words.FIGURE_NAMES,
        same=same_bytes_across(manifest, splits)["image_id"].tolist(),
        alike=len(alike),
        pairs=make_pairs(alike, manifest, root),
        figures=_figures(results),
        is_tracked=any(result.record.mlflow_run_id for result in results),
    )


def _galleries(
    kept: Result, scores: Scores, manifest: Manifest, root: Path
) -> list[tuple[str, list[Tile]]]:
    """Galleries by name: some images of all, the best and the worst scored ones."""
    order = scores.order()
    # Of few images all are shown anyway.
    number = EXTREMES if len(order) > IMAGES else 0
    chosen = {
        "all": spread(scores.image_ids),
        "best": order[:number],
        "worst": order[::-1][:number],
    }
    thresholds = thresholds_of(kept, manifest.label_names)
    tiles = {
        name: make_gallery(ids, scores, thresholds, manifest, root) for name, ids in chosen.items()
    }
    return [(name, shown) for name, shown in tiles.items() if shown]


def _intervals(
    results: Sequence[Result], known: Mapping[Path, Scores], manifest: Manifest
) -> dict[Path, str]:
    """Half the width of the 95 % interval of each run's mAP, from resamples of the test images.

    1.96 deviations of the resamples. Not their percentiles: an image that is drawn twice ties with
    itself, which raises the mAP of every resample.
    """
    found = {}
    for result in results:
        if result.metrics["mAP"] is None or (result.metrics["known_cells"] or 0) > CELLS:
            continue
        scores = known.get(result.folder) or read_scores(result.folder, manifest)
        (values,) = bootstrap_maps(
            scores.targets, scores.observed, [scores.probs], resamples=RESAMPLES, seed=0
        )
        if np.isfinite(values).sum() > 1:
            found[result.folder] = words.percent(1.96 * float(np.nanstd(values, ddof=1)))
    return found


def _in_order(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _grid(results: Sequence[Result], kept: Result, intervals: dict[Path, str]) -> dict[str, Any]:
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
        "figure": words.FIGURE_NAMES[kept.figure],
        "settings": [(setting, words.setting_in_words(setting)) for setting in settings],
        "rows": [
            (method, [cells.get((method, setting)) for setting in settings])
            for method in _in_order([result.method for result in results])
        ],
        "leaders": leaders,
        "flags": {
            result.folder: ", ".join(
                ["kept"] * (result is kept and len(results) > 1)
                + ["highest here"] * (result.folder in leaders)
            )
            for result in results
        },
        "common": words.measured_on(kept) if common else "",
        "details": {
            result.folder: "; ".join(
                filter(None, ["" if common else words.measured_on(result), words.trained(result)])
            )
            for result in results
        },
        "intervals": intervals,
        "published": {result.folder: words.published(result) for result in results},
    }


def _curves(results: Sequence[Result], colours: dict[str, int]) -> list[tuple[str, Any]]:
    """A chart for each setting; a method has the same colour in all of them."""
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
