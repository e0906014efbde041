"""The pipeline from `download` to `export` on whatever device is there, on the default params.

    python benchmarks/device_run.py OUT.json

Needs neither DVC nor MLflow. Says which device ran, how long each stage took, and the test mAP.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from ruamel.yaml import YAML

from plmcl.params import load_params
from plmcl.stages import download, evaluate, export, ingest, split, train
from plmcl.stages.paths import Paths


def main(out: Path) -> None:
    """Run the default grid in `linear_init`, so that all weights are trained."""
    values = YAML().load(Path("params.yaml"))
    values["train"]["mode"] = "linear_init"
    cuda = torch.cuda.is_available()
    values["train"]["precision"] = "bf16-mixed" if cuda else "32-true"
    record = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "precision": values["train"]["precision"],
        "runs": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        YAML().dump(values, Path(folder) / "params.yaml")
        params = load_params(Path(folder) / "params.yaml")
        paths = Paths.of_project(Path(folder), params.data.source)
        download.run(paths, params)
        ingest.run(paths, params)
        split.run(paths, params, params.grid.settings)
        for setting in params.grid.settings:
            for method in params.grid.methods:
                start = time.monotonic()
                train.run(paths, params, setting, method, track=False)
                trained = time.monotonic()
                figures = evaluate.run(paths, params, setting, method, track=False).metrics
                export.run(paths, params, setting, method)
                record["runs"][f"{setting}-{method}"] = {
                    "test_mAP": figures["mAP"],
                    "train_seconds": round(trained - start, 1),
                }
    out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
