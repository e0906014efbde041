"""How a command ends: one line and an exit code, whatever stopped it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from project import ROOT, environment

SCRIPT = """
import errno, sys, time
from plmcl.errors import PlmclError
from plmcl.stages.entry import run_stage

def main(what: str) -> None:
    if what == "ours": raise PlmclError("a.csv: label: must not be empty, found ''")
    if what == "full": raise OSError(errno.ENOSPC, "No space left on device", "model.pt")
    if what == "locked": raise OSError(errno.EACCES, "Permission denied", "model.pt")
    if what == "defect": raise ValueError("a defect")
    if what == "wait":
        print("ready", flush=True)
        try:
            time.sleep(60)
        finally:
            print("closed", flush=True)

run_stage(main)
"""


def run(what):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, what],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("ours", "error: a.csv: label: must not be empty, found ''\n"),
        (
            "full",
            "error: [Errno 28] No space left on device: 'model.pt'; make room, and type the same "
            "command again\n",
        ),
        ("locked", "error: [Errno 13] Permission denied: 'model.pt'\n"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(what, line):
    done = run(what)
    assert (done.returncode, done.stderr) == (2, line)


def test_a_defect_keeps_its_traceback():
    done = run("defect")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: a defect" in done.stderr


def test_success_is_0():
    assert run("nothing").returncode == 0


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, ""),
        (signal.SIGINT, "interrupted: the same command goes on with what has been stored"),
    ],
)
def test_a_signal_closes_what_is_open_and_has_its_own_exit_code(number, said):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "wait"],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever started the tests in the background let them, and so us, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    os.kill(process.pid, number)
    written, told = process.communicate(timeout=20)
    assert (process.returncode, written, told.strip()) == (128 + number, "closed\n", said)
