"""Label state larger than memory: what an epoch of the mapped store costs, beside the disk.

    python benchmarks/label_store.py --rows 10000000 --folder /tmp/store --out FILE.json

An epoch of `plmcl.labels.mapped.MappedStore` reads the files of one generation and writes those of
the next, in the order of `EpochOrder` for such a store. First it is checked that it gives the
numbers of `LabelStore`. Files are dropped from the page cache before each measurement; syncing, and
reading back for their sha256, is within it. Anonymous memory is that of the whole process: the ids
of the images are in it, and the order.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmcl.data.loading import BLOCK, WINDOW, EpochOrder
from plmcl.labels.mapped import Column, MappedStore
from plmcl.labels.store import LabelStore, State

LABELS = 80
BATCH = 256
NAMES = ("latent", "velocity")


def make_store(folder: Path, rows: int, dtype: torch.dtype) -> MappedStore:
    """A store whose generation 0 is all zero."""

    def zeros() -> Iterator[State]:
        for start in range(0, rows, BLOCK):
            length = min(BLOCK, rows - start)
            yield {name: torch.zeros(length, LABELS) for name in NAMES}

    store = MappedStore(
        [f"{row:08d}.jpg" for row in range(rows)],
        {name: Column(LABELS, dtype) for name in NAMES},
        zeros,
    )
    store.open(folder)
    return store


def in_order(store: LabelStore, epoch: int) -> Iterator[Tensor]:
    """The batches of an epoch, each row once."""
    order = EpochOrder(store.image_ids, seed=0, batch_size=BATCH, in_blocks=True)
    order.epoch = epoch
    return map(torch.from_numpy, order)


def scattered(rows: int, batches: int) -> Iterator[Tensor]:
    """Batches of rows from anywhere."""
    rng = np.random.default_rng(0)
    for _ in range(batches):
        yield torch.from_numpy(rng.integers(0, rows, BATCH))


def updated(state: State, rows: Tensor) -> State:
    """Some state that depends on the old one and on the row."""
    target = (rows % 97 / 97)[:, None]
    velocity = 0.9 * state["velocity"] + (target - state["latent"])
    return {"latent": state["latent"] + 0.1 * velocity, "velocity": velocity}


def visit(store: LabelStore, batches: Iterator[Tensor]) -> tuple[int, float]:
    """Read, update and write these rows; how many, and the peak of anonymous memory in GiB."""
    done, peak = 0, 0.0
    for number, rows in enumerate(batches):
        store.write(rows, updated(store.read(rows), rows))
        done += len(rows)
        if number % 500 == 0:
            peak = max(peak, _anonymous_gib())
    return done, max(peak, _anonymous_gib())


def run_epoch(store: LabelStore, epoch: int) -> tuple[int, float]:
    """Epoch number `epoch`, from 1; what `visit` says."""
    store.begin_epoch(epoch)
    found = visit(store, in_order(store, epoch - 1))
    store.end_epoch(lambda state: state)
    return found


def check_numbers(folder: Path) -> None:
    """Two epochs give what `LabelStore` gives."""
    rows = 3 * BLOCK * WINDOW // 2 + 17
    mapped = make_store(folder / "check", rows, torch.float32)
    memory = LabelStore(mapped.image_ids, {name: torch.zeros(rows, LABELS) for name in NAMES})
    for epoch in (1, 2):
        for store in (mapped, memory):
            run_epoch(store, epoch)
    for name in NAMES:
        assert torch.equal(mapped.state[name], memory.state[name]), name
    shutil.rmtree(folder / "check")


def measure(folder: Path, rows: int, dtype: torch.dtype) -> dict[str, Any]:
    """One epoch over `rows` rows, some scattered rows, and the disk's own speed."""
    name = str(dtype).removeprefix("torch.")
    folder = folder / f"{rows}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    size = rows * LABELS * dtype.itemsize * len(NAMES)
    if shutil.disk_usage(folder.parent).free < 3 * size:
        raise SystemExit(f"{folder}: {3 * size / 1e9:.0f} GB of disk are needed")
    store = make_store(folder, rows, dtype)
    store.snapshot()  # makes generation 0
    _drop(folder)
    seconds, cpu, (_, peak) = _timed(lambda: run_epoch(store, 1))
    shutil.rmtree(folder / "00000")
    store.begin_epoch(2)
    _drop(folder)
    slow, _, (touched, _) = _timed(lambda: visit(store, scattered(rows, 200)))
    shutil.rmtree(folder)
    write, read = _disk_speed(folder.parent, size)
    sequential = size / read + size / write
    result = {
        "rows": rows,
        "dtype": name,
        "GB a generation": round(size / 1e9, 2),
        "seconds of an epoch": round(seconds, 1),
        "processor seconds": round(cpu, 1),
        "microseconds a row": round(seconds / rows * 1e6, 2),
        "processor microseconds a row": round(cpu / rows * 1e6, 2),
        "peak anonymous GiB": round(peak, 2),
        "microseconds a scattered row": round(slow / touched * 1e6, 1),
        "disk MB/s": {"read": round(read / 1e6), "write and sync": round(write / 1e6)},
        "times the disk's own seconds": round(seconds / sequential, 2),
    }
    print(result, flush=True)
    return result


def _disk_speed(folder: Path, size: int) -> tuple[float, float]:
    # Bytes a second, from end to end: written and synced, then read.
    path, block = folder / "sequential", np.random.default_rng(0).bytes(8 << 20)
    number = max(1, size // len(block))

    def write() -> None:
        with path.open("wb") as file:
            for _ in range(number):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(len(block)):
                pass

    writing = _timed(write)[0]
    _drop(path)
    reading = _timed(read)[0]
    path.unlink()
    return number * len(block) / writing, number * len(block) / reading


def _timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def _drop(path: Path) -> None:
    # Out of the page cache, as if the file were larger than memory.
    for file in [path] if path.is_file() else sorted(path.rglob("*.npy")):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _anonymous_gib() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) / 2**20


def main() -> None:
    """Check, then measure a tenth of the rows and all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="On the disk that is measured.")
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    check_numbers(arguments.folder)
    dtype = getattr(torch, arguments.dtype)
    sizes = (arguments.rows // 10, arguments.rows)
    results = [measure(arguments.folder, rows, dtype) for rows in sizes]
    for name in ("microseconds a row", "processor microseconds a row"):
        growth = results[1][name] / results[0][name]
        print(f"{name}: {growth:.2f} times as many at {sizes[1]} rows as at {sizes[0]}")
    if arguments.out:
        report = {"labels": LABELS, "same numbers as in memory": True, "sizes": results}
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
