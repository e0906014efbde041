"""Batches of pixels or of cached features: the order of an epoch, and the mirror images.

Order and flips follow from (seed, epoch, image id) alone, so neither the number of workers, nor a
resume, nor images that arrive later change what an image goes through.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from plmcl.data.images import ImageProblem, Recipe, load
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.ordering import rank_keys

MAX_WORKERS = 16
# Of passes without gradients. On CPU a larger one costs more in fresh pages than it gains.
FORWARD_BATCH_SIZE = 128 if torch.cuda.is_available() else 16

Keys = npt.NDArray[np.uint64]


Item = tuple[int, Tensor] | PlmclError


class ImageRows(Dataset[Item]):
    """Pixels of a list of images, through the one recipe.

    Args:
        root: The folder that `paths` are relative to.
        paths: One a row. Kept as one array: a list would be copied page by page by each worker.
        recipe: How a file becomes pixels.
    """

    def __init__(self, root: Path, paths: Sequence[str], recipe: Recipe) -> None:
        self.root = root
        self.paths = np.array(paths, dtype=np.str_)
        self.recipe = recipe

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, key: tuple[int, bool]) -> Item:
        """(row, uint8 image (H, W, 3)) of a key (row, flip), or why it cannot be had.

        A problem is returned and not raised: torch would wrap what a worker raises in a traceback.
        """
        row, flip = key
        path = self.root / str(self.paths[row])
        try:
            pixels = load(path, self.recipe)
        except ImageProblem as problem:
            return PlmclError(f"{path}: {problem}; it was readable at ingest: repeat that stage")
        if flip:
            pixels = pixels[:, ::-1]
        return row, torch.from_numpy(np.ascontiguousarray(pixels))


class EpochOrder(Sampler[list[tuple[int, bool]]]):
    """Batches of (row, flip) of an epoch: each row once, the last batch may be short.

    Set `epoch` before iterating. `batch_size` rows a batch.
    """

    def __init__(self, image_ids: Sequence[str], *, seed: int, batch_size: int) -> None:
        self.order_keys = rank_keys(seed, "epoch order", image_ids)
        self.flip_keys = rank_keys(seed, "flip", image_ids)
        self.batch_size = batch_size
        self.epoch = 0

    def __len__(self) -> int:
        full, rest = divmod(len(self.order_keys), self.batch_size)
        return full + (rest > 1 or full == 0)

    def __iter__(self) -> Iterator[list[tuple[int, bool]]]:
        flips = (_mix(self.flip_keys, self.epoch) & np.uint64(1)).astype(bool)
        for rows in self.row_batches():
            yield [(int(row), bool(flips[row])) for row in rows]

    def row_batches(self) -> Iterator[npt.NDArray[np.int64]]:
        """The same batches, rows only: for features, which are not mirrored."""
        order = np.argsort(_mix(self.order_keys, self.epoch), kind="stable")
        starts = list(range(0, len(order), self.batch_size))
        if len(order) - starts[-1] == 1 and len(starts) > 1:
            starts.pop()  # batch statistics of one image are none: it joins the batch before it
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            yield order[start:end]


class ImageBatches:
    """An epoch's batches (rows (B,), uint8 images (B, H, W, 3)), decoded in workers."""

    def __init__(self, images: ImageRows, order: EpochOrder) -> None:
        self.order = order
        self.loader = _loader(images, order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, which counts from 0 over all phases."""
        self.order.epoch = epoch
        return _batches(self.loader)


class FeatureBatches:
    """An epoch's batches (rows (B,), features (B, D)) out of one array (N, D)."""

    def __init__(self, features: Tensor, order: EpochOrder) -> None:
        self.features = features
        self.order = order

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, which counts from 0 over all phases."""
        self.order.epoch = epoch
        for batch in self.order.row_batches():
            rows = torch.from_numpy(batch)
            yield rows, self.features[rows.to(self.features.device)]


def sequential_batches(
    images: ImageRows, *, batch_size: int = FORWARD_BATCH_SIZE
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every row once, in order and unmirrored: (rows (B,), uint8 images (B, H, W, 3))."""
    batches = [
        [(row, False) for row in range(start, min(start + batch_size, len(images)))]
        for start in range(0, len(images), batch_size)
    ]
    return _batches(_loader(images, batches))


def _loader(
    images: ImageRows, batches: EpochOrder | list[list[tuple[int, bool]]]
) -> "DataLoader[Item]":
    # One core is left to the training process, which is busy whenever the workers are.
    workers = min(MAX_WORKERS, usable_cores() - 1, len(batches))
    return DataLoader(
        images,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=_collate,
        # Its own: what a network draws must not depend on when workers were started.
        generator=torch.Generator(),
        pin_memory=torch.cuda.is_available(),
    )


def _collate(items: list[Item]) -> Any:
    problem = next((item for item in items if isinstance(item, PlmclError)), None)
    return problem or default_collate(items)


def _batches(loader: "DataLoader[Item]") -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader:
        if isinstance(batch, PlmclError):
            raise batch
        yield batch


def _mix(keys: Keys, epoch: int) -> Keys:
    """splitmix64's finaliser over (key, epoch): a fresh pseudo-random key for each epoch."""
    step = (0x9E3779B97F4A7C15 * (epoch + 1)) % 2**64
    mixed = keys + np.uint64(step)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
