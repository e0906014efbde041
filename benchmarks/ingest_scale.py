"""A million images come in, then a thousand more: time, memory, and how many files are opened.

    python benchmarks/ingest_scale.py --images 1000000 --folder /tmp/million \
        --out benchmarks/results/ingest_scale.json

Each ingest runs in a process of its own, so that its peak memory is its own. The pictures are tiny
and drawn at random: what is measured is what does not depend on pixels.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from plmcl.machine import usable_cores

A_FOLDER = 1000
LABELS = 80
RECIPE = {"size": 32, "background": (255, 255, 255), "max_pixels": 1_000_000}


def draw(folder: Path, first: int, last: int) -> None:
    """Write the pictures `first` to `last` - 1 and, for each, a line of labels.csv."""
    with (folder / "labels.csv").open("a" if first else "w", encoding="utf-8") as labels:
        if not first:
            labels.write("image,labels\n")
        for index in range(first, last):
            name = f"{index // A_FOLDER:05d}/{index:09d}.png"
            if index % A_FOLDER == 0 or index == first:
                (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            rng = np.random.default_rng(index)
            pixels = rng.integers(0, 256, (12, 12), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).convert("RGB").save(file, "PNG", compress_level=1)
            (folder / "images" / name).write_bytes(file.getvalue())
            chosen = rng.choice(LABELS, 3, replace=False)
            labels.write(f"{name},{';'.join(f'label {label}' for label in sorted(chosen))}\n")


def ingest(folder: Path) -> None:
    """Ingest the folder as the pipeline does, and print what it took as JSON."""
    from plmcl.data.images import Recipe
    from plmcl.data.ingest import ingest as run
    from plmcl.data.sources import make_source

    section = {
        "images": "images", "labels": "labels.csv", "format": "csv", "label_names": None,
        "unlisted": "negative", "minus_one": "refuse", "crowd": "keep", "difficult": "negative",
        "missing": 0.0,
    }  # fmt: skip
    start = time.perf_counter()
    annotations = make_source("folder", {"folder": section}).annotations(folder)
    read = time.perf_counter()
    manifest = run(annotations, folder, Recipe(**RECIPE), record=folder / "examined")
    examined = time.perf_counter()
    manifest.write(folder / "manifest")
    result = {
        "images": len(manifest.images),
        "usable": len(manifest.usable),
        "labels": len(manifest.labels),
        "near_duplicates": len(manifest.near_duplicates),
        "seconds_reading_labels": round(read - start, 1),
        "seconds_examining": round(examined - read, 1),
        "seconds_writing": round(time.perf_counter() - examined, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(result))


def ingest_alone(folder: Path) -> dict[str, float]:
    """`ingest` in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--ingest"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(result, file=sys.stderr, flush=True)
    return result


def main() -> None:
    """Measure, or do the one ingest that a measurement consists of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--added", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, required=True, help="Empty, or from an earlier run.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ingest", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ingest:
        ingest(arguments.folder)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tenth = arguments.images // 10
    results = {}
    for name, first, last in (
        ("a tenth", 0, tenth),
        ("all", tenth, arguments.images),
        ("all again", arguments.images, arguments.images),
        ("some more", arguments.images, arguments.images + arguments.added),
    ):
        draw(arguments.folder, first, last)
        results[name] = ingest_alone(arguments.folder) | {"new": last - first}
    report = {"cores": usable_cores(), "results": results}
    print(json.dumps(report, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
