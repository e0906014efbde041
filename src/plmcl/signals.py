"""Signals that end a process: once, dropped or not, and not amid what must be whole."""

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

    One that comes within ten seconds of it changes nothing, as it would break into that closing.
    Where DVC is ended, a stage gets one for each of DVC's threads, some milliseconds apart.
    """
    _exits.clear()
    signal.signal(signal.SIGTERM, _exit)


def exit_if_told() -> None:
    """Exit now if SIGTERM came before: what a handler raises is dropped in a callback.

    So it is within a weak reference's, as of a module that is imported, and where code in C asks
    for an attribute. Long work asks whenever it reports progress (`plmcl.progress`).
    """
    if _exits:
        sys.exit(TERMINATED)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT act after the body and not within it.

    For code of others in which an exception at any line does harm, such as a transaction that then
    stays open and locks its database. SIGTERM waits however often it comes; Ctrl-C that is pressed
    twice acts at once, as the body may hang.
    Outside of the main thread nothing is held, as Python lets no signal act there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGTERM and _is_closing():
            return  # and would not be after a body that takes long
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
    if not _is_closing():
        _exits.append(time.monotonic())
        sys.exit(TERMINATED)


def _is_closing() -> bool:
    return bool(_exits) and time.monotonic() - _exits[-1] < SECONDS_TO_CLOSE
