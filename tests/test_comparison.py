import json

import pytest

from plmcl.comparison import Difference, differences
from plmcl.errors import PlmclError
from plmcl.run_record import RunRecord


def make_run(folder, params, tags, metrics=None):
    folder.mkdir()
    record = RunRecord(name=folder.name, experiment="plmcl", params=params, tags=tags)
    record.write(folder / "run.json")
    if metrics is not None:
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_only_what_differs_is_said_parameters_before_tags_before_figures_case_43(tmp_path):
    first = make_run(
        tmp_path / "a",
        {"seed": 0, "image.size": 224, "methods.epr.weight": 1.0},
        {"data_sha256": "aa", "torch": "2.14.1", "host": "here"},
        {"mAP": 0.81, "labels": 5},
    )
    second = make_run(
        tmp_path / "b",
        {"seed": 0, "image.size": 448, "methods.an.smoothing": 0.1},
        {"data_sha256": "bb", "torch": "2.14.1", "host": "there"},
        {"mAP": 0.83, "labels": 5},
    )
    assert differences(first, second) == [
        Difference("image.size", 224, 448),
        Difference("methods.epr.weight", 1.0, None),
        Difference("methods.an.smoothing", None, 0.1),
        Difference("data_sha256", "aa", "bb"),
        Difference("test/mAP", 0.81, 0.83),
    ]


def test_a_run_is_like_itself_also_before_it_is_evaluated(tmp_path):
    run = make_run(tmp_path / "a", {"seed": 0}, {"torch": "2"})
    assert differences(run, run) == []


def test_a_folder_without_a_run_is_refused_by_its_file(tmp_path):
    run = make_run(tmp_path / "a", {}, {})
    with pytest.raises(PlmclError, match=r"b/run\.json: not found; run the train stage first"):
        differences(run, tmp_path / "b")


def test_damaged_figures_are_refused_by_their_file(tmp_path):
    run = make_run(tmp_path / "a", {}, {})
    (run / "metrics.json").write_text("{")
    with pytest.raises(PlmclError, match=r"metrics\.json: not JSON: .*; run the evaluate stage"):
        differences(run, run)
