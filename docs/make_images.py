"""The pictures of README.md and of the pages: drawn scenes, and what a browser shows.

scenes.png: the first pictures of the default data set, with their true labels. It is drawn anew
from params.yaml and is the same each time.

report.png, report-phone.png: the top of reports/index.html, on a screen and on a telephone.
mlflow-comparison.png: MLflow's page that compares the runs below reports/runs, filled from their
records. docs-front.png: the front page of the site. Only the seconds of the trainings, and the
ids of MLflow, differ from one time to the next.

    dvc repro
    python docs/make_images.py
    python docs/make_images.py docs-front.png
"""

import base64
import io
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError
from plmcl.params import load_params

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import CHROMIUM, Browser  # noqa: E402 (it is no part of the package)

IMAGES = ROOT / "docs" / "images"
SECONDS_TO_SETTLE = 1.5  # animations, and fonts
SCREEN, WIDE, TALL, TELEPHONE = (1000, 1370), (1280, 900), (1280, 1090), (390, 844)
# Its assistant is no part of the comparison, and its charts are many: those of mAP are shown.
MLFLOW_BEFORE = """
localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
"""
MLFLOW_AFTER = (
    """document.querySelectorAll(".main-svg").length > 8""",
    """(() => {
      const search = document.querySelector('input[placeholder="Search metric charts"]');
      const value = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
      value.set.call(search, "mAP$");
      search.dispatchEvent(new Event("input", {bubbles: true}));
      const bars = document.createElement("style"); // a chart shows them under the pointer only
      bars.textContent = ".modebar { display: none }";
      document.head.append(bars);
      return true;
    })()""",
    """document.querySelectorAll(".main-svg").length < 9""",
)
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
    """The top of the report, down to the learning curves."""
    _photograph(_report(), path, SCREEN)


def photograph_report_on_a_telephone(path: Path) -> None:
    """The same page as a telephone has it."""
    _photograph(_report(), path, TELEPHONE, mobile=True)


def photograph_comparison(path: Path) -> None:
    """MLflow's comparison of all runs that the report speaks of, in a store of its own."""
    _report()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/mlflow.db"
        environment = os.environ | {"MLFLOW_TRACKING_URI": store}
        _plmcl("track", environment)
        with _mlflow_ui(store, folder) as address:
            url = f"{address}/#/experiments/1/runs?compareRunsMode=CHART"
            _photograph(url, path, TALL, before=MLFLOW_BEFORE, after=MLFLOW_AFTER)


def photograph_site(path: Path) -> None:
    """The front page of `make docs`."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 (of this environment)
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
            cwd=ROOT,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            check=True,
        )
        _photograph(Path(folder, "index.html").as_uri(), path, WIDE)


def _report() -> str:
    report = ROOT / "reports" / "index.html"
    if not report.exists():
        raise PlmclError(f"{report}: not found; run dvc repro first")
    return report.as_uri()


def _plmcl(command: str, environment: dict[str, str]) -> None:
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", "plmcl.cli", command], cwd=ROOT, env=environment, check=True
    )


@contextmanager
def _mlflow_ui(store: str, folder: str) -> Iterator[str]:
    """The address of MLflow's pages while they are served."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(  # noqa: S603
        [*command, "--backend-store-uri", store, "--default-artifact-root", folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health"):  # noqa: S310 (ours)
                    break
            except urllib.error.URLError:
                if time.monotonic() > until:
                    raise PlmclError(f"{address}: MLflow's pages do not come up") from None
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def _photograph(
    url: str,
    path: Path,
    size: tuple[int, int],
    *,
    mobile: bool = False,
    before: str = "",
    after: tuple[str, ...] = (),
) -> None:
    """Let a browser show a page, and keep what is on its screen.

    Args:
        url: Of the page.
        path: The PNG.
        size: Of the screen.
        mobile: Whether it is a telephone's.
        before: A script that runs before those of the page.
        after: Scripts, each waited for until it is true.
    """
    if CHROMIUM is None:
        raise PlmclError("no browser: neither chromium nor chromium-browser is on PATH")
    width, height = size
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            browser.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width, height=height, deviceScaleFactor=1, mobile=mobile,
            )  # fmt: skip
            browser.ask("Emulation.setScrollbarsHidden", hidden=True)
            browser.ask("Page.addScriptToEvaluateOnNewDocument", source=before)
            browser.open(url)
            time.sleep(SECONDS_TO_SETTLE)
            for script in after:
                browser.wait_for(script, 120)
                time.sleep(SECONDS_TO_SETTLE)
            shot = browser.ask("Page.captureScreenshot", format="png")["data"]
        finally:
            browser.close()
    save(Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB"), path)


def save(image: Image.Image, path: Path) -> None:
    """Write a PNG, and refuse one that is too large for a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {image.width}x{image.height}, {path.stat().st_size} bytes")
    if path.stat().st_size > LIMIT:
        raise PlmclError(f"{path}: more than {LIMIT} bytes")


MAKERS: dict[str, Callable[[Path], None]] = {
    "scenes.png": draw_strip,
    "report.png": photograph_report,
    "report-phone.png": photograph_report_on_a_telephone,
    "mlflow-comparison.png": photograph_comparison,
    "docs-front.png": photograph_site,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or MAKERS:
        MAKERS[name](IMAGES / name)
