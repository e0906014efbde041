"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

# Called with (done, total).
ProgressCallback = Callable[[int, int], None]
SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(description: str) -> Iterator[ProgressCallback]:
    """Yield a callback that shows `done` of `total` on standard error, with the time left."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(description)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_lines(description: str) -> ProgressCallback:
    start = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES and 0 < done < total:
            left = (now - start) / done * (total - done)
            print(f"{description}: {done}/{total}, {left:.0f} s left", file=sys.stderr, flush=True)
            last = now

    return report
