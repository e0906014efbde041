"""Signals that end a process: each once, none lost, and not in the middle of what must be whole."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)
TERMINATED = 128 + signal.SIGTERM
SECONDS_TO_CLOSE = 10.0

# When SIGTERM last made an exit, by the monotonic clock; empty before it came.
_exits: list[float] = []


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process by SystemExit(143): what is open is closed, a run is KILLED.

    One that follows within ten seconds changes nothing, as it would break into that closing. Where
    DVC is ended, a stage gets one for each of DVC's threads, some milliseconds apart.
    """
    _exits.clear()
    signal.signal(signal.SIGTERM, _exit)


def exit_if_told() -> None:
    """Exit now if SIGTERM came before: what a handler raises is dropped in a callback.

    So it is within a weak reference's, as of a module that is imported, and where code in C asks
    for an attribute.
    """
    if _exits:
        sys.exit(TERMINATED)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT act after the body and not within it.

    For code of others in which an exception at any line does harm, such as a transaction that then
    stays open and locks its database. Ctrl-C that is pressed twice acts at once: the body may hang.
    Outside of the main thread nothing is held, as Python lets no signal act there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        if signum not in came:
            came.append(signum)
        elif signum == signal.SIGINT:
            signal.signal(signum, before[signal.SIGINT])
            signal.raise_signal(signum)

    # A handler that is not Python's, None here, could not be put back.
    handlers = ((number, signal.getsignal(number)) for number in ENDING)
    before = {number: handler for number, handler in handlers if handler is not None}
    try:
        for number in before:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signum in came:
            signal.raise_signal(signum)


def _exit(signum: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if not _exits or now - _exits[-1] >= SECONDS_TO_CLOSE:
        _exits.append(now)
        sys.exit(TERMINATED)
