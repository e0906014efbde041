"""SIGTERM twice, some milliseconds apart, at random moments of a training: it ends as KILLED.

    python benchmarks/training_signals.py --times 100 --out benchmarks/results/training-signals.json

So a stage is told to end when its DVC is. A small training (scenes, linear_init, PLMCL) with MLflow
begins anew each time, and gets both signals once a part of an epoch has begun, by turns its steps,
its evaluation and its save. It must exit with 143 and leave its run KILLED, which a database that
stays locked would not let it do.
"""

import argparse
import json
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from training_kills import PLACES, Training, durations, make_small, remove_trainings, wait_for
from training_scenarios import training

from plmcl.mlflow_store import open_store

EPOCHS = 3
# DVC's two threads end 7 ms after each other.
LARGEST_GAP = 0.02


def measure(project: Path, times: int, seed: int) -> dict[str, Any]:
    """How the trainings ended: (exit code, MLflow's status), and how often."""
    lasted = durations(project)
    rng = random.Random(seed)
    ended: Counter[str] = Counter()
    for turn in range(times):
        remove_trainings(project)
        place, epoch = PLACES[turn % len(PLACES)], rng.randint(1, EPOCHS)
        process = Training(project, training)
        wait_for(process, place, epoch)
        time.sleep(rng.random() * lasted[place, epoch])
        process.send(signal.SIGTERM)
        time.sleep(rng.random() * LARGEST_GAP)
        process.send(signal.SIGTERM)
        code = process.wait()
        ended[f"{code}, {_newest_status(project)}"] += 1
    return {"times": times, "exit code, status of the run": dict(ended)}


def _newest_status(project: Path) -> str:
    store = open_store("plmcl", project)
    (run,) = store.client.search_runs(
        [store.experiment_id], max_results=1, order_by=["attributes.start_time DESC"]
    )
    return str(run.info.status)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = make_small(Path(folder) / "project", epochs=EPOCHS)
        report = measure(project, arguments.times, arguments.seed)
    print(report)
    if report["exit code, status of the run"] != {"143, KILLED": arguments.times}:
        raise SystemExit("not all ended as they should")
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
