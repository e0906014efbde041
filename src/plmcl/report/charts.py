"""What a run learned: curves over epochs, labels as bars, mAP against annotation."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from plmcl.report.drawing import (
    BAR,
    INK,
    STYLE,
    cells,
    new_figure,
    series,
    shorten,
    to_svg,
)

ROW_HEIGHT = 20.0
LABEL_CELLS = 20


def learning_curves(curves: Mapping[int, pd.DataFrame], *, percent: bool) -> Markup:
    """Selection score over epochs, one line a run.

    Args:
        curves: By the number of the run's colour; columns `epoch`, `phase`, and `selection`, of
            which at least one is no NaN.
        percent: Whether scores are shown times 100.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(230.0, left=40.0, right=10.0, bottom=42.0, top=10.0)
        for number, curve in curves.items():
            style = series(number)
            epochs = curve["epoch"].to_numpy()
            scores = curve["selection"].to_numpy() * (100 if percent else 1)
            axes.plot(epochs, scores, linewidth=2, marker="o", markersize=2.5, **style)
            best = int(np.nanargmax(scores))
            axes.plot(epochs[best], scores[best], marker="o", markersize=7, **style)
        for start in _phase_starts(list(curves.values())):
            axes.axvline(start - 0.5, color=INK, linestyle=":", linewidth=1, zorder=0)
        # Epoch 0: a head in closed form.
        first = min(curve["epoch"].min() for curve in curves.values())
        last = max(curve["epoch"].max() for curve in curves.values())
        axes.set_xlim(first - 0.5, last + 0.5)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        return to_svg(figure, "curves")


def label_bars(labels: pd.DataFrame) -> Markup:
    """AP of each label as a bar, with the number of positives that it was measured on.

    Args:
        labels: Columns `label`, `ap` (NaN: not defined), `why` (the reason then), `positives`.
    """
    count = len(labels)
    with mpl.rc_context(STYLE):
        names = [shorten(name, LABEL_CELLS) for name in labels["label"]]
        left = 12.0 + 7.0 * max(map(cells, names))
        height = 34.0 + ROW_HEIGHT * count
        figure, axes = new_figure(height, left=left, right=66.0, bottom=20.0, top=14.0)
        rows = range(count)
        axes.barh(rows, 100 * labels["ap"].fillna(0), height=0.66, color=BAR)
        for row, (_, label) in zip(rows, labels.iterrows(), strict=True):
            defined = pd.notna(label["ap"])
            axes.annotate(
                f"{100 * label['ap']:.1f}" if defined else f"n/a: {label['why']}",
                (100 * label["ap"] if defined else 0, row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=11,
                parse_math=False,
            )
            axes.annotate(
                f"{label['positives']:.0f}",
                (1, row),
                xycoords=("axes fraction", "data"),
                xytext=(64, 0),
                textcoords="offset points",
                ha="right",
                va="center_baseline",
                fontsize=11,
            )
        axes.annotate(
            "images",
            (1, 1),
            xycoords="axes fraction",
            xytext=(64, 3),
            textcoords="offset points",
            ha="right",
            fontsize=11,
        )
        axes.set_yticks(rows, names, parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 100)
        axes.set_ylim(count - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.8)
        axes.set_axisbelow(True)
        return to_svg(figure, "labels")


def cost_curves(curves: Mapping[int, Sequence[tuple[float, float]]]) -> Markup:
    """Test mAP against hours of annotation, one line a method.

    Args:
        curves: By the number of the method's colour: (hours, mAP as a fraction), hours ascending.
    """
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(230.0, left=46.0, right=12.0, bottom=42.0, top=10.0)
        for number, points in curves.items():
            hours, scores = zip(*points, strict=True)
            axes.plot(hours, 100 * np.array(scores), marker="o", **series(number), linewidth=2)
        axes.margins(x=0.06)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_xlabel("hours of annotation")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        return to_svg(figure, "cost")


def _phase_starts(curves: Sequence[pd.DataFrame]) -> list[float]:
    starts: set[float] = set()
    for curve in curves:
        changed = curve["phase"] != curve["phase"].shift(fill_value=curve["phase"].iloc[0])
        starts.update(curve["epoch"][changed])
    return sorted(starts)
