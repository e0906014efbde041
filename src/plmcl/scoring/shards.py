"""A long list of images in shards, each one Parquet file that is named by what decides on it.

Work may so be done twice, and whoever comes second finds, or writes, the same file.
"""

import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import fsspec
import pyarrow as pa
from pyarrow import parquet

from plmcl.errors import PlmclError
from plmcl.inference import Tagger, tag_sources, to_record, to_text
from plmcl.scoring.formats import Record, write_parquet
from plmcl.scoring.inputs import Input, reader

if TYPE_CHECKING:
    from plmcl.scoring.addresses import Address

INDEX, SHARDS = "index.parquet", "shards"
VERSION = 1  # raised when the same inputs come to give other rows
LARGEST = 4  # times the mean size
# Ray starts a worker that died again, and would for ever.
TRIES = 4
_UNFINISHED = ".tmp"
_INDEX_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("shard", pa.string(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Scoring:
    """What decides on the scores, beside the images.

    Attributes:
        model_sha256: Of the file.
        batch_size: Images that the network takes at once.
        device: "cpu" or "gpu".
    """

    model_sha256: str
    batch_size: int
    device: str

    def shard_name(self, inputs: Iterable[Input]) -> str:
        """64 hex digits that stand for these inputs, their content and what scores them."""
        digest = hashlib.sha256()
        head = [VERSION, self.model_sha256, self.batch_size, self.device]
        for line in (head, *([item.name, item.version, item.error] for item in inputs)):
            digest.update(json.dumps(line).encode() + b"\n")
        return digest.hexdigest()


class Done(NamedTuple):
    """A shard that is there.

    Attributes:
        name: As `Scoring.shard_name` has it.
        inputs: How many rows it has.
        errors: How many of them have an error and no scores.
    """

    name: str
    inputs: int
    errors: int


class Output:
    """The folder that all shards, and at last the index, are written to.

    Args:
        place: A folder's path, or an address that fsspec writes to.

    Raises:
        PlmclError: It cannot be written to here.
    """

    def __init__(self, place: str) -> None:
        try:
            self._files, self._root = fsspec.core.url_to_fs(place, use_listings_cache=False)
        except (ImportError, ValueError):
            scheme = place.partition("://")[0]
            raise PlmclError(f"--out: addresses with {scheme}:// cannot be written here") from None

    def write(self, name: str, write: Callable[[BinaryIO], None]) -> None:
        """Write a file under another name and rename it: it is there whole, or not at all."""
        final = f"{self._root}/{name}"
        unfinished = f"{final}.{uuid.uuid4().hex}{_UNFINISHED}"
        self._files.makedirs(final.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(unfinished, b"")  # a bucket shows what is being written only later
        try:
            with self._files.open(unfinished, "wb") as file:
                write(file)
                file.flush()
                if isinstance(self._files, fsspec.get_filesystem_class("file")):
                    os.fsync(file.fileno())
            self._files.mv(unfinished, final)
        except BaseException:
            with suppress(Exception):
                self._files.rm_file(unfinished)
            raise

    def shards(self) -> set[str]:
        """The names of all shards that are there, of whatever run."""
        names = (path.rpartition("/")[2] for path in self._list())
        return {name.removesuffix(".parquet") for name in names if name.endswith(".parquet")}

    def done(self, name: str, inputs: int) -> Done | None:
        """A shard, if it is there, whole, and lacks no image that a new try might get."""
        try:
            with self._files.open(self._path(name), "rb") as file:
                found = parquet.ParquetFile(file).metadata
            said = {key.decode(): text.decode() for key, text in found.metadata.items()}
            if (
                said["plmcl.shard"] == name
                and found.num_rows == inputs
                and said["plmcl.unreachable"] == "0"
            ):
                return Done(name, inputs, int(said["plmcl.errors"]))
        except Exception:  # not there, or damaged in one of a hundred ways: it is written again
            return None
        return None

    def listed(self) -> set[str]:
        """The names of the shards that the index lists; none where there is no index."""
        names: set[str] = set()
        with suppress(FileNotFoundError), self._files.open(f"{self._root}/{INDEX}", "rb") as file:
            table = parquet.ParquetFile(file)
            for batch in table.iter_batches(columns=["shard"]):
                names.update(batch["shard"].unique().to_pylist())
        return {name.removeprefix(f"{SHARDS}/").removesuffix(".parquet") for name in names}

    def write_index(self, shards: Iterable[tuple[str, list[Input]]]) -> None:
        """List all inputs, then remove the shards of the last index that this one lacks.

        Also what workers that were killed left of the shards in the index.
        """
        before, now = self.listed(), set[str]()

        def write(file: BinaryIO) -> None:
            with parquet.ParquetWriter(file, _INDEX_SCHEMA, compression="zstd") as writer:
                for name, inputs in shards:
                    now.add(name)
                    files = [to_text(item.name) for item in inputs]
                    shard = [f"{SHARDS}/{name}.parquet"] * len(files)
                    rows = range(len(files))
                    writer.write_table(pa.table([files, shard, rows], schema=_INDEX_SCHEMA))

        self.write(INDEX, write)
        for path in self._list():
            name, _, rest = path.rpartition("/")[2].partition(".")
            of_a_killed_one = name in now and rest.endswith(_UNFINISHED)
            if name in before - now or of_a_killed_one:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)

    def score(
        self,
        tagger: Tagger,
        scoring: Scoring,
        inputs: list[Input],
        addresses: Mapping[int, "Address"],
        *,
        threads: int,
    ) -> Done:
        """Write the shard of these inputs, unless it is there.

        Args:
            tagger: The model of `scoring`.
            scoring: What decides on the scores.
            inputs: All of the shard.
            addresses: Where they may be.
            threads: That get and decode images.

        Raises:
            PlmclError: Too many workers have died over it.
        """
        name = scoring.shard_name(inputs)
        if (done := self.done(name, len(inputs))) is not None:
            return done
        begun = [p for p in self._list() if name in p and p.endswith(_UNFINISHED)]
        if len(begun) >= TRIES:
            raise PlmclError(
                f"{SHARDS}/{name}.parquet: begun {len(begun)} times and never finished; an image "
                f"from {to_text(inputs[0].name)} to {to_text(inputs[-1].name)} may crash its "
                "worker, or need more memory than there is; to try again, delete "
                f"{SHARDS}/{name}.*{_UNFINISHED}"
            )
        errors = Counter[str]()
        metadata = {"plmcl.shard": name, "plmcl.model": scoring.model_sha256}

        def records() -> Iterator[Record]:
            sources = ((item.name, reader(item, addresses)) for item in inputs)
            for prediction in tag_sources(
                tagger, sources, batch_size=scoring.batch_size, threads=threads
            ):
                if prediction.error is not None:
                    errors[prediction.error.partition(":")[0]] += 1
                yield to_record(prediction)
            metadata["plmcl.errors"] = str(errors.total())
            metadata["plmcl.unreachable"] = str(errors["unreachable"])

        self.write(f"{SHARDS}/{name}.parquet", lambda out: write_parquet(records(), out, metadata))
        return Done(name, len(inputs), errors.total())

    def _path(self, name: str) -> str:
        return f"{self._root}/{SHARDS}/{name}.parquet"

    def _list(self) -> list[str]:
        try:
            paths: list[str] = self._files.ls(f"{self._root}/{SHARDS}", detail=False)
        except FileNotFoundError:
            return []
        return paths


def cut(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Cut inputs into shards.

    A shard ends where the hash of a name says so, and not after so many: a file more changes one
    shard, and not all that follow.

    Args:
        inputs: Sorted by name.
        size: Of a shard, on average; `LARGEST` times that at most.
    """
    shard: list[Input] = []
    for item in inputs:
        shard.append(item)
        digest = hashlib.sha256(item.name.encode("utf-8", "surrogatepass")).digest()
        if int.from_bytes(digest[:8]) % size == 0 or len(shard) == LARGEST * size:
            yield shard
            shard = []
    if shard:
        yield shard


def with_version(item: Input) -> Input:
    """An input that says which content of its file is meant, also on this machine."""
    if item.address is not None or item.error is not None:
        return item
    try:
        status = os.stat(item.path)  # noqa: PTH116 (a zero byte in a name is a ValueError, too)
    except (OSError, ValueError):
        return item
    return item._replace(version=f"{status.st_size}-{status.st_mtime_ns}")
