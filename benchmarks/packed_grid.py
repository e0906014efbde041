"""Small trainings packed onto one GPU, against the same ones one after another without graphs.

    python benchmarks/packed_grid.py DATA_SET --data ../shared/data --out packed_grid.json

EfficientNet-Lite0 at 224 pixels, batches of 16, all weights (grids/end_to_end.yaml). Runs a minute
of the processes of `plmcl grid`, and of a loop in one process that captures nothing. What all of
them read (splits, decoded images) is made before, and each process has trained once before. Where
CUDA_MPS_PIPE_DIRECTORY names that of an MPS daemon, the grid is measured with it and without; the
loop always without, also where a daemon waits at the usual place.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from grids import make_project

from plmcl.grid.inputs import compute_features, decode_images, draw_splits
from plmcl.grid.plan import Run, first_round, make_variants
from plmcl.grid.pool import Pool, share_out, visible_gpus
from plmcl.grid.spec import load_grid
from plmcl.grid.worker import Place, train
from plmcl.machine import usable_cores
from plmcl.params import Params
from plmcl.stages.job import Job
from plmcl.stages.paths import Paths

ROWS = ("AN", "EPR", "PLMCL")
MPS = "CUDA_MPS_PIPE_DIRECTORY"


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="JSON.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time.")] = None,
    epochs: Annotated[int, typer.Option(help="Of a training.")] = 10,
    waves: Annotated[int, typer.Option(help="Trainings of each job.")] = 1,
) -> None:
    """Measure, and print runs a minute."""
    mps = os.environ.get(MPS)
    nobody = tempfile.mkdtemp()  # where no daemon waits
    os.environ[MPS] = nobody
    jobs = jobs or usable_cores()
    root = work / data_set
    params = make_project(data_set, data, root)
    place = Place(
        project=Paths.of_project(root.resolve(), params.data.source),
        folder=(root / ".plmcl" / "grid" / "packed").resolve(),
        features_device="cuda" if torch.cuda.is_available() else "cpu",
    )
    runs = small_runs(params, jobs * waves, epochs)
    brief = small_runs(params, jobs, 1)
    draw_splits(runs, place)
    compute_features(runs, place)
    decode_images(runs, place)

    seconds = {}
    captured, Job._sample = Job._sample, lambda self, batch_size: None  # type: ignore[method-assign]
    train(brief[0], place)
    start = time.perf_counter()
    for run in runs[: len(ROWS)]:
        train(run, place)
    seconds["one after another, without graphs"] = (time.perf_counter() - start) / len(ROWS)
    Job._sample = captured  # type: ignore[method-assign]
    write(out, data_set, epochs, seconds)
    for pipe in [mps, None] if mps else [None]:
        os.environ[MPS] = pipe or nobody
        name = f"grid, {jobs} at a time" + (", MPS" if pipe else "")
        seconds[name] = packed(runs, brief, place, jobs)
        write(out, data_set, epochs, seconds)
    Path(nobody).rmdir()


def packed(runs: list[Run], brief: list[Run], place: Place, jobs: int) -> float:
    """Seconds a run, `jobs` at a time, behind a short one of each process."""
    with Pool(share_out(jobs, visible_gpus()), place) as pool:
        start = time.perf_counter()
        answers = list(pool.run({f"warm {i}": run for i, run in enumerate(brief)}))
        print(f"{jobs} processes are warm after {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        answers += pool.run({str(i): run for i, run in enumerate(runs)})
        seconds = time.perf_counter() - start
    for _, answer in answers:
        if isinstance(answer, str):
            raise SystemExit(answer)
    return seconds / len(runs)


def write(out: Path, data_set: str, epochs: int, seconds: dict[str, float]) -> None:
    """What has been measured so far."""
    first = next(iter(seconds.values()))
    record = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cores": usable_cores(),
        "torch": torch.__version__,
        "data_set": data_set,
        "epochs": epochs,
        "runs_a_minute": {name: round(60 / each, 2) for name, each in seconds.items()},
        "ratios": {name: round(first / each, 2) for name, each in seconds.items()},
    }
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record), flush=True)


def small_runs(params: Params, count: int, epochs: int) -> list[Run]:
    """Different runs of some rows of the grid, of as many seeds as it takes."""
    spec = load_grid(Path("grids/end_to_end.yaml"))
    spec = spec.model_copy(
        update={
            "rows": {name: spec.rows[name] for name in ROWS},
            "settings": ["sspl-20"],
            "tune": {},
            "seeds": list(range(-(-count // len(ROWS)))),
        }
    )
    spec.params["train"]["fine_tune"]["epochs"] = epochs
    runs = first_round(spec, make_variants(spec, params))
    by_seed = sorted(runs, key=lambda run: run.seed)
    return by_seed[:count]


if __name__ == "__main__":
    typer.run(main)
