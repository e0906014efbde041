"""Draws docs/images/settings.svg: four pictures, and what each setting shows of their labels.

The labels shown are those that plmcl draws under SEED; docs/settings.md has them as tables.

    python docs/make_settings.py
"""

import base64
import io
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from plmcl.data.cells import Cells
from plmcl.data.manifest import Manifest
from plmcl.data.sources.scenes.drawing import draw_picture
from plmcl.data.sources.scenes.glyphs import choose_glyphs
from plmcl.labels.settings import Setting, make_draws, observe

LABELS = ("airplane", "anchor", "umbrella")
TRUTH = {
    "a.jpg": ("airplane", "anchor"),
    "b.jpg": ("umbrella",),
    "c.jpg": (),
    "d.jpg": ("anchor", "umbrella"),
}
SEED = 2
ROWS = (
    ("ffl", "everything"),
    ("fpl-50", "half of the entries"),
    ("sfl-50", "all, of half of the images"),
    ("fspl", "one positive of each image"),
    ("sspl-50", "one positive, of half of them"),
)
SIDE, CELL, LINE, GAP, LEFT, TOP = 104, 148, 22, 10, 196, 160
STYLE = """
.paper { fill: #ffffff } .cell { fill: #f2f5f5 } text { fill: #1c2b2a }
text { font: 13px system-ui, sans-serif } .name { font: 650 15px ui-monospace, monospace }
.said { font-size: 11.5px; fill: #4a5a59 } .yes { fill: #1d6f69 } .no { fill: #8f4f1a }
.mark { fill: #ffffff; font-weight: 700; text-anchor: middle }
.hidden { fill: none; stroke: #8a9694; stroke-dasharray: 3 3 }
.unknown { fill: #6a7775 } .middle { text-anchor: middle }
@media (prefers-color-scheme: dark) {
  .paper { fill: #1b2423 } .cell { fill: #243130 } text { fill: #e9f1f0 }
  .said { fill: #b5c4c2 } .yes { fill: #2f9a91 } .no { fill: #b9702f } .mark { fill: #ffffff }
  .unknown { fill: #93a19f } .hidden { stroke: #7d8b89 }
}
"""


def manifest() -> Manifest:
    """The four images with all their labels, as ingest would have them."""
    cells = Cells()
    for image_id, names in TRUTH.items():
        for name in names:
            cells.add(image_id, name, 1)
    images = pd.DataFrame({"image_id": list(TRUTH), "status": "ok", "delivery": 0})
    return Manifest(images, cells.table(), list(LABELS), "negative")


def shown(name: str) -> dict[tuple[str, str], int]:
    """What training sees under a setting: (image id, label) -> 1 or 0."""
    truth, ids = manifest(), pd.Series(list(TRUTH), dtype="str")
    splits = pd.DataFrame({"image_id": ids, "split": "train"})
    draws = make_draws(truth, ids, seed=SEED, draw="hash")
    observed = observe(Setting.parse(name), truth=truth, splits=splits, draws=draws, seed=SEED)
    return {(row.image_id, row.label): int(row.value) for row in observed.itertuples()}


def picture(image_id: str, number: int) -> str:
    """One of the four pictures, as an address that holds all of it."""
    glyphs = {glyph.name: glyph for glyph in choose_glyphs(12)}
    names = TRUTH[image_id]
    image = draw_picture(
        [glyphs[name].mask for name in names],
        [LABELS.index(name) * 0.618034 % 1 for name in names],
        size=2 * SIDE,
        clutter=4,
        rng=np.random.default_rng([SEED, number]),
    )
    stored = io.BytesIO()
    image.save(stored, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(stored.getvalue()).decode()}"


def entry(label: str, value: int | None, x: int, y: int) -> str:
    """A label with a tick, a cross, or nothing that is known."""
    if value is None:
        box, mark, style = "hidden", "", ' class="unknown"'
    else:
        sign = "✓" if value else "✗"
        box, style = ("yes" if value else "no"), ""
        mark = f'<text class="mark" x="{x + 8}" y="{y + 13}">{sign}</text>'
    return (
        f'<rect class="{box}" x="{x}" y="{y}" width="16" height="16" rx="4"/>{mark}'
        f'<text{style} x="{x + 24}" y="{y + 13}">{escape(label)}</text>'
    )


def draw() -> str:
    """The picture as SVG."""
    height = len(LABELS) * LINE + 2 * GAP - 6
    bottom = TOP + len(ROWS) * (height + GAP)
    width = LEFT + len(TRUTH) * (CELL + GAP) + 6
    parts = []
    for number, image_id in enumerate(TRUTH):
        x = LEFT + number * (CELL + GAP) + (CELL - SIDE) // 2
        parts.append(
            f'<image x="{x}" y="32" width="{SIDE}" height="{SIDE}" '
            f'href="{picture(image_id, number)}"/>'
            f'<text class="middle" x="{x + SIDE // 2}" y="22">{image_id}</text>'
        )
    for row, (name, said) in enumerate(ROWS):
        y, cells = TOP + row * (height + GAP), shown(name)
        parts.append(
            f'<text class="name" x="16" y="{y + 30}">{name}</text>'
            f'<text class="said" x="16" y="{y + 50}">{escape(said)}</text>'
        )
        for number, image_id in enumerate(TRUTH):
            x = LEFT + number * (CELL + GAP)
            parts.append(
                f'<rect class="cell" x="{x}" y="{y}" width="{CELL}" height="{height}" rx="8"/>'
            )
            parts += [
                entry(label, cells.get((image_id, label)), x + 14, y + GAP + place * LINE)
                for place, label in enumerate(LABELS)
            ]
    key = (("known: present", 1), ("known: absent", 0), ("unknown", None))
    parts += [
        entry(text, value, LEFT + number * (CELL + GAP) + 14, bottom + 6)
        for number, (text, value) in enumerate(key)
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 36}" role="img" '
        'aria-label="Four pictures, and which of their labels each setting shows">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{bottom + 36}"/>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    Path(__file__).with_name("images").joinpath("settings.svg").write_text(draw(), "utf-8")
