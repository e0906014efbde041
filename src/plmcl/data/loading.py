"""Batches of pixels or of cached features: the order of an epoch, and what changes the images.

Order and changes follow from (seed, epoch, image id) alone, so neither the number of workers, nor
a resume, nor images that arrive later change what an image goes through.
"""

import itertools
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from plmcl.data.augmentation import Augmentation, augment
from plmcl.data.images import ImageProblem, Recipe, load
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.ordering import owners, rank_keys

MAX_WORKERS = 16
# Where processes that load images leave their batches: full, it ends the training.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
# Of passes without gradients. On CPU a larger one costs more in fresh pages than it gains.
FORWARD_BATCH_SIZE = 128 if torch.cuda.is_available() else 16
# Of an order for rows that lie in files: rows that lie together, and blocks of them whose rows are
# shuffled among each other. Of 80 labels in two arrays, a window is 170 MB.
BLOCK, WINDOW = 4096, 64
# What draws are made for; those of different purposes are independent.
WEAK, STRONG = "flip", "strong view"

Draws = npt.NDArray[np.uint64]
# A look at an image: how it is changed, and the key that decides the change (see `augment`).
View = tuple[Augmentation, int]
# A row, and the views of it that are wanted.
Key = tuple[int, *tuple[View, ...]]
Item = tuple[int, Tensor] | PlmclError

# Bytes that the batches of each loader in use take there at most.
_promised: "WeakKeyDictionary[DataLoader[Item], int]" = WeakKeyDictionary()


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
    """An epoch's batches of rows: each row once, the last batch may be shorter or longer.

    Set `epoch` before iterating. With several ranks, these are the batches of one of them: each
    row is in those of its owner alone, and all ranks have equally many batches.

    Args:
        image_ids: N stable ids.
        seed: Of params.yaml.
        batch_size: Rows of a batch, on each rank.
        rank: Whose batches these are.
        ranks: How many ranks there are.
        in_blocks: Whether rows that lie together come within the same part of the epoch: blocks of
            rows are shuffled, then the rows within a window of blocks. For rows of files that may
            be larger than memory; one window is the order that there is without this.

    Raises:
        PlmclError: There are more ranks than images.
    """

    def __init__(
        self,
        image_ids: Sequence[str],
        *,
        seed: int,
        batch_size: int,
        rank: int = 0,
        ranks: int = 1,
        in_blocks: bool = False,
    ) -> None:
        if len(image_ids) < ranks:
            raise PlmclError(f"{ranks} processes have only {len(image_ids)} images to train on")
        self.order_keys = rank_keys(seed, "epoch order", image_ids)
        self.draw_keys = {name: rank_keys(seed, name, image_ids) for name in (WEAK, STRONG)}
        self.owner = owners(seed, image_ids, ranks)
        self.shares = np.bincount(self.owner, minlength=ranks)
        self.rank = rank
        blocks = -(-len(image_ids) // BLOCK) if in_blocks else 1
        self.block_keys = rank_keys(seed, "order of blocks", map(str, range(blocks)))
        self.batch_size = batch_size
        self.epoch = 0

    def __len__(self) -> int:
        # The smallest share's: the last batch of another takes in its one row more.
        full, rest = divmod(int(self.shares.min()), self.batch_size)
        return full + (rest > 1 or full == 0)

    def __iter__(self) -> Iterator[npt.NDArray[np.int64]]:
        order = self._rows()
        # Batch statistics of one image are none: it joins the batch before it.
        last = (len(self) - 1) * self.batch_size
        for start in range(0, last, self.batch_size):
            yield order[start : start + self.batch_size]
        yield order[last:]

    def _rows(self) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = np.flatnonzero(self.owner == self.rank)
        keys = _mix(self.order_keys[rows], self.epoch)
        if len(self.block_keys) <= WINDOW:
            return rows[np.argsort(keys, kind="stable")]
        place = _mix(self.block_keys, self.epoch).argsort(kind="stable").argsort()
        return rows[np.lexsort((keys, (place // WINDOW)[rows // BLOCK]))]

    def counts(self, number: int) -> tuple[int, ...]:
        """Rows of each rank in its batch of this number."""
        if number < len(self) - 1:
            return (self.batch_size,) * len(self.shares)
        return tuple((self.shares - number * self.batch_size).tolist())

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
        epochs: Of the training: until then, workers go on with the next epoch while the last one
            is scored. 0: each epoch begins when it is asked for.
    """

    def __init__(
        self,
        images: ImageRows,
        order: EpochOrder,
        augmentation: Augmentation = "flip",
        strong: bool = False,
        epochs: int = 0,
    ) -> None:
        self.order = order
        self.strong = strong
        kinds: list[tuple[Augmentation, str]] = [(augmentation, WEAK)]
        if strong:
            kinds.append(("randaugment", STRONG))
        self.keys = _EpochKeys(order, kinds, epochs)
        self.loader = _loader(images, self.keys)
        self._under_way: tuple[int, Iterator[tuple[Tensor, Tensor]]] | None = None

    def __len__(self) -> int:
        return len(self.order)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, which counts from 0 over all phases."""
        if self._under_way is not None and self._under_way[0] == epoch:
            batches = self._under_way[1]
        else:
            self.keys.first = epoch
            batches = _batches(self.loader)
        self._under_way = None
        for rows, views in itertools.islice(batches, len(self.order)):
            yield rows, views if self.strong else views[0]
        if epoch + 1 < self.keys.epochs:
            self._under_way = epoch + 1, batches


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
            rows = torch.from_numpy(batch).to(device, non_blocking=True)
            features = self.features[rows]
            if self.strong is not None:
                features = torch.stack([features, self.strong[views[rows], rows]])
            yield rows, features


def sequential_batches(
    images: ImageRows, *, batch_size: int = FORWARD_BATCH_SIZE
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every row once, in order and unchanged: (rows (B,), uint8 images (B, H, W, 3))."""
    keys: list[Key] = [(row, ("none", 0)) for row in range(len(images))]
    for rows, views in view_batches(images, keys, batch_size=batch_size):
        yield rows, views[0]


def on_device(
    batches: Iterable[tuple[Tensor, Tensor]], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches on `device`; a GPU is still busy with the last one while the next is copied."""
    if device.type != "cuda":
        for rows, inputs in batches:
            yield rows.to(device), inputs.to(device)
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for rows, inputs in batches:
        with torch.cuda.stream(copying):
            moved = rows.to(device, non_blocking=True), inputs.to(device, non_blocking=True)
        working = torch.cuda.current_stream(device)
        working.wait_stream(copying)
        for tensor in moved:
            tensor.record_stream(working)  # not to be overwritten before `working` is done with it
        yield moved


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
    """The batches of an order, with the views of each row that `kinds` (kind, purpose) name.

    Those of epoch `first`, and of all that follow it before `epochs`.
    """

    def __init__(
        self, order: EpochOrder, kinds: Sequence[tuple[Augmentation, str]], epochs: int
    ) -> None:
        self.order = order
        self.kinds = kinds
        self.epochs = epochs
        self.first = 0

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[list[Key]]:
        for epoch in range(self.first, max(self.epochs, self.first + 1)):
            self.order.epoch = epoch
            views = [(kind, self.order.draws(purpose)) for kind, purpose in self.kinds]
            for rows in self.order:
                yield [
                    (int(row), *((kind, int(draws[row])) for kind, draws in views)) for row in rows
                ]


def _loader(images: ImageRows, batches: _EpochKeys | list[list[Key]]) -> "DataLoader[Item]":
    workers, shared = _workers(images, batches)
    loader = DataLoader(
        images,
        batch_sampler=batches,
        num_workers=workers,
        # In a process that was spawned, as a grid's, workers would be as well: each of them would
        # import torch for every epoch's evaluation.
        multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
        persistent_workers=workers > 0,
        collate_fn=_collate,
        # Its own: what a network draws must not depend on when workers were started.
        generator=torch.Generator(),
        pin_memory=torch.cuda.is_available(),
    )
    _promised[loader] = shared
    return loader


def _workers(images: ImageRows, batches: _EpochKeys | list[list[Key]]) -> tuple[int, int]:
    """How many processes load images, and the bytes of shared memory that their batches take.

    (0, 0), and a word about it, where there is no room for them.
    """
    # One core is left to the training process, which is busy whenever the workers are.
    workers = max(0, min(MAX_WORKERS, usable_cores() - 1, len(batches)))
    if workers == 0:
        return 0, 0
    if isinstance(batches, _EpochKeys):
        views, length = len(batches.kinds), batches.order.batch_size
    else:
        kinds = {kind for key in batches[0] for kind, _ in key[1:]}
        if images.pixels is not None and kinds == {"none"}:
            return 0, 0  # to copy pixels takes less time than to start processes
        views, length = len(batches[0][0]) - 1, len(batches[0])
    if not SHARED_MEMORY.is_dir():
        return workers, 0
    # Of each worker two batches wait, and it makes a third.
    needed = 3 * workers * views * length * 3 * images.recipe.size**2
    # A rank's part of it; what other loaders of this process do not hold yet, they still may.
    free = shutil.disk_usage(SHARED_MEMORY).free // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    free -= sum(_promised.values())
    if needed < free:
        return workers, needed
    print(
        f"{SHARED_MEMORY}: {max(0, free) / 1e6:.0f} MB free, and {workers} processes that load "
        f"images need {needed / 1e6:.0f} MB: images are loaded by the training process itself. "
        "Faster: "
        "docker run --shm-size=1g, smaller batches, or fewer cores by PLMCL_CORES",
        file=sys.stderr,
    )
    return 0, 0


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
