"""Draws docs/images/architecture.svg: the rooms of src/plmcl and what goes from one to the next."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, GAP, TOP = 214, 92, 58, 20
STYLE = """
.paper { fill: #ffffff } .room { fill: #e6f2f1; stroke: #2f7f79 }
.outside { fill: none; stroke: #777777; stroke-dasharray: 5 4 }
text { fill: #1c2b2a; font: 13px system-ui, sans-serif } .name { font-weight: 650 }
.said { font-size: 11.5px; fill: #4a5a59 } path { stroke: #2f7f79; fill: none; stroke-width: 1.6 }
#head path { fill: #2f7f79 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #1b2423 } .room { fill: #24413f; stroke: #6fc3bb } text { fill: #e9f1f0 }
  .said { fill: #b5c4c2 } path { stroke: #6fc3bb } #head path { fill: #6fc3bb }
}
"""


@dataclass(frozen=True)
class Box:
    """A room, or what lies outside of the house.

    Attributes:
        column: From 0, at the left.
        row: From 0, at the top.
        name: The package or module.
        lines: What it does.
        outside: Whether it is no code of ours.
    """

    column: int
    row: int
    name: str
    lines: tuple[str, ...]
    outside: bool = False

    @property
    def x(self) -> int:
        """Of the left edge."""
        return 16 + self.column * (WIDTH + GAP)

    @property
    def y(self) -> int:
        """Of the upper edge."""
        return TOP + self.row * (HEIGHT + GAP)

    def svg(self) -> str:
        """The box with its text."""
        kind = "outside" if self.outside else "room"
        texts = [(self.name, "name"), *((line, "") for line in self.lines)]
        return (
            f'<rect class="{kind}" x="{self.x}" y="{self.y}" width="{WIDTH}" height="{HEIGHT}" '
            'rx="8"/>'
        ) + "".join(
            f'<text class="{cls}" x="{self.x + 10}" y="{self.y + 22 + 18 * number}">'
            f"{escape(text)}</text>"
            for number, (text, cls) in enumerate(texts)
        )


FILES = Box(0, 0, "images and labels", ("your folder, VOC, COCO,", "NUS-WIDE, CUB"), outside=True)
DATA = Box(
    1,
    0,
    "data/",
    ("sources, formats, downloads", "the doctor: a status a file", "one recipe to pixels"),
)
LABELS = Box(2, 0, "labels/", ("splits", "settings: which labels", "training may see"))
TRAINING = Box(
    3,
    0,
    "training.py, methods/",
    ("models.py: image to logits", "a method: the loss, and", "what it keeps of each image"),
)
EVALUATION = Box(3, 1, "evaluation.py", ("average precision", "thresholds.py", "calibration.py"))
EXPORT = Box(
    2,
    1,
    "export.py, variants.py",
    ("model.onnx: card.py is its", "labels, thresholds, recipe", "parity with torch"),
)
INFERENCE = Box(
    1, 1, "inference.py, session.py", ("ONNX Runtime, Pillow and", "numpy: no torch, no pandas")
)
ANSWERS = Box(
    0, 1, "scoring/, serving/", ("files, lists and buckets", "many machines with Ray", "HTTP")
)
SEEN = Box(
    3, 2, "report/, tracking.py", ("one page of all runs", "MLflow", "grid/: tables over seeds")
)
LABELLING = Box(
    2, 2, "labelling/", ("suspected labels", "what to label next", "answers are labels again")
)
RETRAINING = Box(
    1,
    2,
    "retraining/",
    ("receives, runs the pipeline", "in a checkout, compares", "with what is served"),
)
ARRIVING = Box(0, 2, "new images", ("a folder or a bucket",), outside=True)
BOXES = (
    FILES, DATA, LABELS, TRAINING, EVALUATION, EXPORT, INFERENCE, ANSWERS, SEEN, LABELLING,
    RETRAINING, ARRIVING,
)  # fmt: skip
ARROWS = (
    (FILES, DATA, ""),
    (DATA, LABELS, "manifest"),
    (LABELS, TRAINING, "labels"),
    (TRAINING, EVALUATION, "model.pt"),
    (EVALUATION, EXPORT, ""),
    (EXPORT, INFERENCE, "onnx"),
    (INFERENCE, ANSWERS, "scores"),
    (EVALUATION, SEEN, "figures, scores"),
    (EXPORT, LABELLING, "the tagger, its run"),
    (ARRIVING, RETRAINING, ""),
    (RETRAINING, INFERENCE, "the champion"),
)
FLOOR = (
    "stages/, cli/: thin. A command reads, calls one room, and writes; dvc.yaml says what a stage",
    "reads and writes. Only params.py reads params.yaml; only stages/paths.py knows the paths.",
)


def arrow(start: Box, end: Box, said: str) -> str:
    """From the edge of a box to the edge of one beside, below or above it."""
    if start.row == end.row:
        forward = end.column > start.column
        x1, x2 = (start.x + WIDTH, end.x) if forward else (start.x, end.x + WIDTH)
        y = start.y + HEIGHT // 2
        sign = 1 if forward else -1
        line = f'<path d="M{x1} {y}H{x2 - 4 * sign}" marker-end="url(#head)"/>'
        place = f'x="{(x1 + x2) // 2}" y="{y - 8}" text-anchor="middle"'
    else:
        down = end.row > start.row
        y1, y2 = (start.y + HEIGHT, end.y) if down else (start.y, end.y + HEIGHT)
        x = start.x + WIDTH // 2
        line = f'<path d="M{x} {y1}V{y2 - 4 * (1 if down else -1)}" marker-end="url(#head)"/>'
        place = f'x="{x + 8}" y="{(y1 + y2) // 2 + 4}"'
    return line + (f'<text class="said" {place}>{escape(said)}</text>' if said else "")


def draw() -> str:
    """The picture as SVG."""
    width = BOXES[3].x + WIDTH + 16
    floor = TOP + 3 * (HEIGHT + GAP) - 28
    height = floor + 64
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="The rooms of plmcl and the data between them">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *(box.svg() for box in BOXES),
        *(arrow(*ends) for ends in ARROWS),
        f'<rect class="room" x="16" y="{floor}" width="{width - 32}" height="50" rx="8"/>',
        *(
            f'<text x="26" y="{floor + 21 + 18 * number}">{escape(line)}</text>'
            for number, line in enumerate(FLOOR)
        ),
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    Path(__file__).with_name("images").joinpath("architecture.svg").write_text(draw(), "utf-8")
