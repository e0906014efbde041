"""The data sources: one folder each, found by its name (as `plmcl.methods` are, for its reason).

A folder and not a file, so that a stage can depend on the whole of the source that it reads.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from plmcl.data.sources.base import Source
from plmcl.errors import PlmclError
from plmcl.params import parse_section


def source_names() -> list[str]:
    """Names of all sources, sorted; each is a package in this one."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)


def make_source(name: str, sections: Mapping[str, object]) -> Source:
    """Make a source from its section of params.yaml.

    Args:
        name: The source's name, which is its folder's name.
        sections: The `sources` part of params.yaml.

    Raises:
        PlmclError: There is no such source, its section is missing, or a key of it is wrong.
    """
    if name not in source_names():
        raise PlmclError(f"sources.{name}: unknown source; known: {', '.join(source_names())}")
    if name not in sections:
        raise PlmclError(f"sources.{name}: missing from params.yaml")
    module = importlib.import_module(f"{__name__}.{name}")
    cls: type[Source] = module.SOURCE
    return parse_section(cls, sections[name], f"sources.{name}")
