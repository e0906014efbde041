"""The HTTP service and `plmcl predict` beside other ways to serve a model, in one run; one JSON.

    python benchmarks/serving.py --out benchmarks/results/serving.json
    python benchmarks/serving.py --name photos5 --model tagger/model.onnx --weights model.pt \
        --images ../shared/data/photos5/images --out benchmarks/results/serving.json

Clients run on the same cores as the services, in this process: what they take is told apart.
"""

import asyncio
import base64
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import http_load
import mlflow
import numpy as np
import torch
import typer
from mlflow import MlflowClient
from retraining_rounds import free_port, wait_until_ok

from plmcl.data.images import Recipe, load
from plmcl.data.listing import list_images
from plmcl.inference import INPUT, OUTPUT, Pixels, Tagger, tag_files
from plmcl.machine import usable_cores
from plmcl.models import load_classifier
from plmcl.retraining.packaging import save_package
from plmcl.session import CPU, open_session

CLIENTS = (1, 8, 32)
FEW_CLIENTS = 4
BIN = Path(sys.executable).parent

Figures = dict[str, float]
Loop = Callable[[list[Path]], None]


class Setup(NamedTuple):
    """What is measured: a model's two files, images, and how many of them at once."""

    model: Path
    weights: Path
    files: list[Path]
    batch: int


def decoding_loop(recipe: Recipe, batch: int, score: Callable[[Pixels], object]) -> Loop:
    """What anybody would write: decode a batch on all cores, then score it on all cores."""
    pool = ThreadPoolExecutor(usable_cores())

    def run(files: list[Path]) -> None:
        for start in range(0, len(files), batch):
            score(np.stack(list(pool.map(lambda f: load(f, recipe), files[start : start + batch]))))

    return run


def plain_loop(setup: Setup) -> Loop:
    """With ONNX Runtime."""
    session = open_session(setup.model, providers=[CPU], threads=usable_cores())
    recipe = Tagger(setup.model, providers=[CPU]).card.recipe
    return decoding_loop(recipe, setup.batch, lambda pixels: session.run([OUTPUT], {INPUT: pixels}))


def torch_loop(setup: Setup) -> Loop:
    """With torch."""
    card = Tagger(setup.model, providers=[CPU]).card
    model, _ = load_classifier(setup.weights, card.label_names)
    torch.set_num_threads(usable_cores())

    @torch.inference_mode()
    def score(pixels: Pixels) -> None:
        model(torch.from_numpy(pixels)).sigmoid().numpy()

    return decoding_loop(card.recipe, setup.batch, score)


def predict(model: Path, files: list[Path], batch: int) -> None:
    """`plmcl predict`, from its start to its end."""
    subprocess.run(
        [BIN / "plmcl", "predict", "-", "--model", model, "--batch-size", str(batch)],
        input="".join(f"{file}\n" for file in files),
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


@contextmanager
def mlflow_server(model: Path) -> Iterator[tuple[http_load.Processes, int]]:
    """`mlflow models serve` of a registered version: its processes and its port."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        mlflow.set_tracking_uri(uri)
        save_package(model, Path(folder) / "package")
        client = MlflowClient()
        client.create_registered_model("plmcl")
        version = client.create_model_version("plmcl", f"{folder}/package").version
        client.set_registered_model_alias("plmcl", "champion", version)
        port = free_port()
        process = subprocess.Popen(
            [
                *(BIN / "mlflow", "models", "serve", "-m", "models:/plmcl@champion"),
                *("--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)),
            ],
            cwd=folder,
            env=os.environ
            | {"MLFLOW_TRACKING_URI": uri, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes = http_load.Processes(process.pid)
        try:
            wait_until_ok(f"http://127.0.0.1:{port}/ping", process)
            yield processes, port
        finally:
            for pid in reversed(processes.pids()):
                os.kill(pid, 15)
            process.wait(60)


def invocations(contents: list[bytes], images: int) -> list[bytes]:
    """MLflow's way to say the same, with some images a request."""
    texts = [base64.b64encode(content).decode() for content in contents]
    bodies = [
        {"dataframe_split": {"columns": ["image"], "data": [[t] for t in texts[i : i + images]]}}
        for i in range(0, len(texts), images)
    ]
    kind = "application/json"
    return [http_load.request("/invocations", kind, json.dumps(b).encode()) for b in bodies]


def timed(work: Callable[[], Any], cpu: Callable[[], float], images: int) -> Figures:
    """Images a second, and CPU seconds of whoever did the work."""
    before, started = cpu(), time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    return {
        "images_per_second": round(images / seconds, 1),
        "cpu_ms_per_image": round(1000 * (cpu() - before) / images, 2),
    }


def children_cpu() -> float:
    """Seconds of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_by_one(tagger: Tagger, files: list[Path]) -> list[float]:
    """Seconds of each file in a call of its own."""
    seconds = []
    for file in files:
        started = time.perf_counter()
        list(tag_files(tagger, [file], batch_size=1))
        seconds.append(time.perf_counter() - started)
    return seconds


def with_clients(
    server: http_load.Processes, port: int, asked: list[bytes], clients: int, images: int
) -> Figures:
    """Figures of a server under some clients."""
    answers: list[http_load.Answered] = []

    def work() -> None:
        answers.extend(asyncio.run(http_load.closed_loop(port, asked, clients)))

    mine = time.process_time()
    figures = timed(work, server.cpu_seconds, images)
    mine = time.process_time() - mine
    assert {answer.status for answer in answers} == {200}
    figures |= http_load.in_ms([answer.seconds for answer in answers])
    return figures | {"client_cpu_ms_per_image": round(1000 * mine / images, 2)}


def compare(setup: Setup, rounds: int) -> dict[str, Any]:
    """Each way in turn, some rounds; of each the fastest is told, and shares are medians."""
    model, batch = setup.model, setup.batch
    contents = [file.read_bytes() for file in setup.files]
    tagger, plain, eager = Tagger(model, providers=[CPU]), plain_loop(setup), torch_loop(setup)
    singles, full = http_load.requests(contents), http_load.forms(contents, batch)
    found: dict[str, list[Figures]] = {}
    options = {"--batch-size": batch, "--provider": CPU}

    with http_load.serving(model, options) as service, mlflow_server(model) as (server, port):

        def one_round(n: int) -> Iterator[tuple[str, Figures]]:
            files = setup.files[:n]
            yield "plain loop", timed(lambda: plain(files), time.process_time, n)
            yield "plain torch loop", timed(lambda: eager(files), time.process_time, n)
            yield (
                "tag_files",
                timed(
                    lambda: list(tag_files(tagger, files, batch_size=batch)), time.process_time, n
                ),
            )
            yield "plmcl predict", timed(lambda: predict(model, files, batch), children_cpu, n)
            seconds = one_by_one(tagger, files[:100])
            speed = {"images_per_second": round(len(seconds) / sum(seconds), 1)}
            yield "tag_files, one file a call", speed | http_load.in_ms(seconds)
            for clients in CLIENTS:
                figures = with_clients(service, service.port, singles[:n], clients, n)
                yield f"service, {clients} clients", figures
            title = f"{FEW_CLIENTS} clients, {batch} images a request"
            parts = -(-n // batch)
            figures = with_clients(service, service.port, full[:parts], FEW_CLIENTS, n)
            yield f"service, {title}", figures
            asked = invocations(contents[:n], 1)
            yield "mlflow models serve, 8 clients", with_clients(server, port, asked, 8, n)
            asked = invocations(contents[:n], batch)
            figures = with_clients(server, port, asked, FEW_CLIENTS, n)
            yield f"mlflow models serve, {title}", figures

        list(one_round(min(len(setup.files), 4 * batch)))  # warms up
        for name, figures in itertools.chain(*(one_round(len(contents)) for _ in range(rounds))):
            found.setdefault(name, []).append(figures)
            print(name, figures, file=sys.stderr, flush=True)
        memory = {
            "service_mb": round(service.memory_mb()),
            "mlflow_mb": round(server.memory_mb()),
        }
    best = {
        name: max(rows, key=lambda row: row["images_per_second"]) for name, rows in found.items()
    }

    def share(name: str, figure: str) -> float:
        pairs = zip(found[name], found["plain loop"], strict=True)
        return round(statistics.median(mine[figure] / plain[figure] for mine, plain in pairs), 3)

    for name, figures in best.items():
        # Of the same round, since others use the cores; the second as if they did not.
        figures["of_plain_loop"] = share(name, "images_per_second")
        if "cpu_ms_per_image" in figures:
            figures["of_plain_loop_by_cpu"] = round(1 / share(name, "cpu_ms_per_image"), 3)
    return {"ways": best, **memory}


def main(
    out: Annotated[Path, typer.Option(help="JSON to write; other names in it stay.")],
    name: Annotated[str, typer.Option(help="Of the images.")] = "scenes",
    model: Annotated[Path, typer.Option()] = Path("models/sspl-40-an/model.onnx"),
    weights: Annotated[Path, typer.Option()] = Path("models/sspl-40-an/model.pt"),
    images: Annotated[Path, typer.Option()] = Path("data/raw/scenes/images"),
    count: Annotated[int, typer.Option(help="Images a round.")] = 320,
    batch: Annotated[int, typer.Option()] = 16,
    rounds: Annotated[int, typer.Option()] = 5,
) -> None:
    """Compare, and put it into the JSON."""
    files = [images / name for name in list_images(images)[0][:count]]
    report = json.loads(out.read_text()) if out.exists() else {}
    report[name] = {
        "images": len(files),
        "mean_bytes": round(statistics.mean(file.stat().st_size for file in files)),
        "size": Tagger(model, providers=[CPU]).card.recipe.size,
        "cores": usable_cores(),
        "batch": batch,
    } | compare(Setup(model, weights, files, batch), rounds)
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
