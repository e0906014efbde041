"""Per-image state of a method: named (N, L) arrays whose rows are the training images."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.format import write_array_header_1_0
from torch import Tensor

from plmcl.durable import sync
from plmcl.errors import PlmclError

BLOCK = 4096  # rows that are written to a file at once; 1.3 MB of 80 labels

State = Mapping[str, Tensor]


class LabelStore:
    """Rows of state that outlive an epoch and a run, in memory or on the device.

    Args:
        image_ids: The N training images; row i belongs to `image_ids[i]`.
        state: Name to float tensor (N, L); empty for a method that keeps no state. Kept as they
            are: float16 halves the memory, and a step sees float32 in any case.
    """

    def __init__(self, image_ids: Sequence[str], state: State) -> None:
        self.image_ids = image_ids
        self.state = dict(state)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arrays."""
        return tuple(self.state)

    def read(self, rows: Tensor) -> dict[str, Tensor]:
        """Copies of the rows as float32, on the device of `rows`, which is (B,) int64."""
        return {
            name: values[rows.to(values.device)].to(rows.device, torch.float32)
            for name, values in self.state.items()
        }

    def write(self, rows: Tensor, state: State) -> None:
        """Replace the rows in place; `state` has the names of `self.state`, each (B, L)."""
        for name, values in self.state.items():
            values[rows] = state[name].to(values.dtype)

    def begin_epoch(self, epoch: int) -> None:
        """Epoch number `epoch`, counted from 1, begins: each row is read, then written, once."""

    def end_epoch(self, change: Callable[[State], State]) -> None:
        """The epoch ends: all rows have been written.

        Args:
            change: Maps the state of all rows, (N, L) each, to what it is from now on.
        """
        changed = change(self.state)
        for name, values in self.state.items():
            values.copy_(changed[name])  # also where it is these values themselves

    def snapshot(self) -> dict[str, Any]:
        """The state for a checkpoint, to be given to `restore`."""
        return {name: values.detach().cpu().clone() for name, values in self.state.items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        for name, values in self.state.items():
            values.copy_(snapshot[name])

    def files(self, snapshot: Mapping[str, Any]) -> dict[Path, str]:
        """Files that a snapshot needs beside itself, with their sha256."""
        return {}

    def save(self, directory: Path) -> None:
        """Write the id index and one .npy file a name, to the disk itself, block by block.

        Arrays that the directory holds of another store are removed.
        """
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.npy"):
            if old.stem not in self.state:
                old.unlink()
        write_ids(directory, self.image_ids)
        for name, values in self.state.items():
            partial = directory / f"{name}.npy.partial"
            like: npt.NDArray[Any] = values[:0].cpu().numpy()
            with partial.open("wb") as file:
                write_array_header_1_0(
                    file,
                    {"descr": like.dtype.str, "fortran_order": False, "shape": (*values.shape,)},
                )
                for start in range(0, len(values), BLOCK):
                    block = values[start : start + BLOCK].detach().cpu().contiguous()
                    file.write(block.numpy().data)
            sync(partial)
            # Not in place: the old file may be the one that `values` is mapped from.
            partial.replace(directory / f"{name}.npy")
        sync(directory)

    @classmethod
    def load(cls, directory: Path) -> "LabelStore":
        """Read what `save` wrote; the arrays stay on the disk until they are used.

        Raises:
            PlmclError: A file is missing or damaged, or an array has another number of rows.
        """
        path = directory / "image_ids.json"
        if not path.exists():
            raise PlmclError(f"{path}: not found; is {directory} a label store?")
        try:
            image_ids = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise PlmclError(f"{path}: not JSON: {error}") from None
        state = {}
        for file in sorted(directory.glob("*.npy")):
            values = map_array(file)
            if len(values) != len(image_ids):
                raise PlmclError(f"{file}: {len(values)} rows for {len(image_ids)} image ids")
            state[file.stem] = values
        return cls(image_ids, state)


def map_array(path: Path) -> Tensor:
    """An array on the disk; what is written to the tensor stays in memory.

    Raises:
        PlmclError: The file is not an array, is cut off, or holds Python objects.
    """
    try:
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise PlmclError(f"{path}: not an array: {error}") from None


def write_ids(directory: Path, image_ids: Sequence[str]) -> None:
    """Write the id index of a store, without a text of all of it in memory."""
    partial = directory / "image_ids.json.partial"
    with partial.open("w", encoding="utf-8") as file:
        for number, image_id in enumerate(image_ids):
            file.write("[\n" if number == 0 else ",\n")
            file.write(json.dumps(image_id, ensure_ascii=False))
        file.write("\n]\n" if image_ids else "[]\n")
    sync(partial)
    partial.replace(directory / "image_ids.json")
