"""The model registry of MLflow: a version of a model, ready to be served, and its alias.

A registered version is an MLflow model that holds the ONNX file and the code that serves it:
`mlflow models serve -m models:/plmcl@champion`. It belongs to the run that trained it. MLflow is
imported inside functions: importing this module costs nothing and does nothing.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plmcl import tracking
from plmcl.errors import PlmclError
from plmcl.inference import Tagger
from plmcl.mlflow_store import Store, call, open_store
from plmcl.retraining.packaging import save_package
from plmcl.retraining.versions import Version, sha256_of
from plmcl.run_record import RunRecord
from plmcl.session import CPU
from plmcl.stages.track import read_evaluation

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

ALIAS = "champion"
MODEL_SHA256 = "plmcl.model_sha256"
SECONDS_UNTIL_READY = 300


@dataclass(frozen=True)
class _Registry:
    """The registered model of one experiment.

    Attributes:
        store: Of the experiment.
        name: Of the model: the experiment's, so that projects that share a server keep apart.
        record: Of the training whose version is at hand.
    """

    store: Store
    name: str
    record: RunRecord

    @property
    def client(self) -> Any:
        return self.store.client

    def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        return call(self.store.uri, method, *args, **kwargs)

    def ready(self, model_sha256: str) -> "list[ModelVersion]":
        """Registered versions of a file, the newest first."""
        query = f"name = '{self.name}' and tags.`{MODEL_SHA256}` = '{model_sha256}'"
        found = self.call(self.client.search_model_versions, query)
        return sorted((v for v in found if v.status == "READY"), key=lambda v: -int(v.version))

    def champion(self) -> "ModelVersion | None":
        """What the alias stands for; None if there is no such alias."""
        models = self.call(self.client.search_registered_models, f"name = '{self.name}'")
        number = next((model.aliases.get(ALIAS) for model in models), None)
        if number is None:
            return None
        found: ModelVersion = self.call(self.client.get_model_version, self.name, number)
        return found


def register(version: Version, root: Path) -> int:
    """Register a version, unless its very file is registered; MLflow's number of it.

    On return it is READY, what the registry stores has the file's hash, and it answers.

    Args:
        version: With its run.json.
        root: Of the project.

    Raises:
        PlmclError: The store cannot be reached or used, or gives back another file.
    """
    registry = _open(version, root)
    for known in registry.ready(version.record.model_sha256):
        if _differs(registry, known, version) == "":
            return int(known.version)
    run = _run(registry, version, root)
    source = _upload(registry, run, version)
    models = registry.call(registry.client.search_registered_models, f"name = '{registry.name}'")
    if not models:
        registry.call(registry.client.create_registered_model, registry.name)
    created = registry.call(
        registry.client.create_model_version,
        registry.name,
        source,
        run_id=run.info.run_id,
        tags=_tags(version),
        await_creation_for=SECONDS_UNTIL_READY,
    )
    number = created.version
    created = registry.call(registry.client.get_model_version, registry.name, number)
    why = (
        f"its status is {created.status}, not READY"
        if created.status != "READY"
        else _differs(registry, created, version)
    )
    if why:
        raise PlmclError(f"MLflow: version {number} of {registry.name} cannot be used: {why}")
    return int(number)


def move_alias(version: Version, root: Path) -> tuple[int, bool]:
    """Have the alias stand for a version, which is registered first where it is not.

    Returns:
        MLflow's number of the version, and whether the alias stood for another file.
    """
    registry = _open(version, root)
    now = registry.champion()
    if now is not None and now.tags.get(MODEL_SHA256) == version.record.model_sha256:
        return int(now.version), False
    number = register(version, root)
    registry.call(registry.client.set_registered_model_alias, registry.name, ALIAS, str(number))
    return number, True


def alias_version(version: Version, root: Path) -> int | None:
    """MLflow's number of what the alias stands for, in the registry that a version belongs to."""
    now = _open(version, root).champion()
    return None if now is None else int(now.version)


def tag_run(version: Version, tags: Mapping[str, str], root: Path) -> None:
    """Set tags on the run that trained a version, made again if the store lacks it."""
    registry = _open(version, root)
    run = _run(registry, version, root)
    registry.store.log(run.info.run_id, tags=tags)


def remove(version: Version, root: Path) -> None:
    """Delete a version and its files from MLflow; the run stays, and so does what the alias has."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    registry = _open(version, root)
    now = registry.champion()
    for known in registry.ready(version.record.model_sha256):
        if now is not None and known.version == now.version:
            continue
        registry.call(registry.client.delete_model_version, registry.name, known.version)
        repository = registry.call(
            get_artifact_repository, known.source, tracking_uri=registry.store.uri
        )
        registry.call(repository.delete_artifacts)


def _open(version: Version, root: Path) -> _Registry:
    record = RunRecord.read(version.path / "run.json")
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    name = re.sub(r"[/:']", "-", record.experiment)  # what such a name must not hold
    return _Registry(open_store(record.experiment, root), name, record)


def _run(registry: _Registry, version: Version, root: Path) -> "Run":
    """The run that trained a version, made again from run.json if the store lacks it."""
    record = registry.record
    run = registry.store.find(record.record_id, record.mlflow_run_id)
    if run is None:
        metrics, per_label = read_evaluation(version.path)
        tracking.restore(record, metrics, per_label, root=root)
        run = registry.store.find(record.record_id, record.mlflow_run_id)
    assert run is not None
    return run


def _upload(registry: _Registry, run: "Run", version: Version) -> str:
    """Put the MLflow model among the run's artifacts; its address."""
    place = f"production/{version.version}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        registry.call(save_package, version.model, path)
        registry.call(registry.client.log_artifacts, run.info.run_id, str(path), place)
    return f"{run.info.artifact_uri}/{place}"


def _tags(version: Version) -> dict[str, str]:
    record = version.record
    return {
        "plmcl.version": record.version,
        "plmcl.commit": record.commit,
        "plmcl.dvc_lock_sha256": record.dvc_lock_sha256,
        "plmcl.data_sha256": record.data_sha256,
        "plmcl.splits_sha256": record.splits_sha256,
        MODEL_SHA256: record.model_sha256,
    }


def _differs(registry: _Registry, stored: "ModelVersion", version: Version) -> str:
    """Why the registry's copy is not the version's working model, in words; "" if it is."""
    from mlflow.artifacts import download_artifacts

    with tempfile.TemporaryDirectory() as folder:
        try:
            path = registry.call(
                download_artifacts,
                artifact_uri=f"{stored.source}/data/{version.model.name}",
                dst_path=folder,
                tracking_uri=registry.store.uri,
            )
            found = sha256_of(Path(path))
            if found != version.record.model_sha256:
                return f"sha256 {found[:12]}…, expected {version.record.model_sha256[:12]}…"
            tagger = Tagger(Path(path), providers=[CPU])
            size = tagger.card.recipe.size
            tagger.predict(np.full((1, size, size, 3), 128, dtype=np.uint8))
        except PlmclError as error:
            return str(error)
    return ""
