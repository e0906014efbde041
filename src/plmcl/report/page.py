"""A template filled in and written: one file that needs no network."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from plmcl.report import charts, words

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"figure": words.figure, "count": words.count, "cut": charts.shorten}


def write_page(template: str, out: Path, **values: Any) -> None:
    """Fill in a template of this folder and write the page."""
    page = _ENVIRONMENT.get_template(template).render(**values)
    out.parent.mkdir(parents=True, exist_ok=True)
    # What no encoding holds (half a character in a file's name) becomes "?".
    out.write_bytes(page.encode("utf-8", "replace"))
