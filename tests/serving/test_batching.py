import asyncio
import threading
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest

from plmcl.inference import Prediction
from plmcl.serving.batching import Batcher


class Model:
    """Says of an image the number that it is made of, and can be held up."""

    def __init__(self):
        self.batches, self.go, self.broken = [], threading.Event(), False
        self.go.set()

    def tag(self, files, images):
        assert self.go.wait(10)
        if self.broken:
            raise RuntimeError("out of memory")
        self.batches.append(list(files))
        return [Prediction(f, None, [int(i[0, 0, 0])]) for f, i in zip(files, images, strict=True)]


def image(number):
    return np.full((2, 2, 3), number, np.uint8)


@asynccontextmanager
async def running(**options):
    sizes = []
    batcher = Batcher(**{"max_images": 4, "wait_ms": 1000, **options}, on_batch=sizes.append)
    task = asyncio.create_task(batcher.run())
    yield batcher, sizes
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def ask(batcher, model, number):
    return asyncio.create_task(batcher.tag(model, str(number), image(number)))


def test_images_that_wait_are_scored_together_each_with_its_own_answer():
    async def run():
        model = Model()
        async with running() as (batcher, sizes):
            model.go.clear()
            tasks = [ask(batcher, model, number) for number in range(10)]
            await asyncio.sleep(0.01)
            model.go.set()
            answers = await asyncio.gather(*tasks)
        assert [(a.file, a.labels) for a in answers] == [(str(n), [n]) for n in range(10)]
        assert sizes == [4, 4, 2]

    asyncio.run(run())


def test_a_batch_waits_for_what_is_on_its_way_and_for_nothing_else():
    async def run():
        model = Model()
        async with running() as (batcher, sizes):
            loop = asyncio.get_running_loop()
            start = loop.time()
            await ask(batcher, model, 1)
            assert loop.time() - start < 0.5  # nobody else is there
            with batcher.expecting():
                first = ask(batcher, model, 2)
                await asyncio.sleep(0.02)
                assert not first.done()
                second = ask(batcher, model, 3)
            await asyncio.gather(first, second)
            assert loop.time() - start < 0.5
        assert sizes == [1, 2]

    asyncio.run(run())


def test_it_does_not_wait_longer_than_it_may():
    async def run():
        async with running(wait_ms=20) as (batcher, _):
            with batcher.expecting():
                await asyncio.wait_for(ask(batcher, Model(), 1), 0.5)

    asyncio.run(run())


def test_a_batch_is_of_one_model_and_the_order_stays():
    async def run():
        old, new = Model(), Model()
        async with running() as (batcher, sizes):
            old.go.clear()
            tasks = [ask(batcher, old, 0)]
            await asyncio.sleep(0.01)
            tasks += [ask(batcher, m, i) for i, m in enumerate([old, old, new, old, new, new], 1)]
            await asyncio.sleep(0.01)
            old.go.set()
            await asyncio.gather(*tasks)
        assert old.batches == [["0"], ["1", "2"], ["4"]]
        assert new.batches == [["3"], ["5", "6"]]
        assert sizes == [1, 2, 1, 1, 2]

    asyncio.run(run())


def test_who_was_cancelled_takes_no_place():
    async def run():
        model = Model()
        async with running() as (batcher, _):
            model.go.clear()
            first = ask(batcher, model, 0)
            await asyncio.sleep(0.01)
            waiting = [ask(batcher, model, number) for number in range(1, 5)]
            await asyncio.sleep(0.01)
            for task in waiting[:3]:
                task.cancel()
            await asyncio.sleep(0.01)
            model.go.set()
            await asyncio.gather(first, waiting[3])
        assert model.batches == [["0"], ["4"]]

    asyncio.run(run())


def test_a_batch_that_fails_fails_its_own_requests_and_the_next_goes_on(caplog):
    async def run():
        model = Model()
        async with running() as (batcher, sizes):
            model.broken = True
            with pytest.raises(RuntimeError, match="out of memory"):
                await ask(batcher, model, 1)
            model.broken = False
            assert (await ask(batcher, model, 2)).labels == [2]
        assert sizes == [1]

    asyncio.run(run())
    assert "a batch of 1 images failed" in caplog.text
