"""Decoded images in one file, for many short trainings on the same small data set."""

import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from plmcl.data.loading import ImageRows, sequential_batches
from plmcl.progress import ProgressCallback

Pixels = npt.NDArray[np.uint8]


def cached_pixels(
    images: ImageRows, *, content: Sequence[str], cache: Path, progress: ProgressCallback
) -> Pixels:
    """Pixels (N, size, size, 3) of images, which are decoded once for the same content.

    The array is mapped from the disk and cannot be written to; processes share its memory. If
    several ask at once, one decodes; the others wait, and find its work.

    Args:
        images: N images, at least one.
        content: Their N content hashes.
        cache: The folder of the cache, which may be deleted at any time.
        progress: Told (images done, N).

    Raises:
        PlmclError: An image cannot be read.
    """
    identity = json.dumps(
        [asdict(images.recipe), list(content), importlib.metadata.version("pillow")]
    )
    path = cache / f"{hashlib.sha256(identity.encode()).hexdigest()}.npy"
    shape = (len(images), images.recipe.size, images.recipe.size, 3)
    if _open(path, shape) is None:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if _open(path, shape) is None:  # by now it may be there
                _decode(images, path, shape, progress)
    pixels = _open(path, shape)
    assert pixels is not None
    return pixels


def _decode(
    images: ImageRows, path: Path, shape: tuple[int, ...], progress: ProgressCallback
) -> None:
    writing = path.with_suffix(".writing")
    pixels = np.lib.format.open_memmap(writing, mode="w+", dtype=np.uint8, shape=shape)
    for rows, batch in sequential_batches(images):
        pixels[rows.numpy()] = batch.numpy()
        progress(int(rows[-1]) + 1, len(images))
    pixels.flush()
    writing.replace(path)


def _open(path: Path, shape: tuple[int, ...]) -> Pixels | None:
    """The array of a finished file; None where there is none, or a damaged one."""
    try:
        pixels: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # numpy raises many kinds for what it did not write
        return None
    return pixels if pixels.shape == shape and pixels.dtype == np.uint8 else None
