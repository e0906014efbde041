"""Hooks of mkdocs: what the site has beside docs/*.md, and links that leave that folder.

On a git host the README is the front page and a link may lead to any file. Here the README and
SECURITY.md are pages of the site, and a link to a module leads to its place in the reference.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {"README.md": "index.md", "SECURITY.md": "security.md"}
REFERENCE = "reference.md"

# What somebody else's code imports, or extends; the rest is the project's own affair.
MODULES = (
    "plmcl.inference",
    "plmcl.methods.base",
    "plmcl.data.sources.base",
    "plmcl.data.sources.official",
    "plmcl.data.formats.base",
    "plmcl.labels.settings",
    "plmcl.evaluation",
    "plmcl.thresholds",
    "plmcl.session",
    "plmcl.card",
    "plmcl.errors",
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for source, target in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=text))
    sections = "".join(
        f"::: {module}\n    options:\n      toc_label: {module}\n\n" for module in MODULES
    )
    files.append(File.generated(config, REFERENCE, content=f"# Modules\n\n{sections}"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links that are made for a git host into the site's."""
    folder = PurePosixPath("." if page.file.src_uri in ROOT_PAGES.values() else "docs")

    def replaced(match: re.Match[str]) -> str:
        return link(*match.groups(), folder)

    return LINK.sub(replaced, markdown)


def link(picture: str, text: str, target: str, folder: PurePosixPath) -> str:
    """A Markdown link as the site has it; only its text, if the site has nothing to lead to.

    Args:
        picture: "!" of a picture, else "".
        text: Between the brackets.
        target: Between the parentheses: an address, or a path from `folder`, with or without #.
        folder: Of the page, below the project's root.
    """
    file, mark, anchor = target.partition("#")
    if not file or ":" in file:
        return f"{picture}[{text}]({target})"
    path = _normal(folder / file)
    if path in ROOT_PAGES:
        return f"[{text}]({ROOT_PAGES[path]}{mark}{anchor})"
    if path.startswith("docs/"):
        return f"{picture}[{text}]({path.removeprefix('docs/')}{mark}{anchor})"
    module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return f"[{text}]({REFERENCE}#{module})" if module in MODULES else text


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
