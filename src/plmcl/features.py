"""Features of images under frozen weights: computed once, kept on disk, shared by all runs."""

import hashlib
import importlib.metadata
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from torch import Tensor

from plmcl.data.augmentation import Augmentation, augment
from plmcl.data.decoding import open_rgb
from plmcl.data.images import Recipe
from plmcl.data.loading import FORWARD_BATCH_SIZE, ImageRows, Key, view_batches
from plmcl.models import Classifier
from plmcl.ordering import positions, rank_keys
from plmcl.pooling import make_pooling
from plmcl.progress import ProgressCallback

# Written each time that so many views are computed, so that a killed process loses no more.
VIEWS_A_FILE = 16384


def cached_features(
    model: Classifier,
    images: ImageRows,
    *,
    content: Sequence[str],
    weights: str,
    cache: Path,
    device: torch.device,
    progress: ProgressCallback,
    kind: Augmentation = "none",
    views: int = 1,
) -> Tensor:
    """Features (views, N, D) in fp32, on the CPU, of views of images.

    View v of an image follows from v, `kind` and the image's content alone. What the cache holds
    is not computed again, whichever images it was computed with. If several processes ask at
    once, one computes; the others wait, and find its work.

    Args:
        model: Its backbone is used in evaluation mode and left as it was.
        images: N images.
        content: Their N content hashes.
        weights: What identifies the backbone and its weights.
        cache: The folder of the cache, which may be deleted at any time.
        device: Where to compute.
        progress: Told (views done, views to compute).
        kind: How each view is changed.
        views: How many; those of kind `none` are all the same.
    """
    identity = json.dumps(
        [weights, asdict(images.recipe), kind, device.type, torch.get_num_threads(), _code()]
    )
    folder = cache / hashlib.sha256(identity.encode()).hexdigest()
    features = torch.empty(views, len(images), model.num_features)
    if _read(folder, content, features).any():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            missing = _read(folder, content, features)  # by now it may all be there
            numbers = np.flatnonzero(missing.any(axis=1)).tolist()
            keys = _keys(missing, content, kind)
            for rows, computed in _compute(model, images, keys, device, progress):
                for number, values in zip(numbers, computed, strict=True):
                    _write(folder / f"view-{number}", [content[row] for row in rows], values)
            assert not _read(folder, content, features).any()
    return features


def _code() -> list[str]:
    """What turns a file into features: our code and the libraries under it."""
    parts = (Classifier, make_pooling, Recipe, open_rgb, augment, cached_features)
    files = [inspect.getsourcefile(part) for part in parts]
    hashes = [hashlib.sha256(Path(file or "").read_bytes()).hexdigest() for file in files]
    libraries = ("torch", "torchvision", "timm", "pillow")
    return hashes + [importlib.metadata.version(name) for name in libraries]


def _keys(missing: npt.NDArray[np.bool_], content: Sequence[str], kind: Augmentation) -> list[Key]:
    """The views that any row lacks, of each row that lacks any; equal content once."""
    draws = [rank_keys(0, f"view {number}", content) for number in np.flatnonzero(missing.any(1))]
    rows = np.flatnonzero(missing.any(0))
    _, first = np.unique(np.array(content)[rows], return_index=True)
    return [
        (row, *((kind, int(draw[row])) for draw in draws)) for row in rows[np.sort(first)].tolist()
    ]


@torch.inference_mode()
def _compute(
    model: Classifier,
    images: ImageRows,
    keys: Sequence[Key],
    device: torch.device,
    progress: ProgressCallback,
) -> Iterator[tuple[list[int], Tensor]]:
    """(rows (M,), features (V, M, D)) of the keys, which are rows with V views each, in parts."""
    if not keys:
        return
    training, home = model.training, model.head.weight.device
    model.eval().to(device)
    views = len(keys[0]) - 1
    step, batch_size = (max(1, size // views) for size in (VIEWS_A_FILE, FORWARD_BATCH_SIZE))
    for start in range(0, len(keys), step):
        done: list[int] = []
        computed = []
        part = keys[start : start + step]
        for rows, pixels in view_batches(images, part, batch_size=batch_size):
            features = model.features(pixels.flatten(0, 1).to(device)).float().cpu()
            computed.append(features.reshape(views, len(rows), -1))
            done += rows.tolist()
            progress((start + len(done)) * views, len(keys) * views)
        yield done, torch.cat(computed, dim=1)
    model.train(training).to(home)


def _read(folder: Path, content: Sequence[str], features: Tensor) -> npt.NDArray[np.bool_]:
    """Fill in the `features` (views, N, D) that are on disk; True (views, N) where they are not."""
    missing = np.ones(features.shape[:2], dtype=np.bool_)
    for number in range(len(features)):
        for path in sorted((folder / f"view-{number}").glob("*.npz")):
            hashes, values = _open(path, features.shape[2])
            found = positions(content, hashes)
            rows = np.flatnonzero(found >= 0)
            features[number, rows] = torch.from_numpy(values[found[rows]])
            missing[number, rows] = False
    return missing


def _open(path: Path, num_features: int) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Content hashes (M,) and features (M, D) of a file; M = 0 if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as saved:  # a zip archive, which has checksums
            return saved["content"].tolist(), saved["features"]
    except Exception:  # numpy and zipfile raise many kinds for what they did not write
        return [], np.empty((0, num_features), np.float32)


def _write(folder: Path, content: Sequence[str], features: Tensor) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(''.join(content).encode()).hexdigest()}.npz"
    writing = path.with_suffix(".writing")
    with writing.open("wb") as file:
        np.savez(file, content=np.array(content), features=features.numpy())
    writing.replace(path)
