"""Features of images under frozen weights: computed once, kept on disk, shared by all runs."""

import hashlib
import importlib.metadata
import inspect
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plmcl.data.decoding import open_rgb
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows, sequential_batches
from plmcl.models import Classifier
from plmcl.progress import ProgressCallback


def cached_features(
    model: Classifier,
    images: ImageRows,
    *,
    content: list[str],
    weights: str,
    cache: Path,
    device: torch.device,
    progress: ProgressCallback,
) -> Tensor:
    """Features (N, D) in fp32, on `device`, of images that are not mirrored.

    Args:
        model: Its backbone is used in evaluation mode and left as it was.
        images: N images.
        content: Their N content hashes.
        weights: What identifies the backbone and its weights.
        cache: The folder of finished arrays; a pure cache, which may be deleted at any time.
        device: Where to compute.
        progress: Told (images done, N).
    """
    identity = json.dumps(
        [
            weights,
            asdict(images.recipe),
            content,
            str(device.type),
            torch.get_num_threads(),
            _code(),
        ]
    )
    path = cache / f"{hashlib.sha256(identity.encode()).hexdigest()}.npy"
    if not path.exists():
        features = _compute(model, images, device, progress)
        cache.mkdir(parents=True, exist_ok=True)
        writing = path.with_suffix(".writing.npy")
        np.save(writing, features.numpy(), allow_pickle=False)
        writing.replace(path)
    return torch.from_numpy(np.load(path, allow_pickle=False)).to(device)


def _code() -> list[str]:
    """What turns a file into features: our code and the libraries under it."""
    files = [inspect.getsourcefile(of) for of in (Classifier, Recipe, open_rgb, cached_features)]
    hashes = [hashlib.sha256(Path(file or "").read_bytes()).hexdigest() for file in files]
    return hashes + [importlib.metadata.version(name) for name in ("torch", "timm", "pillow")]


@torch.inference_mode()
def _compute(
    model: Classifier, images: ImageRows, device: torch.device, progress: ProgressCallback
) -> Tensor:
    training = model.training
    model.eval().to(device)
    features = torch.empty(len(images), model.num_features)
    for rows, pixels in sequential_batches(images):
        features[rows] = model.features(pixels.to(device)).float().cpu()
        progress(int(rows[-1]) + 1, len(images))
    model.train(training)
    return features
