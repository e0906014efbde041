import asyncio
import io
import os
import signal
import sys
import time
from contextlib import asynccontextmanager

import numpy as np
import pytest
from data import image_bytes as made
from PIL import Image

from plmcl.data.images import ImageProblem, Recipe, load
from plmcl.errors import PlmclError
from plmcl.serving.decoding import DecoderPool, _shared_file

RECIPE = Recipe(size=24, background=(255, 255, 255), max_pixels=40_000_000)
IMAGE = made.jpeg(made.drawn(0))


@asynccontextmanager
async def started(processes=1, *, seconds=10.0):
    pool = DecoderPool(processes, seconds=seconds)
    await pool.start(RECIPE)
    try:
        yield pool
    finally:
        await pool.close()


def pids(pool):
    return [decoder._process.pid for decoder in pool._idle]


def slow_image():
    """A few kB, and half a second's work."""
    out = io.BytesIO()
    Image.new("1", (6300, 6300)).save(out, "PNG")
    return out.getvalue()


def test_pixels_and_reasons_are_those_of_load():
    contents = [
        *(made.encoded(made.drawn(i), f) for i, f in enumerate(["JPEG", "PNG", "WEBP", "AVIF"])),
        b"",
        b"<html>",
        IMAGE[:300],
        made.jpeg(Image.new("L", (7000, 7000))),
    ]

    def here(content):
        try:
            return load(content, RECIPE)
        except ImageProblem as problem:
            return problem.status, str(problem)

    async def there(pool, content):
        try:
            return await pool.decode(content, RECIPE)
        except ImageProblem as problem:
            return problem.status, str(problem)

    async def run():
        async with started(2) as pool:
            before = set(pids(pool))
            found = await asyncio.gather(*(there(pool, content) for content in contents))
            assert set(pids(pool)) == before
            return found

    for found, expected in zip(asyncio.run(run()), map(here, contents), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_file_that_takes_too_long_is_given_up_and_the_next_one_is_decoded():
    async def run():
        async with started(seconds=0.1) as pool:
            (before,) = pids(pool)
            with pytest.raises(ImageProblem, match=r"decoding took longer than 0\.1 s") as error:
                await pool.decode(slow_image(), RECIPE)
            assert error.value.status == "unreadable"
            assert pool.lost == 1
            assert (await pool.decode(IMAGE, RECIPE)).shape == (24, 24, 3)
            assert before not in pids(pool)
            with pytest.raises(ProcessLookupError):
                os.kill(before, 0)

    asyncio.run(run())


@pytest.mark.slow
def test_a_program_that_no_longer_obeys_is_killed_by_us():
    async def run():
        async with started(seconds=0.1) as pool:
            os.kill(pids(pool)[0], signal.SIGSTOP)
            with pytest.raises(ImageProblem, match=r"the decoder crashed \(signal 9\)"):
                await pool.decode(IMAGE, RECIPE)
            assert (await pool.decode(IMAGE, RECIPE)).shape == (24, 24, 3)

    asyncio.run(run())


def test_a_program_that_died_idle_is_blamed_on_no_file():
    async def run():
        async with started() as pool:
            os.kill(pids(pool)[0], signal.SIGKILL)
            await pool._idle[0]._process.wait()
            assert (await pool.decode(IMAGE, RECIPE)).shape == (24, 24, 3)
            assert (pool.lost, len(pool._idle)) == (0, 1)

    asyncio.run(run())


def test_who_gives_up_leaves_the_program_in_step():
    async def run():
        async with started() as pool:
            before = pids(pool)
            for seconds in (0, 0.001, 0.05):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(pool.decode(slow_image(), RECIPE), seconds)
            np.testing.assert_array_equal(await pool.decode(IMAGE, RECIPE), load(IMAGE, RECIPE))
            assert pids(pool) == before

    asyncio.run(run())


@pytest.mark.slow
def test_another_recipe_gets_programs_of_its_own_and_no_more_than_allowed():
    other = Recipe(size=9, background=(0, 0, 0), max_pixels=100_000)

    async def run():
        async with started(2) as pool:
            jobs = [pool.decode(IMAGE, recipe) for recipe in [RECIPE, other] * 6]
            found = await asyncio.gather(*jobs)
            assert [len(pixels) for pixels in found] == [24, 9] * 6
            assert len(pool._idle) <= 2

    asyncio.run(run())


def test_closing_ends_programs_at_work_too():
    async def run():
        pool = DecoderPool(1, seconds=10)
        await pool.start(RECIPE)
        (pid,) = pids(pool)
        job = asyncio.create_task(pool.decode(slow_image(), RECIPE))
        await asyncio.sleep(0.05)
        started_at = time.monotonic()
        await pool.close()
        assert time.monotonic() - started_at < 1
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(run())


def test_a_program_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(PlmclError, match="the decoding program did not start: exit status 1"):
        asyncio.run(DecoderPool(1, seconds=1).start(RECIPE))


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
def test_a_program_that_was_taken_over_cannot_make_the_shared_memory_smaller():
    with _shared_file(100) as shared:
        for size in (0, 1000):
            with pytest.raises(PermissionError):
                os.ftruncate(shared.fileno(), size)
        os.pwrite(shared.fileno(), b"x" * 100, 0)
