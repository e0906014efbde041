"""Where a served model comes from, and what became of a run: one record, found from either end."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plmcl.errors import PlmclError
from plmcl.retraining.git import git
from plmcl.retraining.production import CHAMPION, Production
from plmcl.retraining.versions import Version, sha256_of


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Everything that a version came from.

    Attributes:
        version: v0001, v0002, …
        champion: Whether it is the one that is served.
        previous: The version that it replaced; "" = none, or it was never promoted.
        model: Path of the ONNX file, below the project's root.
        model_sha256: Of that file when the version was made.
        intact: Whether the file still has that hash.
        setting: The label setting that it was trained under.
        method: The training method.
        deliveries: The last delivery that it was trained with; 0 = the base set alone.
        data_sha256: Of the manifest.
        splits_sha256: Of the splits and the labels that training saw.
        commit: Git commit that holds dvc.lock.
        dvc_lock_sha256: Of that dvc.lock.
        mlflow_run_id: Of the training.
        registry_version: MLflow's number; None if it was never promoted.
        test_mAP: On the frozen test split; None where the split is not fully labeled.
    """

    version: str
    champion: bool
    previous: str
    model: str
    model_sha256: str
    intact: bool
    setting: str
    method: str
    deliveries: int
    data_sha256: str
    splits_sha256: str
    commit: str
    dvc_lock_sha256: str
    mlflow_run_id: str
    registry_version: int | None
    test_mAP: float | None  # noqa: N815

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON keeps."""
        return asdict(self)

    def text(self) -> str:
        """For people: a name and what it is, a line each, in columns."""
        role = "the champion" if self.champion else "not the champion"
        figure = "n/a" if self.test_mAP is None else f"{100 * self.test_mAP:.1f} %"
        damage = "" if self.intact else "  (the file there is another one, or gone)"
        words = {
            "version": f"{self.version}, {role}",
            "replaced": self.previous or "none",
            "model": f"{self.model}{damage}",
            "sha256": self.model_sha256,
            "trained by": f"{self.method} under {self.setting}",
            "test mAP": figure,
            "deliveries": f"up to {self.deliveries}" if self.deliveries else "none: the base set",
            "data": self.data_sha256,
            "splits": self.splits_sha256,
            "git commit": self.commit,
            "dvc.lock": self.dvc_lock_sha256,
            "MLflow run": self.mlflow_run_id,
            "registry version": str(self.registry_version or "none"),
        }
        width = max(map(len, words))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in words.items())


def trace(root: Path, what: str) -> Lineage:
    """The version that something belongs to, whichever end is at hand.

    Args:
        root: Of the project.
        what: `champion`, an ONNX file (a copy will do), a version, an MLflow run id, or anything
            that git takes for a commit: its first digits, a tag, a branch.

    Raises:
        PlmclError: It belongs to no version that is still here.
    """
    production = Production(root)
    champion = production.champion
    version = champion if champion and what == CHAMPION else _find(production, what)
    record = version.record
    return Lineage(
        version=record.version,
        champion=champion is not None and champion.version == record.version,
        previous=record.previous,
        model=version.model.relative_to(production.root).as_posix(),
        model_sha256=record.model_sha256,
        intact=version.model.exists() and sha256_of(version.model) == record.model_sha256,
        setting=record.setting,
        method=record.method,
        deliveries=record.deliveries,
        data_sha256=record.data_sha256,
        splits_sha256=record.splits_sha256,
        commit=record.commit,
        dvc_lock_sha256=record.dvc_lock_sha256,
        mlflow_run_id=record.mlflow_run_id,
        registry_version=record.registry_version,
        test_mAP=record.test_mAP,
    )


def _find(production: Production, what: str) -> Version:
    versions = production.versions()
    if Path(what).is_file():
        sha256 = sha256_of(Path(what))
        found = {version.record.model_sha256: version for version in versions}.get(sha256)
    else:
        found = _named(versions, what) or _named(versions, _commit(production.root, what))
    if found is None:
        there = ", ".join(version.version for version in versions) or "none"
        raise PlmclError(
            f"{what}: no file, version, run or commit of a version in {production.folder}; "
            f"there are: {there}"
        )
    return found


def _named(versions: Sequence[Version], name: str) -> Version | None:
    # Versions of one commit differ in nothing but their time: the latest is meant.
    for version in reversed(versions):
        record = version.record
        names = {record.version, record.mlflow_run_id, record.model_sha256, record.commit}
        if name in names - {""}:
            return version
    return None


def _commit(root: Path, what: str) -> str:
    try:
        return git(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{what}^{{commit}}"
        )
    except PlmclError:
        return ""
