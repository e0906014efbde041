"""SIGKILL at random moments of a training: it ends as the uninterrupted one, bit for bit.

    python benchmarks/training_kills.py --kills 20 --out benchmarks/results/training-kills.json

A small training (scenes, linear_init, PLMCL) runs once undisturbed. Then, each time anew, it is
killed once, by turns within an epoch's steps, within an evaluation and within a save, and started
again; its weights, its label state and its history must be those of the first.
"""

import argparse
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
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from plmcl import training
from plmcl.checkpoint import Checkpoints
from plmcl.params import load_params
from plmcl.stages import train as stage
from plmcl.stages.paths import Paths

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from project import make_project, run_command

SETTING, METHOD = "sspl-40", "plmcl"
RUN = f"{SETTING}-{METHOD}"
EPOCHS = 3  # of each of the two phases
CHANGES = {
    "grid.methods": [METHOD],
    "train.linear.epochs": EPOCHS,
    "train.fine_tune.epochs": EPOCHS,
    "train.fine_tune.ema_decay": 0.9,
}
# What a training has begun when it says so; an evaluation lasts until the save begins.
PLACES = ("steps", "evaluation", "save")


class Training:
    """A training in a process of its own, forked so that nothing need be imported anew.

    Args:
        project: Where it runs.
    """

    def __init__(self, project: Path) -> None:
        reader, writer = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(writer, sys.stdout.fileno())
            os.chdir(project)
            status = 1
            try:
                train()
                sys.stdout.flush()
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writer)
        self.said = os.fdopen(reader)

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        self.said.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def train() -> None:
    """The training in the current folder; says which part of an epoch begins."""

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
    params = load_params(Path("params.yaml"))
    paths = Paths.of_project(Path.cwd(), params.data.source)
    stage.run(paths, params, SETTING, METHOD, track=False)


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


def kill(project: Path, place: str, epoch: int, delay: float) -> str:
    """Train, and kill it `delay` seconds after the place begins; where it was by then."""
    process = Training(project)
    left = epoch
    for line in process.said:
        if line == f"begins {place}\n":
            left -= 1
            if not left:
                time.sleep(delay)
                process.kill()
                break
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


def measure(folder: Path, number: int, seed: int) -> dict[str, Any]:
    """All kills, in a project of their own below `folder`."""
    project = make_project(folder / "project", CHANGES)
    run_command("dvc", "repro", "split", cwd=project)
    lasted = durations(project)
    expected = results(project)
    rng = random.Random(seed)
    kills = []
    for turn in range(number):
        for name in ("models", "reports/runs", ".plmcl/checkpoints"):
            shutil.rmtree(project / name, ignore_errors=True)
        place = PLACES[turn % len(PLACES)]
        epoch = rng.randint(1, 2 * EPOCHS)
        hit = kill(project, place, epoch, rng.random() * lasted[place, epoch])
        unfinished = bool(list(project.glob(".plmcl/checkpoints/*/*/writing")))
        went_on = resume(project)
        same = results(project) == expected
        kills.append(
            {
                "epoch": epoch,
                "aimed at": place,
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
        "epochs": 2 * EPOCHS,
        "seconds of an epoch's places": {
            place: round(sum(lasted[place, e + 1] for e in range(2 * EPOCHS)) / (2 * EPOCHS), 3)
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
        report = measure(Path(folder), arguments.kills, arguments.seed)
    print(f"{report['same as the uninterrupted training']} of {arguments.kills} the same")
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
