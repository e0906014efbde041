"""From uploads to predictions: a place in the queue, decoding, one batch with others."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from plmcl.data.images import ImageProblem
from plmcl.inference import Prediction
from plmcl.machine import usable_cores
from plmcl.serving.batching import Batcher
from plmcl.serving.decoding import DecoderPool
from plmcl.serving.limits import Limits
from plmcl.serving.metrics import Metrics
from plmcl.serving.model import Served, Slot
from plmcl.serving.refusal import Refusal, busy
from plmcl.serving.uploads import Memory, Upload


class Service:
    """All that answers requests, without HTTP.

    Args:
        model: The ONNX file, or a link to it.
        limits: What is refused.
        providers: As of `Tagger`.

    Attributes:
        limits: As given.
        slot: Holds the model.
        memory: Of requests' bodies.
        metrics: Counted here and by whoever answers.
        queued: Images that have a place in the queue.

    Raises:
        PlmclError: The model is refused.
    """

    def __init__(self, model: Path, limits: Limits, *, providers: Sequence[str] | None) -> None:
        self.limits, self.memory, self.metrics = limits, Memory(limits), Metrics()
        self.slot = Slot(model, limits, providers=providers, on_swap=self._count_swap)
        self._decoders = DecoderPool(usable_cores(), seconds=limits.decode_seconds)
        self._batcher = Batcher(
            max_images=limits.batch,
            wait_ms=limits.wait_ms,
            on_batch=self.metrics.batches.observe,
        )
        self.queued = 0
        self.metrics.watch(
            queue=lambda: self.queued,
            lost_decoders=lambda: self._decoders.lost,
            model=lambda: (self.slot.current.name, self.slot.current.sha256),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While requests may come.

        Raises:
            PlmclError: The decoding processes do not start.
        """
        await self._decoders.start(self.slot.current.recipe)
        tasks = [asyncio.create_task(self._batcher.run()), asyncio.create_task(self.slot.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await self._decoders.close()

    def check_queue(self, images: int = 1) -> None:
        """Refuse (429) what has no place in the queue now."""
        if self.queued + images > self.limits.queue:
            raise busy(f"the queue is full ({self.limits.queue} images)")

    @contextmanager
    def _places(self, images: int) -> Iterator[None]:
        self.check_queue(images)
        self.queued += images
        try:
            yield
        finally:
            self.queued -= images

    async def tag(self, uploads: Sequence[Upload]) -> tuple[Served, list[Prediction]]:
        """What one model says of each upload, in their order.

        Raises:
            Refusal: 429 where the queue is full, 503 where it takes too long.
        """
        served, seconds = self.slot.current, self.limits.request_seconds
        with self._places(len(uploads)):
            try:
                async with asyncio.timeout(seconds):
                    predictions = await asyncio.gather(*(self._tag(served, u) for u in uploads))
            except TimeoutError:
                raise Refusal(
                    503, f"no answer within {seconds:g} s; it may come again", {"Retry-After": "5"}
                ) from None
        for prediction in predictions:
            result = "ok" if prediction.error is None else prediction.error.partition(":")[0]
            self.metrics.images.labels(result).inc()
        return served, predictions

    async def _tag(self, served: Served, upload: Upload) -> Prediction:
        try:
            with self._batcher.expecting():
                pixels = await self._decoders.decode(upload.content, served.recipe)
        except ImageProblem as problem:
            return Prediction(upload.name, f"{problem.status}: {problem}", [])
        return await self._batcher.tag(served.tagger, upload.name, pixels)

    def _count_swap(self, taken: bool) -> None:
        self.metrics.swaps.labels("taken" if taken else "refused").inc()
