"""How a stage or a command ends: exit codes, one line for the user, a signal that is not lost."""

import errno
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import typer

from plmcl.errors import PlmclError

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
}
DISK_PROBLEMS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def run_stage(function: Callable[..., None]) -> None:
    """Run a function as a command, its parameters as arguments."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(function)
    run_app(app)


def run_app(app: Callable[..., Any]) -> None:
    """Run a Typer app: a PlmclError is one message and its exit code, SIGTERM is an exit."""
    os.environ.update(TELEMETRY_OFF)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except PlmclError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in DISK_PROBLEMS:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(PlmclError.exit_code)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    # An exception and not the default: what is open is closed, a run is marked KILLED.
    sys.exit(128 + signum)
