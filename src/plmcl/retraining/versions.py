"""One version of the model: its folder in models/production, and the record of where it comes from.

model.onnx model.pt labels/                       what is served, and what training goes on from
run.json metrics.json per_label.csv               of its training and evaluation
predictions.parquet truth.parquet decision.json   what the gate compared, and what it decided
record.json                                       `ProductionRecord`
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from plmcl.errors import PlmclError
from plmcl.records import read_record, write_record
from plmcl.retraining.scored import Scored
from plmcl.schemas import Labels, Predictions, read_table


@dataclass(frozen=True, kw_only=True)
class ProductionRecord:
    """record.json: where a version comes from, and what it replaced.

    Attributes:
        version: v0001, v0002, …
        previous: The champion that it replaced; "" before it is promoted, and if there was none.
        created: Milliseconds since 1970, UTC.
        setting: The label setting that it was trained under.
        method: The training method.
        commit: Git commit that holds dvc.lock, 40 hex digits.
        dvc_lock_sha256: Of that dvc.lock.
        data_sha256: As the model's own card has it.
        splits_sha256: The same.
        model_sha256: Of model.onnx.
        mlflow_run_id: Of the training.
        registry_version: MLflow's number; None until it is promoted.
        deliveries: The last delivery that it was trained with; 0 = the base set alone.
        test_mAP: On the frozen test split; None where the split is not fully labeled.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )

    version: Annotated[str, Field(pattern=r"^v[0-9]{4,}$")]
    previous: Annotated[str, Field(pattern=r"^(v[0-9]{4,})?$")] = ""
    created: int
    setting: str
    method: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    dvc_lock_sha256: str
    data_sha256: str
    splits_sha256: str
    model_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    mlflow_run_id: str
    registry_version: int | None = None
    deliveries: Annotated[int, Field(ge=0)]
    test_mAP: float | None  # noqa: N815 (the metric's name everywhere)

    def write(self, path: Path) -> None:
        """Write record.json, whole or not at all."""
        write_record(self, path)

    @classmethod
    def read(cls, path: Path) -> "ProductionRecord":
        """Read what `write` wrote.

        Raises:
            PlmclError: The file is missing, is not JSON, or has a missing, unknown or wrong key.
        """
        return read_record(cls, path, missing="not found")


@dataclass(frozen=True)
class Version:
    """A version in its folder."""

    path: Path
    record: ProductionRecord

    @property
    def version(self) -> str:
        """Its name, such as v0001."""
        return self.record.version

    @property
    def model(self) -> Path:
        """The ONNX file."""
        return self.path / "model.onnx"

    @classmethod
    def read(cls, path: Path) -> "Version":
        """The version in a folder."""
        return cls(path, ProductionRecord.read(path / "record.json"))

    def check(self) -> None:
        """Compare the ONNX file with its record.

        Raises:
            PlmclError: It is missing, or another one.
        """
        if not self.model.exists():
            raise PlmclError(f"{self.model}: not found")
        found = sha256_of(self.model)
        if found != self.record.model_sha256:
            raise PlmclError(
                f"{self.model}: sha256 {found[:12]}…, but record.json has "
                f"{self.record.model_sha256[:12]}…: damaged, or changed by hand"
            )

    def scored(self) -> Scored:
        """What the gate compares: the probabilities on the test split that it was judged on."""
        predictions = read_table(self.path / "predictions.parquet", Predictions)
        truth = read_table(self.path / "truth.parquet", Labels)
        return Scored(
            version=self.version,
            predictions=predictions,
            truth=truth,
            model=self.model,
            complete=len(truth) == len(predictions),
        )


def sha256_of(path: Path) -> str:
    """Of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
