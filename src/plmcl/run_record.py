"""run.json: what a run did, in a file that DVC keeps; MLflow can be filled again from it."""

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field

from plmcl.records import read_record, write_record

Key = TypeVar("Key")
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(kw_only=True)
class RunRecord:
    """What a run did, beside its model: enough to make its MLflow run again.

    Attributes:
        record_id: The same in every MLflow store that the run is put into.
        mlflow_run_id: In the store where it ran.
        name: As MLflow shows it.
        experiment: MLflow's experiment.
        status: MLflow's.
        params: Flat, dotted.
        tags: Environment, protocol, versions.
        history: One entry an epoch: `epoch`, `phase`, `train/loss`, the figure that epochs are
            chosen by, and those of pseudo labels (`labels.figures`); None where not finite.
        start_time: Milliseconds since 1970, UTC.
        end_time: The same.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )

    record_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]+$")] = field(
        default_factory=lambda: uuid.uuid4().hex
    )
    mlflow_run_id: str | None = None
    name: str
    experiment: str
    status: Status = "RUNNING"
    params: dict[str, str | int | float | bool | None]
    tags: dict[str, str]
    history: list[dict[str, str | int | float | None]] = field(default_factory=list)
    start_time: int | None = None
    end_time: int | None = None

    @property
    def selection_key(self) -> str:
        """Name in the history of the figure that epochs are chosen by; empty without a history.

        `val/…` on the validation split, `selected_on_test/…` under the paper's protocol: two
        names, so that no table mixes them.
        """
        keys = (key for entry in self.history for key in entry if "/" in key)
        others = ("train/", "pseudo_labels/")
        return next((key for key in keys if not key.startswith(others)), "")

    @property
    def best(self) -> tuple[int, float]:
        """The first epoch with the largest value of that figure, whose weights are kept, and it.

        (0, NaN) without a history.
        """
        values = [(entry["epoch"], entry.get(self.selection_key)) for entry in self.history]
        known = [(e, v) for e, v in values if isinstance(e, int) and isinstance(v, float)]
        return max(known, key=lambda pair: pair[1], default=(0, math.nan))

    @property
    def best_selection(self) -> float:
        """The largest value of that figure; NaN without a history."""
        return self.best[1]

    def write(self, path: Path) -> None:
        """Write run.json, whole or not at all."""
        write_record(self, path)

    @classmethod
    def read(cls, path: Path) -> "RunRecord":
        """Read what `write` wrote.

        Raises:
            PlmclError: The file is missing, is not JSON, or has a missing, unknown or wrong key.
        """
        missing, advice = "not found; run the train stage first", "run the train stage again"
        return read_record(cls, path, missing=missing, advice=advice)


def best_run(records: Mapping[Key, RunRecord]) -> Key:
    """The key of the run whose model is kept: the best on the split that epochs are chosen on.

    Of equal ones, and where none has such a figure, the first. The test split has no say.
    """
    scores = {key: record.best_selection for key, record in records.items()}
    return max(scores, key=lambda key: -math.inf if math.isnan(scores[key]) else scores[key])
