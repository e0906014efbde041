"""Test mAP of methods on frozen features, over settings and seeds; one JSON.

    python benchmarks/frozen_features.py --photos FOLDER --labels CSV --out OUT.json

The pipeline's own stages, with the preset of `plmcl fit`: features are computed once, each run is
the training of a linear head. Figures are in percent; the best epoch is chosen on validation.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from ruamel.yaml import YAML

from plmcl.params import load_params
from plmcl.stages import evaluate, ingest, split, train
from plmcl.stages.fit import Request, write_params
from plmcl.stages.paths import Paths


def main(
    photos: Annotated[Path, typer.Option(help="Folder of images.")],
    labels: Annotated[Path, typer.Option(help="CSV of image,labels; complete.")],
    out: Annotated[Path, typer.Option(help="JSON to write.")],
    settings: str = "sspl-20",
    methods: str = "an,epr,plmcl",
    seeds: str = "0,1,2",
) -> None:
    """Train and evaluate every combination."""
    request = Request(
        photos=photos,
        labels=labels,
        unlisted="negative",
        minus_one="refuse",
        setting=settings.split(",")[0],
        methods=methods.split(","),
        labels_per_photo=None,
        fine_tune=False,
    )
    results: dict[str, dict[str, list[float]]] = {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(Path(folder), photos.resolve())
        file = Path(folder) / "params.yaml"
        write_params(request, file)
        yaml = YAML()
        values = yaml.load(file)
        for seed in map(int, seeds.split(",")):
            values["seed"] = seed
            yaml.dump(values, file)
            params = load_params(file)
            if seed == int(seeds.split(",")[0]):
                ingest.run(paths, params)
            split.run(paths, params, settings.split(","))
            for setting in settings.split(","):
                for method in request.methods:
                    train.run(paths, params, setting, method, track=False)
                    figures = evaluate.run(paths, params, setting, method, track=False).metrics
                    results.setdefault(setting, {}).setdefault(method, []).append(
                        round(100 * float(figures["mAP"] or 0), 2)
                    )
                    print(seed, setting, method, results[setting][method][-1], flush=True)
    table = {
        setting: {
            method: {
                "mean": round(statistics.mean(scores), 2),
                "stdev": round(statistics.stdev(scores), 2) if len(scores) > 1 else None,
                "test_mAP": scores,
            }
            for method, scores in rows.items()
        }
        for setting, rows in results.items()
    }
    record = {
        "photos": photos.parent.name,
        "mode": values["train"]["mode"],
        "backbone": values["model"]["backbone"],
        "linear": dict(values["train"]["linear"]),
        "seeds": seeds,
        "seconds": round(time.monotonic() - start),
        "table": table,
    }
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(table, indent=2))


if __name__ == "__main__":
    typer.run(main)
