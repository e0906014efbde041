"""A retraining, from what has arrived to a decision; each step may be killed and run again.

Prefect's flow calls these steps as tasks, and `plmcl retrain` calls them in a row; either way they
are the same, and no server is needed.
"""

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmcl import schemas
from plmcl.data.deliveries import read_deliveries
from plmcl.data.images import Recipe
from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.errors import PlmclError
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.records import read_record, write_record
from plmcl.retraining.arrival import Receipt, receive
from plmcl.retraining.checkout import Checkout, fast_forward, tag, user_commit
from plmcl.retraining.delivered import accepted, last_delivery, snapshot, waiting
from plmcl.retraining.gate import Decision, Scored, decide
from plmcl.retraining.production import Production, ProductionRecord, Version, sha256_of
from plmcl.retraining.scored import truth_table
from plmcl.run_record import RunRecord, best_run
from plmcl.stages.paths import Paths

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
Result = Literal["promoted", "refused", "proposed"]


@dataclass(frozen=True)
class Due:
    """Whether to retrain now, and why or why not, in words."""

    now: bool
    reason: str


@dataclass(frozen=True)
class Round:
    """A retraining under way.

    Attributes:
        version: Of all that it makes: v0001, v0002, …
        base: The user's commit that it started from.
        warm: The champion that it starts from; "" for from scratch.
        deliveries: The last delivery that is part of it.
        images: Delivered images in it.
    """

    version: str
    base: str
    warm: str
    deliveries: int
    images: int


@dataclass(frozen=True)
class Outcome:
    """How a retraining ended.

    Attributes:
        version: Its version.
        deliveries: The last delivery that was part of it.
        result: What became of the challenger.
        reasons: Why, in words.
        notes: What else a person should know: drift, the checkout that was not updated.
    """

    version: str
    deliveries: int
    result: Result
    reasons: list[str]
    notes: list[str]


class Retraining:
    """The retrainings of a project.

    Args:
        root: Of the project.

    Attributes:
        root: Of the project.
        folder: Where what is under way is kept.
        checkout: Where retrainings run.
        production: What is served.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = self.root / ".plmcl" / "retraining"
        self.checkout = Checkout(self.root)
        self.production = Production(self.root)

    @property
    def lock(self) -> Path:
        """Held by whoever changes anything."""
        return self.folder / "lock"

    @property
    def params(self) -> Params:
        """The project's, as they are in the user's checkout."""
        return load_params(self.root / "params.yaml")

    def receive(self) -> Receipt:
        """Take in what has arrived; `arrival.receive` says how."""
        params = self.params
        paths = Paths.of_project(self.root, params.data.source)
        manifests = paths.manifests
        if not manifests.exists():  # the pipeline has run in the other checkout alone
            manifests = self.checkout.paths(params.data.source).manifests
        names = Manifest.read(manifests).label_names if manifests.exists() else []
        with show_progress("receive") as progress:
            return receive(
                self._incoming(params),
                paths.received,
                Recipe(**params.image.model_dump()),
                label_names=names,
                known=manifests / "images.parquet",
                settle_seconds=params.retraining.settle_seconds,
                record=self.root / ".plmcl" / "examined" / "incoming",
                progress=progress,
            )

    def _incoming(self, params: Params) -> str:
        place = params.retraining.incoming
        return place if "://" in place else str(self.root / place)

    def due(self) -> Due:
        """Whether there is a reason to retrain now."""
        unfinished = self._read_round()
        if unfinished is not None:
            return Due(True, f"{unfinished.version} was interrupted: it goes on")
        last = self.last
        if last is None and self.production.champion is None:
            return Due(True, "there is no champion yet")
        wanted = self.params.retraining
        since = last.deliveries if last is not None else 0
        new = waiting(self.root / "data" / "received", since)
        if new.count == 0:
            tried = f" since {last.version} was {last.result}" if last is not None else ""
            return Due(False, f"no new image{tried}")
        hours = (time.time() - new.oldest / 1000) / 3600
        if new.count >= wanted.min_images:
            return Due(True, f"{new.count} new images, {wanted.min_images} are enough")
        if hours >= wanted.max_age_hours:
            return Due(True, f"{new.count} new images, the oldest waiting for {hours:.1f} h")
        return Due(
            False,
            f"{new.count} new images of the {wanted.min_images} that are enough, the oldest "
            f"waiting for {hours:.1f} h of {wanted.max_age_hours:g} h",
        )

    @property
    def last(self) -> Outcome | None:
        """How the last retraining ended; None if none has."""
        path = self.folder / "last.json"
        return read_record(Outcome, path, missing="not found") if path.exists() else None

    def begin(self) -> Round:
        """Take a snapshot of what has arrived, and set up the checkout for it.

        An interrupted retraining goes on, with its own snapshot, unless the user's commit or the
        champion has changed since. Snapshots have the name of the last delivery in them, and copies
        of a champion its own: what has not changed since the last retraining is not run again.
        """
        champion, earlier = self.production.champion, self._read_round()
        if champion is not None and earlier is not None and champion.version == earlier.version:
            return earlier  # it was interrupted after its promotion
        if self.params.retraining.start == "scratch":
            champion = None
        warm = champion.version if champion is not None else ""
        base = user_commit(self.root)
        if earlier is not None and (earlier.base, earlier.warm) == (base, warm):
            version, last = earlier.version, earlier.deliveries
        else:
            version, last = self._next_version(), last_delivery(self.root / "data" / "received")
        self._write_round(Round(version, base, warm, last, 0))
        self.checkout.open(f"retrain/{version}")
        params = load_params(self.checkout.path / "params.yaml")
        paths = self.checkout.paths(params.data.source)
        images = self._take_snapshot(paths, last) if last else 0
        if champion is not None:
            self._copy_champion(paths, champion)
        self.checkout.set_params(
            {
                "data.deliveries": _snapshot_name(last) if last else "none",
                "train.warm_start": warm or "none",
            }
        )
        begun = Round(version, base, warm, last, images)
        self._write_round(begun)
        return begun

    def _take_snapshot(self, paths: Paths, last: int) -> int:
        """Have the deliveries up to `last` in the checkout; the number of their images."""
        folder = paths.deliveries(_snapshot_name(last))
        if not folder.exists():
            snapshot(self.root / "data" / "received", folder, last)
        _remove_versions(folder.parent, but=folder.name)
        self.checkout.track(folder)
        return sum(int(accepted(table).sum()) for _, table in read_deliveries(folder))

    def _copy_champion(self, paths: Paths, champion: Version) -> None:
        folder = paths.warm(champion.version)
        if not folder.exists():
            partial = folder.with_name(f".{folder.name}.tmp")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(champion.path / "labels", partial / "labels")
            shutil.copy2(champion.path / "model.pt", partial)
            partial.replace(folder)
        _remove_versions(folder.parent, but=folder.name)
        self.checkout.track(folder)

    def reproduce(self, current: Round, say: Say) -> str:
        """Run the pipeline on the snapshot and commit what it made; the commit."""
        self.checkout.reproduce(self._log(current), say)
        return self.checkout.commit(
            f"Retrain {current.version}: {current.images} delivered images, "
            f"from {current.warm or 'scratch'}"
        )

    def judge(self, current: Round, say: Say) -> Decision:
        """Compare the challenger with the champion, and put it beside it."""
        champion = self.production.champion
        if champion is not None and champion.version == current.version:
            return Decision.read(champion.path / "decision.json")  # killed after the promotion
        params = load_params(self.checkout.path / "params.yaml")
        paths = self.checkout.paths(params.data.source)
        setting, method = _best(paths, params)
        manifest = Manifest.read(paths.manifests)
        splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
        test = truth_rows(manifest, splits, "test")
        truth = truth_table(test, manifest.label_names)
        model = paths.model(setting, method)
        challenger = Scored(
            version=current.version,
            predictions=schemas.read_table(
                paths.run(setting, method) / "predictions.parquet", schemas.Predictions
            ),
            truth=truth,
            model=model / "model.onnx",
            complete=bool(test.observed.all()),
        )
        scored = None if champion is None else champion.scored()
        say(f"{current.version}: {setting}-{method} is the challenger")
        decision = decide(scored, challenger, params.gate)
        run = RunRecord.read(paths.run(setting, method) / "run.json")
        figure = decision.figures["test_mAP"]
        record = ProductionRecord(
            version=current.version,
            previous="",
            created=time.time_ns() // 1_000_000,
            setting=setting,
            method=method,
            commit=self.checkout.head,
            dvc_lock_sha256=sha256_of(self.checkout.path / "dvc.lock"),
            data_sha256=paths.data_sha256(),
            splits_sha256=paths.splits_sha256(setting),
            model_sha256=sha256_of(model / "model.onnx"),
            mlflow_run_id=run.mlflow_run_id or "",
            registry_version=None,
            deliveries=current.deliveries,
            test_mAP=None if figure is None else float(figure),
        )
        version = self.production.stage(
            current.version,
            model_dir=model,
            run_dir=paths.run(setting, method),
            truth=truth,
            record=record,
        )
        decision.write(version.path / "decision.json")
        return decision

    def drift(self, current: Round, say: Say) -> str:
        """How the delivered images that the champion has not seen differ from the base ones."""
        champion = self.production.champion
        since = champion.record.deliveries if champion is not None else 0
        if since >= current.deliveries:
            return ""
        out = self.folder / f"drift-{current.version}.json"
        command = [sys.executable, "-m", "plmcl.retraining.drift", "--root", "."]
        command += ["--since", str(since), "--out", str(out)]
        self.checkout.run(command, self._log(current), say)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return str(found["words"])

    def conclude(self, current: Round, decision: Decision, notes: list[str]) -> Outcome:
        """Promote, or keep what was made under a tag; this ends the retraining."""
        version = self.production.version(current.version)
        commit = version.record.commit
        result: Result = "promoted" if decision.promote else "refused"
        if decision.promote:
            self.production.promote(version)
            if self.params.retraining.update_checkout:
                why_not = fast_forward(self.root, commit)
                notes = [
                    *notes,
                    *([f"the checkout stays where it is: {why_not}"] if why_not else []),
                ]
        else:
            result = "proposed" if decision.proposes else "refused"
            self.production.note(version, result, decision.reasons)
            tag(self.root, f"{result}/{current.version}", commit, "\n".join(decision.reasons))
        outcome = Outcome(current.version, current.deliveries, result, decision.reasons, notes)
        write_record(outcome, self.folder / "last.json")
        (self.folder / "round.json").unlink()
        return outcome

    def roll_back(self) -> Version:
        """Serve the champion's predecessor again; a retraining that made the champion is over."""
        champion, unfinished = self.production.champion, self._read_round()
        version = self.production.roll_back()
        if champion and unfinished and unfinished.version == champion.version:
            (self.folder / "round.json").unlink()  # else it would go on, and promote it again
        return version

    def run(self, say: Say, *, force: bool) -> Outcome | Due:
        """All of it, in this process: an outcome, or why there was nothing to do."""
        for mended in self.production.reconcile():
            say(mended)
        say(str(self.receive()))
        due = self.due()
        if not (due.now or force):
            return due
        say(due.reason)
        current = self.begin()
        say(f"{current.version}: {current.images} delivered images")
        self.reproduce(current, say)
        decision = self.judge(current, say)
        drift = self.drift(current, say)
        return self.conclude(current, decision, [drift] if drift else [])

    def _next_version(self) -> str:
        used = [version.version for version in self.production.versions()]
        if self.last is not None:
            used.append(self.last.version)
        earlier = self._read_round()
        if earlier is not None:
            used.append(earlier.version)
        return f"v{max((int(version[1:]) for version in used), default=0) + 1:04d}"

    def _read_round(self) -> Round | None:
        path = self.folder / "round.json"
        return read_record(Round, path, missing="not found") if path.exists() else None

    def _write_round(self, current: Round) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_record(current, self.folder / "round.json")

    def _log(self, current: Round) -> Path:
        return self.folder / "logs" / f"{current.version}.txt"


def _best(paths: Paths, params: Params) -> tuple[str, str]:
    setting = params.retraining.setting
    if setting not in params.grid.settings:
        raise PlmclError(
            f"retraining.setting: {setting} is none of grid.settings "
            f"({', '.join(params.grid.settings)})"
        )
    return setting, best_run(
        {
            method: RunRecord.read(paths.run(setting, method) / "run.json")
            for method in params.grid.methods
        }
    )


def _snapshot_name(last: int) -> str:
    return f"v{last:04d}"


def _remove_versions(folder: Path, but: str) -> None:
    for version in folder.glob("v*"):
        if version.is_dir() and version.name != but:
            shutil.rmtree(version)
