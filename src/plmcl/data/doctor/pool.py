"""Processes that examine files side by side; a file that kills its process costs that file alone.

They are programs of their own that talk in lines of JSON: what comes from a decoder that a hostile
file took over is text, and none of them imports what the caller has imported.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO

from plmcl.data.decoding import Limits
from plmcl.data.doctor.finding import Finding
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores

SECONDS_A_FILE = 60.0

_CHUNK = 64
# A worker with so many files ahead can wait this long to be looked after.
_ENOUGH, _PAUSE_SECONDS = 16, 0.01
_SOURCE = Path(__file__).parents[3]


def examine_in_workers(
    root: Path,
    names: Sequence[str],
    recipe: Limits,
    *,
    seconds_a_file: float = SECONDS_A_FILE,
    memory_bytes: int | None = None,
) -> Generator[list[tuple[int, Finding]], None, None]:
    """Examine files in one process for each core that may be used.

    A file whose worker crashes or takes too long is "unreadable"; its finding has no hash.

    Args:
        root: Folder that `names` are below.
        names: Posix paths.
        recipe: Its background and pixel limit apply.
        seconds_a_file: After which a file is given up.
        memory_bytes: Address space of each process. None: what the largest image may take.

    Yields:
        Some (position in `names`, finding), as they come; each position once.

    Raises:
        PlmclError: The worker program does not start.
    """
    setup = {
        "root": str(root.absolute()),
        "background": recipe.background,
        "max_pixels": recipe.max_pixels,
        "seconds": seconds_a_file,
        # Progressive and CMYK images hold some copies of their pixels, of up to 8 bytes each.
        "memory_bytes": memory_bytes or 2 * 2**30 + 32 * recipe.max_pixels,
    }
    queue = _Queue(len(names))
    with tempfile.TemporaryFile() as errors, selectors.DefaultSelector() as selector:
        workers: list[_Worker] = []

        def hire() -> None:
            workers.append(_Worker(setup, errors))
            selector.register(workers[-1].answers, selectors.EVENT_READ)

        try:
            for _ in range(min(usable_cores(), len(names))):
                hire()
            while workers:
                share = max(1, min(_CHUNK, queue.left // (4 * len(workers))))
                for worker in workers:
                    if len(worker.ahead) <= share // 2:
                        worker.give(queue.take(share), names)
                selector.select(_PAUSE_SECONDS if any(w.unsent for w in workers) else None)
                found = [finding for worker in workers for finding in worker.receive()]
                for worker in [worker for worker in workers if worker.ended]:
                    found += worker.blame()
                    queue.put_back(worker.ahead)
                    selector.unregister(worker.answers)
                    workers.remove(worker)
                    if queue.left:
                        hire()
                if found:
                    yield found
                if not queue.left and not any(worker.ahead for worker in workers):
                    break
                if all(len(worker.ahead) >= _ENOUGH for worker in workers):
                    time.sleep(_PAUSE_SECONDS)
        finally:
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.close()


class _Queue:
    """Positions that nobody works on."""

    def __init__(self, length: int) -> None:
        self._next, self._end = 0, length
        self._returned: list[int] = []

    @property
    def left(self) -> int:
        return self._end - self._next + len(self._returned)

    def take(self, count: int) -> list[int]:
        taken, self._returned = self._returned[:count], self._returned[count:]
        start = self._next
        self._next = min(start + count - len(taken), self._end)
        return [*taken, *range(start, self._next)]

    def put_back(self, positions: deque[int]) -> None:
        self._returned += positions


class _Worker:
    """A process, and the positions that it has not answered yet, in order (`ahead`)."""

    def __init__(self, setup: dict[str, object], errors: IO[bytes]) -> None:
        path = os.pathsep.join(filter(None, [str(_SOURCE), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            # -P: no module is taken from the folder where the user happens to be.
            [sys.executable, "-P", "-m", "plmcl.data.doctor.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": path},
            # A terminal's Ctrl-C and Ctrl-Z are for us: a stopped worker would run out of time.
            start_new_session=True,
        )
        self._errors, self._seconds = errors, setup["seconds"]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self.answers = self._process.stdin, self._process.stdout
        # Neither side may wait for the other while that waits for it.
        os.set_blocking(self._questions.fileno(), False)
        os.set_blocking(self.answers.fileno(), False)
        self.ahead: deque[int] = deque()
        self._started = self.ended = False
        self._received = b""
        self.unsent = json.dumps(setup).encode() + b"\n"

    def give(self, positions: list[int], names: Sequence[str]) -> None:
        if positions:
            self.ahead.extend(positions)
            self.unsent += json.dumps([names[i] for i in positions]).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            while self.unsent and (count := self._questions.write(self.unsent)):
                self.unsent = self.unsent[count:]
        except BrokenPipeError:  # it has ended, which `receive` will see
            self.unsent = b""

    def receive(self) -> list[tuple[int, Finding]]:
        self._send()
        while data := self.answers.read(1 << 16):
            self._received += data
        self.ended = data == b""
        *lines, self._received = self._received.split(b"\n")
        if lines and not self._started:
            self._started = True
            del lines[0]
        answers = json.loads(b"[%b]" % b",".join(lines))
        return [(self.ahead.popleft(), Finding(*answer)) for answer in answers]

    def blame(self) -> list[tuple[int, Finding]]:
        """What its end says of the file that it was at, which is no longer ahead."""
        code = self.close()
        if not self._started:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else f"exit status {code}"
            raise PlmclError(f"the program that examines images did not start: {reason}")
        if not self.ahead:
            return []
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        reason = (
            f"decoding took longer than {self._seconds:g} s"
            if code == -signal.SIGALRM
            else f"the decoder crashed ({how})"
        )
        return [(self.ahead.popleft(), Finding("unreadable", reason, "", "", 0, 0, 0))]

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> int:
        """Its exit status, once it has ended."""
        code = self._process.wait()
        self._questions.close()
        self.answers.close()
        return code
