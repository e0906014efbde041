"""The HTTP service against `tag_files` and a plain loop, in one run on one machine; one JSON.

    python benchmarks/serving.py                  compare
    python benchmarks/serving.py --endurance 600  twice what the service can do, for ten minutes

Clients run on the same cores as the service, in this process: what they take is not the service's.
"""

import asyncio
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from plmcl.data.images import load
from plmcl.data.listing import list_images
from plmcl.inference import INPUT, OUTPUT, Tagger, tag_files
from plmcl.machine import usable_cores
from plmcl.session import open_session

SERVE = (
    "from plmcl.cli.serve import serve; from plmcl.stages.entry import run_stage; run_stage(serve)"
)
CLIENTS = (1, 8, 32)
TICKS = os.sysconf("SC_CLK_TCK")
SETTLED_SECONDS = 60.0
IDLE_SECONDS = 3.0  # the service closes a connection that is not used for five


class Answered(NamedTuple):
    """One request: what came back, and after how long."""

    status: int
    seconds: float


class Service:
    """A service in a process of its own."""

    def __init__(self, model: Path, batch: int) -> None:
        options = ["--model", str(model), "--port", "0", "--batch-size", str(batch)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *options], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if match := re.search(r"running on http://[\d.]+:(\d+)", line):
                self.port = int(match[1])
                break
        else:
            raise SystemExit("the service did not start")
        self._reader = ThreadPoolExecutor(1)
        self._reader.submit(self.process.stderr.read)

    def pids(self) -> list[int]:
        """Its processes: the service, and those that decode."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        """Of all its processes since they started."""
        fields = [
            Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split() for p in self.pids()
        ]
        return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS

    def memory_mb(self) -> float:
        """Resident, of all its processes."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids()]
        return sum(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) for text in texts) / 1024


@contextmanager
def serving(model: Path, batch: int) -> Iterator[Service]:
    """A service, ended afterwards."""
    service = Service(model, batch)
    try:
        yield service
    finally:
        service.process.terminate()
        service.process.wait(60)
        service._reader.shutdown()


def requests(files: list[Path]) -> list[bytes]:
    """One request a file, as bytes."""
    return [_request("image/jpeg", file.read_bytes()) for file in files]


def forms(files: list[Path], images: int) -> list[bytes]:
    """Some images a request."""
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n\r\n'
    parts = [head + file.read_bytes() + b"\r\n" for file in files]
    bodies = [b"".join(parts[i : i + images]) + b"--b--\r\n" for i in range(0, len(parts), images)]
    return [_request("multipart/form-data; boundary=b", body) for body in bodies]


def _request(kind: str, body: bytes) -> bytes:
    lines = (
        "POST /predict HTTP/1.1",
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
    """Requests at a rate, whether they are answered or not."""
    idle: list[Client] = []
    answers: list[Answered] = []

    async def one(request: bytes) -> None:
        client = idle.pop() if idle else Client(port)
        answers.append(await client.ask(request))
        idle.append(client)

    started, second = time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(itertools.cycle(asked)):
            due = started + number / rate
            if due > started + seconds:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(request))
            if time.perf_counter() - started >= second:
                each_second()
                second += 1
    for client in idle:
        client.close()
    return answers


def plain_loop(model: Path, batch: int) -> Callable[[list[Path]], None]:
    """What anybody would write: decode a batch on all cores, then score it on all cores."""
    session = open_session(model, providers=None, threads=usable_cores())
    recipe = Tagger(model).card.recipe
    pool = ThreadPoolExecutor(usable_cores())

    def run(files: list[Path]) -> None:
        for start in range(0, len(files), batch):
            images = list(pool.map(lambda file: load(file, recipe), files[start : start + batch]))
            session.run([OUTPUT], {INPUT: np.stack(images)})

    return run


def timed(work: Callable[[], Any], cpu: Callable[[], float], images: int) -> dict[str, float]:
    """Images a second, and CPU seconds of whoever did the work."""
    before, started = cpu(), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    return {
        "images_per_second": round(images / seconds, 1),
        "cpu_ms_per_image": round(1000 * (cpu() - before) / images, 2),
    }


def in_ms(seconds: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {
        "median_ms": round(1000 * statistics.median(seconds), 1),
        "p99_ms": round(1000 * float(np.quantile(seconds, 0.99)), 1),
    }


def one_by_one(tagger: Tagger, files: list[Path]) -> list[float]:
    """Seconds of each file in a call of its own."""
    seconds = []
    for file in files:
        started = time.perf_counter()
        list(tag_files(tagger, [file], batch_size=1))
        seconds.append(time.perf_counter() - started)
    return seconds


def with_clients(
    service: Service, asked: list[bytes], clients: int, images: int
) -> dict[str, float]:
    """Figures of the service under some clients."""
    answers: list[Answered] = []

    def work() -> None:
        answers.extend(asyncio.run(closed_loop(service.port, asked, clients)))

    mine = time.process_time()
    figures = timed(work, service.cpu_seconds, images)
    mine = time.process_time() - mine
    assert {answer.status for answer in answers} == {200}
    figures |= in_ms([answer.seconds for answer in answers])
    return figures | {"client_cpu_ms_per_image": round(1000 * mine / images, 2)}


def compare(model: Path, files: list[Path], batch: int, rounds: int) -> dict[str, Any]:
    """Each way in turn, some rounds; of each the fastest is told, and shares are medians."""
    tagger, loop, asked = Tagger(model), plain_loop(model, batch), requests(files)
    found: dict[str, list[dict[str, float]]] = {}
    cpu = time.process_time

    with serving(model, batch) as service:

        def one_round(n: int) -> Iterator[tuple[str, dict[str, float]]]:
            yield "plain loop", timed(lambda: loop(files[:n]), cpu, n)
            tags = tag_files(tagger, files[:n], batch_size=batch)
            yield "tag_files", timed(lambda: list(tags), cpu, n)
            seconds = one_by_one(tagger, files[: min(n, 100)])
            speed = {"images_per_second": round(len(seconds) / sum(seconds), 1)}
            yield "tag_files, one file a call", speed | in_ms(seconds)
            for clients in CLIENTS:
                yield f"service, {clients} clients", with_clients(service, asked[:n], clients, n)
            full = forms(files[:n], batch)
            yield f"service, 4 clients, {batch} images a request", with_clients(service, full, 4, n)

        list(one_round(64))  # warms up
        for name, figures in itertools.chain(*(one_round(len(files)) for _ in range(rounds))):
            found.setdefault(name, []).append(figures)
            print(name, figures, file=sys.stderr, flush=True)
        memory = round(service.memory_mb())
    best = {
        name: max(rows, key=lambda row: row["images_per_second"]) for name, rows in found.items()
    }

    def share(name: str, figure: str) -> float:
        rounds = zip(found[name], found["plain loop"], strict=True)
        return round(statistics.median(mine[figure] / plain[figure] for mine, plain in rounds), 3)

    for name in (name for name in best if name.startswith("service")):
        # Of the same round, since others use the cores; the second as if they did not.
        best[name]["of_plain_loop"] = share(name, "images_per_second")
        best[name]["of_plain_loop_by_cpu"] = round(1 / share(name, "cpu_ms_per_image"), 3)
    return {"ways": best, "service_memory_mb": memory}


def endure(model: Path, files: list[Path], batch: int, seconds: float) -> dict[str, Any]:
    """Twice the sustainable rate: 200 and 429 alone, and memory that stays where it is."""
    asked = requests(files)
    memory: list[tuple[float, float]] = []
    with serving(model, batch) as service:
        asyncio.run(closed_loop(service.port, asked[:64], 32))
        figures = timed(
            lambda: asyncio.run(closed_loop(service.port, asked, 32)),
            service.cpu_seconds,
            len(asked),
        )
        rate = 2 * figures["images_per_second"]
        started = time.perf_counter()

        def look() -> None:
            memory.append((time.perf_counter() - started, service.memory_mb()))

        answers = asyncio.run(open_loop(service.port, asked, rate, seconds, look))
        alive = service.process.poll() is None
    statuses = Counter(answer.status for answer in answers)
    settled = [mb for at, mb in memory if at >= min(SETTLED_SECONDS, seconds / 2)]
    report = {
        "seconds": seconds,
        "requests_per_second": rate,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "answered_200": in_ms([a.seconds for a in answers if a.status == 200]),
        "answered_429": in_ms([a.seconds for a in answers if a.status == 429] or [0.0]),
        "memory_mb_settled": [round(min(settled)), round(max(settled))],
    }
    print(report, file=sys.stderr)
    assert alive, "the service ended"
    assert set(statuses) <= {200, 429}, statuses
    assert max(settled) <= 1.05 * settled[0], "memory grows"
    return report


def main(
    model: Annotated[Path, typer.Option()] = Path("models/sspl-40-an/model.onnx"),
    images: Annotated[Path, typer.Option()] = Path("data/raw/scenes/images"),
    count: Annotated[int, typer.Option(help="Images a round.")] = 400,
    batch: Annotated[int, typer.Option()] = 16,
    rounds: Annotated[int, typer.Option()] = 3,
    endurance: Annotated[float, typer.Option(help="Seconds of it; 0: compare instead.")] = 0,
    out: Annotated[Path, typer.Option()] = Path("benchmarks/results/serving.json"),
) -> None:
    """Run one of the two and put it into the JSON."""
    files = [images / name for name in list_images(images)[0][:count]]
    report = json.loads(out.read_text()) if out.exists() else {}
    setup = {
        "model": str(model),
        "images": len(files),
        "mean_bytes": round(statistics.mean(file.stat().st_size for file in files)),
        "cores": usable_cores(),
        "batch": batch,
    }
    if endurance:
        report["endurance"] = setup | endure(model, files, batch, endurance)
    else:
        report["comparison"] = setup | compare(model, files, batch, rounds)
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
