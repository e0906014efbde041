"""What scores are worth: calibration, thresholds, and which labels come together."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from markupsafe import Markup

from plmcl.reliability import Decisions, Reliability
from plmcl.report.drawing import (
    FAINT,
    INK,
    SERIES,
    STYLE,
    Floats,
    cells,
    new_figure,
    series,
    shade,
    shorten,
    to_svg,
)

NAME_CELLS = 17
CELL = 18.0  # points


def reliability_curves(runs: Mapping[int, Reliability]) -> Markup:
    """Share of entries that are present against their mean score; the diagonal is perfect.

    Args:
        runs: By the number of the run's colour. The area of a dot grows with its entries.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(300.0, left=52.0, right=10.0, bottom=44.0, top=10.0)
        axes.plot([0, 100], [0, 100], color=INK, linestyle=":", linewidth=1)
        for number, run in runs.items():
            style = series(number)
            axes.plot(100 * run.scores, 100 * run.shares, linewidth=1.6, **style)
            areas = 14 + 120 * np.sqrt(run.cells / run.cells.sum())
            axes.scatter(
                100 * run.scores,
                100 * run.shares,
                s=areas,
                color=style["color"],
                linewidth=0,
                clip_on=False,
                zorder=3,
            )
        _percent_axes(axes, "mean score in %", "present in %")
        return to_svg(figure, "reliability")


def threshold_curves(cuts: Floats, decided: Decisions, chosen: float) -> Markup:
    """Precision, recall and F1 against one threshold for all labels.

    Args:
        cuts: (C,) in [0, 1].
        decided: At each of them.
        chosen: F1 with each label's own threshold: a level.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(220.0, left=40.0, right=10.0, bottom=44.0, top=10.0)
        for number, values in enumerate((decided.precision, decided.recall, decided.f1)):
            style = {"color": SERIES[number], "linestyle": ("--", ":", "-")[number]}
            axes.plot(100 * cuts, 100 * values, linewidth=2, **style)
        axes.axhline(100 * chosen, color=INK, linewidth=1, linestyle="-.")
        _percent_axes(axes, "threshold in %", "")
        return to_svg(figure, "thresholds")


def _percent_axes(axes: mpl.axes.Axes, x: str, y: str) -> None:
    axes.set_xlim(-2, 102)
    axes.set_ylim(-2, 102)
    axes.set_xticks(range(0, 101, 25))
    axes.set_yticks(range(0, 101, 25))
    axes.grid(linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def share_map(labels: Sequence[str], shares: Floats, largest: float) -> Markup:
    """A matrix of shares: P(column | row), the darker the larger.

    Args:
        labels: A names.
        shares: (A, A) in [0, 1]; NaN is left out.
        largest: What is darkest.
    """
    names = [shorten(name, NAME_CELLS) for name in labels]
    margin = 10.0 + 7.0 * max(map(cells, names))
    with mpl.rc_context(STYLE):
        height = CELL * len(names) + margin + 4
        figure, axes = new_figure(height, left=margin, right=4.0, bottom=margin, top=4.0)
        shade(axes, shares / largest)
        edges = np.arange(len(names) + 1) - 0.5
        axes.hlines(edges, -0.5, len(names) - 0.5, color=FAINT, linewidth=0.6)
        axes.vlines(edges, -0.5, len(names) - 0.5, color=FAINT, linewidth=0.6)
        # No entry has its own label beside it.
        axes.plot(range(len(names)), range(len(names)), linestyle="", marker=".", color=FAINT)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=11, parse_math=False)
        axes.set_yticks(range(len(names)), names, fontsize=11, parse_math=False)
        axes.tick_params(length=0)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return to_svg(figure, "shares")
