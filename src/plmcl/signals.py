"""Signals that wait for the end of what must not be cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT act after the body and not within it.

    For code of others in which an exception at any line does harm, such as a transaction that then
    stays open and locks its database. A signal that comes twice acts at once: the body may hang.
    Outside of the main thread nothing is held, as Python lets no signal act there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        if signum in came:
            signal.signal(signum, before[signal.Signals(signum)])
            signal.raise_signal(signum)
        came.append(signum)

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
