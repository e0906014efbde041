"""Per-image state of a method: named (N, L) arrays whose rows are the training images."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plmcl.errors import PlmclError


class LabelStore:
    """Rows of state that outlive an epoch and a run.

    Args:
        image_ids: The N training images; row i belongs to `image_ids[i]`.
        state: Name to float tensor (N, L); empty for a method that keeps no state.
    """

    def __init__(self, image_ids: Sequence[str], state: Mapping[str, Tensor]) -> None:
        self.image_ids = list(image_ids)
        self.state = dict(state)

    def read(self, rows: Tensor) -> dict[str, Tensor]:
        """Copies of the rows; `rows` is (B,) int64, on the state's device."""
        return {name: values[rows] for name, values in self.state.items()}

    def write(self, rows: Tensor, state: Mapping[str, Tensor]) -> None:
        """Replace the rows in place; `state` has the names of `self.state`, each (B, L)."""
        for name, values in self.state.items():
            values[rows] = state[name].to(values.dtype)

    def replace(self, state: Mapping[str, Tensor]) -> None:
        """Replace all rows; `state` has the names of `self.state`, each (N, L)."""
        for name, values in self.state.items():
            values.copy_(state[name])  # also where it is these values themselves

    def save(self, directory: Path) -> None:
        """Write the id index and one .npy file a name."""
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.image_ids, ensure_ascii=False, indent=0)
        (directory / "image_ids.json").write_text(text + "\n", encoding="utf-8")
        for name, values in self.state.items():
            np.save(directory / f"{name}.npy", values.cpu().numpy(), allow_pickle=False)

    @classmethod
    def load(cls, directory: Path) -> "LabelStore":
        """Read what `save` wrote.

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
            try:
                values = np.load(file, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise PlmclError(f"{file}: not an array: {error}") from None
            if len(values) != len(image_ids):
                raise PlmclError(f"{file}: {len(values)} rows for {len(image_ids)} image ids")
            state[file.stem] = torch.from_numpy(values)
        return cls(image_ids, state)
