"""A file of answers in the making, `FILE.partial`: a folder that a killed run leaves behind.

It holds the inputs, listed once, and a JSON line for each image that is answered. A later run cuts
what is not whole, goes on with the next image, and turns the lines into the file at the end.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from filelock import FileLock, Timeout

from plmcl.durable import sync
from plmcl.errors import NO_ROOM, PlmclError
from plmcl.scoring.formats import WRITERS, Format, Record, json_line
from plmcl.scoring.inputs import Listed

RUN, INPUTS, ANSWERS, FINISHED, LOCK = "run.json", "inputs", "answers.jsonl", "finished", "lock"
SECONDS_BETWEEN_SYNCS = 5.0
# A whole line; what the power took away may be zeros.
_LINE = re.compile(rb'\{"file": "(?:[^"\\\x00]|\\.)*", "error": (null|")[^\x00]*\}\n').fullmatch


@dataclass(frozen=True)
class Answered:
    """What an earlier run has answered.

    Attributes:
        inputs: The first of them, whole batches; the others are answered again.
        errors: How many of these could not be used.
    """

    inputs: int
    errors: int


class Partial:
    """`FILE.partial`, held by this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.inputs = folder / INPUTS

    def begun(self, identity: Mapping[str, Any]) -> Listed | None:
        """What an earlier run listed; None: there was none that got so far.

        Args:
            identity: What decides on the answers, as JSON has it.

        Raises:
            PlmclError: That run was another one.
        """
        run = self._folder / RUN
        if not run.exists():
            others = {path.name for path in self._folder.iterdir()} - {INPUTS, LOCK}
            if others:
                raise PlmclError(f"{self._folder}: not a folder of plmcl predict: {min(others)!r}")
            return None
        try:
            earlier = json.loads(run.read_bytes())
            listed = Listed(**earlier.pop("listed"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PlmclError(f"{run}: damaged; delete the folder, to begin again") from None
        for field, value in identity.items():
            if earlier.get(field) != value:
                raise PlmclError(
                    f"{self._folder}: begun with another {field}: {earlier.get(field)!r:.200}, "
                    f"now {value!r:.200}; go on with that one, or delete the folder"
                )
        return listed

    def begin(self, identity: Mapping[str, Any], listed: Listed) -> None:
        """Keep what the inputs are; from now on a run goes on here."""
        unfinished = self._folder / f"{RUN}.new"
        text = json.dumps({**identity, "listed": asdict(listed)}, indent=2)
        unfinished.write_text(f"{text}\n", encoding="ascii")
        for path in (self.inputs, unfinished):
            sync(path)
        unfinished.replace(self._folder / RUN)
        sync(self._folder)

    def answered(self, batch_size: int) -> Answered:
        """Cut off what is not whole, and count the rest.

        A batch's answers may differ in the last digit from those of other batches with the same
        images, so only whole batches stay.
        """
        inputs = errors = errors_before = end = place = 0
        with (self._folder / ANSWERS).open("a+b") as file:
            file.seek(0)
            for line in file:
                if (found := _LINE(line)) is None:
                    break
                place += len(line)
                inputs, errors = inputs + 1, errors + (found[1] != b"null")
                if inputs % batch_size == 0:
                    end, errors_before = place, errors
            # The last batch of all is short.
            file.truncate(end)
        return Answered(inputs // batch_size * batch_size, errors_before)

    def append(self, records: Iterable[Record], batch_size: int) -> Iterator[Record]:
        """Write records as they come, and hand them on."""
        synced = monotonic()
        with (self._folder / ANSWERS).open("ab") as file:
            for number, record in enumerate(records, 1):
                file.write(json_line(record))
                if number % batch_size == 0:
                    file.flush()
                    if monotonic() - synced > SECONDS_BETWEEN_SYNCS:
                        os.fsync(file.fileno())
                        synced = monotonic()
                yield record
            file.flush()
            os.fsync(file.fileno())

    def finish(self, out: Path, output: Format) -> None:
        """Turn the answers into the file, whole or not at all, and leave nothing else."""
        whole = self._folder / ANSWERS
        if output != "jsonl":
            with whole.open("rb") as lines, (self._folder / FINISHED).open("wb") as file:
                WRITERS[output]((json.loads(line) for line in lines), file)
            whole = self._folder / FINISHED
        sync(whole)
        whole.replace(out)
        sync(out.absolute().parent)
        for name in (RUN, ANSWERS, FINISHED, INPUTS, LOCK):
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()
        self._folder.rmdir()


@contextmanager
def open_partial(out: Path) -> Iterator[Partial]:
    """Make `FILE.partial` and its folder, or find it as it was left, and keep other runs out of it.

    Raises:
        PlmclError: Another run is at work on it, or the disk is full.
    """
    folder = out.with_name(f"{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise PlmclError(f"{out.parent}: expected a folder, found a file") from None
    try:
        # An address in it may hold a password.
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise PlmclError(f"{folder}: expected a folder of plmcl predict, found a file") from None
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise PlmclError(f"{folder}: another plmcl predict is at work on it") from None
    try:
        yield Partial(folder)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise PlmclError(
            f"{folder}: {error.strerror}; make room, and type the same command again: it goes on "
            "where it stopped"
        ) from None
    finally:
        lock.release()
