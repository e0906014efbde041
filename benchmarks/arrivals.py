"""New images come in, a thousand and ten thousand; and a scan of a place where nothing is new.

    python benchmarks/arrivals.py --folder /tmp/arrivals --out benchmarks/results/arrivals.json

Each call runs in a process of its own, so that its peak memory is its own. The pictures are small:
what is measured is what does not depend on pixels.
"""

import argparse
import io
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from plmcl.machine import usable_cores

A_FOLDER = 1000
RECIPE = {"size": 32, "background": (255, 255, 255), "max_pixels": 1_000_000}


def draw(folder: Path, images: int) -> None:
    """Write JPEG files of 64 x 48 pixels, no two the same."""
    for index in range(images):
        path = folder / f"{index // A_FOLDER:05d}" / f"{index:09d}.jpg"
        if index % A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        cells = np.random.default_rng(index).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(cells).resize((64, 48), Image.Resampling.BICUBIC).save(file, "JPEG")
        path.write_bytes(file.getvalue())


def receive(incoming: str, folder: Path) -> None:
    """Receive what lies in a place, and print what it took as JSON."""
    from plmcl.data.images import Recipe
    from plmcl.retraining.arrival import receive as run

    before = _peak_kb()
    start, cpu = time.perf_counter(), time.process_time()
    receipt = run(
        incoming,
        folder / "received",
        Recipe(**RECIPE),
        label_names=["cat", "dog"],
        known=folder / "images.parquet",
        settle_seconds=0.0,
        record=folder / "examined",
    )
    seconds = time.perf_counter() - start
    result = {
        "accepted": receipt.accepted,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),  # without the examining processes
        "peak_mb": round(_peak_kb() / 1024),
        "growth_mb": round((_peak_kb() - before) / 1024, 1),
    }
    if receipt.accepted:
        result["ms_an_image"] = round(1000 * seconds / receipt.accepted, 2)
        result["growth_kb_an_image"] = round((_peak_kb() - before) / receipt.accepted, 2)
    print(json.dumps(result))


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def receive_alone(incoming: str, folder: Path) -> dict[str, float]:
    """`receive` in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder), "--incoming", incoming]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(incoming, result, file=sys.stderr, flush=True)
    return result


def main() -> None:
    """Measure, or do the one call that a measurement consists of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrivals", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--known", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, required=True, help="Must not exist; is removed.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--incoming", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.incoming:
        receive(arguments.incoming, arguments.folder)
        return
    arguments.folder.mkdir(parents=True)
    results = {}
    for number in arguments.arrivals:
        folder = arguments.folder / str(number)
        draw(folder / "incoming", number)
        results[f"{number} moved from a folder"] = receive_alone(f"{folder}/incoming", folder)
        shutil.rmtree(folder)
    folder = arguments.folder / "known"
    draw(folder / "incoming", arguments.known)
    address = f"file://{folder.absolute()}/incoming"
    results[f"{arguments.known} copied from an address"] = receive_alone(address, folder)
    results["the same, nothing new"] = receive_alone(address, folder)
    shutil.rmtree(arguments.folder)
    report = {"cores": usable_cores(), "results": results}
    print(json.dumps(report, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
