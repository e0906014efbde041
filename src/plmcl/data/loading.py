"""Batches of pixels or of cached features: the order of an epoch, and what changes the images.

Order and changes follow from (seed, epoch, image id) alone, so neither the number of workers, nor
a resume, nor images that arrive later change what an image goes through.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from plmcl.data.augmentation import Augmentation, augment
from plmcl.data.images import ImageProblem, Recipe, load
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.ordering import rank_keys

MAX_WORKERS = 16
# Of passes without gradients. On CPU a larger one costs more in fresh pages than it gains.
FORWARD_BATCH_SIZE = 128 if torch.cuda.is_available() else 16
# What draws are made for; those of different purposes are independent.
WEAK, STRONG = "flip", "strong view"

Draws = npt.NDArray[np.uint64]
# A look at an image: how it is changed, and the key that decides the change (see `augment`).
View = tuple[Augmentation, int]
# A row, and the views of it that are wanted.
Key = tuple[int, *tuple[View, ...]]
Item = tuple[int, Tensor] | PlmclError


class ImageRows(Dataset[Item]):
    """Pixels of a list of images, through the one recipe.

    Args:
        root: The folder that `paths` are relative to.
        paths: One a row. Kept as one array: a list would be copied page by page by each worker.
        recipe: How a file becomes pixels.
        pixels: uint8 (N, size, size, 3): the images as the recipe makes them, if they are decoded
            already; the files are not read then.
    """

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        recipe: Recipe,
        pixels: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        assert pixels is None or pixels.shape == (len(paths), recipe.size, recipe.size, 3)
        self.root = root
        self.paths = np.array(paths, dtype=np.str_)
        self.recipe = recipe
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, key: Key) -> Item:
        """(row, uint8 (V, H, W, 3)) of a key (row, V views), or why it cannot be had.

        A problem is returned and not raised: torch would wrap what a worker raises in a traceback.
        """
        row, *views = key
        if self.pixels is not None:
            pixels = np.array(self.pixels[row])  # torch takes no array that cannot be written to
        else:
            path = self.root / str(self.paths[row])
            try:
                pixels = load(path, self.recipe)
            except ImageProblem as problem:
                return PlmclError(
                    f"{path}: {problem}; it was readable at ingest: repeat that stage"
                )
        return row, torch.from_numpy(np.stack([augment(pixels, *view) for view in views]))


class EpochOrder:
    """An epoch's batches of rows: each row once, the last batch may be short.

    Set `epoch` before iterating. `batch_size` rows a batch.
    """

    def __init__(self, image_ids: Sequence[str], *, seed: int, batch_size: int) -> None:
        self.order_keys = rank_keys(seed, "epoch order", image_ids)
        self.draw_keys = {name: rank_keys(seed, name, image_ids) for name in (WEAK, STRONG)}
        self.batch_size = batch_size
        self.epoch = 0

    def __len__(self) -> int:
        full, rest = divmod(len(self.order_keys), self.batch_size)
        return full + (rest > 1 or full == 0)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        order = np.argsort(_mix(self.order_keys, self.epoch), kind="stable")
        starts = list(range(0, len(order), self.batch_size))
        if len(order) - starts[-1] == 1 and len(starts) > 1:
            starts.pop()  # batch statistics of one image are none: it joins the batch before it
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            yield order[start:end]

    def draws(self, purpose: str) -> Draws:
        """64 random bits (N,) for each row in this epoch; `purpose` is WEAK or STRONG."""
        return _mix(self.draw_keys[purpose], self.epoch)


class ImageBatches:
    """An epoch's batches of rows (B,) and uint8 images (B, H, W, 3), decoded in workers.

    Args:
        images: N images.
        order: Of their rows.
        augmentation: How each image is changed.
        strong: Whether images are (2, B, H, W, 3): behind those a `randaugment` view of each.
    """

    def __init__(
        self,
        images: ImageRows,
        order: EpochOrder,
        augmentation: Augmentation = "flip",
        strong: bool = False,
    ) -> None:
        self.order = order
        self.strong = strong
        kinds: list[tuple[Augmentation, str]] = [(augmentation, WEAK)]
        if strong:
            kinds.append(("randaugment", STRONG))
        self.loader = _loader(images, _EpochKeys(order, kinds))

    def __len__(self) -> int:
        return len(self.order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, which counts from 0 over all phases."""
        self.order.epoch = epoch
        for rows, views in _batches(self.loader):
            yield rows, views if self.strong else views[0]


class FeatureBatches:
    """An epoch's batches of rows (B,) and features (B, D).

    Args:
        features: (N, D).
        order: Of their rows.
        strong: Features (V, N, D) of strong views. If given, batches are (2, B, D): behind the
            features those of one strong view of each image, drawn anew each epoch.
    """

    def __init__(self, features: Tensor, order: EpochOrder, strong: Tensor | None = None) -> None:
        self.features = features
        self.order = order
        self.strong = strong

    def __len__(self) -> int:
        return len(self.order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, which counts from 0 over all phases."""
        self.order.epoch = epoch
        device = self.features.device
        if self.strong is not None:
            drawn = self.order.draws(STRONG) % np.uint64(len(self.strong))
            views = torch.from_numpy(drawn.astype(np.int64)).to(device)
        for batch in self.order:
            rows = torch.from_numpy(batch)
            own = rows.to(device)
            features = self.features[own]
            if self.strong is not None:
                features = torch.stack([features, self.strong[views[own], own]])
            yield rows, features


def sequential_batches(
    images: ImageRows, *, batch_size: int = FORWARD_BATCH_SIZE
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every row once, in order and unchanged: (rows (B,), uint8 images (B, H, W, 3))."""
    keys: list[Key] = [(row, ("none", 0)) for row in range(len(images))]
    for rows, views in view_batches(images, keys, batch_size=batch_size):
        yield rows, views[0]


def view_batches(
    images: ImageRows, keys: Sequence[Key], *, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """What is asked for, in order: (rows (B,), uint8 images (V, B, H, W, 3)).

    Args:
        images: Where the rows are.
        keys: Each a row and V views of it.
        batch_size: B; the last batch may be short.
    """
    starts = range(0, len(keys), batch_size)
    return _batches(_loader(images, [list(keys[start : start + batch_size]) for start in starts]))


class _EpochKeys(Sampler[list[Key]]):
    """The batches of an order, with the views of each row that `kinds` (kind, purpose) name."""

    def __init__(self, order: EpochOrder, kinds: Sequence[tuple[Augmentation, str]]) -> None:
        self.order = order
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[list[Key]]:
        views = [(kind, self.order.draws(purpose)) for kind, purpose in self.kinds]
        for rows in self.order:
            yield [(int(row), *((kind, int(draws[row])) for kind, draws in views)) for row in rows]


def _loader(images: ImageRows, batches: _EpochKeys | list[list[Key]]) -> "DataLoader[Item]":
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


def _collate(items: list[Any]) -> tuple[Tensor, Tensor] | PlmclError:
    problem = next((item for item in items if isinstance(item, PlmclError)), None)
    if problem is not None:
        return problem
    rows, views = zip(*items, strict=True)
    return torch.tensor(rows), torch.stack(views, dim=1)


def _batches(loader: "DataLoader[Item]") -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader:
        if isinstance(batch, PlmclError):
            raise batch
        yield batch


def _mix(keys: Draws, epoch: int) -> Draws:
    """splitmix64's finaliser over (key, epoch): a fresh pseudo-random key for each epoch."""
    step = (0x9E3779B97F4A7C15 * (epoch + 1)) % 2**64
    mixed = keys + np.uint64(step)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
