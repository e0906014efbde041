"""DVC's plots are drawn without the network: `make plots`, looked at in a browser."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from project import ROOT, environment

pytestmark = pytest.mark.slow
CURVE = "stages: {}\nplots:\n  - curve.csv:\n      x: epoch\n      y: loss\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page that `make plots` writes in a project with one curve."""
    project = tmp_path_factory.mktemp("project")
    (project / "dvc.yaml").write_text(CURVE)
    (project / "curve.csv").write_text("epoch,loss\n1,0.5\n2,0.25\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".dvc").mkdir()
    for name in ("config", "plots.html"):
        shutil.copy(ROOT / ".dvc" / name, project / ".dvc")
    # The environment that runs this test, and not one made for the occasion.
    environments = [
        "VENV=.venv",
        "--old-file=.venv/.installed",
        f"BIN={Path(sys.executable).parent}",
    ]
    subprocess.run(
        ["make", "--file", ROOT / "Makefile", "--silent", *environments, "plots"],
        cwd=project, env=environment(), check=True, timeout=120,
    )  # fmt: skip
    return project / "dvc_plots/index.html"


def test_the_chart_is_drawn_from_what_lies_beside_the_page(page, tmp_path):
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    browser = Browser(tmp_path)
    try:
        browser.ask("Network.enable")
        offline = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        browser.ask("Network.emulateNetworkConditions", offline=True, **offline)
        browser.open(page.as_uri())
        browser.wait_for("document.querySelector('canvas.marks, svg.marks') !== null")
        assert browser.complaints == []
    finally:
        browser.close()


def test_without_the_library_the_page_falls_back_to_dvcs_own_addresses(page):
    text = page.read_text()
    assert "{scripts}" not in text
    (network,) = text.split('<template id="from-the-network">')[1:]
    assert network.partition("</template>")[0].count("<script src=") == 3
    assert text.count("https://cdn") == 3
