"""What a wrong k costs: EPR, PLMCL and ridge told 0.5, 1 and 1.5 times the true number of labels.

    python benchmarks/wrong_k.py photos5 --data ../shared/data --out OUT

Frozen features, SSPL at 20 and 60 %, three seeds, tuned as in grids/frozen.yaml; one CSV, which
`plmcl grid` cannot read back into a table of its own: the rows depend on the data set's k. The
table is printed and written beside it.
"""

import time
from pathlib import Path
from typing import Annotated

import typer
from grids import make_project
from ruamel.yaml import YAML

from plmcl.data.manifest import Manifest
from plmcl.grid.results import write_results
from plmcl.grid.runner import run_grid
from plmcl.grid.spec import load_grid
from plmcl.machine import usable_cores
from plmcl.stages.paths import Paths

FACTORS = (0.5, 1.0, 1.5)
ON_PARTS = {"pooling": "parts", "head": "unit"}


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="Folder for <data set>-wrong_k.csv and .md.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time.")] = None,
) -> None:
    """Count k, and train with it and with wrong ones."""
    root = work / data_set
    params = make_project(data_set, data, root)
    manifest = Manifest.read(Paths.of_project(root.resolve(), params.data.source).manifests)
    k = int((manifest.labels["value"] == 1).sum()) / len(manifest.usable)
    rows: dict[str, object] = {}
    for factor in FACTORS:
        labels = {"labels": {"per_image": round(factor * k, 3)}}
        rows[f"EPR, {factor:g} k"] = {"method": "epr", "params": labels}
        rows[f"PLMCL, {factor:g} k"] = {"method": "plmcl", "params": labels}
        rows[f"ridge, {factor:g} k"] = {
            "method": "ridge",
            "params": labels | {"model": ON_PARTS},
            "tune": {"train.linear.learning_rate": None},
        }
    spec = {
        "title": f"k and wrong k, {data_set}, k = {k:.2f}",
        "seeds": [0, 1, 2],
        "settings": ["sspl-20", "sspl-60"],
        "params": {"train": {"mode": "linear", "linear": {"epochs": 25, "batch_size": 16}}},
        "tune": {"train.linear.learning_rate": [3e-4, 1e-3, 3e-3, 1e-2]},
        "tune_seeds": [0, 1],
        "rows": rows,
    }
    path = root / "wrong_k.yaml"
    YAML().dump(spec, path)
    start = time.monotonic()
    results, failures = run_grid(
        "wrong_k", load_grid(path), params, root.resolve(), jobs or usable_cores()
    )
    write_results(results, out / f"{data_set}-wrong_k.csv")
    # The candidate that is best on validation, over the seeds that tuned it.
    tuned = results[results["seed"].isin([0, 1])].groupby(["row", "setting", "candidate"])["val"]
    best = tuned.mean().reset_index().sort_values("val").groupby(["row", "setting"]).tail(1)
    chosen = results.merge(best[["row", "setting", "candidate"]])
    table = chosen.pivot_table("test", "row", "setting", aggfunc=["mean", "std"], sort=False) * 100
    lines = [f"k = {k:.2f}", *table.round(1).to_string().splitlines()]
    (out / f"{data_set}-wrong_k.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    print(f"{len(results)} runs in {time.monotonic() - start:.0f} s")
    for failure in failures:
        print(f"  failed: {failure}")


if __name__ == "__main__":
    typer.run(main)
