"""The label formats: one file each, found by its name (as `plmcl.methods` are, for its reason).

A format is a module with two functions: `read(path, index, options)`, which gives a `LabelFile`,
and `recognise(path)`, which looks at names and first bytes only. A module whose name begins with
an underscore is no format; it holds what several of them need.
"""

import importlib
import pkgutil
from pathlib import Path

from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.errors import PlmclError


def format_names() -> list[str]:
    """Names of all formats, sorted; each is a module of this package."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sorted(name for name in names if name != "base" and not name.startswith("_"))


def read_labels(path: Path, index: ImageIndex, options: Options, *, format: str) -> LabelFile:
    """Read a file of labels, or a folder of such files.

    Args:
        path: The file or the folder.
        index: The images that exist.
        options: What is ambiguous in some formats.
        format: A format's name; "auto": the one format that recognises the path.

    Raises:
        PlmclError: There is no such file or format; none or several recognise the path; or the
            file breaks a rule of its format.
    """
    if not path.exists():
        raise PlmclError(f"{path}: not found")
    name = _recognised(path) if format == "auto" else format
    if name not in format_names():
        raise PlmclError(f"unknown label format {name!r}; known: {', '.join(format_names())}")
    found: LabelFile = importlib.import_module(f"{__name__}.{name}").read(path, index, options)
    return found


def _recognised(path: Path) -> str:
    names = [
        name
        for name in format_names()
        if importlib.import_module(f"{__name__}.{name}").recognise(path)
    ]
    if len(names) == 1:
        return names[0]
    looks = f"may be {' or '.join(names)}" if names else "looks like no label format"
    raise PlmclError(
        f"{path}: {looks}; say which it is: {', '.join(format_names())} (sources.folder.format)"
    )
