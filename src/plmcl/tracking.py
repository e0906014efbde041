"""What MLflow remembers of a run, live or filled again from the run record.

MLflow is imported inside functions: importing this module costs nothing and does nothing.
"""

import importlib.metadata
import json
import math
import os
import platform
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plmcl.errors import PlmclError
from plmcl.mlflow_store import MAX_PARAM, RECORD_ID, Store, cut, locked, open_store
from plmcl.run_record import RunRecord, Status
from plmcl.signals import exit_if_told, hold_signals

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Run as MlflowRun

Metrics = Mapping[str, float | int | None]
NONFINITE, CUT = "metric_nonfinite", "param_cut"


@dataclass(frozen=True)
class Run:
    """A run that goes on."""

    record: RunRecord
    store: Store
    run_id: str

    def log(self, metrics: Metrics, step: int, *, phase: str = "") -> None:
        """Append an epoch's metrics to the record's history, and log them in one call.

        A value that is not finite is null in the history and a tag in MLflow, whose pages break
        on NaN. An epoch that comes again, after a resume, replaces its entry.

        Args:
            metrics: By name, such as `train/loss`.
            step: The epoch, from 1, counted over all phases.
            phase: Of training.
        """
        history = self.record.history
        entry = next((old for old in history if _epoch(old) == step), None)
        if entry is None:
            entry = {"epoch": step}
            history.append(entry)
        finite, tags = _finite(metrics, self.record.tags)
        entry.update({"phase": phase} | {name: finite.get(name) for name in metrics})
        self.record.tags.update(tags)
        points = [(name, value, step) for name, value in finite.items()]
        self.store.log(self.run_id, points, when=_now(), tags=tags)


@contextmanager
def start_run(record: RunRecord, *, root: Path) -> Iterator[Run]:
    """Run the body as an MLflow run, which is left in a true state however the body ends.

    FINISHED at a normal end; KILLED at a KeyboardInterrupt and at a SystemExit with the status of
    a signal (above 128); FAILED at anything else, `exit()` included. A command that SIGTERM may
    stop therefore installs a handler that raises `SystemExit(143)`.

    If the record's run is in the store and did not finish, or finished without the record, it is
    resumed as itself. Runs that dead processes of this machine left RUNNING become KILLED.

    Args:
        record: Changed in place: status, times, MLflow's id, and what is logged.
        root: Of the project: MLflow's files are there, unless MLFLOW_TRACKING_URI moves them.

    Raises:
        PlmclError: The store cannot be reached or used.
    """
    store = open_store(record.experiment, root)
    store.sweep(keep=record.record_id)
    found = _find(store, record)
    run: Run | None = None
    try:
        with hold_signals():  # a run that nobody knows yet would stay RUNNING
            run = _begin(store, record, found)
        yield run
        exit_if_told()
        store.log(run.run_id, _kept(record), when=_now())
        _end(run, "FINISHED")
    except BaseException as error:
        # This error is the one to see; a run that is left RUNNING is swept later.
        if run is not None:
            with suppress(PlmclError):
                _end(run, _status_after(error))
        raise


def log_evaluation(
    record: RunRecord, metrics: Metrics, per_label: "pd.DataFrame", *, root: Path
) -> None:
    """Add an evaluation on the test split to the record's run, made again if the store lacks it.

    Args:
        record: Of the training.
        metrics: Logged as `test/<name>` at step 0; those that are None are left out.
        per_label: Becomes the artifact per_label.csv.
        root: Of the project.
    """
    store = open_store(record.experiment, root)
    with locked(store.database):
        run = _find(store, record)
        if run is None:
            _recreate(store, record, metrics, per_label)
        else:
            _log_evaluation(store, run.info.run_id, record, metrics, per_label, _now())


def restore(
    record: RunRecord, metrics: Metrics | None, per_label: "pd.DataFrame | None", *, root: Path
) -> bool:
    """Make the record's run in a store that lacks it; a store that has it stays as it is.

    DVC's run cache brings back what a training wrote without running it; a clone has no store.

    Args:
        record: Not changed.
        metrics: On the test split, if that was evaluated.
        per_label: The same.
        root: Of the project.

    Returns:
        Whether a run was made.
    """
    store = open_store(record.experiment, root)
    with locked(store.database):
        if _find(store, record) is not None:
            return False
        _recreate(store, record, metrics, per_label)
    return True


def code_commit(root: Path) -> str:
    """The checkout's commit, 40 hex digits; "-dirty" follows if tracked files in src/ differ.

    Empty outside git and before the first commit.
    """
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        commit = _output([*git, "rev-parse", "--verify", "HEAD"])
        changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", "src"])
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}-dirty" if changed else commit


def environment_tags() -> dict[str, str]:
    """Where a run happens: DVC's stage and experiment, if any, and host, Python and torch."""
    names = ("DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV")
    return {name: os.environ[name] for name in names if os.environ.get(name)} | {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.strip()


def _find(store: Store, record: RunRecord) -> "MlflowRun | None":
    return store.find(record.record_id, record.mlflow_run_id)


def _begin(store: Store, record: RunRecord, found: "MlflowRun | None") -> Run:
    run = found
    # RUNNING is a record whose run ended, and whose process did before it wrote that down.
    if run is None or (run.info.status == "FINISHED" and record.status != "RUNNING"):
        run = store.create(_title(record), _now())
    else:
        store.resume(run.info.run_id)
    run_id = run.info.run_id
    record.mlflow_run_id, record.status = run_id, "RUNNING"
    record.start_time, record.end_time = run.info.start_time, None
    params, cut_tag = _texts(record)
    new = {key: text for key, text in params.items() if key not in run.data.params}
    tags = record.tags | cut_tag | {RECORD_ID: record.record_id}
    store.log(run_id, params=new, tags=tags)
    return Run(record, store, run_id)


def _end(run: Run, status: Status) -> None:
    run.record.status, run.record.end_time = status, _now()
    run.store.end(run.run_id, status, run.record.end_time)


def _status_after(error: BaseException) -> Status:
    signalled = isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128
    return "KILLED" if signalled or isinstance(error, KeyboardInterrupt) else "FAILED"


def _recreate(
    store: Store,
    record: RunRecord,
    metrics: Metrics | None,
    per_label: "pd.DataFrame | None",
) -> None:
    run_id = store.create(_title(record), record.start_time).info.run_id
    when = record.end_time or _now()
    points = [
        (name, float(value), _epoch(entry))
        for entry in record.history
        for name, value in entry.items()
        if isinstance(value, int | float) and name != "epoch"
    ]
    params, cut_tag = _texts(record)
    if record.status == "FINISHED":
        points += _kept(record)
    store.log(run_id, points, when=when, params=params, tags=record.tags | cut_tag)
    if metrics is not None and per_label is not None:
        _log_evaluation(store, run_id, record, metrics, per_label, when)
    # The id comes last: what a kill leaves half made is not taken for the run, but swept.
    store.log(run_id, tags={RECORD_ID: record.record_id})
    store.end(run_id, "KILLED" if record.status == "RUNNING" else record.status, when)


def _title(record: RunRecord) -> str:
    """The run's name in MLflow's lists: experiments of DVC train the same runs again and again."""
    experiment = record.tags.get("DVC_EXP_NAME")
    return f"{record.name} ({experiment})" if experiment else record.name


def _kept(record: RunRecord) -> list[tuple[str, float, int]]:
    """The epoch whose weights are kept, and its figure: MLflow's lists show an epoch's latest.

    At step 0, as `_log_evaluation`.
    """
    epoch, value = record.best
    if math.isnan(value):
        return []
    return [("kept/epoch", float(epoch), 0), (f"kept/{record.selection_key}", value, 0)]


def _log_evaluation(
    store: Store,
    run_id: str,
    record: RunRecord,
    metrics: Metrics,
    per_label: "pd.DataFrame",
    when: int,
) -> None:
    """Figures of the whole run: at step 0, whatever epochs it had, so that MLflow draws bars.

    Its page compares a metric in a line chart as soon as one run's latest value is at step 1 or
    above.
    """
    finite, tags = _finite({f"test/{key}": value for key, value in metrics.items()}, record.tags)
    store.log(run_id, [(name, value, 0) for name, value in finite.items()], when=when, tags=tags)
    store.put_text(run_id, per_label.to_csv(index=False, lineterminator="\n"), "per_label.csv")


def _texts(record: RunRecord) -> tuple[dict[str, str], dict[str, str]]:
    """Params as texts of a length that MLflow takes, and a tag that names those that were cut."""
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in record.params.items()
    }
    long = [key for key, text in texts.items() if len(text) > MAX_PARAM]
    return {key: cut(text, MAX_PARAM) for key, text in texts.items()}, (
        {CUT: ",".join(long)} if long else {}
    )


def _finite(metrics: Metrics, tags: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """The finite metrics, and a tag that names the others beside those that `tags` names."""
    known = {name: float(value) for name, value in metrics.items() if value is not None}
    finite = {name: value for name, value in known.items() if math.isfinite(value)}
    before = set(filter(None, tags.get(NONFINITE, "").split(",")))
    bad = known.keys() - finite.keys()
    return finite, {NONFINITE: ",".join(sorted(bad | before))} if bad else {}


def _epoch(entry: Mapping[str, object]) -> int:
    epoch = entry.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def _now() -> int:
    return time.time_ns() // 1_000_000
