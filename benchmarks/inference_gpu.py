"""Images a second of `Tagger.predict`, of the bare session and of torch, in one run; one JSON.

    python benchmarks/inference_gpu.py --out benchmarks/results/inference_gpu.json

Every way begins with the same uint8 arrays in host memory and ends with probabilities there. Needs
torch, onnx and onnxruntime (on a GPU: onnxruntime-gpu); the weights are random.
"""

import copy
import itertools
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import onnxruntime
import torch
import typer
from torch import Tensor, nn

from plmcl.data.images import Recipe
from plmcl.export import export_onnx, write_model
from plmcl.inference import INPUT, OUTPUT, Pixels, Probs, Tagger
from plmcl.models import Classifier, build_classifier
from plmcl.session import CPU, CUDA
from plmcl.variants import to_fp16

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from tiny_model import make_card

LABELS = 80
ARRAYS = 4  # in turn, so that no way finds its pixels in a cache
TAGGER, BOUND = "Tagger.predict", "bound session"
TORCH = "torch eager, channels last"
TORCH_TF32 = "torch eager, channels last, TF32"  # torch's default for convolutions
PINNED = "bound session, pinned memory"

Way = Callable[[Pixels], Probs]


class Network(NamedTuple):
    """A backbone at the size that it is measured at."""

    backbone: str
    size: int


NETWORKS = {
    "ResNet-50, 448 px": Network("resnet50", 448),
    "EfficientNet-Lite0, 224 px": Network("tf_efficientnet_lite0", 224),
}


def noise(batch: int, size: int, seed: int = 0) -> Pixels:
    """Pixels (B, size, size, 3)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)


def build(network: Network) -> Classifier:
    """Random weights; normalised by the statistics of noise, so that half precision can hold it."""
    model = build_classifier(network.backbone, num_labels=LABELS, seed=0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None  # the mean of all batches
    with torch.no_grad():
        model.train()(torch.from_numpy(noise(4, network.size)))
    return model.eval()


def export(model: Classifier, network: Network, path: Path) -> None:
    """Through the project's own exporter and its gate."""
    card = make_card(
        label_names=[f"label {i}" for i in range(LABELS)],
        thresholds=np.full(LABELS, 0.5, np.float32),
        threshold_rules=["none"] * LABELS,
        recipe=Recipe(network.size, (255, 255, 255), 50_000_000),
    )
    export_onnx(model, card, noise(7, network.size), path, tolerance=1e-3)


def halve(path: Path, network: Network, out: Path) -> None:
    """Through the project's own converter."""
    card = replace(Tagger(path, providers=[CPU]).card, precision="fp16")
    proto = to_fp16(path, lambda: iter([noise(4, network.size)]))
    write_model(proto, card, out)


class Torch:
    """The classifier as anybody would run it: channels last, no graph, half weights for fp16."""

    def __init__(self, model: Classifier, device: str, *, half: bool, tf32: bool) -> None:
        self._dtype = torch.float16 if half else torch.float32
        model = copy.deepcopy(model).to(device, self._dtype)
        self._model = model.to(memory_format=torch.channels_last)
        self._device, self._tf32 = device, tf32

    @torch.inference_mode()
    def __call__(self, images: Pixels) -> Probs:
        """Both copies, and what is between them."""
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = self._tf32
        model = self._model
        pixels = torch.from_numpy(images).to(self._device, non_blocking=True)
        pixels = pixels.permute(0, 3, 1, 2).to(self._dtype)
        features = model.pooling(model.backbone((pixels - model.mean) / model.std))
        logits: Tensor = model.head(features)
        probs: Probs = logits.float().sigmoid().cpu().numpy()
        return probs


class Bound:
    """The bare session: buffers of the device, made once for the batch, and both copies."""

    def __init__(
        self, path: Path, device: str, batch: int, size: int, *, pinned: bool, tf32: bool
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        provider: Any = (CUDA, {"use_tf32": str(int(tf32))}) if device == "cuda" else CPU
        self._session = onnxruntime.InferenceSession(path, options, providers=[provider])
        assert self._session.get_providers()[0] == (CUDA if device == "cuda" else CPU)
        make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
        self._images = make((batch, size, size, 3), np.uint8, device, 0)
        self._probs = make((batch, LABELS), np.float32, device, 0)
        self._binding = self._session.io_binding()
        self._binding.bind_ortvalue_input(INPUT, self._images)
        self._binding.bind_ortvalue_output(OUTPUT, self._probs)
        # The images are then decoded into memory that the card can read itself.
        self._pinned: dict[int, Pixels] | None = {} if pinned else None

    def __call__(self, images: Pixels) -> Probs:
        """Both copies, and what is between them."""
        if self._pinned is not None:
            if id(images) not in self._pinned:
                self._pinned[id(images)] = torch.from_numpy(images).pin_memory().numpy()
            images = self._pinned[id(images)]
        self._images.update_inplace(images)
        self._session.run_with_iobinding(self._binding)
        probs: Probs = self._probs.numpy()
        return probs


def measure(
    ways: dict[str, Way], arrays: list[Pixels], *, seconds: float, rounds: int
) -> dict[str, Any]:
    """Each way in turn for some seconds, some rounds, each round from another way on."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    # ONNX Runtime and cuDNN choose their algorithms at the first calls, and clocks go up.
    for way in ways.values():
        for images in (*arrays, *arrays):
            way(images)
    names = list(ways)
    for turn in range(rounds):
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            started, count = time.perf_counter(), 0
            for images in itertools.cycle(arrays):
                ways[name](images)
                count += len(images)
                if (passed := time.perf_counter() - started) >= seconds:
                    break
            speeds[name].append(count / passed)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    expected = ways[TORCH](arrays[0])
    return {
        name: {
            "images_per_second": round(medians[name], 1),
            "lowest": round(min(values), 1),
            "highest": round(max(values), 1),
            "difference_from_torch": float(np.abs(ways[name](arrays[0]) - expected).max()),
        }
        for name, values in speeds.items()
    } | {
        "Tagger.predict / bound session": share(speeds, BOUND),
        "Tagger.predict / torch": share(speeds, TORCH),
    }


def share(speeds: dict[str, list[float]], other: str) -> float:
    """The median of the rounds' ratios."""
    pairs = zip(speeds[TAGGER], speeds[other], strict=True)
    return round(statistics.median(mine / theirs for mine, theirs in pairs), 3)


def main(
    out: Annotated[Path, typer.Option(help="JSON to write.")],
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    batches: Annotated[str, typer.Option()] = "1,8,64",
    precisions: Annotated[str, typer.Option()] = "fp32,fp16",
    networks: Annotated[str, typer.Option(help="Part of a name, or empty.")] = "",
    seconds: Annotated[float, typer.Option(help="Of one way in one round.")] = 0.2,
    rounds: Annotated[int, typer.Option()] = 7,
) -> None:
    """Measure, and write what is known after every figure."""
    start = time.perf_counter()
    if device == "cuda":
        onnxruntime.preload_dlls()
    report: dict[str, Any] = {
        "machine": {
            "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "onnxruntime": onnxruntime.__version__,
        },
        "rounds": rounds,
        "seconds_a_round": seconds,
        "figures": {},
    }
    providers = [CUDA] if device == "cuda" else [CPU]
    with tempfile.TemporaryDirectory() as folder:
        for title, network in NETWORKS.items():
            if networks not in title:
                continue
            began = time.perf_counter()
            model = build(network)
            files = {
                name: Path(folder) / f"{network.backbone}-{name}.onnx" for name in ("fp32", "fp16")
            }
            export(model, network, files["fp32"])
            halve(files["fp32"], network, files["fp16"])
            print(f"{title}: exported in {time.perf_counter() - began:.0f} s", flush=True)
            for precision in precisions.split(","):
                half, path = precision == "fp16", files[precision]
                tagger = Tagger(path, providers=providers)
                eager = Torch(model, device, half=half, tf32=False)
                for batch in map(int, batches.split(",")):
                    ways: dict[str, Way] = {
                        TAGGER: tagger.predict,
                        BOUND: Bound(path, device, batch, network.size, pinned=False, tf32=half),
                        TORCH: eager,
                    }
                    if device == "cuda":
                        ways[PINNED] = Bound(
                            path, device, batch, network.size, pinned=True, tf32=half
                        )
                        if not half:
                            ways[TORCH_TF32] = Torch(model, device, half=False, tf32=True)
                    arrays = [noise(batch, network.size, seed) for seed in range(ARRAYS)]
                    found = measure(ways, arrays, seconds=seconds, rounds=rounds)
                    report["figures"][f"{title}, {precision}, batch {batch}"] = found
                    print(title, precision, batch, json.dumps(found), flush=True)
                    report["seconds_in_all"] = round(time.perf_counter() - start)
                    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
