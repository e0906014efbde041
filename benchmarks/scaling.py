"""Training throughput on 1, 2, ... GPUs of a machine, with the same batch on each.

    python benchmarks/scaling.py table --gpus 1 --gpus 2 --out benchmarks/results/scaling.json

ResNet-50 at 448 pixels with 80 labels and random weights, PLMCL, through `plmcl.training.fit`:
bfloat16, CUDA graphs, and an exchange of gradients between GPUs. Pixels are made by chance: they
come through our loader from memory (`loader`), or lie on the GPU already (`device`). Each row is
processes of its own that `torchrun` starts; rows take turns, for several rounds, and the medians
are compared. Without GPUs ranks are processes that talk over gloo, which shows that it runs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from torch import Tensor

from plmcl.data.images import Recipe
from plmcl.data.loading import EpochOrder, ImageBatches, ImageRows
from plmcl.distribution import make_fabric
from plmcl.labels.store import LabelStore
from plmcl.machine import usable_cores
from plmcl.methods import make_method
from plmcl.models import build_classifier
from plmcl.params import load_params
from plmcl.training import Observations, PhaseRun, fit

LABELS = 80
CUDA = torch.cuda.is_available()
app = typer.Typer(pretty_exceptions_enable=False)

Inputs = Literal["loader", "device"]
Backbone = Annotated[str, typer.Option(help="Of the network.")]
Size = Annotated[int, typer.Option(help="Of the images, in pixels.")]
Batch = Annotated[int, typer.Option(help="Images of a step, on each GPU.")]
Steps = Annotated[int, typer.Option(help="Of an epoch.")]
Epochs = Annotated[int, typer.Option(help="How many; the first does not count.")]


class OnDevice:
    """Batches of one batch's pixels, again and again."""

    def __init__(self, order: EpochOrder, pixels: Tensor) -> None:
        self.order = order
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and pixels."""
        self.order.epoch = epoch
        for batch in self.order:
            yield torch.from_numpy(batch), self.pixels[: len(batch)]


@app.command()
def rank(
    out: Annotated[Path, typer.Option(help="Where rank 0 writes images/s of each epoch.")],
    inputs: Annotated[Inputs, typer.Option(help="Where pixels come from.")] = "loader",
    backbone: Backbone = "resnet50",
    size: Size = 448,
    batch: Batch = 128,
    steps: Steps = 60,
    epochs: Epochs = 4,
) -> None:
    """What one process does; `torchrun` starts it."""
    fabric = make_fabric("bf16-mixed" if CUDA else "32-true")
    device, ranks = fabric.device, fabric.world_size
    torch.manual_seed(0)
    images = ranks * batch * steps
    ids = [f"{i:07d}" for i in range(images)]
    order = EpochOrder(ids, seed=0, batch_size=batch, rank=fabric.global_rank, ranks=ranks)
    pixels = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    batches: Any = OnDevice(order, torch.from_numpy(pixels).to(device))
    if inputs == "loader":
        # Every image is the same one in memory; what is copied and augmented is as much.
        same = np.broadcast_to(pixels[0], (images, size, size, 3))
        recipe = Recipe(size, (255, 255, 255), 50_000_000)
        batches = ImageBatches(ImageRows(Path(), ids, recipe, same), order, epochs=epochs)
    observed = torch.rand(images, LABELS) < 1 / LABELS
    method = make_method("plmcl", load_params(Path("params.yaml")).methods)
    state = method.initial_state(observed.float(), observed)
    model = build_classifier(backbone, num_labels=LABELS, seed=0).to(device)
    sample = None
    if CUDA:
        model.to(memory_format=torch.channels_last)
        sample = torch.zeros(batch, size, size, 3, dtype=torch.uint8, device=device)
    ends = []

    def ended(entry: dict[str, Any]) -> None:
        if CUDA:
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    fit(
        model,
        method,
        LabelStore(ids, {name: rows.to(device) for name, rows in state.items()}),
        Observations(observed.float().to(device), observed.to(device), 3.0),
        [
            PhaseRun(
                "fine_tune",
                model,
                batches,
                epochs,
                1e-5,
                lambda network: ("val/mAP", 0.0),
                sample=sample,
            )
        ],
        fabric=fabric,
        seed=0,
        checkpoints=None,
        on_epoch=ended,
        progress=lambda done, total: None,
    )
    if fabric.is_global_zero:
        out.write_text(json.dumps((images / np.diff(ends)).tolist()), encoding="utf-8")


@app.command()
def table(
    gpus: Annotated[list[int], typer.Option(help="Numbers of GPUs; the first is the measure.")],
    out: Annotated[Path, typer.Option(help="The JSON file.")],
    inputs: Annotated[list[str] | None, typer.Option(help="loader, device or both.")] = None,
    backbone: Backbone = "resnet50",
    size: Size = 448,
    batch: Annotated[list[int] | None, typer.Option(help="Images of a step, on each GPU.")] = None,
    steps: Steps = 60,
    epochs: Epochs = 4,
    rounds: Annotated[int, typer.Option(help="How often each row is measured.")] = 2,
) -> None:
    """Measure each number of GPUs, and compare."""
    rows = []
    for kind in inputs or ["loader"]:
        for images in batch or [128]:
            options = {"inputs": kind, "backbone": backbone, "size": size, "batch": images}
            options |= {"steps": steps, "epochs": epochs}
            found: dict[int, list[float]] = {number: [] for number in gpus}
            for _ in range(rounds):
                for number in gpus:
                    found[number] += measure(number, options)
            rates = {number: statistics.median(found[number]) for number in gpus}
            for number in gpus:
                row = options | {
                    "gpus": number,
                    "images_per_second": round(rates[number], 1),
                    "slowest_and_fastest_epoch": [round(f(found[number]), 1) for f in (min, max)],
                    f"ratio_to_{gpus[0]}": round(rates[number] / rates[gpus[0]], 3),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    record = {
        "device": torch.cuda.get_device_name() if CUDA else "cpu, gloo",
        "cores": usable_cores(),
        "torch": torch.__version__,
        "rounds": rounds,
        "rows": rows,
    }
    out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def measure(number: int, options: dict[str, Any]) -> list[float]:
    """Images/s of each epoch but the first."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rates.json"
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, *launch, __file__, "rank", "--out", str(result), *words]
        subprocess.run(command, check=True)
        rates: list[float] = json.loads(result.read_text(encoding="utf-8"))
        return rates


if __name__ == "__main__":
    app()
