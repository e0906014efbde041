"""How a stage or a command ends: exit codes, one line for the user, a signal that is not lost."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from plmcl.errors import NO_ROOM, PlmclError
from plmcl.signals import exit_if_told, exit_on_sigterm

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
}
DISK_PROBLEMS = {*NO_ROOM, errno.EROFS, errno.EACCES}
INTERRUPTED = 128 + signal.SIGINT


def run_stage(function: Callable[..., None]) -> None:
    """Run a function as a command, its parameters as arguments."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(function)
    run_app(app)


def run_app(app: Callable[..., Any]) -> None:
    """Run a Typer app: a PlmclError is one message and its exit code, signals are exits."""
    os.environ.update(TELEMETRY_OFF)
    exit_on_sigterm()
    try:
        app()
    except PlmclError as error:
        print(f"error: {error}", file=sys.stderr)
        exit_if_told()
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in DISK_PROBLEMS:
            raise
        advice = "; make room, and type the same command again" if error.errno in NO_ROOM else ""
        print(f"error: {error}{advice}", file=sys.stderr)
        sys.exit(PlmclError.exit_code)
    except SystemExit as end:
        exit_if_told()
        if end.code == INTERRUPTED:  # Typer's answer to Ctrl-C, without a word
            told = "interrupted: the same command goes on with what has been stored"
            print(told, file=sys.stderr)
        raise
