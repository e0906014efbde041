"""Training throughput on one GPU: ours from JPEG files beside what the card can do.

    python benchmarks/training.py table --photos PHOTOS --out benchmarks/results/training.json

ResNet-50 at 448 pixels with 80 labels, random weights. PHOTOS is any folder of JPEG files; they are
read again and again under other ids. Each row is measured in a process of its own, one after the
other, over whole epochs behind a first one that is not counted:

- ours: `plmcl.training.fit` with PLMCL, from files;
- ours, synthetic: the same with pixels that are on the GPU already, with PLMCL and with plain BCE,
  whose ratio is the cost of all that PLMCL keeps for each image, and compiled;
- ceiling: one whole step of network, BCE and Adam in a single CUDA graph, on one batch on the GPU;
- reference: a loop as the reference code has it: torch's defaults, images decoded and normalised
  to floats by four workers, the loss read back in every step;
- decode: our loader alone.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from lightning_fabric import Fabric
from PIL import Image
from torch import Tensor, nn

from plmcl.data.images import Recipe
from plmcl.data.loading import EpochOrder, ImageBatches, ImageRows, on_device
from plmcl.labels.store import LabelStore
from plmcl.machine import usable_cores
from plmcl.methods import make_method
from plmcl.models import IMAGENET_MEAN, IMAGENET_STD, build_classifier
from plmcl.params import load_params
from plmcl.training import Observations, PhaseRun, fit

LABELS, SIZE = 80, 448
RECIPE = Recipe(SIZE, (255, 255, 255), 50_000_000)
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
app = typer.Typer(pretty_exceptions_enable=False)


class OnDevice:
    """Batches of one batch's pixels, again and again."""

    def __init__(self, order: EpochOrder) -> None:
        self.order = order
        self.pixels = synthetic(order.batch_size)

    def __len__(self) -> int:
        return len(self.order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and pixels."""
        self.order.epoch = epoch
        for batch in self.order:
            yield torch.from_numpy(batch), self.pixels[: len(batch)]


def synthetic(batch: int) -> Tensor:
    """Pixels by chance, on the device."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (batch, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    return pixels.to(DEVICE)


def files_of(photos: Path, images: int) -> list[str]:
    """Names of `images` files, below `photos`, each as often as it takes."""
    names = sorted(file.name for file in photos.iterdir())
    return [names[i % len(names)] for i in range(images)]


def network() -> nn.Module:
    """As `plmcl.stages.job` makes it."""
    model = build_classifier("resnet50", num_labels=LABELS, seed=0).to(DEVICE)
    return model.to(memory_format=torch.channels_last) if CUDA else model


def ours(
    photos: Path,
    batch: int,
    images: int,
    epochs: int,
    method: str,
    *,
    from_files: bool = False,
    compiled: bool = False,
) -> Any:
    """Images a second of each epoch but the first."""
    torch.manual_seed(0)
    ids = [f"{i:06d}" for i in range(images)]
    order = EpochOrder(ids, seed=0, batch_size=batch)
    rows = ImageRows(photos, files_of(photos, images), RECIPE)
    batches = ImageBatches(rows, order, epochs=epochs) if from_files else OnDevice(order)
    observed = torch.rand(images, LABELS) < 1 / LABELS
    targets = observed.float()
    if method == "bce":
        observed = torch.ones_like(observed)
    how = make_method(method, load_params(Path("params.yaml")).methods)
    state = {name: rows.to(DEVICE) for name, rows in how.initial_state(targets, observed).items()}
    model = network()
    phase = PhaseRun(
        "fine_tune",
        model,
        batches,
        epochs,
        1e-5,
        lambda network: ("val/mAP", 0.0),
        sample=synthetic(batch) if CUDA else None,
        compiled=compiled,
    )
    ends = []

    def ended(entry: dict[str, Any]) -> None:
        if CUDA:
            torch.cuda.synchronize()
        ends.append(time.perf_counter())

    fit(
        model,
        how,
        LabelStore(ids, state),
        Observations(targets.to(DEVICE), observed.to(DEVICE), 3.0),
        [phase],
        fabric=Fabric(accelerator="auto", devices=1, precision="bf16-mixed" if CUDA else "32-true"),
        seed=0,
        checkpoints=None,
        on_epoch=ended,
        progress=lambda done, total: None,
    )
    return [images / seconds for seconds in np.diff(ends)]


def ceiling(batch: int, images: int, epochs: int) -> Any:
    """One whole step, captured: the same network, precision and optimizer."""
    model, pixels = network(), synthetic(batch)
    targets = torch.zeros(batch, LABELS, device=DEVICE)
    targets[:, 0] = 1
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=CUDA, capturable=CUDA)
    loss_of = nn.BCEWithLogitsLoss()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA, cache_enabled=False):
            logits = model(pixels)
        loss_of(logits.float(), targets).backward()
        optimizer.step()

    run: Callable[[], None] = step
    if CUDA:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    return rates(run, batch, images, epochs)


def reference(photos: Path, batch: int, images: int, epochs: int) -> Any:
    """A plain loop; what it does differently from ours is what users of the reference code get."""
    model = build_classifier("resnet50", num_labels=LABELS, seed=0).to(DEVICE)
    loader = torch.utils.data.DataLoader(
        PlainImages(photos, files_of(photos, images)),
        batch_size=batch,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    loss_of = nn.BCEWithLogitsLoss()
    found = []
    for epoch in range(epochs):
        start, total = time.perf_counter(), 0.0
        for pixels, targets in loader:
            optimizer.zero_grad()
            logits = model.head(model.pooling(model.backbone(pixels.to(DEVICE))))
            loss = loss_of(logits, targets.to(DEVICE))
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch:
            found.append(images / (time.perf_counter() - start))
    return found


class PlainImages(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Normalised floats (3, H, W) and targets."""

    def __init__(self, photos: Path, names: list[str]) -> None:
        self.photos = photos
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = Image.open(self.photos / self.names[row]).convert("RGB")
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255
        mean, std = (torch.tensor(v)[:, None, None] for v in (IMAGENET_MEAN, IMAGENET_STD))
        targets = torch.zeros(LABELS)
        targets[row % LABELS] = 1
        return (pixels - mean) / std, targets


def decode(photos: Path, batch: int, images: int, epochs: int) -> Any:
    """Our loader, its batches copied to the device and dropped."""
    order = EpochOrder([str(i) for i in range(images)], seed=0, batch_size=batch)
    rows = ImageRows(photos, files_of(photos, images), RECIPE)
    batches = ImageBatches(rows, order, epochs=epochs)
    found = []
    for epoch in range(epochs):
        start = time.perf_counter()
        for _, pixels in on_device(batches.epoch(epoch), DEVICE):
            assert pixels.dtype == torch.uint8
        if epoch:
            found.append(images / (time.perf_counter() - start))
    return found


def rates(run: Callable[[], None], batch: int, images: int, epochs: int) -> list[float]:
    """Images a second of a step, over as many as `images` take, `epochs` - 1 times."""
    found = []
    for epoch in range(epochs):
        start = time.perf_counter()
        for _ in range(images // batch):
            run()
        if CUDA:
            torch.cuda.synchronize()
        if epoch:
            found.append(images // batch * batch / (time.perf_counter() - start))
    return found


@app.command()
def row(kind: str, photos: Path, batch: int, images: int, epochs: int) -> None:
    """One row, as JSON: images a second of each epoch but the first."""
    kinds: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(photos, batch, images, epochs, "plmcl", from_files=True),
        "synthetic plmcl": lambda: ours(photos, batch, images, epochs, "plmcl"),
        "synthetic plmcl compiled": lambda: ours(
            photos, batch, images, epochs, "plmcl", compiled=True
        ),
        "synthetic bce": lambda: ours(photos, batch, images, epochs, "bce"),
        "ceiling": lambda: ceiling(batch, images, epochs),
        "reference": lambda: reference(photos, batch, images, epochs),
        "decode": lambda: decode(photos, batch, images, epochs),
    }
    print(json.dumps(kinds[kind]()))


@app.command()
def table(
    photos: Annotated[Path, typer.Option(help="Folder of JPEG files.")],
    out: Annotated[Path, typer.Option(help="JSON.")],
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "8 16 128",
    images: Annotated[int, typer.Option(help="An epoch's.")] = 3840,
    epochs: Annotated[int, typer.Option(help="The first is not counted.")] = 3,
) -> None:
    """All rows, and their ratios."""
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "cores": usable_cores(),
        "torch": torch.__version__,
        "images_per_second": {},
        "ratios": {},
    }
    for batch in map(int, batches.split()):
        figures: dict[str, list[float]] = {}
        for kind in (
            *("ceiling", "ours", "synthetic plmcl", "synthetic bce"),
            *("synthetic plmcl", "synthetic bce", "ceiling", "reference", "decode"),
            "synthetic plmcl compiled",
        ):
            # Neither a first capture nor a warm cache of one row for the next.
            share = images // 3 if kind == "reference" else images
            command = [sys.executable, __file__, "row", kind, str(photos), str(batch), str(share)]
            done = subprocess.run(
                [*command, str(epochs)], stdout=subprocess.PIPE, text=True, check=False
            )
            if done.returncode:
                print(f"batch {batch}, {kind}: failed with {done.returncode}", flush=True)
                continue
            rates_of = json.loads(done.stdout.splitlines()[-1])
            figures.setdefault(kind, []).extend(rates_of)
            print(batch, kind, [round(rate, 1) for rate in rates_of], flush=True)
        best = {kind: max(found) for kind, found in figures.items()}
        record["images_per_second"][batch] = figures
        record["ratios"][batch] = {
            f"{one} / {other}": round(best[one] / best[other], 4)
            for one, other in (
                ("ours", "ceiling"),
                ("synthetic plmcl", "ceiling"),
                ("synthetic plmcl", "synthetic bce"),
                ("ours", "reference"),
                ("synthetic plmcl compiled", "synthetic plmcl"),
            )
            if one in best and other in best
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=2) + "\n")
        print(json.dumps(record["ratios"][batch]), flush=True)


if __name__ == "__main__":
    app()
