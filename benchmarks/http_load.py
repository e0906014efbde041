"""A service in a process of its own, and clients of it in this one, on the same cores."""

import asyncio
import itertools
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SERVE = (
    "from plmcl.cli.serve import serve; from plmcl.stages.entry import run_stage; run_stage(serve)"
)
TICKS = os.sysconf("SC_CLK_TCK")
IDLE_SECONDS = 3.0  # the service closes a connection that is not used for five
TRIALS = 5  # of the rate that the service can do
MAX_OPEN = 256  # requests without an answer; the service takes 512 connections


class Answered(NamedTuple):
    """One request: what came back, and after how long."""

    status: int
    seconds: float


class Processes:
    """A process and those that it started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def pids(self) -> list[int]:
        """All of them."""
        found = [self._pid]
        for pid in found:
            try:
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except FileNotFoundError:  # it has ended
                continue
        return found

    def cpu_seconds(self) -> float:
        """Since they started."""
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.pids()]
        fields = [stat.rpartition(")")[2].split() for stat in stats]
        return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS

    def memory_mb(self) -> float:
        """Resident."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids()]
        return sum(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) for text in texts) / 1024


class Service(Processes):
    """`plmcl serve` on a free port."""

    def __init__(self, model: Path, options: Mapping[str, object]) -> None:
        words = [str(word) for pair in options.items() for word in pair]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, "--model", str(model), "--port", "0", *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        super().__init__(self.process.pid)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"running on http://[\d.]+:(\d+)", line):
                self.port = int(match[1])
                break
        else:
            raise SystemExit("the service did not start")
        self._reader = ThreadPoolExecutor(1)
        self._reader.submit(self.process.stderr.read)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """Ask it to end, and wait."""
        self.process.terminate()
        self.process.wait(60)
        self._reader.shutdown()


@contextmanager
def serving(model: Path, options: Mapping[str, object]) -> Iterator[Service]:
    """A service, ended afterwards."""
    service = Service(model, options)
    try:
        yield service
    finally:
        service.end()


def requests(contents: list[bytes]) -> list[bytes]:
    """One request an image, as bytes."""
    return [request("/predict", "image/jpeg", content) for content in contents]


def forms(contents: list[bytes], images: int) -> list[bytes]:
    """Some images a request."""
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n\r\n'
    parts = [head + content + b"\r\n" for content in contents]
    bodies = [b"".join(parts[i : i + images]) + b"--b--\r\n" for i in range(0, len(parts), images)]
    return [request("/predict", "multipart/form-data; boundary=b", body) for body in bodies]


def request(path: str, kind: str, body: bytes) -> bytes:
    """A POST."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


class Client:
    """One connection, kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used = 0.0

    async def ask(self, request: bytes) -> Answered:
        """Send a request and read its answer."""
        started = time.perf_counter()
        if started - self._used > IDLE_SECONDS:
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        if b"connection: close" in head:
            self.close()
        self._used = time.perf_counter()
        return Answered(int(head[9:12]), self._used - started)

    def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(port: int, asked: list[bytes], clients: int) -> list[Answered]:
    """Every request once, by clients that each wait for their answer."""
    waiting = iter(asked)

    async def work() -> list[Answered]:
        client = Client(port)
        answers = [await client.ask(request) for request in waiting]
        client.close()
        return answers

    return list(itertools.chain(*await asyncio.gather(*(work() for _ in range(clients)))))


async def open_loop(
    port: int, asked: list[bytes], rate: float, seconds: float, each_second: Callable[[], None]
) -> list[Answered]:
    """Requests at a rate, whether they are answered or not; none while `MAX_OPEN` are not."""
    idle: list[Client] = []
    answers: list[Answered] = []
    waiting = 0

    async def one(request: bytes) -> None:
        nonlocal waiting
        waiting += 1
        client = idle.pop() if idle else Client(port)
        answers.append(await client.ask(request))
        idle.append(client)
        waiting -= 1

    started, second = time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(itertools.cycle(asked)):
            due = started + number / rate
            if due > started + seconds:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if waiting < MAX_OPEN:
                group.create_task(one(request))
            if time.perf_counter() - started >= second:
                each_second()
                second += 1
    for client in idle:
        client.close()
    return answers


def overload(
    service: Service, asked: list[bytes], *, seconds: float, settled_after: float
) -> dict[str, Any]:
    """Twice what the service can do, for some seconds.

    Args:
        service: Just started.
        asked: Requests, in turn.
        seconds: How long.
        settled_after: Seconds after which its memory stays where it is.

    Raises:
        AssertionError: It ended, an answer was neither 200 nor 429, or its memory grew by more
            than 5 %.
    """
    asyncio.run(closed_loop(service.port, asked, 32))
    # The best of several: what else the machine does in one of these moments it may not do later.
    rate = 2 * max(_closed_rate(service, asked) for _ in range(TRIALS))
    answers, memory = _under_load(service, asked, rate, seconds)
    if service.alive and {answer.status for answer in answers} == {200}:
        # It can do more than was measured: the machine was busy then.
        rate *= 2
        answers, memory = _under_load(service, asked, rate, seconds)
    alive = service.alive
    statuses = Counter(answer.status for answer in answers)
    settled = [mb for at, mb in memory if at >= settled_after]
    report = {
        "seconds": seconds,
        "requests_per_second": round(rate, 1),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "answered_200": in_ms([a.seconds for a in answers if a.status == 200]),
        "answered_429": in_ms([a.seconds for a in answers if a.status == 429] or [0.0]),
        "memory_mb_settled": [round(min(settled)), round(max(settled))],
    }
    assert alive, "the service ended"
    assert set(statuses) <= {200, 429}, report
    assert max(settled) <= 1.05 * settled[0], report
    return report


def _closed_rate(service: Service, asked: list[bytes]) -> float:
    started = time.perf_counter()
    asyncio.run(closed_loop(service.port, asked, 32))
    return len(asked) / (time.perf_counter() - started)


def _under_load(
    service: Service, asked: list[bytes], rate: float, seconds: float
) -> tuple[list[Answered], list[tuple[float, float]]]:
    """The answers, and each second (seconds since the start, the service's memory in MB)."""
    memory: list[tuple[float, float]] = []
    started = time.perf_counter()

    def look() -> None:
        memory.append((time.perf_counter() - started, service.memory_mb()))

    answers = asyncio.run(open_loop(service.port, asked, rate, seconds, look))
    return answers, memory


def in_ms(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {
        "median_ms": round(1000 * statistics.median(seconds), 1),
        "p99_ms": round(1000 * float(np.quantile(seconds, 0.99)), 1),
    }
