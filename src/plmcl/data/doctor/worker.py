"""A program that examines files for another process: names in, findings out, as lines of JSON.

`pool` starts it, so that a decoder that crashes, hangs or eats memory takes down
nothing else. It imports nothing heavier than Pillow, so that it starts in a tenth of a second.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

from PIL import AvifImagePlugin

from plmcl.data.doctor.finding import examine

_PR_SET_PDEATHSIG = 1


class Recipe(NamedTuple):
    """As much of an `images.Recipe`, whose module imports more, as decoding needs."""

    background: tuple[int, int, int]
    max_pixels: int


def main() -> None:
    """Read a setup, say `[]`, then answer each list of names with one line for each name.

    The setup is {"root", "background", "max_pixels", "seconds", "memory_bytes"}. A file that takes
    longer than `seconds` ends the process, as the end of the input and of the other process do.
    """
    answers = os.dup(1)
    setup = json.loads(sys.stdin.readline())
    root, recipe = Path(setup["root"]), Recipe(tuple(setup["background"]), setup["max_pixels"])
    restrain(setup["memory_bytes"])
    os.write(answers, b"[]\n")
    for line in sys.stdin:
        for name in json.loads(line):
            # Nobody catches the signal: it ends the process, in the midst of a decoder too.
            signal.setitimer(signal.ITIMER_REAL, setup["seconds"])
            finding = examine(root / name, recipe)
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(answers, json.dumps(finding).encode() + b"\n")


def restrain(memory_bytes: int) -> None:
    """Limit this process's address space, silence what it prints, and end it with its parent."""
    if sys.platform == "linux":
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # there is a worker for each core
    warnings.simplefilter("ignore")
    # What decoders print is of no use, and must not be taken for an answer.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


if __name__ == "__main__":
    main()
