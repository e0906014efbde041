"""What must not grow past a machine: splits of ten million images, mAP, the label store.

    python benchmarks/scale.py splits /tmp/tables --images 10000000
    python benchmarks/scale.py map

Each writes its part of --out. Sizes run in processes of their own, so that a peak is its own.
Where other work shares the cores, processor seconds tell what the clock does not.
"""

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pandas as pd
import typer

from plmcl.machine import usable_cores

OUT = Path(__file__).parent / "results/scale.json"
LABELS = 1000
POSITIVES = 3
SETTING = "sspl-40"
T = TypeVar("T")

app = typer.Typer(help=__doc__, add_completion=False)
Out = Annotated[Path, typer.Option(help="The file whose part is written.")]


@app.command()
def splits(folder: Path, images: int = 10_000_000, out: Out = OUT) -> None:
    """Splits, draws and observed labels of `images` images x 1,000 labels, and of fewer.

    Tables that an earlier run left in `folder` are used again.
    """
    sizes = [images // 100, images // 10, images]
    for size in sizes:
        if not (folder / str(size)).exists():
            # In another process: what drawing takes is not the peak that is measured.
            subprocess.run([sys.executable, __file__, "draw", str(size), folder], check=True)
    results = [_alone("one-splits", str(folder / str(size))) for size in sizes]
    _write(out, "splits", {"labels": LABELS, "positives an image": POSITIVES, "sizes": results})
    growth = [result["processor microseconds an image"] for result in results]
    print(
        f"splits of {images} images: {results[-1]['seconds in all']} s, "
        f"{results[-1]['peak GiB']} GiB; an image costs {growth[-1] / growth[0]:.2f} times as "
        f"much as of {sizes[0]}"
    )


@app.command(hidden=True)
def one_splits(folder: Path) -> None:
    """One size, as stage split does it after reading; prints JSON."""
    from plmcl.data.duplicates import same_bytes_across
    from plmcl.data.splits import make_splits
    from plmcl.labels.settings import Setting, make_draws, observe

    steps: dict[str, dict[str, float]] = {}
    # Without the checks of `Manifest.read`, which belong to the stage that writes the tables.
    manifest = _step(steps, "read", lambda: _read(folder))
    made = _step(
        steps,
        "splits",
        lambda: make_splits(manifest, seed=0, val=0.2, test=0.2, protocol="holdout", draw="hash"),
    )
    _step(steps, "same bytes", lambda: same_bytes_across(manifest, made))
    train_ids = made.loc[made["split"] == "train", "image_id"]
    draws = _step(steps, "draws", lambda: make_draws(manifest, train_ids, seed=0, draw="hash"))
    setting = Setting.parse(SETTING)
    observed = _step(
        steps,
        f"labels of {SETTING}",
        lambda: observe(setting, truth=manifest, splits=made, draws=draws, seed=0),
    )
    cpu = sum(step["processor seconds"] for step in steps.values())
    images = len(manifest.images)
    result = {
        "images": images,
        "observed labels": len(observed),
        "steps": steps,
        "seconds in all": round(sum(step["seconds"] for step in steps.values()), 1),
        "processor seconds in all": round(cpu, 1),
        "processor microseconds an image": round(cpu / images * 1e6, 1),
        "peak GiB": max(step["peak GiB"] for step in steps.values()),
    }
    print(json.dumps(result))


@app.command(hidden=True)
def draw(images: int, folder: Path) -> None:
    """Write the tables of a manifest of random labels, a few images with the same bytes."""
    from plmcl import schemas

    folder = folder / f"{images}"
    rng = np.random.default_rng(0)
    number = pd.Series(np.arange(images))
    image_id = "photo-" + number.astype(str).str.zfill(8)
    content = pd.Series(rng.integers(0, images * 50, images)).astype(str).str.zfill(64)
    table = pd.DataFrame({"image_id": image_id, "path": image_id + ".jpg", "sha256": content})
    table = table.assign(dhash="", width=np.int32(640), height=np.int32(480), bytes=1, split="")
    table = table.assign(status="ok", reason="", published=np.int32(-1), delivery=np.int32(0))
    schemas.write_table(table, folder / "images.parquet")
    # Three different labels an image, the frequent ones 1,000 times as frequent as the rare ones.
    columns = (LABELS ** rng.random((images, POSITIVES)) - 1).astype(np.int64)
    columns.sort(axis=1)
    columns = (columns + np.arange(POSITIVES)) % LABELS
    names = pd.Series([f"label {label:03d}" for label in range(LABELS)])
    labels = pd.DataFrame(
        {
            "image_id": image_id.iloc[np.repeat(np.arange(images), POSITIVES)].array,
            "label": names.iloc[columns.ravel()].array,
            "value": np.int8(1),
        }
    )
    schemas.write_table(labels, folder / "labels.parquet")


def _read(folder: Path) -> Any:
    import pyarrow.parquet

    from plmcl.data.manifest import Manifest

    # Without the checks of `Manifest.read`, which belong to the stage that writes the tables.
    images, labels = (
        pyarrow.parquet.read_table(folder / f"{name}.parquet").to_pandas()
        for name in ("images", "labels")
    )
    return Manifest(images, labels, [f"label {label:03d}" for label in range(LABELS)], "negative")


@app.command("map")
def mean_average_precision(out: Out = OUT) -> None:
    """MAP of 60,000 x 81 beside scikit-learn's, and the largest difference of a label."""
    from sklearn.metrics import average_precision_score

    from plmcl.evaluation import average_precision

    rng = np.random.default_rng(0)
    targets = (rng.random((60_000, 81)) < 0.03).astype(np.uint8)
    observed = np.ones(targets.shape, dtype=np.bool_)
    # Some ties, as float16 scores have them.
    probs = rng.random(targets.shape).astype(np.float16).astype(np.float32)
    wall, cpu, ours = _timed(lambda: average_precision(targets, observed, probs), times=5)
    _, their_cpu, theirs = _timed(
        lambda: average_precision_score(targets, probs, average=None), times=3
    )
    difference = float(np.abs(ours - theirs).max())
    result = {
        "seconds": round(wall, 3),
        "processor seconds": round(cpu, 3),
        "scikit-learn's processor seconds": round(their_cpu, 3),
        "largest difference": difference,
    }
    _write(out, "mAP of 60,000 x 81", result)
    print(
        f"mAP: {cpu:.2f} s of the processor, {their_cpu / cpu:.2f} times as fast as scikit-learn; "
        f"largest difference {difference:.0e}"
    )


def _step(steps: dict[str, dict[str, float]], name: str, work: Callable[[], T]) -> T:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    steps[name] = {
        "seconds": round(time.perf_counter() - wall, 2),
        "processor seconds": round(time.process_time() - cpu, 2),
        "peak GiB": round(int(status.split("VmHWM:")[1].split()[0]) / 2**20, 2),
    }
    print(name, steps[name], file=sys.stderr, flush=True)
    return result


def _timed(work: Callable[[], T], times: int) -> tuple[float, float, T]:
    # Medians of the seconds on the clock and of the processor.
    wall, cpu = [], []
    for _ in range(times):
        start = time.perf_counter(), time.process_time()
        result = work()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return float(np.median(wall)), float(np.median(cpu)), result


def _alone(*command: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *command], check=True, stdout=subprocess.PIPE, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(result, file=sys.stderr, flush=True)
    return result


def _write(out: Path, name: str, part: dict[str, Any]) -> None:
    report = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    report["machine"] = {
        "processor": platform.machine(),
        "cores": usable_cores(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pandas": pd.__version__,
    }
    report[name] = part
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
