"""Long checks that a test run has no time for; one JSON.

    python benchmarks/endurance.py --model tagger/model.onnx --out benchmarks/results/endurance.json

A check is a function that returns what it counted, or fails. More of them go into `CHECKS`.
"""

import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import http_load
import numpy
import onnxruntime
import PIL
import pyarrow
import typer

from plmcl.inference import Tagger
from plmcl.machine import usable_cores
from plmcl.session import CPU

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from data import image_bytes as made
from fuzzing import fuzz_images, fuzz_labels
from request_mutants import KINDS, fuzz_service
from tiny_model import make_model

SETTLED_SECONDS = 60.0
PICTURES = 64


class Settings(NamedTuple):
    """What the command line says: the model that is served, and how long it gets too much."""

    model: Path
    seconds: float


def images(_: Settings) -> dict[str, Any]:
    """10,000 damaged images are examined and loaded."""
    return fuzz_images(10_000, seed=0)


def labels(_: Settings) -> dict[str, Any]:
    """5,000 damaged label files are read."""
    return fuzz_labels(5_000, seed=0)


def hostile_requests(settings: Settings) -> dict[str, Any]:
    """5,000 requests that no honest client sends: none ends in 5xx, and the service answers on."""
    with http_load.serving(settings.model, {"--request-seconds": 2}) as service:
        found = fuzz_service(service.port, 5_000)
        memory = round(service.memory_mb())
        assert service.alive
    return {
        "tried": found.total(),
        "statuses": {
            kind: dict(sorted(Counter({s: n for (k, s), n in found.items() if k == kind}).items()))
            for kind in KINDS
        },
        "service_mb": memory,
    }


def too_many_requests(settings: Settings) -> dict[str, Any]:
    """Twice the rate that the service can sustain: 200 and 429 alone, and no growth of memory."""
    size = Tagger(settings.model, providers=[CPU]).card.recipe.size
    pictures = [made.drawn(seed).resize((2 * size, size)) for seed in range(PICTURES)]
    asked = http_load.requests([made.encoded(picture, "JPEG") for picture in pictures])
    with http_load.serving(settings.model, {}) as service:
        return http_load.overload(
            service,
            asked,
            seconds=settings.seconds,
            settled_after=min(SETTLED_SECONDS, settings.seconds / 2),
        )


CHECKS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "damaged images": images,
    "damaged label files": labels,
    "hostile requests": hostile_requests,
    "too many requests": too_many_requests,
}


def main(
    out: Annotated[Path, typer.Option(help="JSON to write.")],
    model: Annotated[
        Path | None, typer.Option(help="That is served. Default: one that does next to nothing.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of too many requests.")] = 600.0,
    only: Annotated[list[str] | None, typer.Option(help="Checks to run; repeat it.")] = None,
) -> None:
    """Run the checks; the first that fails ends it."""
    results = json.loads(out.read_text())["checks"] if only and out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model or make_model(Path(folder) / "model.onnx"), seconds)
        for name, check in CHECKS.items():
            if only and name not in only:
                continue
            start = time.monotonic()
            results[name] = check(settings) | {"seconds_in_all": round(time.monotonic() - start)}
            print(name, results[name], flush=True)
    machine = {
        "processor": platform.machine(),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "pillow": PIL.__version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    report = {"machine": machine, "checks": results}
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
