"""An MLflow store opened safely: by several processes, in a moved project, at a secret address.

MLflow is imported inside functions: importing this module costs nothing and does nothing.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from plmcl.errors import PlmclError
from plmcl.signals import hold_signals

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

T = TypeVar("T")

# Tags by which a run is found again: by its record, and by the process that it belongs to.
RECORD_ID, HOST, PID = "plmcl.record_id", "plmcl.host", "plmcl.pid"

# MLflow's own limits: of a param's value, of a tag's, and of the entries of one call.
MAX_PARAM = 6000
MAX_TAG = 8000
METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100

# The first process on a fresh SQLite file takes seconds to fill it; the others wait for it.
SECONDS_FOR_THE_LOCK = 300.0
# Beyond the 20 s that MLflow waits for a locked database, each time.
WAITS_FOR_THE_DATABASE = (0.2, 1.0, 3.0)


@dataclass(frozen=True)
class Store:
    """One experiment of an MLflow store.

    Attributes:
        client: MLflow's; its methods are called through `call`.
        uri: May hold a password: never shown, unlike `address(uri)`.
        experiment_id: MLflow's.
        database: The SQLite file, if the store is one.
    """

    client: "MlflowClient"
    uri: str
    experiment_id: str
    database: Path | None

    def find(self, record_id: str, run_id: str | None) -> "Run | None":
        """The run of a record: the one with MLflow's `run_id`, or else the newest."""
        runs = self._search(f"tags.`{RECORD_ID}` = '{record_id}'")
        named = [run for run in runs if run.info.run_id == run_id]
        return next(iter(named or runs), None)

    def create(self, name: str, start_time: int | None) -> "Run":
        """A new run that belongs to this process; `start_time` in milliseconds since 1970."""
        return self._call(
            self.client.create_run,
            self.experiment_id,
            run_name=name,
            start_time=start_time,
            tags=_process(),
        )

    def resume(self, run_id: str) -> None:
        """Let a run go on that ended, or whose process did."""
        self._call(self.client.update_run, run_id, status="RUNNING")
        self.log(run_id, tags=_process())

    def end(self, run_id: str, status: str, end_time: int | None = None) -> None:
        """Set the final status; `end_time` in milliseconds since 1970, None for now."""
        self._call(self.client.set_terminated, run_id, status, end_time=end_time)

    def sweep(self, *, keep: str) -> None:
        """Mark as KILLED what dead processes of this machine left RUNNING, except record `keep`."""
        process = _process()
        for run in self._search(
            f"attributes.status = 'RUNNING' and tags.`{HOST}` = '{process[HOST]}'"
        ):
            pid = run.data.tags.get(PID, "")
            # A process tracks one run at a time. So its own number is an earlier process's:
            # containers give the same one again and again.
            alive = pid != process[PID] and _is_alive(pid)
            if not alive and run.data.tags.get(RECORD_ID) != keep:
                self.end(run.info.run_id, "KILLED")

    def log(
        self,
        run_id: str,
        metrics: Sequence[tuple[str, float, int]] = (),
        *,
        when: int = 0,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log in as few calls as MLflow's limits allow: 7 ms each, whatever is in it.

        Args:
            run_id: MLflow's.
            metrics: (name, finite value, step).
            when: Of the metrics, in milliseconds since 1970.
            params: By name, each of at most MAX_PARAM characters.
            tags: By name; longer ones than MAX_TAG are cut.
        """
        from mlflow.entities import Metric, Param, RunTag

        points = [Metric(name, value, when, step) for name, value, step in metrics]
        pairs = [Param(name, text) for name, text in (params or {}).items()]
        notes = [RunTag(name, cut(text, MAX_TAG)) for name, text in (tags or {}).items()]
        calls: list[dict[str, Any]] = [
            *({"metrics": part} for part in _parts(points, METRICS_PER_CALL)),
            *({"params": part} for part in _parts(pairs, PARAMS_PER_CALL)),
            *({"tags": part} for part in _parts(notes, PARAMS_PER_CALL)),
        ]
        for arguments in calls:
            self._call(self.client.log_batch, run_id, **arguments)

    def put_text(self, run_id: str, text: str, name: str) -> None:
        """Write a text artifact, in place of one of that name."""
        self._call(self.client.log_text, run_id, text, name)

    def _search(self, query: str) -> "Sequence[Run]":
        return self._call(self.client.search_runs, [self.experiment_id], query)

    def _call(self, method: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        return call(self.uri, method, *args, **kwargs)


def open_store(experiment: str, root: Path) -> Store:
    """Open the store and the experiment in it, making what is not there yet.

    Args:
        experiment: Its name.
        root: Of the project: MLflow's files are there, unless MLFLOW_TRACKING_URI moves them.

    Raises:
        PlmclError: The store cannot be reached, is not usable, or keeps its artifacts elsewhere.
    """
    # No telemetry (MLflow knows "true" and no other spelling) and no chatter on the terminal, least
    # of all the link that it prints, with the password of the server's address. A server that is
    # gone is reported after seconds, not after MLflow's four minutes.
    os.environ["DO_NOT_TRACK"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    from mlflow import MlflowClient

    uri = os.environ.get("MLFLOW_TRACKING_URI") or _sqlite_uri(root.resolve() / "mlflow.db")
    database = _sqlite_file(uri)
    artifacts = (database.parent if database else root.resolve()) / "mlartifacts"
    with locked(database):
        if database is not None and not (database.exists() and database.stat().st_size):
            _initialise(database, uri)
        client = call(uri, MlflowClient, tracking_uri=uri)
        location = None if uri.startswith("http") else str(artifacts)
        found = _experiment(client, uri, experiment, location)
    _check_artifacts(found, artifacts, uri)
    return Store(client, uri, found.experiment_id, database)


def call(uri: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call MLflow; wait for a locked database, and turn a failure into a PlmclError.

    The error shows neither the credentials in `uri` nor a message that repeats them.
    """
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    for wait in (*WAITS_FOR_THE_DATABASE, None):
        try:
            # In a transaction on a file they would leave it open, and the file locked.
            with hold_signals() if _sqlite_file(uri) else nullcontext():
                return function(*args, **kwargs)
        except (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError) as error:
            is_locked = "database is locked" in str(error)
            if is_locked and wait is not None:
                time.sleep(wait)
                continue
            if is_locked:
                advice = "many processes write to it: use an MLflow server on PostgreSQL"
            elif _sqlite_file(uri):
                advice = "if it is damaged, move it aside: a new one is filled from run records"
            else:
                advice = "is MLFLOW_TRACKING_URI right, and does the server run?"
            detail = _without_secrets(uri, error)
            raise PlmclError(f"MLflow at {address(uri)}: {detail}; {advice}") from None
    raise AssertionError("the last wait is None")


def address(uri: str) -> str:
    """A store's address without user, password and query, fit to be shown."""
    scheme, separator, rest = uri.partition("://")
    # The last "@": a password may hold one, unquoted.
    return f"{scheme}{separator}{rest.rpartition('@')[2]}".partition("?")[0]


@contextmanager
def locked(database: Path | None) -> Iterator[None]:
    """Hold the lock of the processes that share a SQLite file; a server needs none."""
    if database is None:
        yield
        return
    lock = FileLock(f"{database}.lock")
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=SECONDS_FOR_THE_LOCK)
    except Timeout:
        raise PlmclError(
            f"{database}.lock: held by another process for {SECONDS_FOR_THE_LOCK:.0f} s: end it"
        ) from None
    except OSError as error:
        raise PlmclError(f"{database}: cannot be used: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def _initialise(database: Path, uri: str) -> None:
    """Fill a new SQLite file under another name: killed half-way, MLflow cannot use its own."""
    from mlflow import MlflowClient

    partial = database.with_name(f"{database.name}.partial")
    partial.unlink(missing_ok=True)
    client = call(uri, MlflowClient, tracking_uri=_sqlite_uri(partial))
    call(uri, client.get_experiment_by_name, "Default")
    partial.replace(database)


def _experiment(client: "MlflowClient", uri: str, name: str, location: str | None) -> "Experiment":
    found = call(uri, client.get_experiment_by_name, name)
    if found is None:
        try:
            call(uri, client.create_experiment, name, artifact_location=location)
        except PlmclError:
            # Another client of the server may have made it in between.
            if call(uri, client.get_experiment_by_name, name) is None:
                raise
        found = call(uri, client.get_experiment_by_name, name)
    assert found is not None
    if found.lifecycle_stage != "active":
        raise PlmclError(
            f"MLflow at {address(uri)}: tracking.experiment {name!r} was deleted there: restore "
            f"it (mlflow experiments restore -x {found.experiment_id}) or choose another name"
        )
    return found


def _check_artifacts(experiment: "Experiment", expected: Path, uri: str) -> None:
    """MLflow stores absolute paths: a moved project would write where it was, and show nothing."""
    parts = urlsplit(experiment.artifact_location)
    if parts.scheme not in ("", "file"):
        return
    path = Path(unquote(parts.path) if parts.scheme else experiment.artifact_location)
    if path.resolve() == expected.resolve():
        return
    if os.environ.get("MLFLOW_TRACKING_URI") and path.is_dir():
        return
    raise PlmclError(
        f"MLflow at {address(uri)}: experiment {experiment.name!r} stores its artifacts in {path}, "
        f"which is not this project's {expected}: was the project moved, or is it mounted "
        "elsewhere? Run it where it was, or move the database aside: a new one is filled from the "
        "run records"
    )


def _without_secrets(uri: str, error: Exception) -> str:
    text = " ".join(str(error).split()).replace(uri, address(uri))
    # A password with "/" or "@" in it is cut up by those who parse the address: so each piece.
    rest = uri.partition("://")[2]
    hidden = unquote(f"{rest.rpartition('@')[0]} {rest.partition('?')[2]}")
    if any(piece and piece in text for piece in re.split(r"\W+", hidden)):
        return type(error).__name__
    return cut(text, 300)


def _sqlite_uri(path: Path) -> str:
    # SQLAlchemy decodes the path and ends it at "?".
    return f"sqlite:///{str(path).replace('%', '%25').replace('?', '%3F')}"


def _sqlite_file(uri: str) -> Path | None:
    scheme, _, path = uri.partition(":///")
    path = unquote(path.partition("?")[0])
    if scheme != "sqlite" or path in ("", ":memory:"):
        return None
    return Path(path).absolute()


def _process() -> dict[str, str]:
    return {HOST: socket.gethostname(), PID: str(os.getpid())}


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and "…" if it has more characters than `limit`."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
