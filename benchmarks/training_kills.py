"""SIGKILL at random moments of a training: it ends as the uninterrupted one, bit for bit.

    python benchmarks/training_kills.py --kills 20 --out benchmarks/results/training-kills.json

A small training (scenes, linear_init, PLMCL) runs once undisturbed. Then, each time anew, it is
killed once, by turns within an epoch's steps, within an evaluation and within a save, and started
again; its weights, its label state and its history must be those of the first. By turns its label
state lies in memory, as that of the first does, and in files.
"""

import argparse
import faulthandler
import functools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from plmcl import training
from plmcl.checkpoint import Checkpoints
from plmcl.params import load_params
from plmcl.stages import train as stage
from plmcl.stages.paths import Paths

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fork_server import SERVER
from project import edit_params, make_project, run_to_splits

SETTING, METHOD = "sspl-40", "plmcl"
RUN = f"{SETTING}-{METHOD}"
# What a training has begun when it says so; an evaluation lasts until the save begins.
PLACES = ("steps", "evaluation", "save")
SECONDS = 300  # by far more than a training takes: one that hangs says where, and fails


class Training:
    """A training in a process of its own, a fork so that nothing need be imported anew.

    Args:
        project: Where it runs.
        work: What it does, a function that can be imported; `train` by default.
    """

    def __init__(self, project: Path, work: Callable[[], None] | None = None) -> None:
        reader, writer = SERVER.Pipe(duplex=False)
        self.process = SERVER.Process(target=_work, args=(writer, project, work or train))
        self.process.start()
        writer.close()
        self.said = os.fdopen(os.dup(reader.fileno()))

    def send(self, number: int) -> None:
        """A signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        self.said.read()  # to its end: nobody must be left to write to a pipe without a reader
        self.said.close()
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


def _work(writer: Connection, project: Path, work: Callable[[], None]) -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    os.dup2(writer.fileno(), sys.stdout.fileno())
    os.chdir(project)
    work()


def train() -> None:
    """The training in the current folder; says which part of an epoch begins."""
    say_places()
    params = load_params(Path("params.yaml"))
    paths = Paths.of_project(Path.cwd(), params.data.source)
    stage.run(paths, params, SETTING, METHOD, track=False)


def say_places() -> None:
    """Have each part of an epoch announced as it begins."""

    def saying(before: str, function: Callable[..., Any], after: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            print("begins", before, flush=True)
            result = function(*arguments, **options)
            print("begins", after, flush=True)
            return result

        return call

    training.train_epoch = saying("steps", training.train_epoch, "evaluation")
    Checkpoints.save = saying("save", Checkpoints.save, "the next epoch")  # type: ignore[method-assign]


def durations(project: Path) -> dict[tuple[str, int], float]:
    """Train to the end; the seconds of each place in each epoch, the first being 1."""
    process = Training(project)
    lasted: dict[tuple[str, int], float] = {}
    epochs: Counter[str] = Counter()
    place, since = "", 0.0
    for line in process.said:
        if line.startswith("begins "):
            now = time.perf_counter()
            if place:
                lasted[place, epochs[place]] = now - since
            place, since = line.removeprefix("begins ").strip(), now
            epochs[place] += 1
    if process.wait():
        raise RuntimeError("the undisturbed training failed")
    return lasted


def wait_for(process: Training, place: str, epoch: int) -> None:
    """Go on until a place begins for the `epoch`-th time."""
    begun = 0
    for line in process.said:
        begun += line == f"begins {place}\n"
        if begun == epoch:
            return


def kill(project: Path, place: str, epoch: int, delay: float) -> str:
    """Train, and kill it `delay` seconds after the place begins; where it was by then."""
    process = Training(project)
    wait_for(process, place, epoch)
    time.sleep(delay)
    process.send(signal.SIGKILL)
    # What it said before it died, but after the place that was waited for.
    later = [line for line in process.said if line.startswith("begins ")]
    if process.wait() != -signal.SIGKILL:
        return "nothing: it had ended"
    return later[-1].removeprefix("begins ").strip() if later else place


def resume(project: Path) -> int:
    """Train to the end; the epoch after which it went on, 0 for none."""
    process = Training(project)
    lines = list(process.said)
    if process.wait():
        raise RuntimeError("the resumed training failed")
    found = re.search(r"goes on after epoch (\d+)", "".join(lines))
    return int(found[1]) if found else 0


def results(project: Path) -> dict[str, Any]:
    """Weights, label state and history, as they are compared."""
    model = project / "models" / RUN
    weights = torch.load(model / "model.pt", weights_only=True)["weights"]
    files = [*sorted((model / "labels").iterdir()), project / "reports/runs" / RUN / "history.csv"]
    found = {name: values.numpy().tobytes() for name, values in weights.items()}
    return found | {path.name: path.read_bytes() for path in files}


def make_small(folder: Path, epochs: int) -> Path:
    """A project that is ready to train, so many epochs in each of two phases."""
    changes = {
        "grid.methods": [METHOD],
        "train.linear.epochs": epochs,
        "train.fine_tune.epochs": epochs,
        "train.fine_tune.ema_decay": 0.9,
    }
    project = make_project(folder, changes)
    run_to_splits(project)
    return project


def remove_trainings(project: Path) -> None:
    """Let the next training be the first; MLflow keeps what it knows."""
    for name in ("models", "reports/runs", ".plmcl/checkpoints"):
        shutil.rmtree(project / name, ignore_errors=True)


def measure(project: Path, number: int, seed: int) -> dict[str, Any]:
    """An undisturbed training, then the kills."""
    lasted = durations(project)
    epochs = max(epoch for _, epoch in lasted)
    expected = results(project)
    rng = random.Random(seed)
    kills = []
    for turn in range(number):
        remove_trainings(project)
        place, in_files = PLACES[turn % len(PLACES)], turn % 2 == 0
        megabytes = 0 if in_files else 4096
        edit_params(project / "params.yaml", {"train.state_memory_mb": megabytes})
        epoch = rng.randint(1, epochs)
        hit = kill(project, place, epoch, rng.random() * lasted[place, epoch])
        unfinished = bool(list(project.glob(".plmcl/checkpoints/*/*/writing")))
        went_on = resume(project)
        same = results(project) == expected
        kills.append(
            {
                "epoch": epoch,
                "aimed at": place,
                "label state": "in files" if in_files else "in memory",
                "hit": hit,
                "unfinished commit": unfinished,
                "went on after epoch": went_on,
                "same": same,
            }
        )
        print(kills[-1], flush=True)
        if not same or went_on < epoch - 1:
            raise RuntimeError(f"kill {turn + 1}: {kills[-1]}")
    return {
        "epochs": epochs,
        "seconds of an epoch's places": {
            place: round(sum(lasted[place, e + 1] for e in range(epochs)) / epochs, 3)
            for place in PLACES
        },
        "same as the uninterrupted training": sum(kill["same"] for kill in kills),
        "kills": kills,
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = make_small(Path(folder) / "project", epochs=3)
        report = measure(project, arguments.kills, arguments.seed)
    print(f"{report['same as the uninterrupted training']} of {arguments.kills} the same")
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
