"""`plmcl checks`: lines or JSON, and exit code 2 for a problem."""

import json

import pytest
from typer.testing import CliRunner

from plmcl import checks
from plmcl.checks import Finding
from plmcl.cli import app


@pytest.fixture
def run(monkeypatch):
    def run(findings, *options):
        monkeypatch.setattr(checks, "find_all", lambda root: iter(findings))
        return CliRunner().invoke(app, ["checks", *options])

    return run


GOOD = Finding("cores", "ok", "2 of 2 usable")
SLOW = Finding("memory", "warning", "1 GiB free", "end other programs")
BAD = Finding("data", "problem", "/photos is not there", "make it")


def test_every_finding_is_a_line_with_what_to_do_below_it(run):
    done = run([GOOD, SLOW])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "ok       cores: 2 of 2 usable",
        "warning  memory: 1 GiB free",
        "         -> end other programs",
        "1 ok, 1 warning, 0 problem",
    ]


def test_a_problem_is_exit_code_2(run):
    assert run([GOOD, BAD]).exit_code == 2


def test_json_is_one_object(run):
    done = run([GOOD, BAD], "--json")
    assert done.exit_code == 2
    said = json.loads(done.output)
    assert (said["ok"], said["warning"], said["problem"]) == (1, 0, 1)
    assert said["findings"][1] == {
        "name": "data",
        "status": "problem",
        "found": "/photos is not there",
        "advice": "make it",
    }


def test_a_folder_without_params_has_no_run_to_look_at(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "gpu", lambda: iter(()))  # would import torch
    found = list(checks.find_all(tmp_path))
    assert found[-1].found == "none here: no run to look at"
    assert {f.name for f in found} >= {"versions", "cores", "memory", "disk", "onnxruntime"}
