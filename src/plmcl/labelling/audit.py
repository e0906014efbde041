"""Audit: labels that look missing or wrong, as a page, a CSV and questions for Label Studio."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from plmcl.data.rows import Rows, difficult_cells, truth_rows
from plmcl.labelling import label_studio
from plmcl.labelling.suspicions import MISSING, WRONG, precision_at, ranked, suspect
from plmcl.labelling.trained import Trained

PER_LABEL = 200
AT = (50, 200)
TABLE = (
    "kind", "rank", "label", "label_rank", "image_id", "path", "split", "known", "score",
    "suspicion", "truth",
)  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes:
        trained: Of which model.
        found: Of `ranked`, with image_id, path, split and truth (yes, no or "": not known).
        precision: n -> share of the n entries of training images that most look missing and are,
            where the setting hides what is completely known; else empty.
        base_rate: That share among all entries that could have been suspected.
        observed: Label -> how many images are said to show it, over all splits.
    """

    trained: Trained
    found: pd.DataFrame
    precision: dict[int, float]
    base_rate: float | None
    observed: dict[str, int]


def audit(trained: Trained) -> Audit:
    """Suspect the labels of all images: training, validation and test.

    Args:
        trained: The model that is asked. It has seen the labels of the training images; scores by
            models that have not were measured to find less, see docs/labelling.md.
    """
    job = trained.prepare()
    trained.load(job)
    names = trained.manifest.label_names
    parts, observed = [], np.zeros(len(names), dtype=np.int64)
    train = truth_rows(trained.manifest, trained.splits, "train")
    held = [
        (split, truth_rows(trained.manifest, trained.splits, split)) for split in ("val", "test")
    ]
    for split, rows in [("train", job.train), *held]:
        if not len(rows):
            continue
        observed += (rows.observed & (rows.targets == 1)).sum(axis=0)
        found = suspect(
            rows.targets,
            rows.observed,
            job.predict(rows),
            names,
            # Published lists call them absent, and they are there: nothing new.
            passed_over=difficult_cells(trained.manifest, rows),
            per_label=PER_LABEL,
        )
        parts.append(_named(found, rows, split))
    parts[0] = parts[0].assign(truth=_truth(parts[0], train, names))
    precision, base_rate = _measure(parts[0], job.train, train, names)
    return Audit(
        trained=trained,
        found=ranked(pd.concat(parts, ignore_index=True)),
        precision=precision,
        base_rate=base_rate,
        observed=dict(zip(names, observed.tolist(), strict=True)),
    )


def write_audit(result: Audit, out: Path, *, url: str | None, not_sure: str) -> None:
    """Write suspicions.csv, audit.json, and tasks.json with config.xml for Label Studio.

    Args:
        result: What was found.
        out: Folder, made here.
        url: Of `label_studio.addresses`.
        not_sure: Text of that choice.
    """
    questions = [
        label_studio.Question(
            image_id=row["image_id"],
            path=row["path"],
            ask="check",
            label=row["label"],
            likely=(
                {label_studio.YES: row["score"]}
                if row["kind"] == MISSING
                else {label_studio.NO: 1 - row["score"]}
            ),
        )
        for row in result.found.to_dict("records")
        if row["rank"] <= PER_LABEL
    ]
    label_studio.write_project(
        questions,
        out,
        ask="check",
        label_names=result.trained.manifest.label_names,
        images=result.trained.paths.images,
        url=url,
        not_sure=not_sure,
        model=result.trained.name,
    )
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TABLE)
    for row in result.found[list(TABLE)].itertuples(index=False, name=None):
        writer.writerow([f"{v:.6f}" if isinstance(v, float) else v for v in row])
    (out / "suspicions.csv").write_bytes(text.getvalue().encode())
    record = {
        **result.trained.identity,
        "precision_of_missing": result.precision,
        "base_rate_of_missing": result.base_rate,
    }
    text_record = json.dumps(record, indent=2, ensure_ascii=False)
    (out / "audit.json").write_text(text_record + "\n", encoding="utf-8")


def describe(result: Audit) -> list[str]:
    """The audit in lines for people."""
    counts = result.found["kind"].value_counts()
    lines = [
        f"scored by {result.trained.name}, which has seen the labels of the training images",
        f"ranked: {counts.get(MISSING, 0)} entries that may be missing, {counts.get(WRONG, 0)} "
        "labels that may be wrong, the most suspicious first",
    ]
    if result.precision and result.base_rate is not None:
        figures = [f"{100 * v:.1f} % of the first {n}" for n, v in result.precision.items()]
        lines.append(
            "the setting hides the truth, so it can be measured: of the training images' "
            f"suspected missing labels {', '.join(figures)} are there; of all entries that could "
            f"be suspected, {100 * result.base_rate:.1f} %"
        )
    return lines


def _named(found: pd.DataFrame, rows: Rows, split: str) -> pd.DataFrame:
    return found.assign(
        image_id=np.array(rows.image_ids, dtype=object)[found["row"]],
        path=np.array(rows.paths, dtype=object)[found["row"]],
        split=split,
        truth="",
    )


def _truth(found: pd.DataFrame, truth: Rows, names: list[str]) -> NDArray[np.object_]:
    """What the manifest knows of entries that the setting hid from training: yes, no or ""."""
    columns = found["label"].map({name: column for column, name in enumerate(names)})
    cells = found["row"].to_numpy(), columns.to_numpy(dtype=np.int64)
    hidden = (found["known"] == "unknown").to_numpy() & truth.observed[cells]
    said = np.where(truth.targets[cells] == 1, "yes", "no")
    return np.where(hidden, said, "").astype(object)


def _measure(
    found: pd.DataFrame, seen: Rows, truth: Rows, names: list[str]
) -> tuple[dict[int, float], float | None]:
    # only where a setting hid some of what is completely known
    hidden = ~seen.observed
    if not truth.observed.all() or not hidden.any():
        return {}, None
    true = truth.targets == 1
    columns = {name: column for column, name in enumerate(names)}
    values = {n: precision_at(ranked(found), MISSING, true, columns, n) for n in AT}
    positive = seen.observed & (seen.targets == 1)
    return {n: v for n, v in values.items() if v is not None}, float(true[~positive].mean())
