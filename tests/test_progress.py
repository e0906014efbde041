"""Without a terminal progress is a plain line now and then, and never more."""

import signal
from contextlib import suppress

import pytest

import plmcl.progress
from plmcl.progress import show_progress


def test_a_line_at_most_every_ten_seconds_with_the_time_left(capsys, monkeypatch):
    now = iter([0.0, 1.0, 10.0, 12.0, 20.0, 21.0])
    monkeypatch.setattr(plmcl.progress.time, "monotonic", lambda: next(now))
    with show_progress("train") as progress:
        for done in (0, 1, 5, 6, 8, 10):
            progress(done, 10)
    # After 10 s a half is done: 10 s left; after 20 s four fifths: 5 s left.
    assert capsys.readouterr().err == "train: 5/10, 10 s left\ntrain: 8/10, 5 s left\n"


def test_what_came_before_the_first_call_is_not_taken_for_the_rate(capsys, monkeypatch):
    # The features took ten minutes, an epoch takes 4 s; the other 22 take 88, then 19 take 76.
    now = iter([600.0, *(600.0 + 4 * epoch for epoch in range(1, 7))])
    monkeypatch.setattr(plmcl.progress.time, "monotonic", lambda: next(now))
    with show_progress("train") as progress:
        for epoch in range(7):
            progress(epoch, 25)
    assert capsys.readouterr().err == "train: 3/25, 88 s left\ntrain: 6/25, 76 s left\n"


def test_quick_work_prints_nothing(capsys):
    with show_progress("ingest") as progress:
        progress(1, 2)
        progress(2, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("signals_end")
def test_a_call_ends_the_process_that_was_told_to_end_and_did_not_case_66():
    with show_progress("ingest") as progress:
        progress(1, 2)
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            progress(2, 2)
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_rate_counts_what_this_process_did(capsys, monkeypatch):
    now = iter([5.0, 15.0])
    monkeypatch.setattr(plmcl.progress.time, "monotonic", lambda: next(now))
    with show_progress("predict", unit="images") as progress:
        progress(100, 200)
        progress(125, 200)
    # 25 in 10 s, so the other 75 take 30.
    assert capsys.readouterr().err == "predict: 125/200, 2.5 images/s, 30 s left\n"
