"""Tests of the CSV of results: nothing is lost, nothing is mixed, nothing changes its type."""

from dataclasses import replace

import pandas as pd
import pytest

from plmcl.errors import PlmclError
from plmcl.grid.results import (
    COLUMNS,
    Journal,
    Result,
    choose_candidates,
    merge_results,
    read_results,
    write_results,
)

RESULT = Result(
    row="AN, plain",
    method="an",
    setting="sspl-20",
    seed=3,
    candidate="learning_rate=0.001",
    selection="val/mAP",
    val=0.1 + 0.2,
    test=1 / 3,
    best_epoch=7,
    seconds=1.5,
    device="cpu, 1 thread",
    identity="00e1",
)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "grid" / "runs.csv")


def test_the_columns_are_those_that_tables_are_made_of():
    text = "row method setting seed candidate selection val test best_epoch seconds device identity"
    assert list(COLUMNS) == text.split()


@pytest.mark.parametrize("row", ["NA", "007", "1e3", "null", 'say "AN"', " é, ü"])
def test_what_is_written_is_read_with_its_type_to_the_last_digit(journal, row):
    journal.append(replace(RESULT, row=row))
    (line,) = journal.read().to_dict("records")
    assert Result(**line) == replace(RESULT, row=row)


def test_an_empty_candidate_is_an_empty_text(journal):
    journal.append(replace(RESULT, candidate=""))
    assert journal.read()["candidate"].tolist() == [""]


def test_a_torn_last_line_is_left_out_and_the_next_one_is_whole(journal):
    for seed in (0, 1):
        journal.append(replace(RESULT, seed=seed))
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-9])
    assert read_results(journal.path)["seed"].tolist() == [0]
    Journal(journal.path).append(replace(RESULT, seed=1))
    assert journal.path.read_bytes() == whole


def test_a_torn_header_is_written_again(journal):
    journal.path.write_text("row,meth")
    Journal(journal.path).append(RESULT)
    assert len(journal.read()) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1,2\n", "columns 'a,b'"),
        (",".join(COLUMNS) + ",more\n", "not the results of a grid"),
        (",".join(COLUMNS) + "\na,b,c,x,e,f,1,1,1,1,d,i\n", "x"),
    ],
)
def test_another_file_is_refused(tmp_path, text, problem):
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(PlmclError, match=problem):
        read_results(path)


def test_the_same_runs_give_the_same_bytes(tmp_path):
    runs = pd.DataFrame([replace(RESULT, seed=seed).__dict__ for seed in (2, 0, 1)])
    write_results(runs, tmp_path / "a.csv")
    write_results(runs.iloc[::-1], tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert read_results(tmp_path / "a.csv")["seed"].tolist() == [0, 1, 2]


def write(path, *results):
    write_results(pd.DataFrame([result.__dict__ for result in results]), path)
    return path


def test_files_of_two_machines_are_one(tmp_path):
    one = write(tmp_path / "one.csv", RESULT, replace(RESULT, seed=4))
    two = write(tmp_path / "two.csv", replace(RESULT, seed=4, seconds=9.0), replace(RESULT, seed=5))
    assert merge_results([one, two])["seed"].tolist() == [3, 4, 5]


def test_two_answers_to_one_question_are_refused(tmp_path):
    one = write(tmp_path / "one.csv", RESULT)
    two = write(tmp_path / "two.csv", replace(RESULT, identity="ffff", val=0.9))
    with pytest.raises(PlmclError, match=r"one\.csv and .*two\.csv: AN, plain, sspl-20, seed 3"):
        merge_results([one, two])


def table(rows):
    names = ["row", "setting", "seed", "candidate", "val"]
    return pd.DataFrame(rows, columns=names)


def test_a_cell_gets_the_candidate_with_the_best_mean_over_the_tuning_seeds():
    runs = table(
        [
            ("AN", "fspl", 0, "a=1", 0.5),
            ("AN", "fspl", 1, "a=1", 0.7),
            ("AN", "fspl", 0, "a=2", 0.9),
            ("AN", "fspl", 1, "a=2", 0.2),
            ("AN", "fspl", 2, "a=2", 0.9),  # no tuning seed: it does not count
            ("AN", "ffl", 0, "a=1", 0.1),
            ("AN", "ffl", 0, "a=2", 0.3),
        ]
    )
    assert choose_candidates(runs, (0, 1)) == {("AN", "fspl"): "a=1", ("AN", "ffl"): "a=2"}


def test_of_equal_candidates_the_first_by_name_is_chosen_in_whatever_order_they_ran():
    runs = table([("AN", "fspl", 0, name, 0.5) for name in ("a=3", "a=1", "a=2")])
    assert choose_candidates(runs, (0,)) == {("AN", "fspl"): "a=1"}
    assert choose_candidates(runs.iloc[::-1], (0,)) == {("AN", "fspl"): "a=1"}


def test_a_candidate_that_failed_on_a_seed_does_not_win_by_the_other():
    runs = table(
        [
            ("AN", "fspl", 0, "a=1", 0.9),
            ("AN", "fspl", 0, "a=2", 0.5),
            ("AN", "fspl", 1, "a=2", 0.5),
        ]
    )
    assert choose_candidates(runs, (0, 1)) == {("AN", "fspl"): "a=2"}
