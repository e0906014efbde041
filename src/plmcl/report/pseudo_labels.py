"""The pseudo labels over the epochs of a run: read from its record, and drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.ticker import FixedLocator, MaxNLocator

from plmcl.errors import PlmclError
from plmcl.report.drawing import INK, SERIES, STYLE, Floats, new_figure, shade, to_svg
from plmcl.report.results import Result

# Names that `labels.figures` gives.
GROUP, HISTOGRAM = "pseudo_labels/", "pseudo_label_histogram"
FIGURES = ("confidence", "weight", "velocity", "precision", "recall")
QUARTERS = (0, 25, 50, 75, 100)
COLUMNS = 40  # of more epochs, so many at equal distances are drawn


@dataclass(frozen=True)
class Course:
    """What was recorded of a run's pseudo labels.

    Attributes:
        epochs: (E,).
        histograms: (E, B), shares of the unobserved entries by pseudo label, from 0 to 1.
        figures: Those of `FIGURES` that were recorded, (E,) each; NaN where not defined.
    """

    epochs: Floats
    histograms: Floats
    figures: dict[str, Floats]


def read_course(result: Result) -> Course | None:
    """The course of a run's pseudo labels; None if it has none.

    Raises:
        PlmclError: A histogram is none.
    """
    entries = [entry for entry in result.record.history if entry.get(HISTOGRAM)]
    if not entries:
        return None
    try:
        counts = np.array([[float(n) for n in str(e[HISTOGRAM]).split()] for e in entries])
    except ValueError as error:
        raise PlmclError(
            f"{result.folder}: run.json: {HISTOGRAM}: {error}; run the train stage again"
        ) from None
    keys = {name: f"{GROUP}{name}" for name in FIGURES}
    table = pd.DataFrame([{name: e.get(key) for name, key in keys.items()} for e in entries])
    table = table.astype(np.float64).dropna(axis=1, how="all")
    return Course(
        epochs=np.array([entry["epoch"] for entry in entries], dtype=np.float64),
        histograms=counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
        figures={str(name): table[name].to_numpy() for name in table},
    )


def draw_histograms(course: Course) -> Markup:
    """Epochs from left to right, pseudo labels from 0 to 1 upwards, the darker the more entries.

    Shares are drawn by their square root, else the few entries that are taken for present would
    not be seen.
    """
    places = np.unique(np.linspace(0, len(course.epochs) - 1, COLUMNS).round().astype(int))
    shares = course.histograms[places].T
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(230.0, left=40.0, right=10.0, bottom=42.0, top=10.0)
        shade(axes, np.sqrt(shares / shares.max()), bottom=0.0, height=1 / len(shares))
        axes.axhline(0.5, color=INK, linestyle=":", linewidth=1)
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_ylim(0, 1)
        axes.set_yticks([quarter / 100 for quarter in QUARTERS], [f"{q}" for q in QUARTERS])
        ticks = np.unique(np.linspace(0, len(places) - 1, min(6, len(places))).round().astype(int))
        axes.set_xticks(ticks, [f"{course.epochs[places[tick]]:.0f}" for tick in ticks])
        axes.set_xlabel("epoch")
        return to_svg(figure, "histograms")


def draw_figures(course: Course, names: Sequence[str], *, percent: bool) -> Markup | None:
    """Figures over epochs, each in the colour of its place in `names`; None if there are none.

    Args:
        course: Of the run.
        names: Of `FIGURES`; those that the run lacks are left out.
        percent: Whether they are shares, shown times 100 on an axis of all of them.
    """
    shown = [(i, course.figures[name]) for i, name in enumerate(names) if name in course.figures]
    if not shown:
        return None
    with mpl.rc_context(STYLE):
        left = 40.0 if percent else 52.0
        figure, axes = new_figure(200.0, left=left, right=10.0, bottom=42.0, top=10.0)
        for number, values in shown:
            axes.plot(
                course.epochs,
                values * (100 if percent else 1),
                color=SERIES[number],
                linestyle=("-", "--")[number % 2],
                linewidth=2,
                marker="o",
                markersize=2.5,
            )
        axes.set_xlim(course.epochs[0] - 0.5, course.epochs[-1] + 0.5)
        axes.set_ylim(*((-2, 102) if percent else (0, None)))
        axes.grid(axis="y", linewidth=0.8)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(FixedLocator(QUARTERS) if percent else MaxNLocator(nbins=4))
        return to_svg(figure, "figures")
