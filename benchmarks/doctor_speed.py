"""The doctor against a plain Pillow loop that finds the same hashes and sizes; one JSON.

    python benchmarks/doctor_speed.py FOLDER [--repetitions 5]

`ratio` says how much faster all cores are than the loop, `second_run_ratio` how much faster it is
to examine the same unchanged files again. Figures are medians over the repetitions.
"""

import argparse
import hashlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from plmcl.data.doctor.examination import examine_all
from plmcl.data.images import Recipe
from plmcl.data.listing import list_images
from plmcl.data.statuses import USABLE
from plmcl.machine import usable_cores

RECIPE = Recipe(size=224, background=(255, 255, 255), max_pixels=50_000_000)


def examine_plainly(path: Path) -> tuple[str, str, int, int]:
    """Content hash, dhash, width and height, in the obvious way."""
    content = path.read_bytes()
    with Image.open(io.BytesIO(content)) as image:
        picture = ImageOps.exif_transpose(image).convert("RGB")
    sampled = picture
    if max(picture.size) > 512:
        sampled = picture.resize([min(n, 512) for n in picture.size], Image.Resampling.NEAREST)
    thumbnail = sampled.resize((9, 9), Image.Resampling.BILINEAR, reducing_gap=4).convert("L")
    cells = np.asarray(thumbnail)
    right, below = cells[:8, :8] < cells[:8, 1:], cells[:8, :8] < cells[1:, :8]
    dhash = np.packbits(np.concatenate([right.ravel(), below.ravel()])).tobytes().hex()
    return hashlib.sha256(content).hexdigest(), dhash, picture.width, picture.height


def timed(work: Callable[[], pd.DataFrame]) -> tuple[float, pd.DataFrame]:
    """Seconds that it took, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    """Time all three ways on the same files and check that they agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    files = list_images(folder).files
    columns = ["sha256", "dhash", "width", "height"]
    times: dict[str, list[float]] = {"plain": [], "first": [], "second": []}
    for _ in range(arguments.repetitions):
        with tempfile.TemporaryDirectory() as record:

            def examine() -> pd.DataFrame:
                return examine_all(folder, files, RECIPE, record=Path(record))

            plain_time, plain = timed(
                lambda: pd.DataFrame([examine_plainly(folder / f) for f in files], columns=columns)
            )
            first_time, first = timed(examine)
            second_time, second = timed(examine)
        assert first["status"].isin(USABLE).all(), first[~first["status"].isin(USABLE)]
        assert (plain.to_numpy() == first[columns].to_numpy()).all()
        assert first.equals(second)
        times["plain"].append(plain_time)
        times["first"].append(first_time)
        times["second"].append(second_time)
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    result = {
        "files": len(files),
        "cores": usable_cores(),
        "repetitions": arguments.repetitions,
        "plain_seconds": round(median["plain"], 3),
        "first_run_seconds": round(median["first"], 3),
        "second_run_seconds": round(median["second"], 4),
        "ratio": round(median["plain"] / median["first"], 2),
        "second_run_ratio": round(median["first"] / median["second"], 1),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
