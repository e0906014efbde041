"""Long checks that a test run has no time for; one JSON.

    python benchmarks/endurance.py --out benchmarks/results/endurance.json

A check is a function without arguments that returns what it counted, or fails. More of them go
into `CHECKS`.
"""

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy
import PIL
import pyarrow
import typer

from plmcl.machine import usable_cores

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzzing import fuzz_images, fuzz_labels


def images() -> dict[str, Any]:
    """10,000 damaged images are examined and loaded."""
    return fuzz_images(10_000, seed=0)


def labels() -> dict[str, Any]:
    """5,000 damaged label files are read."""
    return fuzz_labels(5_000, seed=0)


CHECKS: dict[str, Callable[[], dict[str, Any]]] = {
    "damaged images": images,
    "damaged label files": labels,
}


def main(out: Annotated[Path, typer.Option(help="JSON to write.")]) -> None:
    """Run every check; the first that fails ends it."""
    results = {}
    for name, check in CHECKS.items():
        start = time.monotonic()
        results[name] = check() | {"seconds_in_all": round(time.monotonic() - start)}
        print(name, results[name], flush=True)
    machine = {
        "processor": platform.machine(),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "pillow": PIL.__version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
    }
    report = {"machine": machine, "checks": results}
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
