"""One training of a grid, in a process that keeps what it has read for the next one."""

import functools
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows
from plmcl.data.manifest import Manifest
from plmcl.data.pixels import cached_pixels
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate, selection_score
from plmcl.grid.plan import Run, fine_tunes
from plmcl.params import Params
from plmcl.progress import show_progress
from plmcl.stages.job import Decoded, Job, prepare
from plmcl.stages.paths import Paths

# Beyond this, each training decodes its images itself.
DECODED_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class SeedPaths(Paths):
    """The project's files, with splits of a seed of their own.

    Attributes:
        seed_splits: Where these are.
    """

    seed_splits: Path

    @property
    def splits(self) -> Path:
        """Instead of the project's."""
        return self.seed_splits


@dataclass(frozen=True)
class Figures:
    """What a run came to; the attributes are those of `results.Result`."""

    selection: str
    val: float
    test: float
    best_epoch: int
    seconds: float
    device: str


@dataclass(frozen=True)
class Place:
    """Where a grid's runs read.

    Attributes:
        project: The project's files.
        folder: The grid's own.
        features_device: Where features were computed, `cpu` or `cuda`.
    """

    project: Paths
    folder: Path
    features_device: str

    def paths(self, params: Params) -> SeedPaths:
        """The files of a run with these params."""
        split = params.split
        name = f"seed-{params.seed}-{split.protocol}-{split.draw}-{split.val:g}-{split.test:g}"
        splits = self.folder / "splits" / name
        return SeedPaths(self.project.root, self.project.raw, self.project.images, splits)

    @property
    def logs(self) -> Path:
        """For what is printed where nobody looks on."""
        return self.folder / "logs"

    @property
    def pixels(self) -> Path:
        """For decoded images."""
        return self.folder / "pixels"


def prepare_run(run: Run, place: Place) -> Job:
    """`prepare`, with what earlier runs of this process have read."""
    paths = place.paths(run.params)
    return prepare(
        paths,
        run.params,
        run.setting,
        run.method,
        manifest=read_manifest(paths.manifests),
        decoded=read_pixels(run, place) if fine_tunes(run) else None,
        features_device=torch.device(place.features_device),
    )


def train(run: Run, place: Place) -> Figures:
    """Train, and predict the test split with the best weights; nothing is written."""
    start = time.perf_counter()
    job = prepare_run(run, place)
    fitted = job.fit(
        checkpoints=None, on_epoch=lambda entry: None, progress=lambda done, total: None
    )
    evaluation = evaluate(job.test.targets, job.test.observed, job.predict(job.test))
    selection, val = fitted.best_score
    _, test = selection_score(evaluation)
    seconds = time.perf_counter() - start
    return Figures(selection, val, test, fitted.best_epoch, seconds, _device(job))


def serve(connection: Connection, place: Place, log: Path) -> None:
    """Run what comes through `connection`, and send back its `Figures`, or an error's text.

    What is printed goes to `log`. The process ends when the other end does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    while True:
        run = connection.recv()
        try:
            connection.send(train(run, place))
        except PlmclError as error:
            connection.send(str(error))
        except Exception as error:  # a defect of one method stops no other
            print(run.row, run.setting, run.seed, run.candidate, file=sys.stderr)
            traceback.print_exc()
            connection.send("".join(traceback.format_exception_only(error)))


@functools.lru_cache(maxsize=1)
def read_manifest(folder: Path) -> Manifest:
    """`Manifest.read`, once."""
    return Manifest.read(folder)


def read_pixels(run: Run, place: Place) -> Decoded | None:
    """All usable images as a run wants them, decoded now if no run has; None if they are too many.

    Raises:
        PlmclError: An image cannot be read.
    """
    recipe = Recipe(**run.params.image.model_dump())
    usable = read_manifest(place.project.manifests).usable
    if len(usable) * recipe.size**2 * 3 > DECODED_BYTES:
        return None
    images = ImageRows(place.project.images, usable["path"].tolist(), recipe)
    content = usable["sha256"].tolist()
    with show_progress("decode") as progress:
        pixels = cached_pixels(images, content=content, cache=place.pixels, progress=progress)
    return Decoded(usable["image_id"].tolist(), pixels)


def _device(job: Job) -> str:
    if job.fabric.device.type == "cuda":
        return torch.cuda.get_device_name(job.fabric.device)
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' if threads > 1 else ''}"


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # a training under way is of no use to anybody now
