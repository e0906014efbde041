"""The three commands, one after the other, as a user types them."""

import json

import pytest
from labelling.exported import annotation, export
from typer.testing import CliRunner

from plmcl.cli import app
from plmcl.errors import PlmclError


def call(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, PlmclError):
        raise done.exception
    return done


def test_from_a_suggestion_to_labels(project, tmp_path):
    run = ("--run", "sspl-40-ridge")
    done = call("suggest", project, "--budget", 3, "--out", tmp_path / "next", *run)
    assert done.exit_code == 0
    assert "suggested: 3 more" in done.output
    tasks = json.loads((tmp_path / "next/tasks.json").read_text())
    path = export(
        tmp_path / "e.json", tasks,
        [[annotation("umbrella")], [annotation("not sure", number=2)], [annotation("?", number=3)]],
    )  # fmt: skip
    done = call("answers", path, project, "--out", tmp_path / "answers", *run)
    assert done.exit_code == 3  # one could not be taken
    assert "answers: 3, of which 3 are new; 1 taken, 1 not sure, 1 not taken" in done.output
    assert "not taken: '?' is none of the 4 labels (1)" in done.output
    decisions = tmp_path / "answers/decisions.csv"
    done = call("suggest", project, "--budget", 3, "--out", tmp_path / "n", "--decisions",
                decisions, *run)  # fmt: skip
    assert "passed over: 3 unlabeled images with an answer already" in done.output


def test_audit_writes_everything_it_names(project, tmp_path):
    done = call("audit", project, "--run", "sspl-40-an", "--out", tmp_path / "audit")
    assert done.exit_code == 0
    assert "scored by sspl-40-an, which has seen the labels" in done.output
    names = ["audit.json", "config.xml", "index.html", "suspicions.csv", "tasks.json"]
    assert sorted(path.name for path in (tmp_path / "audit").iterdir()) == names


def test_words_for_not_sure_that_are_a_label_end_it(project, tmp_path):
    with pytest.raises(PlmclError, match="--not-sure"):
        call("suggest", project, "--budget", 1, "--out", tmp_path / "n", "--not-sure", "Umbrella",
             "--run", "sspl-40-ridge")  # fmt: skip
