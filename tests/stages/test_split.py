"""What the split stage says of its splits, and that no split decides on the columns."""

import numpy as np
import pytest
from project import ROOT
from tables import manifest

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.evaluation import evaluate
from plmcl.params import load_params
from plmcl.stages import split
from plmcl.stages.paths import Paths

IDS = [f"{i}.jpg" for i in range(6)]
GIVEN = ["train", "train", "train", "val", "val", "test"]
PRESENT = {(IDS[0], "cat"), (IDS[1], "dog"), (IDS[2], "elk"), (IDS[3], "cat"), (IDS[4], "elk")}


def test_a_label_missing_from_a_split_is_named_and_shifts_no_column_case_15(tmp_path, capsys):
    """Validation lacks dog, test lacks all three: elk is column 2 everywhere."""
    paths = Paths.of_project(tmp_path, "folder")
    manifest(IDS, dict.fromkeys(PRESENT, 1), split=GIVEN).write(paths.manifests)
    split.run(paths, load_params(ROOT / "params.yaml"), ["ffl"])
    assert capsys.readouterr().out.splitlines()[:2] == [
        "val: no known positive of 1 labels: 'dog'",
        "test: no known positive of 3 labels: 'cat', 'dog', 'elk'",
    ]
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    rows = truth_rows(Manifest.read(paths.manifests), splits, "val")
    assert rows.targets.tolist() == [[1, 0, 0], [0, 0, 1]]
    scores = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])  # right, column by column
    found = evaluate(rows.targets, rows.observed, scores)
    assert found.average_precision == pytest.approx([1, np.nan, 1], nan_ok=True)
    assert (found.metrics["mAP"], found.metrics["labels_averaged"]) == (1.0, 2)
