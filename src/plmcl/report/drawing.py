"""Charts as SVG that takes its colours from the page, so that it fits light and dark.

Text stays text: the reader's fonts draw it, whatever script it is in. Each chart is made for the
width of a phone; wider pages show several in a row.
"""

import io
import re
import unicodedata
import warnings
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

WIDTH = 360.0  # points; about a CSS pixel each on a phone
POINTS_PER_INCH = 72.0
COLOURS = 8
SHADES = 12

# Colours that nothing else has; each becomes a CSS variable of the page.
INK, FAINT, BAR = "#010201", "#010202", "#010203"
SERIES = [f"#0103{i:02x}" for i in range(COLOURS)]
_VARIABLES = {INK: "--ink-2", FAINT: "--line", BAR: "--c0"} | {
    colour: f"--c{i}" for i, colour in enumerate(SERIES)
}
DASHES = ["-", "--", ":", "-."]

Floats = NDArray[np.float64]


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


STYLE = chart_style(INK, FAINT)


def shorten(text: str, room: int) -> str:
    """A text in one line and at most `room` wide, where wide characters count twice."""
    text = printable(text)
    if cells(text) <= room:
        return text
    while text and cells(text) > room - 1:
        text = text[:-1]
    return f"{text}…"


def printable(text: str) -> str:
    """A text with each line break and tab as a space, and what XML cannot hold as a box."""
    return "".join(
        " " if c in "\t\n\r" else "\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in text
    )


def cells(text: str) -> int:
    """How wide a text is, where wide characters count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def new_figure(
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


def series(number: int) -> dict[str, Any]:
    """Colour and dashes of a run; `number` counts from 0, and the page's legend counts so, too."""
    return {
        "color": SERIES[number % COLOURS],
        "linestyle": DASHES[number // COLOURS % len(DASHES)],
    }


def shade(axes: Any, values: Floats, bottom: float = -0.5, height: float = 1.0) -> None:
    """Fill the cells of a matrix, the darker the larger; one shape for each of `SHADES` shades.

    Args:
        axes: Column c is centred at x = c.
        values: (R, C) in [0, 1]; a cell of 0 or NaN stays empty.
        bottom: y of the lower edge of row 0.
        height: Of a row.
    """
    steps = np.ceil(np.nan_to_num(values) * SHADES).astype(int)
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
    for step in range(1, SHADES + 1):
        rows, columns = np.nonzero(steps == step)
        if not len(rows):
            continue
        corners = np.stack([columns - 0.5, bottom + rows * height], axis=1)
        vertices = (corners[:, None] + square * (1, height)).reshape(-1, 2)
        path = Path(vertices, np.tile(codes, len(rows)))
        axes.add_patch(PathPatch(path, facecolor=BAR, alpha=step / SHADES, linewidth=0))


def to_svg(figure: Figure, salt: str) -> Markup:
    """The figure as an SVG element in the page's colours and fonts.

    Args:
        figure: Drawn under `STYLE`, in the colours of this module.
        salt: The kind of chart.
    """
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
