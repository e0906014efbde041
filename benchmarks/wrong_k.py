"""What a wrong k costs `ridge`: told 0.5, 1 and 1.5 times the true number of labels an image.

    python benchmarks/wrong_k.py photos5 --data ../shared/data --out OUT

Frozen features, SSPL at 20 and 60 %, five seeds; one CSV, and the table of means as text.
"""

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


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="Folder for <data set>-wrong_k.csv and .txt.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time.")] = None,
) -> None:
    """Count k, and train with it and with wrong ones."""
    root = work / data_set
    params = make_project(data_set, data, root)
    manifest = Manifest.read(Paths.of_project(root.resolve(), params.data.source).manifests)
    k = int((manifest.labels["value"] == 1).sum()) / len(manifest.usable)
    spec = {
        "title": f"ridge told k and wrong k, {data_set}, k = {k:.2f}",
        "seeds": list(range(5)),
        "settings": ["sspl-20", "sspl-60"],
        "params": {"train": {"mode": "linear"}, "model": {"pooling": "parts", "head": "unit"}},
        "rows": {
            f"{factor:g} k": {
                "method": "ridge",
                "params": {"labels": {"per_image": round(factor * k, 3)}},
            }
            for factor in FACTORS
        },
    }
    path = root / "wrong_k.yaml"
    YAML().dump(spec, path)
    results, failures = run_grid(
        "wrong_k", load_grid(path), params, root.resolve(), jobs or usable_cores()
    )
    write_results(results, out / f"{data_set}-wrong_k.csv")
    table = results.pivot_table("test", "row", "setting", aggfunc=["mean", "std"], sort=False) * 100
    text = "\n".join([f"k = {k:.2f}", *table.round(1).to_string().splitlines()]) + "\n"
    (out / f"{data_set}-wrong_k.txt").write_text(text, encoding="utf-8")
    print(text)
    for failure in failures:
        print(f"failed: {failure}")


if __name__ == "__main__":
    typer.run(main)
