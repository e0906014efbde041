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
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from plmcl.signals import exit_if_told

# Called with (done, total).
ProgressCallback = Callable[[int, int], None]
SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(description: str, *, unit: str = "") -> Iterator[ProgressCallback]:
    """Yield a callback that shows `done` of `total` on standard error, with the time left.

    The clock starts with the first call: what is done by then is what an earlier process did, or
    a first step with all that it had to set up, and says nothing of the rest. A process that was
    told to end, and does not, ends at a call.

    Args:
        description: Of the work.
        unit: What is counted; if given, how many of it are done in a second is shown too.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _asking(_plain_lines(description, unit))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *((_RateColumn(unit),) if unit else ()),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield _asking(lambda done, total: bar.update(task, completed=done, total=total))


def _asking(show: ProgressCallback) -> ProgressCallback:
    def report(done: int, total: int) -> None:
        exit_if_told()
        show(done, total)

    return report


class _RateColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.1f} {self._unit}/s")


def _plain_lines(description: str, unit: str) -> ProgressCallback:
    start = last = 0.0
    before: int | None = None

    def report(done: int, total: int) -> None:
        nonlocal start, last, before
        now = time.monotonic()
        if before is None:
            start, last, before = now, now, done
        elif now - last >= SECONDS_BETWEEN_LINES and before < done < total:
            rate = (done - before) / (now - start)
            said = f" {rate:.1f} {unit}/s," if unit else ""
            left = f"{(total - done) / rate:.0f} s left"
            print(f"{description}: {done}/{total},{said} {left}", file=sys.stderr, flush=True)
            last = now

    return report
