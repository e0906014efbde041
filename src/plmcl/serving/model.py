"""The model that is served, and the one that takes its place while requests go on."""

import asyncio
import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plmcl.data.images import Recipe
from plmcl.errors import PlmclError
from plmcl.inference import Tagger
from plmcl.serving.limits import Limits

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0


class _Stamp(NamedTuple):
    """What changes where another file is meant, or other bytes are in it."""

    path: Path
    device: int
    inode: int
    mtime_ns: int
    size: int


@dataclass(frozen=True, eq=False)
class Served:
    """A model that has passed its smoke test.

    Attributes:
        tagger: The model.
        recipe: Its own, with the service's limit of pixels where that is lower.
        sha256: Of its file: the version that answers name.
        name: Of its file and the folder of that, links resolved.
        loaded: Seconds since 1970.
    """

    tagger: Tagger
    recipe: Recipe
    sha256: str
    name: str
    loaded: float


class Slot:
    """The place of the model that is served; whoever took it from there may go on using it.

    Args:
        path: The ONNX file, or a link to it, or a file in a folder that is a link.
        limits: Its batch and its pixels apply.
        providers: As of `Tagger`.
        on_swap: Called with whether a new file was taken.

    Attributes:
        current: Answers requests.
        problem: Why the file that is there now was refused, if it was.

    Raises:
        PlmclError: The first file is refused.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits,
        *,
        providers: Sequence[str] | None,
        on_swap: Callable[[bool], None],
    ) -> None:
        self._path, self._limits, self._providers = path, limits, providers
        self._on_swap = on_swap
        self._seen = _look(path)
        self.current = _load(path, limits, providers)
        self.problem: str | None = None

    async def watch(self) -> None:
        """Look for another file every second, until it is cancelled."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            try:
                await self.refresh()
            except Exception:  # the next look may go well
                logger.exception("%s: could not be looked at", self._path)

    async def refresh(self) -> None:
        """Load the file that is there, if it is another than the last, beside the one in use."""
        stamp = await asyncio.to_thread(_look, self._path)
        if stamp == self._seen:
            return
        found: Served | PlmclError
        try:
            found = await asyncio.to_thread(_load, self._path, self._limits, self._providers)
        except PlmclError as error:
            found = error
        if await asyncio.to_thread(_look, self._path) != stamp:
            return  # it is being written; the next look is soon
        self._seen = stamp
        if isinstance(found, Served):
            self.current, self.problem = found, None
            logger.info("now served: %s, sha256 %s", found.name, found.sha256)
        else:
            self.problem = str(found)
            logger.error("%s is served on: a new file was refused: %s", self.current.name, found)
        self._on_swap(self.problem is None)


def _look(path: Path) -> _Stamp | None:
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except OSError:
        return None
    return _Stamp(real, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _load(path: Path, limits: Limits, providers: Sequence[str] | None) -> Served:
    try:
        real = path.resolve(strict=True)
        sha256 = hashlib.sha256(real.read_bytes()).hexdigest()
    except OSError as error:
        raise PlmclError(f"{path}: {error.strerror or error}") from None
    tagger = Tagger(real, providers=providers)
    _try_out(tagger, limits.batch)
    own = tagger.card.recipe
    recipe = dataclasses.replace(own, max_pixels=min(own.max_pixels, limits.pixels))
    return Served(tagger, recipe, sha256, "/".join(real.parts[-2:]), time.time())


def _try_out(tagger: Tagger, batch: int) -> None:
    """One image and a full batch: what the first request needs is there, and answers make sense."""
    size = tagger.card.recipe.size
    noise = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    for images in (noise[:1], noise):
        try:
            probs = tagger.predict(images)
        except PlmclError:
            raise
        except Exception as error:  # a kind of its own for each status code
            reason = " ".join(str(error).split())
            raise PlmclError(f"smoke test: a batch of {len(images)} fails: {reason:.200}") from None
        if not ((probs >= 0) & (probs <= 1)).all():
            raise PlmclError("smoke test: scores: expected numbers from 0 to 1")
