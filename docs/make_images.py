"""The two pictures of README.md, made from drawn scenes alone.

scenes.png: the first pictures of the default data set, with their true labels. It is drawn anew
from params.yaml and is the same each time.

report.png: the top of reports/index.html as a browser shows it. Run `dvc repro` first; only the
seconds of the trainings differ from one time to the next.

    python docs/make_images.py
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError
from plmcl.params import load_params

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Quiet: no window, no sandbox (it cannot be had as root), nothing that asks the network.
BROWSER_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
REPORT_SIZE = (800, 1280)  # down to the end of the learning curves
PICTURES = 6
GAP, LINE, MARGIN = 12, 17, 8
LIMIT = 300_000  # bytes of a file


def draw_strip(path: Path) -> None:
    """Draw the first scenes side by side, each above its true labels."""
    params = load_params(ROOT / "params.yaml")
    sections = {"scenes": params.sources["scenes"] | {"images": PICTURES}}
    scenes = make_source("scenes", sections)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw")
        scenes.download(ROOT, raw, seed=params.seed)
        found = scenes.annotations(raw)
        files = found.files
        pictures = [Image.open(raw / "images" / file).convert("RGB") for file in files]
    shown = set(zip(found.labels["image_id"], found.labels["label"], strict=True))
    labels = [[name for name in found.label_names if (file, name) in shown] for file in files]
    side = pictures[0].width
    width = 2 * MARGIN + PICTURES * side + (PICTURES - 1) * GAP
    height = 2 * MARGIN + side + 6 + LINE * max(map(len, labels))
    strip = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(strip)
    font = ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), 12)
    for number, (picture, texts) in enumerate(zip(pictures, labels, strict=True)):
        left = MARGIN + number * (side + GAP)
        strip.paste(picture, (left, MARGIN))
        for row, text in enumerate(texts):
            draw.text((left, MARGIN + side + 6 + row * LINE), text, fill="#333333", font=font)
    save(strip, path)


def photograph_report(path: Path) -> None:
    """Let a browser show the report, and keep what is on the screen."""
    report = ROOT / "reports" / "index.html"
    if not report.exists():
        raise PlmclError(f"{report}: not found; run dvc repro first")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise PlmclError(f"no browser: none of {', '.join(BROWSERS)} is on PATH")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        size = ",".join(map(str, REPORT_SIZE))
        own = (f"--user-data-dir={folder}", f"--window-size={size}", f"--screenshot={shot}")
        subprocess.run(  # noqa: S603 (a browser of this machine, on a page of ours)
            [browser, *BROWSER_FLAGS, *own, report.as_uri()], check=True, capture_output=True
        )
        save(Image.open(shot).convert("RGB"), path)


def save(image: Image.Image, path: Path) -> None:
    """Write a PNG, and refuse one that is too large for a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {image.width}x{image.height}, {path.stat().st_size} bytes")
    if path.stat().st_size > LIMIT:
        raise PlmclError(f"{path}: more than {LIMIT} bytes")


if __name__ == "__main__":
    draw_strip(IMAGES / "scenes.png")
    photograph_report(IMAGES / "report.png")
