"""What the arguments name, image for image, in a file on disk: any number fits in memory."""

import heapq
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple

from plmcl.data.listing import PassedOver, find_files
from plmcl.errors import PlmclError
from plmcl.scoring.patterns import has_magic, matches, split_pattern

if TYPE_CHECKING:
    from plmcl.scoring.addresses import Address

STDIN = "-"
SORTED_AT_ONCE = 100_000
MOST_REASONS = 100
_BLOCK, _LONGEST_NAME = 2**16, 2**15


class Input(NamedTuple):
    """One image to be tagged, or what stands in its place.

    Attributes:
        name: What the answer calls it; bytes that are not UTF-8 are lone surrogates.
        path: Where it is on this machine (absolute), or below its address.
        address: The number of the argument whose address found it; None: on this machine.
        version: What tells two contents of an address' file apart; "" on this machine.
        error: Why there is no image.
    """

    name: str
    path: str
    address: int | None = None
    version: str = ""
    error: str | None = None


@dataclass(frozen=True)
class Listed:
    """What a listing found.

    Attributes:
        total: Number of inputs.
        passed_over: Files that their names say are no images: how many, by reason.
    """

    total: int
    passed_over: Mapping[str, int]


def open_addresses(arguments: Sequence[str]) -> dict[int, "Address"]:
    """The addresses among the arguments, by number; fsspec is loaded only where there is one.

    Raises:
        PlmclError: One cannot be read here.
    """
    urls = {number: text for number, text in enumerate(arguments) if "://" in text}
    if not urls:
        return {}
    from plmcl.scoring.addresses import Address

    return {number: Address(url) for number, url in urls.items()}


def place_of(argument: str) -> str:
    """What an argument stands for in whatever folder one is, without secrets."""
    if argument == STDIN:
        return argument
    return _shown(argument) if "://" in argument else os.path.abspath(argument)  # noqa: PTH100


def list_inputs(
    arguments: Sequence[str], addresses: Mapping[int, "Address"], stdin: BinaryIO, out: Path
) -> Listed:
    """Write all inputs to a file: argument by argument, and each argument's sorted by name.

    An argument is a file, a folder, a pattern, an address of one of these, or `-`, a list of
    files on `stdin`. One that gives no image gives one input with an `error`.

    Args:
        arguments: What the user typed.
        addresses: Those among them.
        stdin: Lines, or names that end with a zero byte; the names are of files and nothing
            else, whatever they look like.
        out: The file; `read_inputs` reads it.

    Raises:
        PlmclError: An address cannot be listed, or the list is none.
    """
    total, passed_over = 0, Counter[str]()
    with out.open("w", encoding="ascii") as file:
        for number, argument in enumerate(arguments):
            others, found = Counter[str](), 0
            if argument == STDIN:
                inputs: Iterator[Input] = map(_local, read_list(stdin))
            else:
                given = _at(addresses[number], number) if number in addresses else _here(argument)
                inputs = sort_inputs(_counted(given, others), out.parent)
            for item in inputs:
                file.write(f"{json.dumps(item)}\n")
                found += 1
            if not found and argument != STDIN:
                name = _shown(argument)
                why = f"no images in {name}; passed over: {in_words(others) or 'nothing'}"
                file.write(f"{json.dumps(Input(name, '', error=why))}\n")
                found = 1
            total, passed_over = total + found, passed_over + others
    return Listed(total, dict(passed_over))


def in_words(passed_over: Mapping[str, int]) -> str:
    """Reasons and their numbers, for a message."""
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(passed_over.items()))


def read_inputs(path: Path) -> Iterator[Input]:
    """What `list_inputs` wrote, one after the other."""
    with path.open(encoding="ascii") as file:
        yield from _parse(file)


def sort_inputs(inputs: Iterable[Input], folder: Path) -> Iterator[Input]:
    """Sort by name, on disk where there are many.

    Args:
        inputs: In any order.
        folder: For files that have no name and are gone afterwards.
    """
    rest = iter(inputs)
    with ExitStack() as stack:
        runs: list[Iterator[Input]] = []
        while chunk := sorted(islice(rest, SORTED_AT_ONCE), key=_by_name):
            if not runs and len(chunk) < SORTED_AT_ONCE:
                yield from chunk
                return
            run = stack.enter_context(tempfile.TemporaryFile("w+", encoding="ascii", dir=folder))
            run.writelines(f"{json.dumps(item)}\n" for item in chunk)
            run.seek(0)
            runs.append(_parse(run))
        yield from heapq.merge(*runs, key=_by_name)


def read_list(stdin: BinaryIO) -> Iterator[str]:
    r"""Names from a list: ended by zero bytes if there is one, else by \n or \r\n.

    Empty ones are left out.

    Raises:
        PlmclError: A name is too long for one.
    """
    block = stdin.read(_BLOCK)
    end = b"\0" if b"\0" in block else b"\n"
    begun = b""
    while block:
        *names, begun = (begun + block).split(end)
        for name in names:
            yield from _decode(name, end)
        if len(begun) > _LONGEST_NAME:
            break
        block = stdin.read(_BLOCK)
    yield from _decode(begun, end)


def _decode(name: bytes, end: bytes) -> Iterator[str]:
    if len(name) > _LONGEST_NAME:
        raise PlmclError(
            f"-: standard input is no list of files: {len(name)} bytes without a line's end"
        )
    if end == b"\n":
        name = name.removesuffix(b"\r")
    if name:
        yield os.fsdecode(name)


def reader(item: Input, addresses: Mapping[int, "Address"]) -> Callable[[], Path | bytes]:
    """How the image of an input is got, by whoever decodes it."""

    def read() -> Path | bytes:
        if item.error is not None:
            raise PlmclError(item.error)
        if item.address is None:
            return Path(item.path)
        return addresses[item.address].read(item.path)

    return read


def _counted(found: Iterable[Input | PassedOver], others: Counter[str]) -> Iterator[Input]:
    for item in found:
        if not isinstance(item, PassedOver):
            yield item
        elif item.reason in others or len(others) < MOST_REASONS:
            others[item.reason] += 1
        else:
            others["other reasons"] += 1


def _by_name(item: Input) -> str:
    return item.name


def _parse(file: IO[str]) -> Iterator[Input]:
    return (Input(*json.loads(line)) for line in file)


def _local(name: str) -> Input:
    return Input(name, os.path.abspath(name))  # noqa: PTH100 (resolve would follow links)


def _shown(argument: str) -> str:
    if "://" not in argument:
        return argument
    from plmcl.scoring.addresses import without_secrets

    return without_secrets(argument)


def _here(argument: str) -> Iterator[Input | PassedOver]:
    path = Path(argument)
    pattern = ["**"]
    if not os.path.lexists(path) and has_magic(argument):
        root, pattern = split_pattern(argument)
        path = Path(root)
    elif not path.is_dir():
        yield _local(argument)
        return
    depth = float("inf") if "**" in pattern else len(pattern)
    try:
        for found in find_files(path, depth=depth):
            name = found.path if isinstance(found, PassedOver) else found
            if matches(name.split("/"), pattern):
                yield found if isinstance(found, PassedOver) else _local(str(path / found))
    except PlmclError as error:
        yield Input(argument, "", error=str(error))


def _at(address: "Address", number: int) -> Iterator[Input | PassedOver]:
    if address.local is not None:
        yield from _here(str(address.local))
        return
    try:
        for found in address.find():
            if isinstance(found, PassedOver):
                yield found
            else:
                name, path, version = found
                yield Input(name, path, number, version)
    except FileNotFoundError:
        yield Input(address.shown, "", error=f"{address.shown}: not found")
