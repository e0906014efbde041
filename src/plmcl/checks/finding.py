"""What a check says: one line, how bad it is, and what to do."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from plmcl.errors import PlmclError

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the pre-flight.

    Attributes:
        name: What was looked at.
        status: `problem`: something will fail. `warning`: it will be slow, or may fail.
        found: What is there, in words.
        advice: What to do; empty where nothing is to be done.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; what ends it is a problem: a missing library, a file, a setting."""
    try:
        yield from check()
    except (PlmclError, OSError) as error:
        for line in str(error).splitlines():
            yield Finding(name, "problem", line)
    except ImportError as error:  # of a broken installation, such as torch without its libraries
        advice = "install again what is named here"
        yield Finding(name, "problem", f"cannot be imported: {error}", advice)


def in_words(size: float) -> str:
    """Bytes as MiB or GiB."""
    return f"{size / 2**20:.0f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"
