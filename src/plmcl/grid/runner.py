"""A grid from its file to its table: what is done is skipped, the rest is trained side by side."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from filelock import FileLock, Timeout

from plmcl import tracking
from plmcl.data.splits import make_splits
from plmcl.errors import PlmclError
from plmcl.grid.inputs import compute_features, decode_images, draw_splits, identify
from plmcl.grid.plan import Run, fine_tunes, first_round, make_variants, second_round
from plmcl.grid.pool import Pool, share_out, visible_gpus
from plmcl.grid.results import (
    COLUMNS,
    RUN,
    Journal,
    Result,
    choose_candidates,
    merge_results,
    write_results,
)
from plmcl.grid.spec import GridSpec, load_grid
from plmcl.grid.worker import Place, read_manifest
from plmcl.machine import usable_cores
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.run_record import RunRecord
from plmcl.stages.paths import Paths


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing.

    Attributes:
        run: Which.
        error: Why; a traceback is in the worker's log.
    """

    run: Run
    error: str

    def __str__(self) -> str:
        """One line."""
        run = self.run
        name = ", ".join(filter(None, [run.row, run.setting, f"seed {run.seed}", run.candidate]))
        return f"{name}: {' '.join(self.error.split())}"


def run(
    path: Path,
    *,
    root: Path,
    jobs: int | None,
    files: Sequence[Path],
    out: Path | None,
    track: bool,
) -> list[Failure]:
    """Train what a grid lacks, and write its results and tables; what failed.

    Args:
        path: The grid file.
        root: Of the project.
        jobs: Runs at a time; None: one a core.
        files: Results, of other machines perhaps; if there are any, nothing is trained.
        out: Folder for results and tables; None: reports/grids/<name of the grid file>.
        track: Whether MLflow keeps the tables.

    Raises:
        PlmclError: The grid file or a file of results breaks a rule, or no run has a result.
    """
    from plmcl.grid.tables import write_tables

    params, spec = load_params(root / "params.yaml"), load_grid(path)
    failures: list[Failure] = []
    if files:
        results = _only_of(spec, merge_results(files))
    else:
        results, failures = run_grid(path.stem, spec, params, root, jobs or usable_cores())
    if results.empty:
        raise PlmclError("\n".join([f"{path}: no run has a result", *map(str, failures[:5])]))
    out = out or root / "reports" / "grids" / path.stem
    write_results(results, out / "results.csv")
    tables = write_tables(
        spec,
        results,
        out,
        _dataset(params),
        source=params.data.source,
        **_size(spec, params, root),
    )
    for table in tables:
        if table.suffix == ".md":
            print(table.read_text(encoding="utf-8"))
    if track:
        _track(path.stem, params, root, [out / "results.csv", *tables])
    return failures


def run_grid(
    name: str, spec: GridSpec, params: Params, root: Path, jobs: int
) -> tuple[pd.DataFrame, list[Failure]]:
    """Train what is not done yet: the results of all runs that the grid has, and what failed.

    Args:
        name: Of the folder for what is under way.
        spec: The grid.
        params: Of params.yaml.
        root: Of the project.
        jobs: Runs at a time.

    Raises:
        PlmclError: The grid or the data cannot be used, or this grid is already being run.
    """
    variants = make_variants(spec, params)
    place = Place(
        project=Paths.of_project(root, params.data.source),
        folder=root / ".plmcl" / "grid" / name,
        features_device="cuda" if torch.cuda.is_available() else "cpu",
    )
    read_manifest(place.project.manifests)  # before all else: it says which stage to run first
    first = first_round(spec, variants)
    parts = share_out(jobs, visible_gpus() if any(map(fine_tunes, first)) else [])
    with _alone(place.folder), Pool(parts, place) as pool:
        results, failures = _round(f"{name} 1/2", first, pool)
        second = second_round(spec, variants, choose_candidates(results, spec.tuning_seeds))
        more, failed = _round(f"{name} 2/2", second, pool)
    return pd.concat([results, more], ignore_index=True), failures + failed


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield
    except Timeout:
        raise PlmclError(f"{folder}: another process runs this grid; wait for it") from None


def _round(title: str, runs: Sequence[Run], pool: Pool) -> tuple[pd.DataFrame, list[Failure]]:
    place = pool.place
    draw_splits(runs, place)
    identities = identify(runs, place)
    journal = Journal(place.folder / "runs.csv")
    done = set(journal.read()["identity"])
    # By identity: what stands in two rows is trained once.
    todo = {key: run for key, run in zip(identities, runs, strict=True) if key not in done}
    print(f"{title}: {len(runs)} runs, {len(todo)} of them to be trained")
    failures = _train(title, todo, pool, journal)
    return _results(runs, identities, journal.read()), failures


def _train(title: str, todo: Mapping[str, Run], pool: Pool, journal: Journal) -> list[Failure]:
    threads = max(1, min(len(part.cores) for part in pool.parts))
    runs = {key: _on_threads(run, threads) for key, run in todo.items()}
    compute_features(list(runs.values()), pool.place)
    decode_images(list(runs.values()), pool.place)
    failures = []
    with show_progress(title) as progress:
        for number, (key, answer) in enumerate(pool.run(runs), 1):
            run = runs[key]
            if isinstance(answer, str):
                failures.append(Failure(run, answer))
            else:
                names = (run.row, run.method, run.setting, run.seed, run.candidate)
                journal.append(Result(*names, **asdict(answer), identity=key))
            progress(number, len(runs))
    return failures


def _results(runs: Sequence[Run], identities: Sequence[str], done: pd.DataFrame) -> pd.DataFrame:
    """Of the runs that are done; one that stands in two rows has a line in each."""
    figures = {figures["identity"]: figures for figures in done.to_dict("records")}
    lines = [
        figures[key] | {name: getattr(run, name) for name in RUN}
        for key, run in zip(identities, runs, strict=True)
        if key in figures
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype(COLUMNS)


def _on_threads(run: Run, threads: int) -> Run:
    train = run.params.train
    fewer = train.model_copy(update={"threads": min(train.threads, threads)})
    return replace(run, params=run.params.model_copy(update={"train": fewer}))


def _only_of(spec: GridSpec, results: pd.DataFrame) -> pd.DataFrame:
    cells = {(row, setting) for row in spec.rows for setting in spec.columns(row)}
    here = [cell in cells for cell in zip(results["row"], results["setting"], strict=True)]
    if not all(here):
        print(f"{len(here) - sum(here)} results are of no row and setting of this grid: left out")
    return results[here]


def _dataset(params: Params) -> str:
    if params.data.source != "folder":
        return params.data.source
    return Path(params.data.path).resolve().name


def _size(spec: GridSpec, params: Params, root: Path) -> dict[str, int]:
    """How many training images and labels there are, if the data are on this machine."""
    manifests = Paths.of_project(root, params.data.source).manifests
    if not manifests.exists():
        return {}
    manifest, of_grid = read_manifest(manifests), first_round(spec, make_variants(spec, params))[0]
    splits = make_splits(manifest, seed=params.seed, **of_grid.params.split.model_dump())
    num_train = int((splits["split"] == "train").sum())
    return {"num_train": num_train, "num_labels": len(manifest.label_names)}


def _track(name: str, params: Params, root: Path, files: Sequence[Path]) -> None:
    record = RunRecord(
        name=f"grid-{name}",
        experiment=params.tracking.experiment,
        params={},
        tags=tracking.environment_tags() | {"code_commit": tracking.code_commit(root)},
    )
    with tracking.start_run(record, root=root) as mlflow_run:
        for file in files:
            mlflow_run.store.put_text(
                mlflow_run.run_id, file.read_text(encoding="utf-8"), file.name
            )
