"""One process at a time receives, retrains, promotes or prunes.

The kernel holds the lock, so a process that dies frees it, however it dies. The record beside it
is for people: who holds it, since when, and whether its last holder came to an end.
"""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from plmcl.errors import PlmclError

logger = logging.getLogger(__name__)

SECONDS_A_HEARTBEAT = 10.0


class HeldError(PlmclError):
    """Another process holds the lock; nothing was done."""

    exit_code = 75  # sysexits.h: try again later


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, or held it when it died.

    Attributes:
        purpose: What it does, for people.
        pid: Its number on `host`.
        host: The machine's name.
        boot_id: Of the machine's start, so that a number of an earlier start is not mistaken.
        since: Seconds since 1970.
        run: Id of the scheduler's run that it belongs to; "" if there is none.
    """

    purpose: str
    pid: int
    host: str
    boot_id: str
    since: float
    run: str

    def __str__(self) -> str:
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, {self.purpose} since {start}"


@contextmanager
def held(path: Path, purpose: str, *, run: str = "") -> Iterator[Holder | None]:
    """Hold a lock while the body runs.

    The lock of a holder that died is taken over, with a warning that says whose it was; that holder
    is yielded, else None.

    Args:
        path: The lock's file; `path`.json beside it is the record, touched every ten seconds.
        purpose: What the body does, for those who find the lock held.
        run: As in `Holder`.

    Raises:
        HeldError: Another process holds it; the message names it and its last heartbeat.
    """
    record = path.with_name(f"{path.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise HeldError(_describe(path, record)) from None
    try:
        earlier = _read(record)
        if earlier is not None:
            gone = "" if earlier.boot_id == _boot_id() else "; the machine was started since"
            logger.warning("taken over from %s, which did not end it%s", earlier, gone)
        holder = Holder(purpose, os.getpid(), socket.gethostname(), _boot_id(), time.time(), run)
        partial = record.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(holder)) + "\n", encoding="utf-8")
        partial.replace(record)
        with _heartbeat(record):
            yield earlier
        record.unlink()
    except Exception:
        # The body failed and says so itself; only a process that died leaves its record.
        record.unlink(missing_ok=True)
        raise
    finally:
        lock.release()


def _describe(path: Path, record: Path) -> str:
    holder = _read(record)
    if holder is None:
        return f"{path}: held by another process; one at a time"
    with suppress(OSError):
        age = time.time() - record.stat().st_mtime
        return f"{path}: held by {holder}, last heartbeat {age:.0f} s ago; one at a time"
    return f"{path}: held by {holder}; one at a time"


def _read(record: Path) -> Holder | None:
    try:
        return Holder(**json.loads(record.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.warning("%s: left out, not a record of ours: %s", record, error)
        return None


@contextmanager
def _heartbeat(record: Path) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(SECONDS_A_HEARTBEAT):
            with suppress(OSError):
                os.utime(record)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
