"""A grid on one of our data sets, on whatever device is there; its results as one CSV.

    python benchmarks/grids.py photos5 grids/frozen.yaml --data ../shared/data --out OUT

The data sets: photos5 and clothing26 are photographs (a folder with images/ and labels.csv below
--data); scenes20 and scenes80 are drawn, with 20 and 80 labels. Needs neither DVC, MLflow nor
Prefect. `plmcl grid SPEC --results OUT/...csv` makes the tables of what another machine trained.
"""

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from ruamel.yaml import YAML

from plmcl.grid.results import write_results
from plmcl.grid.runner import run_grid
from plmcl.grid.spec import load_grid
from plmcl.machine import usable_cores
from plmcl.params import Params, load_params
from plmcl.stages import download, ingest
from plmcl.stages.fit import write_params
from plmcl.stages.paths import Paths
from plmcl.stages.request import Request

SCENES = {
    "scenes20": {"images": 1500, "labels": 20, "size": 160, "labels_per_image": 2.5, "clutter": 8},
    "scenes80": {"images": 1800, "labels": 80, "size": 192, "labels_per_image": 3.0, "clutter": 8},
}


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    spec: Annotated[Path, typer.Argument(help="Grid file.")],
    out: Annotated[Path, typer.Option(help="Folder for <data set>-<grid>.csv.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time.")] = None,
    tune_on: Annotated[
        int | None, typer.Option(help="Tune on so many of the grid's tuning seeds; None: all.")
    ] = None,
) -> None:
    """Make a project of the data set, if there is none yet, and train what the grid lacks."""
    root = work / data_set
    params = make_project(data_set, data, root)
    start = time.monotonic()
    grid = load_grid(spec)
    grid = grid.model_copy(update={"tune_seeds": grid.tuning_seeds[:tune_on]})
    results, failures = run_grid(spec.stem, grid, params, root.resolve(), jobs or usable_cores())
    write_results(results, out / f"{data_set}-{spec.stem}.csv")
    print(f"{data_set} {spec.stem}: {len(results)} runs in {time.monotonic() - start:.0f} s")
    for failure in failures:
        print(f"  failed: {failure}")


def make_project(data_set: str, data: Path, root: Path) -> Params:
    """The params.yaml, the images and the manifest of a data set."""
    drawn, file = data_set in SCENES, root / "params.yaml"
    photos = root if drawn else data / data_set / "images"
    labels = None if drawn else data / data_set / "labels.csv"
    root.mkdir(parents=True, exist_ok=True)
    request = Request(
        photos=photos,
        labels=labels,
        unlisted="negative",
        setting="sspl-20",
        methods=["epr"],
    )
    write_params(request, file)
    if drawn:
        yaml = YAML()
        values = yaml.load(file)
        values["data"]["source"] = "scenes"
        values["sources"]["scenes"] = SCENES[data_set]
        yaml.dump(values, file)
    params = load_params(file)
    paths = Paths.of_project(root.resolve(), params.data.source)
    if not paths.raw.exists():
        if drawn:
            download.run(paths, params)
        else:
            shutil.copytree(photos, paths.raw)
    if not paths.manifests.exists():
        ingest.run(paths, params)
    return params


if __name__ == "__main__":
    typer.run(main)
