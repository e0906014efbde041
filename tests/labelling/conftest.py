"""A finished training on 60 drawn scenes, for all tests of this folder."""

import shutil
from pathlib import Path

import pytest
from project import ROOT, SMALL, edit_params, run_to_splits

from plmcl.labelling.trained import Trained, open_trained
from plmcl.stages import train

SETTING = "sspl-40"


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """A project with two runs, ridge and an, under one setting."""
    root = tmp_path_factory.mktemp("trained")
    shutil.copy(ROOT / "params.yaml", root)
    changes = SMALL | {"data.path": str(root), "train.mode": "linear", "split.val": 0.25}
    edit_params(root / "params.yaml", changes)
    params, paths = run_to_splits(root)
    for method in ("an", "ridge"):
        train.run(paths, params, SETTING, method, track=False)
    return root


@pytest.fixture(scope="session")
def trained(project) -> Trained:
    """Its ridge run."""
    return open_trained(project, f"{SETTING}-ridge")
