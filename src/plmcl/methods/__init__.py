"""The methods: one file each, found by its name.

There is no list of methods. A list would be a file that every training depends on, so that adding
a method would retrain all of them; the folder itself is the list.
"""

import importlib
import pkgutil
from collections.abc import Mapping

from plmcl.errors import PlmclError
from plmcl.methods.base import Method
from plmcl.params import parse_section


def method_names() -> list[str]:
    """Names of all methods, sorted; each is a module of this package."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


def make_method(name: str, sections: Mapping[str, object]) -> Method:
    """Make a method from its section of params.yaml.

    Args:
        name: The method's name, which is its file's name.
        sections: The `methods` part of params.yaml.

    Raises:
        PlmclError: There is no such method, its section is missing, or a key of it is wrong.
    """
    if name not in method_names():
        raise PlmclError(f"methods.{name}: unknown method; known: {', '.join(method_names())}")
    if name not in sections:
        raise PlmclError(f"methods.{name}: missing from params.yaml")
    module = importlib.import_module(f"{__name__}.{name}")
    cls: type[Method] = module.METHOD
    return parse_section(cls, sections[name], f"methods.{name}")
