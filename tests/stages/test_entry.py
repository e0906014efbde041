"""How a command ends: one line and an exit code, whatever stopped it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from project import ROOT, environment

SCRIPT = """
import errno, signal, sys, time
from contextlib import suppress
from plmcl.errors import PlmclError
from plmcl.stages.entry import run_stage

def main(what: str) -> None:
    if what == "ours": raise PlmclError("a.csv: label: must not be empty, found ''")
    if what == "full": raise OSError(errno.ENOSPC, "No space left on device", "model.pt")
    if what == "locked": raise OSError(errno.EACCES, "Permission denied", "model.pt")
    if what == "defect": raise ValueError("a defect")
    if what == "dropped":
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
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


@pytest.mark.slow
def test_a_stage_ends_with_its_dvc_also_while_it_imports_case_66(tmp_path):
    start = (
        "import subprocess, sys, time; "
        "command = [sys.executable, '-m', 'plmcl.stages.train', 'fspl', 'an']; "
        "print(subprocess.Popen(command, stderr=open('said', 'w')).pid, flush=True); "
        "time.sleep(600)"
    )
    dvc = subprocess.Popen(
        [sys.executable, "-c", start],
        cwd=tmp_path,
        env=environment(DVC_STAGE="train"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert dvc.stdout is not None
    stage = psutil.Process(int(dvc.stdout.readline()))
    maps = Path(f"/proc/{stage.pid}/maps")
    while "libtorch" not in maps.read_text():  # torch is imported, and after it much more
        time.sleep(0.01)
    dvc.kill()
    dvc.wait()
    assert psutil.wait_procs([stage], timeout=60)[0] == [stage]
    # It would have said that there is no params.yaml.
    assert (tmp_path / "said").read_text() == ""


def test_a_defect_keeps_its_traceback():
    done = run("defect")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: a defect" in done.stderr


def test_a_sigterm_whose_exit_was_dropped_is_in_the_exit_code():
    assert run("dropped").returncode == 128 + signal.SIGTERM


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
