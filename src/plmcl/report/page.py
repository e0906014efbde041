"""A template filled in and written: one file that needs no network."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from plmcl.errors import PlmclError
from plmcl.report import drawing, words

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"figure": words.figure, "count": words.count, "cut": drawing.shorten}


def write_page(template: str, out: Path, **values: Any) -> None:
    """Fill in a template of this folder and write the page.

    Raises:
        PlmclError: `out` cannot be written; an earlier page is still there.
    """
    page = _ENVIRONMENT.get_template(template).render(**values)
    unfinished = out.with_name(out.name + ".tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # What no encoding holds (half a character in a file's name) becomes "?".
        unfinished.write_bytes(page.encode("utf-8", "replace"))
        unfinished.replace(out)
    except OSError as error:
        raise PlmclError(f"{out}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # it became `out`, or could not even be begun
            unfinished.unlink()
