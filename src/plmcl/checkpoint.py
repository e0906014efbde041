"""The state of a training under way: committed once an epoch, whole or not at all.

It lives outside git and DVC (which empties a stage's outputs before it runs), so that a repeated
command goes on where a killed one stopped.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
from filelock import FileLock, Timeout

from plmcl.durable import sha256, sync
from plmcl.errors import PlmclError
from plmcl.signals import hold_signals

STATE, FILES = "state.pt", "files.json"
PREFIX = "epoch-"
PATIENCE = 10.0  # seconds, for a process that a signal ends at this moment
KEPT = 2  # the newest commit, and one to fall back to


class Checkpoints:
    """The commits of one training, in a directory of its own.

    A commit is a folder: the state, and the sha256 of the state's file and of those files beside
    the commits that belong to it. One that is not as it was written counts as absent.

    Attributes:
        directory: Where commits are.
        generations: Below it, where a mapped label store keeps folders of files; those without a
            file that a commit names are removed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.generations = directory / "labels"
        self._problems: dict[str, str | None] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Train alone in this directory while the body runs; a process that dies lets it go.

        Raises:
            PlmclError: Another process trains here, and goes on doing so for ten seconds.
        """
        lock = FileLock(self.directory / "lock")
        while not lock.is_locked:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=PATIENCE)
            except FileNotFoundError:
                continue  # the process that held it ended its training, and removed the directory
            except Timeout:
                raise PlmclError(
                    f"{self.directory}: another process goes on with this training; wait for it, "
                    "or end it and repeat the command"
                ) from None
        try:
            yield
        finally:
            lock.release()

    @property
    def epoch(self) -> int:
        """Epochs done in the newest commit; 0 where there is none."""
        commit = self._newest()
        return int(commit.name.removeprefix(PREFIX)) if commit else 0

    def save(
        self, epoch: int, state: dict[str, Any], files: Mapping[Path, str] | None = None
    ) -> None:
        """Commit the state after `epoch` epochs; what is older goes only afterwards.

        Args:
            epoch: Epochs done.
            state: Tensors and plain types only.
            files: Files below `directory` that belong to it, on the disk already: their sha256.

        Raises:
            PlmclError: It cannot be written, say because the disk is full; the commits before it
                are as they were.
        """
        writing = self.directory / "writing"
        commit = self.directory / f"{PREFIX}{epoch:05d}"
        try:
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
            digests = {
                str(path.relative_to(self.directory)): d for path, d in (files or {}).items()
            }
            digests[f"{commit.name}/{STATE}"] = _write(state, writing / STATE)
            (writing / FILES).write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")
            sync(writing / FILES)
            sync(writing)
            shutil.rmtree(commit, ignore_errors=True)  # one that was damaged
            writing.rename(commit)
            sync(self.directory)
        except OSError as error:
            shutil.rmtree(writing, ignore_errors=True)
            raise PlmclError(
                f"{self.directory}: the state after epoch {epoch} cannot be saved: "
                f"{error.strerror or error}; make room and repeat the command: it goes on after "
                f"epoch {self.epoch}"
            ) from None
        self._problems[commit.name] = None
        self._remove_old()

    def load(self) -> dict[str, Any] | None:
        """The newest commit, or None where there is none."""
        commit = self._newest()
        if commit is None:
            return None
        state: dict[str, Any] = torch.load(commit / STATE, map_location="cpu", weights_only=True)
        return state

    def _newest(self) -> Path | None:
        for commit in reversed(self._commits()):
            if commit.name not in self._problems:
                self._problems[commit.name] = problem = self._problem(commit)
                if problem:
                    print(
                        f"{commit}: damaged ({problem}): training goes on from the commit before "
                        "it, or begins anew without one",
                        file=sys.stderr,
                    )
            if not self._problems[commit.name]:
                return commit
        return None

    def _problem(self, commit: Path) -> str | None:
        try:
            digests = json.loads((commit / FILES).read_text(encoding="utf-8"))
            for name, digest in digests.items():
                if sha256(self.directory / name) != digest:
                    return f"{name} is not as it was written"
        except (OSError, ValueError, AttributeError) as error:
            return str(error)
        return None

    def _remove_old(self) -> None:
        commits = self._commits()
        sound = [commit for commit in commits if not self._problems.get(commit.name)]
        for commit in set(commits) - set(sound[-KEPT:]):
            shutil.rmtree(commit)
        named = {
            (self.directory / name).parent
            for commit in sound[-KEPT:]
            for name in json.loads((commit / FILES).read_text(encoding="utf-8"))
        }
        for generation in self.generations.glob("*"):
            if generation not in named:
                shutil.rmtree(generation)

    def _commits(self) -> list[Path]:
        return sorted(self.directory.glob(f"{PREFIX}*"))


class _Digesting:
    """A file whose bytes are digested as they are written, and which keeps why a write failed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, content: bytes | memoryview) -> int:
        try:
            self.digest.update(content)
            return self.file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _write(state: dict[str, Any], path: Path) -> str:
    """Write a state, read it back, and return the sha256 of its file."""
    with path.open("wb") as file:
        digesting = _Digesting(file)
        try:
            with hold_signals():
                torch.save(state, cast("IO[bytes]", digesting))
        except Exception:
            # One of torch's own, in place of a full disk's.
            if digesting.error is not None:
                raise digesting.error from None
            raise
    sync(path)
    written = digesting.digest.hexdigest()
    if sha256(path) != written:
        raise OSError(f"{path} is read back as something else")
    return written
