"""The grid files that come with the project."""

import pytest
from project import ROOT

from plmcl.grid.plan import first_round, make_variants
from plmcl.grid.published import read_published
from plmcl.grid.spec import load_grid
from plmcl.params import load_params

PARAMS = load_params(ROOT / "params.yaml")
GRIDS = sorted((ROOT / "grids").glob("*.yaml"))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_grid_can_be_run_with_the_projects_params(path):
    spec = load_grid(path)
    runs = first_round(spec, make_variants(spec, PARAMS))
    assert {run.row for run in runs} == set(spec.rows)


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_a_grid_of_a_published_table_has_its_rows_and_settings(path):
    spec = load_grid(path)
    if spec.published is None:
        pytest.skip("not of the paper")
    data_set = "voc" if spec.published.startswith("hyper") else "coco"
    published = read_published().figures(spec.published, data_set)
    ours = {(row, setting) for row in spec.rows for setting in spec.columns(row)}
    settings = {setting for _, setting in ours}
    of_grid = {(row, s) for row, s in published if s in settings}
    assert of_grid <= ours
