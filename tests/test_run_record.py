"""run.json: a strict file with agreed keys."""

import json
import math

import pytest

from plmcl.errors import PlmclError
from plmcl.run_record import RunRecord, best_run


def record(**changes):
    values = {
        "name": "sspl-40-plmcl",
        "experiment": "plmcl",
        "params": {"seed": 0, "train.linear.learning_rate": 1e-3, "model.weights": None},
        "tags": {"protocol": "holdout"},
    }
    return RunRecord(**(values | changes))


def test_a_record_survives_its_file(tmp_path):
    before = record(
        params={"a": "no", "b": 1, "c": 1e-3, "d": None, "e": True, "f": "é🐈"},
        history=[{"epoch": 1, "phase": "linear", "train/loss": 0.5, "val/mAP": None}],
        start_time=1,
        end_time=2,
    )
    before.write(tmp_path / "run.json")
    assert RunRecord.read(tmp_path / "run.json") == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_file_has_the_keys_that_are_agreed_in_their_order(tmp_path):
    record().write(tmp_path / "run.json")
    assert list(json.loads((tmp_path / "run.json").read_text())) == [
        *("record_id", "mlflow_run_id", "name", "experiment", "status"),
        *("params", "tags", "history", "start_time", "end_time"),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tags": {"host": 1}}, "tags.host"),
        ({"status": "DONE"}, "status"),
        ({"extra": 1}, "extra"),
        ({"record_id": "x' or ''='"}, "record_id"),
        ({"name": None}, "name"),
        ({"history": [{"epoch": 1, "train/loss": math.nan}]}, "history.0.train/loss"),
    ],
)
def test_a_record_with_a_wrong_key_is_refused_by_its_name(tmp_path, change, words):
    path = tmp_path / "run.json"
    record().write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PlmclError, match=words) as caught:
        RunRecord.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "x"}', "\xff"])
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PlmclError, match="run the train stage again"):
        RunRecord.read(path)


def test_a_missing_record_says_which_stage_writes_it(tmp_path):
    with pytest.raises(PlmclError, match="run the train stage first"):
        RunRecord.read(tmp_path / "run.json")


@pytest.mark.parametrize("key", ["val/mAP", "selected_on_test/mAP"])
def test_the_figure_that_epochs_are_chosen_by_has_its_splits_name(key):
    history = [{"epoch": 1, "phase": "linear", "train/loss": 0.5, key: 0.25}]
    history.append({"epoch": 2, "phase": "linear", "train/loss": 0.9, key: 0.75})
    mine = record(history=history)
    assert (mine.selection_key, mine.best_selection) == (key, 0.75)
    assert record(history=[]).selection_key == ""


def test_the_best_of_several_runs_is_kept_and_the_first_of_equal_ones():
    def reached(*values):
        history = [{"epoch": e, "phase": "linear", "val/mAP": v} for e, v in enumerate(values, 1)]
        return record(history=history)

    runs = {"none": reached(), "early": reached(0.75, 0.25), "late": reached(0.25, 0.75)}
    assert best_run(runs) == "early"
    assert best_run({"not finite": reached(None)} | runs) == "early"
    assert best_run({"worse": reached(0.5), "late": runs["late"]}) == "late"
    assert best_run({"not finite": reached(None), "none": reached()}) == "not finite"
