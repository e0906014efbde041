"""From a source's annotations and the files themselves to a manifest."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from plmcl.data.doctor import Finding, examine_all
from plmcl.data.images import Recipe
from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations, label_table
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback


def ingest(
    annotations: Annotations,
    raw: Path,
    recipe: Recipe,
    *,
    progress: ProgressCallback | None = None,
) -> Manifest:
    """Examine every file and make the manifest: one row a file, with exactly one status.

    Files with the same bytes are one image: the first by id stays "ok" and takes over the labels
    (1 wins over 0) and the official split of the others, which become "duplicate".

    Args:
        annotations: Of a source.
        raw: Folder that `annotations.root` is below.
        recipe: Its pixel limit applies.
        progress: Called with (done, total) files.

    Raises:
        PlmclError: No file is usable, files with the same bytes are in two official splits, or a
            label belongs to no file.
    """
    root, files = raw / annotations.root, sorted(annotations.files)
    strangers = sorted(set(annotations.labels["image_id"]) - set(files))
    if strangers:
        raise PlmclError(f"labels of {len(strangers)} images that are not listed: {strangers[0]!r}")
    findings = dict(zip(files, examine_all(root, files, recipe, progress=progress), strict=True))
    if not any(finding.status == "ok" for finding in findings.values()):
        raise PlmclError(f"no images: none of the {len(files)} files below {root} is usable; "
                         f"{_count_statuses(findings)}")  # fmt: skip
    first_of = _first_with_same_bytes(findings)
    splits = _merge_splits(annotations.splits, first_of)
    values, dropped = _merge_labels(annotations.labels, first_of)
    findings = {
        image_id: _with_reason(image_id, finding, first_of, dropped)
        for image_id, finding in findings.items()
    }
    return Manifest(
        images=_image_table(findings, splits, PurePosixPath(annotations.root)),
        labels=label_table(values),
        label_names=list(annotations.label_names),
        unlisted=annotations.unlisted,
    )


def _first_with_same_bytes(findings: Mapping[str, Finding]) -> dict[str, str]:
    # usable image id -> the first id (in order) with its bytes
    first: dict[str, str] = {}
    return {
        image_id: first.setdefault(finding.sha256, image_id)
        for image_id, finding in findings.items()
        if finding.status == "ok"
    }


def _merge_splits(splits: Mapping[str, str], first_of: Mapping[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    said_by: dict[str, str] = {}
    for image_id, first in first_of.items():
        split = splits.get(image_id, "")
        if not split:
            continue
        if merged.setdefault(first, split) != split:
            raise PlmclError(
                f"the same bytes are in two official splits: {said_by[first]} ({merged[first]}) "
                f"and {image_id} ({split}); remove one"
            )
        said_by.setdefault(first, image_id)
    return merged


def _merge_labels(
    labels: pd.DataFrame, first_of: Mapping[str, str]
) -> tuple[dict[tuple[str, str], int], Counter[str]]:
    # (image id, label) -> value, and the number of label rows lost with each unusable file
    values: dict[tuple[str, str], int] = {}
    dropped: Counter[str] = Counter()
    rows = zip(labels["image_id"], labels["label"], labels["value"], strict=True)
    for image_id, label, value in rows:
        if image_id not in first_of:
            dropped[image_id] += 1
            continue
        cell = (first_of[image_id], label)
        values[cell] = max(values.get(cell, 0), int(value))
    return values, dropped


def _with_reason(
    image_id: str, finding: Finding, first_of: Mapping[str, str], dropped: Mapping[str, int]
) -> Finding:
    first = first_of.get(image_id, image_id)
    if first != image_id:
        return replace(finding, status="duplicate", reason=f"same bytes as {first}")
    if dropped.get(image_id):
        return replace(finding, reason=f"{finding.reason}; labels dropped: {dropped[image_id]}")
    return finding


def _image_table(
    findings: Mapping[str, Finding], splits: Mapping[str, str], root: PurePosixPath
) -> pd.DataFrame:
    def text(values: list[str]) -> pd.Series:
        return pd.Series(values, dtype="str")

    rows = list(findings.values())
    return pd.DataFrame(
        {
            "image_id": text(list(findings)),
            "path": text([str(root / image_id) for image_id in findings]),
            "sha256": text([row.sha256 for row in rows]),
            "width": np.array([row.width for row in rows], dtype=np.int32),
            "height": np.array([row.height for row in rows], dtype=np.int32),
            "split": text([splits.get(image_id, "") for image_id in findings]),
            "status": text([row.status for row in rows]),
            "reason": text([row.reason for row in rows]),
            "delivery": np.zeros(len(rows), dtype=np.int32),
        }
    )


def _count_statuses(findings: Mapping[str, Finding]) -> str:
    counts = Counter(finding.status for finding in findings.values())
    return ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
