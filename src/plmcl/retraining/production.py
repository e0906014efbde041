"""What is served: the versions of the model, which one is the champion, and the way back.

models/production/v0001, v0002, …   each whole or not there
models/production/champion -> v0002

The link is the truth. Switching it, by one rename, is what promotes a version; the alias in
MLflow's registry and the git branch `production` follow it, again and again until they do.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from plmcl.durable import copy, sync
from plmcl.errors import PlmclError
from plmcl.retraining import registry
from plmcl.retraining.git import checked_out_in, git, refs
from plmcl.retraining.versions import ProductionRecord as ProductionRecord
from plmcl.retraining.versions import Version as Version
from plmcl.retraining.versions import sha256_of as sha256_of
from plmcl.schemas import write_table
from plmcl.stages.paths import Paths

CHAMPION = "champion"
BRANCH = "production"

# What a version keeps of its training and of its evaluation, beside label state and truth.
_OF_MODEL = ("model.onnx", "model.pt")
_OF_RUN = ("run.json", "metrics.json", "per_label.csv", "predictions.parquet")


class Production:
    """The versions of one project.

    Whoever changes something holds the lock of `plmcl.retraining.lock`.

    Args:
        root: Of the project: a git repository.

    Attributes:
        root: Of the project.
        folder: Of the versions.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = Paths.of_project(self.root, "").production

    @property
    def champion(self) -> Version | None:
        """The version that is served; None before the first promotion.

        Raises:
            PlmclError: The link leads nowhere.
        """
        link = self.folder / CHAMPION
        if not link.is_symlink():
            return None
        target = link.readlink()
        if not (self.folder / target / "record.json").exists():
            raise PlmclError(
                f"{link}: leads to {target}, which is not there: bring the folder back, or remove "
                "the link and promote another version"
            )
        return Version.read(self.folder / target)

    def versions(self) -> list[Version]:
        """All that are there, promoted or not, the oldest first."""
        folders = [p for p in self.folder.glob("v*") if re.fullmatch(r"v[0-9]{4,}", p.name)]
        return [Version.read(path) for path in sorted(folders, key=lambda path: int(path.name[1:]))]

    def version(self, name: str) -> Version:
        """One of them.

        Raises:
            PlmclError: It is not there.
        """
        for version in self.versions():
            if version.version == name:
                return version
        there = ", ".join(version.version for version in self.versions()) or "none"
        raise PlmclError(f"{name}: no version in {self.folder}; there are: {there}")

    def stage(
        self,
        version: str,
        *,
        model_dir: Path,
        run_dir: Path,
        truth: pd.DataFrame,
        record: ProductionRecord,
    ) -> Version:
        """Put a trained model beside the others, in place of an unfinished one of that name.

        Args:
            version: v0001, v0002, …
            model_dir: With model.onnx, model.pt and labels/.
            run_dir: With run.json, metrics.json, per_label.csv and predictions.parquet.
            truth: `schemas.Labels`: what is known of the test split.
            record: Of it.

        Raises:
            PlmclError: It is the champion, or its model is not the one that the record names.
        """
        champion = self.champion
        if champion is not None and champion.version == version:
            raise PlmclError(f"{version}: is the champion, and is never replaced by another one")
        making, target = self.folder / f".{version}.tmp", self.folder / version
        shutil.rmtree(making, ignore_errors=True)
        (making / "labels").mkdir(parents=True)
        files = [model_dir / name for name in _OF_MODEL] + [run_dir / name for name in _OF_RUN]
        for source in files:
            copy(source, making / source.name)
        for source in sorted((model_dir / "labels").iterdir()):
            copy(source, making / "labels" / source.name)
        write_table(truth, making / "truth.parquet")
        sync(making / "truth.parquet")
        record.write(making / "record.json")
        Version.read(making).check()
        for folder in (making / "labels", making):
            sync(folder)
        if target.exists():
            target.replace(self.folder / f".{version}.old")
        making.replace(target)
        sync(self.folder)
        shutil.rmtree(self.folder / f".{version}.old", ignore_errors=True)
        return Version.read(target)

    def promote(self, version: Version) -> None:
        """Make a version the champion, everywhere; if it is already, make that true everywhere.

        Nothing has changed if this fails before the link is switched. What fails afterwards (the
        registry cannot be reached) is made up for by `reconcile`.

        Raises:
            PlmclError: The model is damaged, or the registry does not take it.
        """
        version.check()
        number = registry.register(version, self.root)
        record = replace(
            version.record, registry_version=number, previous=self._previous_of(version)
        )
        record.write(version.path / "record.json")
        self._switch(version.version)
        self._follow(Version(version.path, record))
        self.note(version, "promoted", _reasons(version))

    def roll_back(self) -> Version:
        """Make the champion's predecessor the champion, everywhere; the newer one is kept.

        Raises:
            PlmclError: There is none, or it is damaged: then nothing has changed. Or the registry
                cannot be reached: then the link is switched, and `reconcile` does the rest.
        """
        champion = self.champion
        if champion is None:
            raise PlmclError(f"{self.folder}: no champion, so nothing to roll back")
        if not champion.record.previous:
            raise PlmclError(f"{champion.version}: the first champion: it replaced none")
        previous = self.version(champion.record.previous)
        previous.check()
        self._switch(previous.version)
        self._follow(previous)
        return previous

    def reconcile(self) -> list[str]:
        """Make true everywhere what the link says, after a crash; in words, what was mended.

        Raises:
            PlmclError: The link leads nowhere, or the registry cannot be reached.
        """
        mended = []
        for path in sorted(self.folder.glob(".*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            mended.append(f"removed {path.name}, left half-made in {self.folder}")
        champion = self.champion
        return mended if champion is None else mended + self._follow(champion)

    def note(self, version: Version, result: str, reasons: Sequence[str]) -> None:
        """Say in MLflow what became of a version: tags of the run that trained it.

        Args:
            version: Promoted or not.
            result: In a word: promoted, refused, proposed.
            reasons: In words.
        """
        decision = f"{result}: {'; '.join(reasons)}" if reasons else result
        tags = {"plmcl.version": version.version, "plmcl.decision": decision}
        registry.tag_run(version, tags, self.root)

    def _previous_of(self, version: Version) -> str:
        # Going back to one that the champion comes from makes no circle.
        line = [champion.version for champion in self._line()]
        return version.record.previous if version.version in line or not line else line[0]

    def _line(self) -> Iterator[Version]:
        """The champion, the one that it replaced, and so on, as far as they are there."""
        there = {version.version: version for version in self.versions()}
        version = self.champion
        while version is not None:
            yield version
            version = there.pop(version.record.previous, None)

    def _switch(self, version: str) -> None:
        making = self.folder / f".{CHAMPION}"
        making.unlink(missing_ok=True)
        making.symlink_to(version, target_is_directory=True)
        making.replace(self.folder / CHAMPION)
        sync(self.folder)

    def _follow(self, champion: Version) -> list[str]:
        """Move branch and alias to the champion; in words, what was not there yet."""
        moved = self._move_branch(champion.record.commit)
        number, was_moved = registry.move_alias(champion, self.root)
        if champion.record.registry_version != number:
            replace(champion.record, registry_version=number).write(champion.path / "record.json")
        if was_moved:
            moved.append(f"moved MLflow's alias {registry.ALIAS} to {champion.version}")
        return moved

    def _move_branch(self, commit: str) -> list[str]:
        if refs(self.root, f"refs/heads/{BRANCH}").get(f"refs/heads/{BRANCH}") == commit:
            return []
        if place := checked_out_in(self.root, BRANCH):
            return [f"left branch {BRANCH}, checked out in {place}; it should be at {commit[:12]}"]
        git(self.root, "branch", "--force", "--no-track", BRANCH, commit)
        return [f"moved branch {BRANCH} to {commit[:12]}"]


def _reasons(version: Version) -> list[str]:
    path = version.path / "decision.json"
    if not path.exists():
        return []
    decision = json.loads(path.read_text(encoding="utf-8"))
    reasons: list[str] = decision["reasons"]
    return reasons if decision["promote"] else ["by hand, although", *reasons]
