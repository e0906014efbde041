"""The state of a training under way: committed once an epoch, whole or not at all.

It lives outside git and DVC (which empties a stage's outputs before it runs), so that a repeated
command goes on where a killed one stopped.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

FILE = "state.pt"
PREFIX = "epoch-"


class Checkpoints:
    """The commits of one training, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def epoch(self) -> int:
        """Epochs done in the newest commit; 0 where there is none."""
        commits = self._commits()
        return int(commits[-1].name.removeprefix(PREFIX)) if commits else 0

    def save(self, epoch: int, state: dict[str, Any]) -> None:
        """Commit the state after `epoch` epochs; the earlier one goes only afterwards.

        Args:
            epoch: Epochs done.
            state: Tensors and plain types only.
        """
        writing = self.directory / "writing"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        with (writing / FILE).open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        _read(writing / FILE)
        writing.rename(self.directory / f"{PREFIX}{epoch:05d}")
        _sync_directory(self.directory)
        for older in self._commits()[:-1]:
            shutil.rmtree(older)

    def load(self) -> dict[str, Any] | None:
        """The newest commit, or None where there is none."""
        commits = self._commits()
        return _read(commits[-1] / FILE) if commits else None

    def _commits(self) -> list[Path]:
        return sorted(self.directory.glob(f"{PREFIX}*"))


def _read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
