"""Answers added to the labels that were there, as a file that the folder source reads."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from plmcl.data.label_files import label_name
from plmcl.data.rows import Rows, training_rows, truth_rows
from plmcl.errors import PlmclError
from plmcl.labelling.answers import labels_of, read_export, settle
from plmcl.labelling.decisions import (
    NOT_SURE,
    REFUSED,
    read_decisions,
    table,
    write_decisions,
)
from plmcl.labelling.trained import Trained

COLUMNS = ("image", "label", "value", "split")


@dataclass(frozen=True)
class Merged:
    """What came of an export.

    Attributes:
        decisions: `Decisions`, those of earlier exports among them.
        new: How many of them are not from earlier exports.
        labels: Columns of COLUMNS, all known entries of all images.
        added: Entries that nothing was known of before.
        changed: Entries of which the opposite was known.
    """

    decisions: pd.DataFrame
    new: int
    labels: pd.DataFrame
    added: int
    changed: int


def merge(trained: Trained, export: Path, earlier: Path) -> Merged:
    """Read an export and lay its answers over what training knew.

    Args:
        trained: Whose images and labels they are; its images may have been answered about before.
        export: Label Studio's JSON.
        earlier: decisions.csv of earlier exports, if it is there.

    Raises:
        PlmclError: The export is not one of ours; or none of its answers is about an image and a
            label that are there.
    """
    usable = trained.manifest.usable
    names = trained.manifest.label_names
    found = read_export(export, names, usable["image_id"].tolist())
    refused = found[found["answer"] == REFUSED]
    if len(found) and len(refused) == len(found):
        reasons = refused["note"].value_counts()
        raise PlmclError(
            f"{export}: none of its {len(found)} answers can be used; most often: "
            f"{reasons.index[0]} ({reasons.iloc[0]} times). The labels are: "
            f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
        )
    before = read_decisions(earlier) if earlier.exists() else table([])
    decisions = settle(pd.concat([before, found], ignore_index=True))
    said = labels_of(decisions)
    labels, added, changed = _overlay(trained, said)
    return Merged(decisions, len(decisions) - len(settle(before)), labels, added, changed)


def write_merged(merged: Merged, label_names: Sequence[str], out: Path) -> None:
    """Write labels.csv, label_names.json and decisions.csv.

    Args:
        merged: What came of an export.
        label_names: In their order.
        out: Folder, made here.

    Raises:
        PlmclError: A label would be read back as another text, as blanks at its ends are.
    """
    for name in label_names:
        if label_name(name, str(out)) != name:
            raise PlmclError(f"label {name!r}: blanks at its ends would be lost in labels.csv")
    out.mkdir(parents=True, exist_ok=True)
    write_decisions(merged.decisions, out / "decisions.csv")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(merged.labels[list(COLUMNS)].itertuples(index=False, name=None))
    (out / "labels.csv").write_bytes(text.getvalue().encode())
    names = json.dumps(list(label_names), ensure_ascii=False, indent=0)
    (out / "label_names.json").write_text(names + "\n", encoding="utf-8")


def describe(merged: Merged) -> list[str]:
    """What came of an export, in lines for people: counts, then each answer that was not taken."""
    decisions = merged.decisions
    taken = decisions["taken"] == "yes"
    not_sure = decisions["answer"] == NOT_SURE
    lines = [
        f"answers: {len(decisions)}, of which {merged.new} are new; {taken.sum()} taken, "
        f"{not_sure.sum()} not sure, {(~taken & ~not_sure).sum()} not taken",
        f"labels: {merged.added} added, {merged.changed} changed",
    ]
    reasons = decisions.loc[~taken & (decisions["note"] != ""), "note"].value_counts()
    lines += [f"  not taken: {reason} ({count})" for reason, count in reasons.head(10).items()]
    return lines


def _overlay(trained: Trained, said: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """All known entries, what was said in their place; how many are new, how many now differ.

    Of training images it is what training could see, and not what a setting hides.
    """
    manifest, names = trained.manifest, trained.manifest.label_names
    parts = [training_rows(manifest, trained.splits, trained.observed)]
    parts += [truth_rows(manifest, trained.splits, split) for split in ("val", "test")]
    source = manifest.images.set_index("image_id")["split"]
    column = {name: number for number, name in enumerate(names)}
    frames, added, changed = [], 0, 0
    for rows in parts:
        targets, observed = rows.targets.copy(), rows.observed.copy()
        place = {image_id: number for number, image_id in enumerate(rows.image_ids)}
        mine = said[said["image_id"].isin(place)]
        cells = mine["image_id"].map(place).to_numpy(int), mine["label"].map(column).to_numpy(int)
        targets[cells], observed[cells] = mine["value"], True
        added += int((observed & ~rows.observed).sum())
        changed += int((rows.observed & (targets != rows.targets)).sum())
        frames.append(_long(rows, targets, observed, names, source))
    labels = pd.concat(frames).sort_values(["image", "label"], ignore_index=True)
    # A label of which nothing is known is still a label: an unknown entry keeps it.
    silent = [name for name in names if name not in set(labels["label"])]
    first = manifest.usable["image_id"].iloc[0]
    kept = pd.DataFrame(
        {"image": first, "label": silent, "value": "", "split": source[first]}, dtype="str"
    )
    return pd.concat([labels, kept], ignore_index=True), added, changed


def _long(
    rows: Rows,
    targets: NDArray[np.uint8],
    observed: NDArray[np.bool_],
    names: Sequence[str],
    source: pd.Series,
) -> pd.DataFrame:
    row, column = np.nonzero(observed)
    images = np.array(rows.image_ids, dtype=object)[row]
    return pd.DataFrame(
        {
            "image": images,
            "label": np.array(names, dtype=object)[column],
            "value": targets[row, column].astype(str),
            "split": source.loc[images].to_numpy(),
        },
        dtype="str",
    )
