"""One network, many requests: images that wait at the same time are scored at the same time."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np

from plmcl.inference import Pixels, Prediction, Tagger

logger = logging.getLogger(__name__)


class _Item(NamedTuple):
    tagger: Tagger
    name: str
    pixels: Pixels
    answer: "asyncio.Future[Prediction]"


class Batcher:
    """Gathers images, and gives them to their model in the order in which they came.

    A batch is of one model; while another takes its place, there is one batch more.

    Args:
        max_images: In a batch.
        wait_ms: How long a batch that is not full waits for images that are on their way. If none
            is, it does not wait at all.
        on_batch: Called with the number of images of each batch.
    """

    def __init__(self, *, max_images: int, wait_ms: float, on_batch: Callable[[int], None]) -> None:
        self._max_images, self._wait, self._on_batch = max_images, wait_ms / 1000, on_batch
        self._waiting: deque[_Item] = deque()
        self._on_their_way = 0
        self._news = asyncio.Event()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """While an image is made ready."""
        self._on_their_way += 1
        try:
            yield
        finally:
            self._on_their_way -= 1
            self._news.set()

    async def tag(self, tagger: Tagger, name: str, pixels: Pixels) -> Prediction:
        """What a model says of one image (size, size, 3); whoever is cancelled gives up its place.

        Raises:
            Exception: Whatever the model raised.
        """
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Item(tagger, name, pixels, answer))
        self._news.set()
        return await answer

    async def run(self) -> None:
        """Score batches until it is cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "network") as thread:
            while True:
                batch = await self._gather()
                try:
                    found = await loop.run_in_executor(thread, _score, batch)
                except Exception as error:
                    logger.exception("a batch of %d images failed", len(batch))
                    for item in batch:
                        if not item.answer.done():
                            item.answer.set_exception(error)
                    continue
                self._on_batch(len(batch))
                for item, prediction in zip(batch, found, strict=True):
                    if not item.answer.done():
                        item.answer.set_result(prediction)

    async def _gather(self) -> list[_Item]:
        while True:
            while not self._waiting:
                await self._next_event(None)
            until = asyncio.get_running_loop().time() + self._wait
            while len(self._waiting) < self._max_images and self._on_their_way:
                if (left := until - asyncio.get_running_loop().time()) <= 0:
                    break
                await self._next_event(left)
            batch: list[_Item] = []
            while self._waiting and len(batch) < self._max_images:
                if batch and self._waiting[0].tagger is not batch[0].tagger:
                    break
                item = self._waiting.popleft()
                if not item.answer.done():
                    batch.append(item)
            if batch:
                return batch

    async def _next_event(self, seconds: float | None) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()


def _score(batch: list[_Item]) -> list[Prediction]:
    images = np.stack([item.pixels for item in batch])
    return batch[0].tagger.tag([item.name for item in batch], images)
