"""Label state larger than memory: what an epoch of a memory-mapped store costs, beside the disk.

    python benchmarks/label_store.py --rows 10000000 --folder /tmp/store --out FILE.json

A study, not the project's store: `plmcl.labels.store.LabelStore` keeps its rows in memory. Here an
epoch reads the files of one generation and writes those of the next, in an order of shuffled
blocks, then shuffled rows within a window of blocks. It checks that both stores give the same
numbers, and that a crash in an epoch leaves the generation before it as it was. Files are dropped
from the page cache before each measurement, and synced within it.
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
import numpy.typing as npt
import torch

from plmcl.labels.store import LabelStore
from plmcl.ordering import rank_keys

LABELS = 80
BATCH = 256
BLOCK = 4096  # rows that lie together and are visited together
WINDOW = 64  # blocks whose rows are shuffled among each other
NAMES = ("latent", "velocity")
Rows = npt.NDArray[np.int64]
State = dict[str, npt.NDArray[np.floating[Any]]]


class MappedStore:
    """Rows of state in files: an epoch reads generation g and writes g + 1.

    Args:
        folder: Where generations are; the newest complete one is read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = max(int(path.name) for path in folder.glob("[0-9]*"))
        here = folder / str(self.generation)
        self.now = {
            name: np.load(here / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES
        }
        self.rows = len(self.now[NAMES[0]])
        self.next: dict[str, Any] = {}
        self.visited = np.zeros(0, dtype=np.bool_)

    @classmethod
    def create(cls, folder: Path, rows: int, dtype: type = np.float32) -> "MappedStore":
        """Generation 0, all zero."""
        (folder / "0").mkdir(parents=True)
        for values in _empty(folder / "0", rows, np.dtype(dtype)).values():
            for start in range(0, rows, BLOCK):
                values[start : start + BLOCK] = 0
            values.flush()
        return cls(folder)

    def begin(self, rows: int | None = None) -> None:
        """Begin the next generation, with `rows` rows if images have arrived."""
        rows = rows or self.rows
        writing = self.folder / "writing"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir()
        self.next = _empty(writing, rows, self.now[NAMES[0]].dtype)
        self.visited = np.zeros(rows, dtype=np.bool_)

    def read(self, rows: Rows) -> State:
        """Copies of rows of this generation; zeros for those of images that have arrived."""
        here = rows < self.rows
        if here.all():
            return {name: values[rows].astype(np.float32) for name, values in self.now.items()}
        found = {name: np.zeros((len(rows), LABELS), np.float32) for name in NAMES}
        for name, values in self.now.items():
            found[name][here] = values[rows[here]]
        return found

    def write(self, rows: Rows, state: State) -> None:
        """Rows of the next generation."""
        for name, values in self.next.items():
            values[rows] = state[name]
        self.visited[rows] = True

    def commit(self) -> "MappedStore":
        """Make the next generation the newest, and remove the one before it."""
        assert self.visited.all(), f"{(~self.visited).sum()} rows were not visited"
        for name, values in self.next.items():
            values.flush()
            _sync(self.folder / "writing" / f"{name}.npy")
        (self.folder / "writing").rename(self.folder / str(self.generation + 1))
        _sync(self.folder)
        shutil.rmtree(self.folder / str(self.generation))
        return MappedStore(self.folder)


def _empty(folder: Path, rows: int, dtype: np.dtype[Any]) -> dict[str, Any]:
    return {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (rows, LABELS))
        for name in NAMES
    }


def in_windows(rows: int, epoch: int) -> Iterator[Rows]:
    """Batches of an epoch, each row once: blocks are shuffled, then the rows of a window."""
    blocks = rank_keys(epoch, "block", map(str, range(-(-rows // BLOCK)))).argsort()
    left = np.zeros(0, dtype=np.int64)
    for start in range(0, len(blocks), WINDOW):
        firsts = np.sort(blocks[start : start + WINDOW])[:, None] * BLOCK
        window = (firsts + np.arange(BLOCK)).ravel()
        window = window[window < rows]
        np.random.default_rng([epoch, start]).shuffle(window)
        window = np.concatenate([left, window])
        full = len(window) // BATCH * BATCH
        yield from window[:full].reshape(-1, BATCH)
        left = window[full:]
    if len(left):
        yield left


def scattered(rows: int, batches: int) -> Iterator[Rows]:
    """Batches of rows from anywhere."""
    rng = np.random.default_rng(0)
    for _ in range(batches):
        yield rng.integers(0, rows, BATCH)


def updated(state: State, rows: Rows) -> State:
    """Some state that depends on the old one and on the row."""
    target = (rows % 97 / np.float32(97)).astype(np.float32)[:, None]
    velocity = np.float32(0.9) * state["velocity"] + (target - state["latent"])
    return {"latent": state["latent"] + np.float32(0.1) * velocity, "velocity": velocity}


def epoch_of(store: MappedStore, batches: Iterator[Rows]) -> tuple[int, float]:
    """Read, update and write these rows; how many, and the peak of anonymous memory in GiB."""
    done, peak = 0, 0.0
    for number, rows in enumerate(batches):
        store.write(rows, updated(store.read(rows), rows))
        done += len(rows)
        if number % 500 == 0:
            peak = max(peak, _anonymous_gib())
    return done, max(peak, _anonymous_gib())


def check_numbers(folder: Path) -> None:
    """Two epochs give what `LabelStore` gives; a crash and an arrival change no earlier row."""
    rows = 3 * BLOCK * WINDOW // 2 + 17
    memory = LabelStore(
        [str(row) for row in range(rows)], {name: torch.zeros(rows, LABELS) for name in NAMES}
    )
    store = MappedStore.create(folder / "check", rows)
    for epoch in (0, 1):
        store.begin()
        for batch in in_windows(rows, epoch):
            store.write(batch, updated(store.read(batch), batch))
            at = torch.from_numpy(batch)
            state = {name: values.numpy() for name, values in memory.read(at).items()}
            new = updated(state, batch)
            memory.write(at, {name: torch.from_numpy(values) for name, values in new.items()})
        store = store.commit()
    store.begin()
    first = next(in_windows(rows, 2))
    store.write(first, updated(store.read(first), first))
    store = MappedStore(folder / "check")  # as after a crash
    for name in NAMES:
        assert np.array_equal(store.now[name], memory.state[name].numpy()), name
    store.begin(rows + 5)
    for batch in in_windows(rows + 5, 3):
        store.write(batch, store.read(batch))
    store = store.commit()
    for name in NAMES:
        assert np.array_equal(store.now[name][:rows], memory.state[name].numpy()), name
        assert not store.now[name][rows:].any(), name
    shutil.rmtree(folder / "check")


def measure(folder: Path, rows: int, dtype: type) -> dict[str, Any]:
    """One epoch over `rows` rows, some scattered rows, and the disk's own speed."""
    folder = folder / f"{rows}-{np.dtype(dtype)}"
    shutil.rmtree(folder, ignore_errors=True)
    size = rows * LABELS * np.dtype(dtype).itemsize * len(NAMES)
    if shutil.disk_usage(folder.parent).free < 3 * size:
        raise SystemExit(f"{folder}: {3 * size / 1e9:.0f} GB of disk are needed")
    MappedStore.create(folder, rows, dtype)
    _drop(folder)
    seconds, cpu, (_, peak) = _timed(lambda: _epoch_and_commit(folder, rows))
    _drop(folder)
    slow, _, touched = _timed(lambda: _some_scattered(folder, rows))
    shutil.rmtree(folder)
    write, read = _disk_speed(folder.parent, size)
    sequential = size / read + size / write
    result = {
        "rows": rows,
        "dtype": str(np.dtype(dtype)),
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


def _epoch_and_commit(folder: Path, rows: int) -> tuple[int, float]:
    store = MappedStore(folder)
    store.begin()
    found = epoch_of(store, in_windows(rows, 0))
    store.commit()
    return found


def _some_scattered(folder: Path, rows: int) -> int:
    store = MappedStore(folder)
    store.begin()
    return epoch_of(store, scattered(rows, 200))[0]


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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


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
    dtype = getattr(np, arguments.dtype)
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
