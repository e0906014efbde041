"""One holder at a time, whoever dies."""

import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest
from project import ROOT, environment

from plmcl.errors import PlmclError
from plmcl.retraining import lock
from plmcl.retraining.lock import HeldError, held

HOLD = """
import sys, time
from pathlib import Path
from plmcl.retraining.lock import held
with held(Path(sys.argv[1]), "retraining"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_held_lock_names_its_holder_and_is_not_taken(tmp_path, holder):
    message = rf"held by process {holder.pid} on .*, retraining since .*, last heartbeat \d+ s ago"
    with pytest.raises(HeldError, match=message), held(tmp_path / "lock", "pruning"):
        pytest.fail("two hold it")
    assert HeldError.exit_code == 75


def test_case_86_the_lock_of_a_killed_process_is_taken_over_and_that_is_said(
    tmp_path, holder, caplog
):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with held(tmp_path / "lock", "pruning"):
        record = json.loads((tmp_path / "lock.json").read_text())
        assert (record["pid"], record["purpose"]) == (os.getpid(), "pruning")
    assert f"taken over from process {holder.pid}" in caplog.text
    assert "the machine was started since" not in caplog.text
    assert not (tmp_path / "lock.json").exists()


def test_a_record_of_an_earlier_start_of_the_machine_says_so(tmp_path, caplog):
    record = {"purpose": "retraining", "pid": 1, "host": "a", "boot_id": "before", "since": 0.0,
              "run": "7"}  # fmt: skip
    (tmp_path / "lock.json").write_text(json.dumps(record))
    with held(tmp_path / "lock", "pruning") as earlier:
        assert earlier.run == "7"
    with held(tmp_path / "lock", "pruning") as earlier:
        assert earlier is None
    assert "process 1 on a" in caplog.text
    assert "the machine was started since" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '"x"'])
def test_a_damaged_record_stops_nobody(tmp_path, caplog, text):
    (tmp_path / "lock.json").write_text(text)
    with held(tmp_path / "lock", "pruning"):
        pass
    assert "not a record of ours" in caplog.text


def test_a_body_that_fails_frees_the_lock_and_leaves_no_record(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with pytest.raises(PlmclError), held(tmp_path / "lock", "pruning"):
        raise PlmclError("x")
    with held(tmp_path / "lock", "pruning"):
        pass
    assert not caplog.text


def test_the_record_is_touched_while_the_lock_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "SECONDS_A_HEARTBEAT", 0.01)
    with held(tmp_path / "lock", "pruning"):
        os.utime(tmp_path / "lock.json", (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / "lock.json").stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
