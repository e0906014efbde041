"""Processes that share a machine without getting in each other's way."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self

import torch

from plmcl.grid.plan import Run
from plmcl.grid.worker import Figures, Place, serve

SPAWN = get_context("spawn")  # a fork would inherit a GPU that it cannot use


@dataclass(frozen=True)
class Part:
    """A worker's part of the machine.

    Attributes:
        cores: That it may run on; empty: any, where processes cannot be bound to cores.
        gpu: CUDA's name or number of its one GPU; empty: none.
    """

    cores: frozenset[int]
    gpu: str


def share_out(jobs: int, gpus: Sequence[str]) -> list[Part]:
    """The cores in equal parts (in turn, if there are fewer of them than jobs), the GPUs in turn.

    Args:
        jobs: How many parts.
        gpus: Names of CUDA's.
    """
    bound = hasattr(os, "sched_getaffinity")  # Linux
    cores = sorted(os.sched_getaffinity(0)) if bound else []
    each = max(1, len(cores) // jobs)
    return [
        Part(
            frozenset(cores[number % max(1, len(cores)) :: jobs][:each]),
            gpus[number % len(gpus)] if gpus else "",
        )
        for number in range(jobs)
    ]


def visible_gpus() -> list[str]:
    """CUDA's names or numbers of the GPUs that this process may use."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


class Worker:
    """A process that does one run after the other, and is replaced if it dies.

    Args:
        part: Its own, of the machine.
        place: Where runs read.
        log: For what it prints.
    """

    def __init__(self, part: Part, place: Place, log: Path) -> None:
        self.part = part
        self.place = place
        self.log = log
        self._start()

    def _start(self) -> None:
        self.connection, other_end = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(other_end, self.place, self.log))
        with _inherited(self.part):
            self.process.start()
        other_end.close()

    def send(self, run: Run) -> None:
        """Have a run done; by a new process, if this one has died since its last."""
        try:
            self.connection.send(run)
        except OSError:
            self._restart()
            self.connection.send(run)

    def answer(self) -> Figures | str:
        """What came of the run that was sent: its figures, or why there are none; waits for it."""
        try:
            answer: Figures | str = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._restart()
            return f"the process died: out of memory, or see {self.log}"
        return answer

    def _restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class Pool:
    """Workers, one a part, started when there is work for them; they end with the context.

    Args:
        parts: Of the machine.
        place: Where runs read; what the workers print goes to its logs.
    """

    def __init__(self, parts: Sequence[Part], place: Place) -> None:
        self.parts = parts
        self.place = place
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()

    def run(self, runs: Mapping[str, Run]) -> Iterator[tuple[str, Figures | str]]:
        """The key of each run and what came of it, as they finish."""
        for number in range(len(self.workers), min(len(self.parts), len(runs))):
            log = self.place.logs / f"worker-{number}.txt"
            self.workers.append(Worker(self.parts[number], self.place, log))
        waiting, idle = deque(runs), list(self.workers)
        busy: dict[object, tuple[Worker, str]] = {}
        while waiting or busy:
            while waiting and idle:
                worker, key = idle.pop(), waiting.popleft()
                worker.send(runs[key])
                busy[worker.connection] = worker, key
            for connection in wait([worker.connection for worker, _ in busy.values()]):
                worker, key = busy.pop(connection)
                answer = worker.answer()
                idle.append(worker)
                yield key, answer


@contextmanager
def _inherited(part: Part) -> Iterator[None]:
    """What a process that is started now has from its first moment on.

    Libraries count the cores, and look for GPUs, when they are imported: later is too late.
    """
    cores = os.sched_getaffinity(0) if part.cores else set()
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        os.environ["CUDA_VISIBLE_DEVICES"] = part.gpu
        if cores:
            os.sched_setaffinity(0, part.cores)
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        if gpus is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
