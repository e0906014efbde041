"""Label state larger than memory: files that are mapped, a new set of them each epoch.

An epoch reads the files of one generation and writes those of the next, so that a crash in between
leaves the old ones as they were; a checkpoint names its generation. Rows should come in the order
that `EpochOrder` gives in blocks: scattered ones cost 30 times as much once the files are larger
than memory.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmcl.durable import sha256, sync
from plmcl.errors import PlmclError
from plmcl.labels.store import LabelStore, State, map_array


@dataclass(frozen=True)
class Column:
    """How one name of the state is stored.

    Attributes:
        width: Numbers of a row.
        dtype: torch's float32 or float16.
    """

    width: int
    dtype: torch.dtype


class MappedStore(LabelStore):
    """Rows of state in files. Generation g is the state after g epochs, 0 before the first.

    Args:
        image_ids: The N training images; row i belongs to `image_ids[i]`.
        columns: What there is of each row.
        initial: The state before the first epoch, in blocks of rows that follow each other.
    """

    def __init__(
        self,
        image_ids: Sequence[str],
        columns: Mapping[str, Column],
        initial: Callable[[], Iterator[State]],
    ) -> None:
        super().__init__(image_ids, {})
        self.columns = columns
        self.initial = initial
        self.folder: Path | None = None
        self.generation: int | None = None
        self.digests: dict[str, str] = {}
        self._next: dict[str, np.memmap[Any, Any]] = {}
        self._next_generation = 0
        self._visited = np.zeros(0, dtype=np.bool_)

    @property
    def names(self) -> tuple[str, ...]:
        """See `LabelStore.names`."""
        return tuple(self.columns)

    def open(self, folder: Path) -> None:
        """Say where the files are to be; before anything else is asked of the store."""
        self.folder = folder

    def read(self, rows: Tensor) -> dict[str, Tensor]:
        """See `LabelStore.read`."""
        if self.generation is None:
            self._create()
        return super().read(rows)

    def write(self, rows: Tensor, state: State) -> None:
        """Give rows their state in the next generation, each once."""
        here = rows.cpu()
        for name, array in self._next.items():
            values = torch.from_numpy(array)
            values[here] = state[name].to("cpu", values.dtype)
        self._visited[here.numpy()] = True

    def begin_epoch(self, epoch: int) -> None:
        """See `LabelStore.begin_epoch`.

        Raises:
            PlmclError: There is no room for the next generation.
        """
        if self.generation is None:
            self._create()
        self._begin(epoch)

    def end_epoch(self, change: Callable[[State], State]) -> None:
        """See `LabelStore.end_epoch`; the state is not changed, as `change` needs all of it."""
        self._end()

    def snapshot(self) -> dict[str, Any]:
        """Which generation it is, and the sha256 of its files: no copy of them."""
        if self.generation is None:
            self._create()
        return {"generation": self.generation, "sha256": dict(self.digests)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to the generation of a snapshot."""
        self._map(snapshot["generation"], snapshot["sha256"])

    def files(self, snapshot: Mapping[str, Any]) -> dict[Path, str]:
        """The files of a snapshot, with their sha256."""
        folder = self._folder(snapshot["generation"])
        return {folder / name: digest for name, digest in snapshot["sha256"].items()}

    def _create(self) -> None:
        self._begin(0)
        start = 0
        for block in self.initial():
            length = len(next(iter(block.values())))
            self.write(torch.arange(start, start + length), block)
            start += length
        self._end()

    def _begin(self, generation: int) -> None:
        writing = self._writing
        for unfinished in (writing, self._folder(generation)):  # of an epoch that is done again
            shutil.rmtree(unfinished, ignore_errors=True)
        self._next, self._next_generation = {}, generation
        try:
            writing.mkdir(parents=True)
            for name, column in self.columns.items():
                self._next[name] = _new_array(
                    writing / f"{name}.npy", (len(self.image_ids), column.width), column.dtype
                )
        except OSError as error:
            self._next = {}
            shutil.rmtree(writing, ignore_errors=True)
            raise PlmclError(
                f"{writing}: no room for the label state of the next epoch: "
                f"{error.strerror or error}; make room and repeat the command"
            ) from None
        self._visited = np.zeros(len(self.image_ids), dtype=np.bool_)

    def _end(self) -> None:
        missed = len(self._visited) - int(self._visited.sum())
        assert not missed, f"{missed} rows of the label state were not visited"
        digests = {}
        for name, array in self._next.items():
            array.flush()
            file = self._writing / f"{name}.npy"
            sync(file)
            digests[file.name] = sha256(file)
        self._next = {}
        folder = self._folder(self._next_generation)
        self._writing.rename(folder)
        sync(folder.parent)
        self._map(self._next_generation, digests)

    def _map(self, generation: int, digests: Mapping[str, str]) -> None:
        folder = self._folder(generation)
        self.state = {name: map_array(folder / f"{name}.npy") for name in self.columns}
        self.generation, self.digests = generation, dict(digests)

    def _folder(self, generation: int) -> Path:
        return self._writing.with_name(f"{generation:05d}")

    @property
    def _writing(self) -> Path:
        assert self.folder is not None, "the store has not been opened"
        return self.folder / "writing"


def _new_array(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> "np.memmap[Any, Any]":
    """A file of numpy's that is written through the array.

    Raises:
        OSError: The disk has no room for it.
    """
    like = torch.empty(0, dtype=dtype).numpy().dtype
    array = np.lib.format.open_memmap(path, "w+", dtype=like, shape=shape)
    # Now, and not when a page is written: a full disk would then end the process by a signal.
    if hasattr(os, "posix_fallocate"):
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, path.stat().st_size)
        finally:
            os.close(descriptor)
    return array
