"""mAP against the hours of annotation that the labels of a setting cost, as a picture."""

import io
import math
import warnings
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from plmcl.grid.entries import Entries
from plmcl.grid.spec import GridSpec
from plmcl.report.drawing import POINTS_PER_INCH, WIDTH, chart_style, shorten

# The page's colours for light, which are told apart with colour blindness too; then dashes.
_COLOURS = (
    "#0072b2", "#d55e00", "#00835f", "#a8478a", "#9a6700", "#2b8cc4", "#b03a48", "#5b5b58",
)  # fmt: skip
_DASHES = ("-", "--", ":", "-.")
_INK, _FAINT = "#4c4c49", "#dcdcd7"
_STYLE = chart_style(_INK, _FAINT) | {"svg.hashsalt": "plmcl cost"}
_PLOT, _BELOW, _LEGEND_LINE = 210.0, 46.0, 18.0  # heights in points
_NAME_CELLS = 40


def draw_cost(spec: GridSpec, entries: Entries, prices: Mapping[str, float]) -> str:
    """Test mAP against hours of annotation as SVG: a curve a row, a level for each reference.

    Args:
        spec: The grid.
        entries: Of its table.
        prices: `labels.effort.hours` of each setting; one without a price is not shown.
    """
    with mpl.rc_context(_STYLE):
        height = _PLOT + _BELOW + _LEGEND_LINE * len(spec.rows)
        figure = Figure(figsize=(WIDTH / POINTS_PER_INCH, height / POINTS_PER_INCH))
        FigureCanvasSVG(figure)
        bottom = (height - _PLOT) / height
        axes = figure.add_axes((0.13, bottom, 0.84, (_PLOT - 10) / height))
        for number, (name, row) in enumerate(spec.rows.items()):
            style: Any = {
                "color": _COLOURS[number % len(_COLOURS)],
                "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
                "linewidth": 2,
            }
            label = shorten(name, _NAME_CELLS)
            shown = [entries[name, column] for column in spec.settings]
            priced = [e for e in shown if e.test and not math.isnan(prices[e.setting])]
            means = {entry.setting: entry.mean for entry in priced}
            if row.reference and row.setting is not None:
                for setting, mean in means.items():
                    axes.axhline(mean, label=f"{label}: {prices[setting]:,.0f} h", **style)
            else:
                order = sorted(means, key=lambda setting: prices[setting])
                axes.plot(
                    [prices[setting] for setting in order],
                    [means[setting] for setting in order],
                    marker="o",
                    label=label,
                    **style,
                )
        axes.set_xlabel("hours of annotation")
        axes.set_ylabel("test mAP in %")
        axes.grid(axis="y", linewidth=0.8)
        legend = figure.legend(loc="lower left", frameon=False, fontsize=11)
        for text in legend.get_texts():
            text.set_parse_math(False)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()
