"""The pages as a site: built strictly, with every link, and without anything from elsewhere."""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest
from pages import PAGES, read, tables
from project import ROOT

sys.path.insert(0, str(ROOT / "docs"))  # where its scripts lie

# What a browser loads by itself, unlike a link that somebody follows.
LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"(https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that `mkdocs build --strict` fills; a warning, such as a dead link, fails it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site):
    names = {path.stem for path in PAGES} - {"README"} | {"index", "security", "reference", "404"}
    assert {path.stem for path in site.glob("*.html")} == names
    for page in site.rglob("*.html"):
        assert not LOADED.findall(page.read_text("utf-8")), page
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_every_link_and_picture_of_the_built_pages_is_there(site):
    """What mkdocs does not look at as well: links that were turned by docs/make_site.py, HTML."""
    pages = {path: path.read_text("utf-8") for path in site.glob("*.html")}
    ids = {path.name: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for target in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            file, _, anchor = unquote(unescape(target)).partition("#")
            if re.match(r"[a-z]+:|//", file) or path.name == "404.html":
                continue
            file = (path.parent / file).resolve() if file else path
            if not file.exists() or (anchor and anchor not in ids.get(file.name, ()) | {"__skip"}):
                broken.append((path.name, target))
    assert not broken


@pytest.mark.slow
def test_the_search_finds_a_word_of_every_page(site):
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert found >= {f"{path.stem}.html" for path in PAGES if path.stem != "README"}


@pytest.mark.slow
def test_the_reference_holds_what_an_extension_must_write(site):
    page = (site / "reference.html").read_text("utf-8")
    for name in ("methods.base.Method.loss", "data.sources.base.Source.annotations"):
        assert f'id="plmcl.{name}"' in page


@pytest.mark.slow
def test_links_out_of_the_folder_lead_to_the_sites_pages(site):
    extending = (site / "extend.html").read_text("utf-8")
    assert 'href="reference.html#plmcl.methods.base"' in extending
    assert 'href="security.html"' in (site / "doctor.html").read_text("utf-8")
    assert 'href="settings.html"' in (site / "index.html").read_text("utf-8")


def test_every_page_has_its_place_in_the_navigation():
    named = re.findall(r"(?:- |: )([\w-]+\.md)$", read("mkdocs.yml"), re.MULTILINE)
    pages = [path.name for path in PAGES if path.stem != "README"]
    assert sorted(named) == sorted([*pages, "index.md", "security.md", "reference.md"])


@pytest.mark.parametrize(
    ("folder", "written", "on_the_site"),
    [
        (".", "[a](docs/data.md#b)", "[a](data.md#b)"),
        (".", "![a](docs/images/a.png)", "![a](images/a.png)"),
        (".", "[a](SECURITY.md)", "[a](security.md)"),
        (".", "[LICENSE](LICENSE)", "LICENSE"),
        (".", "[a](https://x.org/y)", "[a](https://x.org/y)"),
        (".", "[a](#b)", "[a](#b)"),
        ("docs", "[a](data.md#b)", "[a](data.md#b)"),
        ("docs", "[a](../README.md#b)", "[a](index.md#b)"),
        ("docs", "[a](../src/plmcl/card.py)", "[a](reference.md#plmcl.card)"),
        ("docs", "[a](../tests/methods/test_base.py)", "a"),
    ],
)
def test_a_link_for_a_git_host_becomes_one_of_the_site(folder, written, on_the_site):
    from make_site import LINK, link

    match = LINK.fullmatch(written)
    assert link(*match.groups(), PurePosixPath(folder)) == on_the_site


def test_the_picture_of_the_settings_is_the_scripts_with_the_tables_labels():
    from make_settings import LABELS, ROWS, TRUTH, draw, shown

    drawn, kept = draw(), (ROOT / "docs/images/settings.svg").read_text("utf-8")
    photographs = re.compile(r"base64,[^\"]+")
    assert photographs.sub("", kept) == photographs.sub("", drawn)
    assert len(photographs.findall(kept)) == len(TRUTH)
    truth, _, table = tables(read("docs/settings.md"))[1:4]
    assert [(row["image"], tuple(n for n in LABELS if row[n] == "1")) for row in truth] == list(
        TRUTH.items()
    )
    cells = {row["setting"].strip("`"): row for row in table}
    for name, _ in ROWS:
        for image_id in TRUTH:
            said = " ".join(str(shown(name).get((image_id, n), ".")) for n in LABELS)
            assert cells[name][image_id] == said, (name, image_id)


def test_the_picture_of_the_rooms_is_the_scripts_and_its_rooms_are_there():
    from make_architecture import BOXES, draw

    assert (ROOT / "docs/images/architecture.svg").read_text("utf-8") == draw()
    rooms = [name for box in BOXES if not box.outside for name in box.name.split(", ")]
    assert len(rooms) > 10
    assert [name for name in rooms if not (ROOT / "src/plmcl" / name).exists()] == []
