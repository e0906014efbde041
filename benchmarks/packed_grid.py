"""Small trainings packed onto one GPU, against the same ones one after another without graphs.

    python benchmarks/packed_grid.py DATA_SET --data ../shared/data --out packed_grid.json

EfficientNet-Lite0 at 224 pixels, batches of 16, all weights (grids/end_to_end.yaml). Runs a minute
of `plmcl grid`, and of a loop in one process that captures nothing. What all of them read (splits,
decoded images) is made before.
"""

import json
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


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="JSON.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time.")] = None,
    epochs: Annotated[int, typer.Option(help="Of a training.")] = 10,
    waves: Annotated[int, typer.Option(help="Trainings of each job.")] = 2,
) -> None:
    """Measure, and print runs a minute."""
    jobs = jobs or usable_cores()
    root = work / data_set
    params = make_project(data_set, data, root)
    place = Place(
        project=Paths.of_project(root.resolve(), params.data.source),
        folder=(root / ".plmcl" / "grid" / "packed").resolve(),
        features_device="cuda" if torch.cuda.is_available() else "cpu",
    )
    runs = small_runs(params, jobs * waves, epochs)
    draw_splits(runs, place)
    compute_features(runs, place)
    decode_images(runs, place)

    minutes = {}
    whole, Job._sample = Job._sample, lambda self, batch_size: None  # type: ignore[method-assign]
    train(runs[0], place)  # cuDNN's and the reader's first time
    start = time.perf_counter()
    for run in runs[: len(ROWS)]:
        train(run, place)
    minutes["one after another, without graphs"] = (time.perf_counter() - start) / len(ROWS) / 60
    Job._sample = whole  # type: ignore[method-assign]
    with Pool(share_out(jobs, visible_gpus()), place) as pool:
        warm_up = {f"warm {i}": runs[i] for i in range(jobs)}
        answers = list(pool.run(warm_up))
        start = time.perf_counter()
        answers += pool.run({str(i): run for i, run in enumerate(runs)})
        seconds = time.perf_counter() - start
    for _, answer in answers:
        if isinstance(answer, str):
            print(f"failed: {answer}")
    minutes[f"grid, {jobs} at a time"] = seconds / len(runs) / 60
    base = minutes["one after another, without graphs"]
    record = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cores": usable_cores(),
        "data_set": data_set,
        "runs_a_minute": {name: round(1 / each, 2) for name, each in minutes.items()},
        "ratios": {name: round(base / each, 2) for name, each in minutes.items()},
    }
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


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
