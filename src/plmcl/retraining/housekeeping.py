"""What retrainings leave behind goes; never the champion, nor what it can be rolled back to."""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.retraining import registry
from plmcl.retraining.git import checked_out_in, git, refs
from plmcl.retraining.production import Production
from plmcl.retraining.versions import Version
from plmcl.schemas import Delivery, Images, read_table
from plmcl.stages.paths import Paths

# A training that stopped so long ago is not gone on with.
DAYS_UNTIL_ABANDONED = 7
# What a retraining has in git, by its version.
_REFS = ("refs/heads/retrain/", "refs/tags/refused/", "refs/tags/proposed/")


@dataclass(frozen=True)
class Removed:
    """Something that is gone.

    Attributes:
        what: In words.
        bytes: That it took on the disk, as far as files of this machine are meant.
    """

    what: str
    bytes: int


def prune(root: Path, keep: int) -> list[Removed]:
    """Remove old versions and all that belongs to them, abandoned checkpoints, unused features.

    The newest versions stay, and so do the champion and the one that it replaced. Runs in MLflow
    stay, without the models. What DVC's cache holds is DVC's to remove: `dvc gc`.

    Args:
        root: Of the project.
        keep: How many of the newest versions stay, promoted or not; at least 1.

    Raises:
        PlmclError: `keep` is below 1, or MLflow cannot be reached.
    """
    if keep < 1:
        raise PlmclError(f"--keep: expected 1 or more, found {keep}")
    production = Production(root)
    paths = Paths.of_project(production.root, "")
    versions = production.versions()
    gone = _outdated(versions, production.champion, keep)
    kept = {version.version for version in versions} - {version.version for version in gone}
    return [
        *(_remove_version(version, paths) for version in gone),
        *_remove_refs(production.root, kept),
        *_remove_checkpoints(paths),
        *_remove_features(paths),
    ]


def keep_features(cache: Path, is_kept: Callable[[list[str]], NDArray[np.bool_]]) -> int:
    """Remove features from the cache of `plmcl.features`; the bytes that this freed.

    Args:
        cache: Its folder.
        is_kept: Content hashes of M images to bool (M,).
    """
    freed = 0
    for folder in sorted(path for path in cache.glob("*") if path.is_dir()):
        with FileLock(folder.with_suffix(".lock")):  # of those who compute what is not there
            for path in sorted(folder.glob("view-*/*.npz")):
                before = path.stat().st_size
                _keep_rows(path, is_kept)
                freed += before - (path.stat().st_size if path.exists() else 0)
    return freed


def _keep_rows(path: Path, is_kept: Callable[[list[str]], NDArray[np.bool_]]) -> None:
    try:
        with np.load(path, allow_pickle=False) as saved:
            content, features = saved["content"], saved["features"]
    except Exception:  # what is damaged is of no use to anybody: it is passed over when read
        path.unlink()
        return
    kept = is_kept(content.tolist())
    if not kept.any():
        path.unlink()
    elif not kept.all():
        writing = path.with_suffix(".writing")
        with writing.open("wb") as file:
            np.savez(file, content=content[kept], features=features[kept])
        writing.replace(path)


def _outdated(versions: Sequence[Version], champion: Version | None, keep: int) -> list[Version]:
    kept = {version.version for version in versions[-keep:]}
    if champion is not None:
        kept |= {champion.version, champion.record.previous}
    return [version for version in versions if version.version not in kept]


def _remove_version(version: Version, paths: Paths) -> Removed:
    registry.remove(version, paths.root)  # first: it is found by what the folder says
    name = version.version
    notes = [paths.retraining / "logs" / f"{name}.txt", paths.retraining / f"drift-{name}.json"]
    size = _size([version.path, *notes])
    # Gone at once, not piece by piece: `reconcile` would finish it.
    leaving = version.path.with_name(f".{name}.old")
    version.path.replace(leaving)
    shutil.rmtree(leaving)
    for note in notes:
        note.unlink(missing_ok=True)
    return Removed(f"version {name}", size)


def _remove_refs(root: Path, kept: Collection[str]) -> Iterator[Removed]:
    newest = max((int(name[1:]) for name in kept), default=0)
    for ref in refs(root, *_REFS):
        version = ref.rpartition("/")[2]
        number = version[1:] if version.startswith("v") else ""
        # A later one than all that are here is under way.
        if version in kept or not number.isdigit() or int(number) > newest:
            continue
        branch = ref.removeprefix("refs/heads/")
        if branch != ref and checked_out_in(root, branch):
            continue
        git(root, "update-ref", "-d", ref)
        kind = "branch" if branch != ref else "tag"
        yield Removed(f"{kind} {'/'.join(ref.split('/')[2:])}", 0)


def _remove_checkpoints(paths: Paths) -> Iterator[Removed]:
    before = time.time() - DAYS_UNTIL_ABANDONED * 24 * 3600
    checkout = Paths.of_project(paths.retraining / "checkout", "")
    for folder in (paths.checkpoints, checkout.checkpoints):
        for training in sorted(folder.glob("*/*")):
            if max(path.stat().st_mtime for path in [training, *training.rglob("*")]) < before:
                size = _size([training])
                shutil.rmtree(training)
                yield Removed(f"checkpoints of {training.parent.name}, abandoned", size)


def _remove_features(paths: Paths) -> Iterator[Removed]:
    table = paths.manifests / "images.parquet"
    if not table.exists():  # then nothing is known of what is used
        return
    used = set(read_table(table, Images)["sha256"])
    for delivery in paths.received.glob("[0-9]*.parquet"):
        rows = read_table(delivery, Delivery)
        used |= set(rows.loc[rows["status"].isin(USABLE), "sha256"])
    freed = keep_features(paths.features, lambda content: np.array([c in used for c in content]))
    if freed:
        yield Removed("features of images that are no longer there", freed)


def _size(paths: Sequence[Path]) -> int:
    files = [file for path in paths for file in [path, *path.rglob("*")]]
    return sum(file.lstat().st_size for file in files if file.is_file())
