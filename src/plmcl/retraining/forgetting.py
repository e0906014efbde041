"""A person asks for an image to be removed: from the store, the label state and the caches.

What the weights of a model have learned of it stays in them: who asks is told which versions.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from plmcl.data.deliveries import read_deliveries
from plmcl.data.statuses import FORGOTTEN
from plmcl.durable import sync
from plmcl.errors import PlmclError
from plmcl.params import load_params
from plmcl.retraining.housekeeping import keep_features
from plmcl.retraining.production import Production
from plmcl.retraining.versions import sha256_of
from plmcl.schemas import Images, read_table, write_table
from plmcl.stages.paths import Paths


@dataclass
class Forgotten:
    """An image that is no longer there.

    Attributes:
        image_ids: All that it was known by: the same bytes may have been delivered twice.
        sha256: Of its content, which is kept, so that it does not come in again; "" if nothing but
            its label state was left.
        versions: Of models that were trained with it.
    """

    image_ids: list[str]
    sha256: str
    versions: list[str] = field(default_factory=list)


def forget(root: Path, images: Sequence[str]) -> list[Forgotten]:
    """Remove images that were delivered, and all that is kept of them one by one.

    Removed are the file, in the store and in every snapshot of it; its row of the label state of
    all versions; its cached features, examinations and object in DVC's cache. In the table of its
    delivery the row stays, with the hash alone. If killed, it is to be called again.

    The manifest and the report are DVC's outs: the next `dvc repro` makes them without it. Copies
    elsewhere (a DVC remote, a backup) are not touched.

    Args:
        root: Of the project.
        images: Each an image id, or a file with its bytes: the received one or any copy.

    Raises:
        PlmclError: An image is not known, or is in the base set, which the source fills: then
            nothing was changed, and the message says what to do.
    """
    paths = Paths.of_project(root.resolve(), "")
    checkout = Paths.of_project(paths.retraining / "checkout", "")
    production = Production(root)
    stores = [
        paths.received,
        *_versions(paths.deliveries("none").parent),
        *_versions(checkout.deliveries("none").parent),
    ]
    states = [
        *_versions(paths.production),
        *_versions(paths.warm("none").parent),
        *_versions(checkout.warm("none").parent),
    ]
    deliveries = [
        _Delivery(store, *delivery) for store in stores for delivery in read_deliveries(store)
    ]
    known = {
        f"delivered/{delivery.number:04d}/{name}": sha256
        for delivery in deliveries
        if delivery.store == paths.received
        for name, sha256 in zip(delivery.table["name"], delivery.table["sha256"], strict=True)
    }
    found = [_find(paths, production, known, what) for what in images]
    for image in found:
        image.versions = _trained_with(production, image)
    hashes = {image.sha256 for image in found if image.sha256}
    files = [path for delivery in deliveries for path in delivery.files(hashes)]
    _forget_cached(paths, files)
    # First the rows, then the files: killed in between, the rows still say which files.
    for delivery in deliveries:
        delivery.forget(hashes)
    for path in files:
        path.unlink(missing_ok=True)
    for folder in states:
        _forget_state(folder / "labels", {name for image in found for name in image.image_ids})
    keep_features(paths.features, lambda content: ~np.isin(content, list(hashes)))
    for file in sorted((paths.root / ".plmcl" / "examined").rglob("*.parquet")):
        _forget_examined(file, hashes)
    return found


@dataclass(frozen=True)
class _Delivery:
    """A delivery in a store, or in a snapshot of one; `table` is `schemas.Delivery`."""

    store: Path
    number: int
    table: pd.DataFrame

    def files(self, hashes: Collection[str]) -> list[Path]:
        """Of the rows with these hashes, those that are there."""
        names = self.table.loc[self.table["sha256"].isin(hashes), "name"]
        folders = [self.store / f"{self.number:04d}{kind}" for kind in ("", "-quarantine")]
        paths = [folder / name for folder in folders for name in names]
        return [path for path in paths if path.is_file()]

    def forget(self, hashes: Collection[str]) -> None:
        """Leave nothing of these rows but name and hash."""
        rows = self.table["sha256"].isin(hashes)
        if not (rows & (self.table["status"] != FORGOTTEN)).any():
            return
        left = self.table.copy()
        left.loc[rows, ["status", "reason"]] = [FORGOTTEN, "somebody asked for it"]
        left.loc[rows, ["dhash", "label"]] = ""
        left.loc[rows, ["width", "height"]] = np.int32(0)
        write_table(left, self.store / f"{self.number:04d}.parquet")
        sync(self.store)


def _versions(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("v*") if path.is_dir())


def _find(paths: Paths, production: Production, known: Mapping[str, str], what: str) -> Forgotten:
    """An image by its id or a file; `known` has the hash of each delivered one by its id."""
    sha256 = sha256_of(Path(what)) if Path(what).is_file() else known.get(what, "")
    _refuse_base(paths, what, sha256)
    image_ids = [image_id for image_id, content in known.items() if content == sha256 != ""]
    if image_ids:
        return Forgotten(image_ids, sha256)
    if any(what in _ids(version.path / "labels") for version in production.versions()):
        return Forgotten([what], "")
    raise PlmclError(
        f"{what}: no image that is known: expected an image id, such as "
        "delivered/0001/photo.jpg, or a file with its bytes"
    )


def _refuse_base(paths: Paths, what: str, sha256: str) -> None:
    table = paths.manifests / "images.parquet"
    if not table.exists():
        return
    images = read_table(table, Images)
    base = images[images["delivery"] == 0]
    base = base[(base["image_id"] == what) | ((base["sha256"] == sha256) & (sha256 != ""))]
    if base.empty:
        return
    data = load_params(paths.root / "params.yaml").data
    image_id = base["image_id"].iloc[0]
    advice = (
        f"delete it in your own folder, {data.path}, then `dvc repro` (which makes data/raw, the "
        f"manifest and the report without it), then `plmcl forget {image_id}` for the label state"
        if data.source == "folder"
        else f"the source {data.source} puts it there again whenever it is fetched"
    )
    raise PlmclError(f"{what}: is {image_id} of the base set: {advice}")


def _trained_with(production: Production, image: Forgotten) -> list[str]:
    deliveries = [int(name.split("/")[1]) for name in image.image_ids if image.sha256]
    return [
        version.version
        for version in production.versions()
        if min(deliveries, default=version.record.deliveries + 1) <= version.record.deliveries
        or not _ids(version.path / "labels").isdisjoint(image.image_ids)
    ]


def _ids(labels: Path) -> set[str]:
    path = labels / "image_ids.json"
    return set(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else set()


def _forget_cached(paths: Paths, files: Sequence[Path]) -> None:
    """Remove the files' contents from DVC's cache, where they are named by their MD5."""
    cache = _cache(paths.root) if files else None
    if cache is None:
        return
    for file in files:
        md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        (cache / "files" / "md5" / md5[:2] / md5[2:]).unlink(missing_ok=True)


def _cache(root: Path) -> Path | None:
    if not (root / ".dvc").is_dir():
        return None
    command = [str(Path(sys.executable).with_name("dvc")), "cache", "dir"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise PlmclError(f"dvc cache dir: {' '.join(done.stderr.split())[-300:]}")
    return root / done.stdout.strip()


def _forget_state(labels: Path, image_ids: Collection[str]) -> None:
    """Take rows out of a label store, which is whole before and after."""
    old, making = labels.with_name(".labels.old"), labels.with_name(".labels.tmp")
    if old.exists() and not labels.exists():  # killed between the two renames below
        old.replace(labels)
    path = labels / "image_ids.json"
    names = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = np.array([name not in image_ids for name in names], dtype=bool)
    if not kept.all():
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        left = [name for name in names if name not in image_ids]
        text = json.dumps(left, ensure_ascii=False, indent=0)
        (making / "image_ids.json").write_text(f"{text}\n", encoding="utf-8")
        for file in sorted(labels.glob("*.npy")):
            rows = np.load(file, allow_pickle=False)[kept]
            np.save(making / file.name, rows, allow_pickle=False)
        for written in [*making.iterdir(), making]:
            sync(written)
        labels.replace(old)
        making.replace(labels)
        sync(labels.parent)
    shutil.rmtree(old, ignore_errors=True)


def _forget_examined(file: Path, hashes: Collection[str]) -> None:
    table = pyarrow.parquet.read_table(file)
    if "sha256" not in table.column_names:
        return
    gone = pc.is_in(table["sha256"], value_set=pa.array(list(hashes), table["sha256"].type))
    if pc.any(gone).as_py():
        unfinished = file.with_suffix(".tmp")
        pyarrow.parquet.write_table(table.filter(pc.invert(gone)), unfinished, compression="zstd")
        unfinished.replace(file)
