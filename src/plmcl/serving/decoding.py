"""Processes that decode images side by side; a hostile file costs itself and nothing else."""

import asyncio
import fcntl
import json
import logging
import mmap
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

from plmcl.data.images import ImageProblem, Recipe
from plmcl.errors import PlmclError
from plmcl.inference import Pixels

logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).parents[2]
_GRACE = 1.0


class DecoderPool:
    """Some `decoder` programs, each with one file at a time.

    Args:
        processes: As many files are decoded at a time.
        seconds: After which a file is given up.

    Attributes:
        lost: Programs that a file took down.
    """

    def __init__(self, processes: int, *, seconds: float) -> None:
        self._count, self._seconds = processes, seconds
        self._free = asyncio.Semaphore(processes)
        self._idle: list[_Decoder] = []
        self._exchanges: set[asyncio.Task[Pixels]] = set()
        self.lost = 0

    async def start(self, recipe: Recipe) -> None:
        """Start all programs, so that the first images do not wait for it.

        Raises:
            PlmclError: They do not start.
        """
        starts = (_Decoder.start(recipe, self._seconds) for _ in range(self._count))
        self._idle += await asyncio.gather(*starts)

    async def close(self) -> None:
        """End all programs, also those at work."""
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        await asyncio.gather(*(decoder.end() for decoder in self._idle))
        self._idle.clear()

    async def decode(self, content: bytes, recipe: Recipe) -> Pixels:
        """`images.load` in another process: uint8 (size, size, 3).

        Raises:
            ImageProblem: It cannot be used; also where the decoder crashed or took too long.
            PlmclError: The program does not start.
        """
        await self._free.acquire()
        exchange = asyncio.create_task(self._exchange(content, recipe))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        exchange.add_done_callback(lambda _: self._free.release())
        # Whoever gives up does not stop the program in the midst of an answer.
        return await asyncio.shield(exchange)

    async def _exchange(self, content: bytes, recipe: Recipe) -> Pixels:
        decoder = await self._get(recipe)
        try:
            # The program ends itself in time, unless the file has taken it over.
            async with asyncio.timeout(self._seconds + _GRACE):
                pixels = await decoder.ask(content)
        except ImageProblem:
            self._idle.append(decoder)
            raise
        except (OSError, EOFError, ValueError):
            raise ImageProblem("unreadable", await self._blame(decoder)) from None
        except BaseException:
            await decoder.end()
            raise
        self._idle.append(decoder)
        return pixels

    async def _get(self, recipe: Recipe) -> "_Decoder":
        for decoder in self._idle:
            if decoder.recipe == recipe and decoder.alive:
                self._idle.remove(decoder)
                return decoder
        if len(self._idle) + len(self._exchanges) > self._count:
            await self._idle.pop(0).end()
        return await _Decoder.start(recipe, self._seconds)

    async def _blame(self, decoder: "_Decoder") -> str:
        code = await decoder.end(grace=_GRACE)
        self.lost += 1
        logger.warning("a decoding process ended (%d) and is replaced", code)
        if code == -signal.SIGALRM:
            return f"decoding took longer than {self._seconds:g} s"
        return f"the decoder crashed ({f'signal {-code}' if code < 0 else f'exit status {code}'})"


class _Decoder:
    """One program, for one recipe, and the memory that it shares with us."""

    def __init__(
        self, process: asyncio.subprocess.Process, recipe: Recipe, memory: mmap.mmap
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._files, self._answers = process, process.stdin, process.stdout
        self._pixels = np.frombuffer(memory, np.uint8).reshape(recipe.size, recipe.size, 3)
        self.recipe = recipe

    @classmethod
    async def start(cls, recipe: Recipe, seconds: float) -> "_Decoder":
        path = os.pathsep.join(filter(None, [str(_SOURCE), os.environ.get("PYTHONPATH")]))
        with _shared_file(recipe.size**2 * 3) as shared:
            process = await asyncio.create_subprocess_exec(
                # -P: no module is taken from the folder where the user happens to be.
                *(sys.executable, "-P", "-m", "plmcl.serving.decoder"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # a terminal's Ctrl-C is for us
                pass_fds=[shared.fileno()],
            )
            decoder = cls(process, recipe, mmap.mmap(shared.fileno(), 0))
            descriptor = shared.fileno()
        setup = {
            "recipe": recipe.to_dict(),
            "pixels": descriptor,
            "seconds": seconds,
            # Progressive and CMYK images hold some copies of their pixels, of up to 8 bytes each.
            "memory_bytes": 2 * 2**30 + 32 * recipe.max_pixels,
        }
        try:
            decoder._files.write(json.dumps(setup).encode() + b"\n")
            if await decoder._answers.readline() != b"[]\n":
                raise EOFError
        except (OSError, EOFError):
            code = await decoder.end(grace=_GRACE)
            raise PlmclError(f"the decoding program did not start: exit status {code}") from None
        except BaseException:
            await decoder.end()
            raise
        return decoder

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, content: bytes) -> Pixels:
        self._files.write(b"%d\n" % len(content))
        self._files.write(content)
        await self._files.drain()
        problem = json.loads(await self._answers.readline())  # a ValueError at its end
        if problem:
            raise ImageProblem(*problem)
        return self._pixels.copy()

    async def end(self, *, grace: float = 0) -> int:
        """Its exit status; it has `grace` seconds to end by itself."""
        self._files.close()
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), grace)
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()


def _shared_file(size: int) -> IO[bytes]:
    """A file of `size` bytes that has no name, and is in memory where the system can do that."""
    if sys.platform != "linux":
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the caller's)
        file.truncate(size)
        return file
    file = os.fdopen(os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b")
    file.truncate(size)
    # A program that a file has taken over could make it smaller, which would end us.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return file
