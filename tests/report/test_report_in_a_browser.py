"""The report as a person sees it: wide and on a telephone, light and dark, with the network off."""

import numpy as np
import pandas as pd
import pytest
from browser import CHROMIUM, Browser
from PIL import Image
from report_runs import HOSTILE, LABELS, METRICS, NOT_CHANGED, make_run
from tables import image_table

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.report import write_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's chromium: apt-get install chromium"
    ),
]

NAMES = [f"{number:02d}.png" for number in range(16)]
EPOCHS = [
    {"epoch": epoch, "phase": "linear", "train/loss": 1.0, "val/mAP": 0.5}
    | {f"pseudo_labels/{name}": epoch / 10 for name in ("confidence", "weight", "velocity")}
    | {"pseudo_labels/precision": None if epoch == 1 else 0.5, "pseudo_labels/recall": 0.4}
    | {"pseudo_label_histogram": f"5 {epoch} 0 1"}
    for epoch in range(1, 6)
]
# In each direction: what is cut off, what lies on what, which chart is empty, which picture broken.
FAULTS = """(() => {
  const shown = (e) => e.getClientRects().length > 0;
  const told = (e) => `${e.tagName} ${e.className}: ${e.textContent.trim().slice(0, 40)}`;
  const faults = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) faults.push(`the page is ${page.scrollWidth} wide`);
  for (const e of document.querySelectorAll("main *:not(svg *)")) {
    if (!shown(e) || e.closest(".scroll table")) continue;
    const inline = getComputedStyle(e).display === "inline";
    if (!inline && !e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1)
      faults.push(`cut off: ${told(e)}`);
  }
  for (const e of document.querySelectorAll("table.figures"))
    if (e.parentElement.scrollWidth > e.parentElement.clientWidth)
      faults.push("figures are cut off");
  for (const svg of document.querySelectorAll(".chart > svg")) {
    const box = svg.getBoundingClientRect();
    const marks = [...svg.querySelectorAll("path, use, rect")].filter((mark) => {
      const size = mark.getBoundingClientRect();
      const style = mark.getAttribute("style") ?? mark.parentElement.getAttribute("style") ?? "";
      return size.width + size.height > 2 && !mark.closest("defs") && /--c[0-7]/.test(style);
    });
    const name = svg.closest("figure").getAttribute("aria-label");
    if (box.width < 200 || box.height < 60 || marks.length === 0) faults.push(`empty: ${name}`);
    for (const text of svg.querySelectorAll("text")) {
      const place = text.getBoundingClientRect();
      if (place.left < box.left - 1 || place.right > box.right + 1
          || place.top < box.top - 1 || place.bottom > box.bottom + 1)
        faults.push(`outside of ${name}: ${text.textContent}`);
    }
  }
  const parts = document.querySelectorAll(".card, h1, h2, h3, p, details, .legend");
  const blocks = [...parts].filter(shown);
  blocks.forEach((one, i) => blocks.slice(i + 1).forEach((other) => {
    if (one.contains(other)) return;
    const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
    if (a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1)
      faults.push(`overlap: ${told(one)} / ${told(other)}`);
  }));
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth) faults.push(`broken: ${image.alt}`);
  return faults;
})()"""
HEADINGS = """[...document.querySelectorAll("h2")].map((heading) => heading.textContent)"""
COLOURS = (
    """["body", ".card"].map((s) => getComputedStyle(document.querySelector(s)).backgroundColor)"""
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """All sections: two settings, pseudo labels, pictures of all kinds."""
    root = tmp_path_factory.mktemp("report")
    generator = np.random.default_rng(0)
    truth = generator.random((16, 3)) < 0.5
    for name in NAMES:
        Image.new("RGB", (64, 48), "teal").save(root / name)
    pairs = [(NAMES[i], LABELS[j]) for i, j in np.argwhere(truth)]
    labels = pd.DataFrame(pairs, columns=["image_id", "label"]).assign(value=np.int8(1))
    images = image_table(NAMES, sha256=NAMES, status=["ok"] * 16)
    manifest = Manifest(images, labels, LABELS, "negative")
    splits = pd.DataFrame({"image_id": NAMES, "split": ["train"] * 10 + ["test"] * 6}, dtype="str")
    changed = f"{NOT_CHANGED}00.png,NA,1,0.995\n00.png,cat,0,0.9\n01.png,cat,0,0.8\n"
    runs = []
    for name in ("sspl-40-an", "sspl-40-plmcl", "fspl-an", "fspl-plmcl"):
        mine = {"history": EPOCHS, "changed": changed} if name.endswith("plmcl") else {}
        folder = make_run(root / "runs" / name, metrics=METRICS | {"mAP": 0.5}, **mine)
        probs = np.clip(0.3 + 0.4 * truth + generator.normal(0, 0.2, (16, 3)), 0, 1)
        scores = pd.DataFrame(
            {
                "image_id": np.repeat(np.array(NAMES, dtype=object), 3),
                "label": np.tile(np.array(LABELS, dtype=object), 16),
                "score": probs.astype(np.float32).ravel(),
            }
        )
        schemas.write_table(scores, folder / "predictions.parquet")
        runs.append(folder)
    out = root / "index.html"
    write_report(runs, manifest, splits, root, out)
    return out.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    opened.ask("Network.enable")
    opened.ask(
        "Network.emulateNetworkConditions",
        offline=True, latency=0, downloadThroughput=0, uploadThroughput=0,
    )  # fmt: skip
    yield opened
    opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_is_whole_at_any_width_in_light_and_dark(browser, page, width):
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=844, deviceScaleFactor=1, mobile=width < 600,
    )  # fmt: skip
    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.ask("Emulation.setEmulatedMedia", features=[feature])
        browser.open(page)
        assert browser.run(FAULTS) == []
        seen.append(browser.run(COLOURS))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    assert browser.run(HEADINGS) == [
        "Results", "Learning curves", "mAP against annotation", "Labels of the kept run",
        "Calibration", "Thresholds", "Pseudo labels", "Labels that come together", "Pictures",
        "How to go on",
    ]  # fmt: skip
    # Everything that opens is opened, as by a person.
    for number in range(browser.run("document.querySelectorAll('summary').length")):
        browser.run(f"document.querySelectorAll('summary')[{number}].click()")
    assert browser.run("[...document.querySelectorAll('details')].every((part) => part.open)")
    assert browser.run(FAULTS) == []
    assert HOSTILE in browser.run("document.body.innerText")
    assert browser.complaints == []
