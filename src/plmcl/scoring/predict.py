"""`plmcl predict`: from what the user typed to one answer an image, on this machine."""

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from plmcl.errors import PlmclError
from plmcl.inference import Prediction, Tagger, tag_sources, to_record
from plmcl.machine import usable_cores
from plmcl.progress import show_progress
from plmcl.scoring.formats import WRITERS, Format, Record, format_of
from plmcl.scoring.inputs import (
    STDIN,
    Listed,
    list_inputs,
    open_addresses,
    place_of,
    read_inputs,
    reader,
)
from plmcl.scoring.partial import Partial, open_partial

if TYPE_CHECKING:
    from plmcl.scoring.addresses import Address

_BLOCK = 2**20


@dataclass(frozen=True)
class Outcome:
    """How it went.

    Attributes:
        listed: The inputs.
        errors: How many of them have an error and no labels.
    """

    listed: Listed
    errors: int


def predict(
    arguments: Sequence[str],
    model: Path,
    *,
    out: Path | None,
    output: Format | None,
    batch_size: int,
    providers: Sequence[str] | None,
    require_gpu: bool,
) -> Outcome:
    """Tag what the arguments name (`inputs.list_inputs`).

    Args:
        arguments: Files, folders, patterns, addresses, or `-`.
        model: The ONNX file.
        out: The file to write; what a killed run has begun is finished. None: standard output.
        output: The format; None: as the file's suffix says, or JSON lines.
        batch_size: Images that the network takes at once.
        providers: As `Tagger` has them.
        require_gpu: As `Tagger` has it.

    Raises:
        PlmclError: Bad input; nothing was written.
    """
    if arguments.count(STDIN) > 1:
        raise PlmclError("-: standard input can be read once only")
    output = output or ("jsonl" if out is None else format_of(out))
    if out is None and output == "parquet":
        raise PlmclError("--format parquet: needs --out FILE")
    addresses = open_addresses(arguments)
    tagger = Tagger(model, providers=providers, require_gpu=require_gpu)
    run = _Run(tagger, addresses, batch_size)
    with _standard_input(arguments) as (stdin, stdin_sha256):
        if out is None:
            with tempfile.TemporaryDirectory(prefix="plmcl-") as folder:
                inputs = Path(folder) / "inputs"
                listed = list_inputs(arguments, addresses, stdin, inputs)
                WRITERS[output](run.answers(inputs, listed), sys.stdout.buffer)
                sys.stdout.buffer.flush()
                return Outcome(listed, run.errors)
        identity = {
            "model": tagger.sha256,
            "providers": tagger.providers,
            "batch_size": batch_size,
            "inputs": [place_of(argument) for argument in arguments],
            "list": stdin_sha256,
        }
        with open_partial(out) as partial:
            listed = _listed(partial, identity, arguments, addresses, stdin)
            before = partial.answered(batch_size)
            run.errors = before.errors
            records = run.answers(partial.inputs, listed, before.inputs)
            for _ in partial.append(records, batch_size):
                pass
            partial.finish(out, output)
        return Outcome(listed, run.errors)


class _Run:
    def __init__(self, tagger: Tagger, addresses: Mapping[int, "Address"], batch_size: int) -> None:
        self._tagger, self._addresses, self._batch_size = tagger, addresses, batch_size
        self.errors = 0

    def answers(self, inputs: Path, listed: Listed, before: int = 0) -> Iterator[Record]:
        """Records of all inputs but the first `before`, counted and shown as they come."""
        rest = islice(read_inputs(inputs), before, None)
        sources = ((item.name, reader(item, self._addresses)) for item in rest)
        predictions: Iterable[Prediction] = tag_sources(
            self._tagger, sources, batch_size=self._batch_size, threads=usable_cores()
        )
        with show_progress("predict", unit="images") as progress:
            for done, prediction in enumerate(predictions, before + 1):
                self.errors += prediction.error is not None
                yield to_record(prediction)
                progress(done, listed.total)


def _listed(
    partial: Partial,
    identity: dict[str, object],
    arguments: Sequence[str],
    addresses: Mapping[int, "Address"],
    stdin: BinaryIO,
) -> Listed:
    listed = partial.begun(identity)
    if listed is None:
        listed = list_inputs(arguments, addresses, stdin, partial.inputs)
        partial.begin(identity, listed)
    return listed


@contextmanager
def _standard_input(arguments: Sequence[str]) -> Iterator[tuple[BinaryIO, str]]:
    """A list that can be read again, and the sha256 of it; empty where none is asked for."""
    with tempfile.TemporaryFile() as file:
        digest = hashlib.sha256()
        while STDIN in arguments and (block := sys.stdin.buffer.read(_BLOCK)):
            digest.update(block)
            file.write(block)
        file.seek(0)
        yield file, digest.hexdigest()
