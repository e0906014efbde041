"""Charts as SVG that takes its colours from the page, so that it fits light and dark.

Text stays text: the reader's fonts draw it, whatever script it is in. Each chart is made for the
width of a phone; wider pages show several in a row.
"""

import io
import re
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

WIDTH = 360.0  # points; about a CSS pixel each on a phone
POINTS_PER_INCH = 72.0
ROW_HEIGHT = 20.0
LABEL_CELLS = 20
COLOURS = 8

# Colours that nothing else has; each becomes a CSS variable of the page.
_INK, _FAINT, _BAR = "#010201", "#010202", "#010203"
_SERIES = [f"#0103{i:02x}" for i in range(COLOURS)]
_VARIABLES = {_INK: "--ink-2", _FAINT: "--line", _BAR: "--c0"} | {
    colour: f"--c{i}" for i, colour in enumerate(_SERIES)
}
_DASHES = ["-", "--", ":", "-."]


def chart_style(ink: str, faint: str) -> Any:
    """Settings of matplotlib that our charts share.

    Args:
        ink: Colour of text.
        faint: Colour of lines that only help.
    """
    return {
        "svg.fonttype": "none",
        "font.size": 12,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": faint,
        "xtick.color": faint,
        "ytick.color": faint,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "grid.color": faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


_STYLE = chart_style(_INK, _FAINT)


def learning_curves(curves: Mapping[int, pd.DataFrame], *, percent: bool) -> Markup:
    """Selection score over epochs, one line a run.

    Args:
        curves: By the number of the run's colour; columns `epoch`, `phase`, and `selection`, of
            which at least one is no NaN.
        percent: Whether scores are shown times 100.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(230.0, left=40.0, right=10.0, bottom=42.0, top=10.0)
        for number, curve in curves.items():
            series = {
                "color": _SERIES[number % COLOURS],
                "linestyle": _DASHES[number // COLOURS % len(_DASHES)],
            }
            epochs = curve["epoch"].to_numpy()
            scores = curve["selection"].to_numpy() * (100 if percent else 1)
            axes.plot(epochs, scores, linewidth=2, marker="o", markersize=2.5, **series)
            best = int(np.nanargmax(scores))
            axes.plot(epochs[best], scores[best], marker="o", markersize=7, **series)
        for start in _phase_starts(list(curves.values())):
            axes.axvline(start - 0.5, color=_INK, linestyle=":", linewidth=1, zorder=0)
        # Epoch 0: a head in closed form.
        first = min(curve["epoch"].min() for curve in curves.values())
        last = max(curve["epoch"].max() for curve in curves.values())
        axes.set_xlim(first - 0.5, last + 0.5)
        axes.grid(axis="y", linewidth=0.8)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        return _svg(figure, "curves")


def label_bars(labels: pd.DataFrame) -> Markup:
    """AP of each label as a bar, with the number of positives that it was measured on.

    Args:
        labels: Columns `label`, `ap` (NaN: not defined), `why` (the reason then), `positives`.
    """
    count = len(labels)
    with mpl.rc_context(_STYLE):
        names = [shorten(name, LABEL_CELLS) for name in labels["label"]]
        left = 12.0 + 7.0 * max(map(_cells, names))
        height = 34.0 + ROW_HEIGHT * count
        figure, axes = _figure(height, left=left, right=66.0, bottom=20.0, top=14.0)
        rows = range(count)
        axes.barh(rows, 100 * labels["ap"].fillna(0), height=0.66, color=_BAR)
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
        return _svg(figure, "labels")


def shorten(text: str, cells: int) -> str:
    """A text in one line and at most `cells` wide, where wide characters count twice."""
    text = printable(text)
    if _cells(text) <= cells:
        return text
    while text and _cells(text) > cells - 1:
        text = text[:-1]
    return f"{text}…"


def printable(text: str) -> str:
    """A text with each line break and tab as a space, and what XML cannot hold as a box."""
    return "".join(
        " " if c in "\t\n\r" else "\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in text
    )


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _phase_starts(curves: Sequence[pd.DataFrame]) -> list[float]:
    starts: set[float] = set()
    for curve in curves:
        changed = curve["phase"] != curve["phase"].shift(fill_value=curve["phase"].iloc[0])
        starts.update(curve["epoch"][changed])
    return sorted(starts)


def _figure(
    height: float, *, left: float, right: float, bottom: float, top: float
) -> tuple[Figure, Any]:
    """A figure with one pair of axes, and the margins around them in points."""
    figure = Figure(figsize=(WIDTH / POINTS_PER_INCH, height / POINTS_PER_INCH))
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    x, y = left / WIDTH, bottom / height
    axes = figure.add_axes((x, y, 1 - x - right / WIDTH, 1 - y - top / height))
    axes.patch.set_visible(False)
    return figure, axes


def _svg(figure: Figure, salt: str) -> Markup:
    file = io.StringIO()
    # The salt makes ids the same each time, and different in charts of different content.
    with mpl.rc_context({"svg.hashsalt": f"plmcl {salt}"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1>", text, count=1)
    # Ids of groups repeat from chart to chart, and nothing refers to them.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return Markup(text)  # noqa: S704 (matplotlib has escaped every text in it)
