"""Patterns that name files: * and ? and [abc] within a name, ** for any number of folders."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase


def has_magic(path: str) -> bool:
    """Whether a path may be a pattern."""
    return re.search(r"[*?\[]", path) is not None


def split_pattern(path: str) -> tuple[str, list[str]]:
    """The folder in which to search ("" where it is the current one), and the pattern below it."""
    parts = path.split("/")
    first = next(place for place, part in enumerate(parts) if has_magic(part))
    root = "/".join(parts[:first])
    return root if root or first == 0 else "/", [part for part in parts[first:] if part]


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path, split at each /, match the parts of a pattern.

    Upper and lower case differ.
    """
    # What can stand before each part of the pattern: linear for any number of **.
    reached = {0}
    for part in pattern:
        if part == "**":
            reached = set(range(min(reached), len(parts) + 1)) if reached else set()
        else:
            reached = {i + 1 for i in reached if i < len(parts) and fnmatchcase(parts[i], part)}
    return len(parts) in reached
