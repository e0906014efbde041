"""`plmcl score`: shards on the workers of a Ray cluster, or of one that this process starts."""

import hashlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from plmcl.errors import PlmclError
from plmcl.inference import Tagger
from plmcl.machine import usable_cores
from plmcl.progress import show_progress
from plmcl.scoring.inputs import (
    STDIN,
    Input,
    Listed,
    list_inputs,
    open_addresses,
    read_inputs,
    sort_inputs,
)
from plmcl.scoring.predict import Outcome
from plmcl.scoring.shards import Done, Output, Scoring, cut, with_version
from plmcl.session import CPU, CUDA

# Of a cluster that we start; it holds names and the model.
_STORE_BYTES = 2**29
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True)
class Workers:
    """What each worker gets.

    Attributes:
        cores: For the network and to decode.
        gpus: 0: none; a part of one is shared.
        most: Workers at a time; None: as many as there is room for.
    """

    cores: int
    gpus: float
    most: int | None


def score(
    arguments: Sequence[str],
    model: Path,
    out: str,
    *,
    shard_size: int,
    batch_size: int,
    workers: Workers,
    address: str | None,
) -> Outcome:
    """Tag what the arguments name, each name once, into the shards and the index of a folder.

    Args:
        arguments: As of `plmcl predict`; workers must reach them under the same names.
        model: The ONNX file; workers get it from here.
        out: A folder that all workers reach, or an address.
        shard_size: Images in a shard, on average.
        batch_size: Images that the network takes at once.
        workers: What each gets.
        address: Of the Ray cluster; None: one that lasts as long as this call, on this machine.

    Raises:
        PlmclError: Bad input, no Ray, or an image that kills its workers.
    """
    ray = _load_ray()
    if arguments.count(STDIN) > 1:
        raise PlmclError("-: standard input can be read once only")
    out = out if "://" in out else os.path.abspath(out)  # noqa: PTH100
    addresses = open_addresses(arguments)
    Tagger(model, providers=[CPU])  # refused here, in one line
    content = model.read_bytes()  # once: another champion may come
    sha256 = hashlib.sha256(content).hexdigest()
    scoring = Scoring(sha256, batch_size, "gpu" if workers.gpus else "cpu")
    output = Output(out)
    with tempfile.TemporaryDirectory(prefix="plmcl-") as folder:
        listing = Path(folder) / "inputs"
        listed = list_inputs(arguments, addresses, sys.stdin.buffer, listing)
        inputs, total = Path(folder) / "sorted", 0
        in_order = sort_inputs(map(with_version, read_inputs(listing)), Path(folder))
        with inputs.open("w", encoding="ascii") as file:
            for _, same in groupby(in_order, key=lambda item: item.name):
                file.write(f"{json.dumps(next(same))}\n")
                total += 1

        def shards() -> Iterator[tuple[str, list[Input]]]:
            for shard in cut(read_inputs(inputs), shard_size):
                yield scoring.shard_name(shard), shard

        done = _done(output, shards())
        left = ((name, shard) for name, shard in shards() if name not in done)
        # Names, and a thirtieth of their bytes: what Ray has no room for goes to the disk.
        rows = [{"inputs": zlib.compress(json.dumps(shard).encode())} for _, shard in left]
        if rows:
            job = {
                "urls": {number: arguments[number] for number in addresses},
                "out": out,
                "scoring": scoring,
                "workers": workers,
            }
            with _connected(ray, address):
                found = list(_run(ray, rows, content, job, done, total))
            done |= {shard.name: shard for shard in found}
        missing = done.keys() - output.shards()
        if missing:
            raise PlmclError(
                f"--out: {out}: {len(missing)} shards that workers wrote are not there; is it a "
                "folder that all machines share?"
            )
        output.write_index(shards())
    errors = sum(shard.errors for shard in done.values())
    return Outcome(Listed(total, listed.passed_over), errors)


class ShardScorer:
    """One worker: one session, one shard after the other.

    Args:
        job: `urls` of the addresses by number, `out`, `scoring`, `workers`.
        model: Where Ray keeps the file's content.
    """

    def __init__(self, job: Mapping[str, Any], model: Any) -> None:
        self._workers: Workers = job["workers"]
        self._scoring: Scoring = job["scoring"]
        self._output = Output(job["out"])
        urls: Mapping[int, str] = job["urls"]
        arguments = [urls.get(number, "") for number in range(max(urls, default=-1) + 1)]
        self._addresses = open_addresses(arguments)
        import ray

        with tempfile.TemporaryDirectory(prefix="plmcl-") as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(ray.get(model[0]))
            self._tagger = Tagger(
                path,
                providers=[CUDA, CPU] if self._workers.gpus else [CPU],
                threads=self._workers.cores,
            )

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Score the shard in `inputs` and say its name and how many inputs and errors it has."""
        inputs = [Input(*values) for values in json.loads(zlib.decompress(row["inputs"]))]
        done = self._output.score(
            self._tagger, self._scoring, inputs, self._addresses, threads=self._workers.cores
        )
        return done._asdict()


def _done(output: Output, shards: Iterable[tuple[str, list[Input]]]) -> dict[str, Done]:
    """The shards that an earlier run has finished, by name."""
    there = output.shards()
    sizes = {name: len(inputs) for name, inputs in shards if name in there}
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as threads:
        looked_at = threads.map(output.done, sizes.keys(), sizes.values())
    return {done.name: done for done in looked_at if done is not None}


def _run(
    ray: Any,
    rows: list[dict[str, bytes]],
    model: bytes,
    job: Mapping[str, Any],
    done: Mapping[str, Done],
    total: int,
) -> Iterator[Done]:
    """Score shards; each is given as soon as it is there."""
    workers: Workers = job["workers"]
    held = ray.put(model)  # for as long as workers may start
    scored = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        ShardScorer,
        # In a list: else Ray puts the content there.
        fn_constructor_kwargs={"job": job, "model": [held]},
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers.most),
        num_cpus=workers.cores,
        num_gpus=workers.gpus,
    )
    shards, count = len(done), sum(shard.inputs for shard in done.values())
    try:
        with show_progress("score", unit="images") as progress:
            for row in scored.iter_rows():
                shard = Done(**row)
                yield shard
                shards, count = shards + 1, count + shard.inputs
                progress(count, total)
    except ray.exceptions.RayError as error:
        raise _plainly(error, shards, len(done) + len(rows)) from error


def _plainly(error: BaseException, done: int, shards: int) -> PlmclError:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, PlmclError):
        cause = getattr(cause, "cause", None) or cause.__cause__
    reason = " ".join(str(cause or error).split())[:500]
    return PlmclError(f"{done} of {shards} shards are done and stay; then: {reason}")


def _load_ray() -> Any:
    # Read when Ray is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise PlmclError("plmcl score needs Ray: pip install 'plmcl[cluster]'") from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to a cluster, to a new one on this machine, or the one that there is."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {
            "num_cpus": usable_cores(),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
        }
    ours = not ray.is_initialized()
    if ours:
        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = address or "Ray on this machine"
            reason = " ".join(str(error).split())[:300]
            raise PlmclError(f"{where}: cannot be reached or started: {reason}") from None
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray puts its own there
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        if ours:
            ray.shutdown()
