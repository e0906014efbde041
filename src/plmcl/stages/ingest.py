"""Stage ingest: every file opened once, one row and one status each; the label list fixed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from plmcl.data.deliveries import append_deliveries
from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.listing import counts, first_five
from plmcl.data.manifest import Manifest
from plmcl.data.sources import make_source
from plmcl.data.sources.base import Annotations
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(paths: Paths, params: Params, annotations: Annotations | None = None) -> Manifest:
    """Write the manifest of the configured source, and of what was delivered since.

    Args:
        paths: Of the project.
        params: All of them.
        annotations: Of the source, if they have been read.

    Raises:
        PlmclError: An input is missing or breaks a rule.
    """
    if annotations is None:
        annotations = make_source(params.data.source, params.sources).annotations(paths.raw)
    recipe = Recipe(**params.image.model_dump())
    with show_progress("ingest") as progress:
        manifest = ingest(
            annotations,
            paths.raw,
            recipe,
            below=paths.raw.relative_to(paths.images).as_posix(),
            record=paths.examined,
            progress=progress,
        )
    if params.data.deliveries != "none":
        manifest = _with_deliveries(manifest, paths, params.data.deliveries, recipe)
    manifest.write(paths.manifests)
    print(summary(manifest, annotations))
    return manifest


def main() -> None:
    """Examine every file and write the manifest."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params)


def _with_deliveries(manifest: Manifest, paths: Paths, version: str, recipe: Recipe) -> Manifest:
    folder = paths.deliveries(version)
    if not folder.is_dir():
        raise PlmclError(f"data.deliveries: {version}: {folder} is not there; run: dvc checkout")
    with show_progress("ingest deliveries") as progress:
        return append_deliveries(
            manifest,
            folder,
            recipe,
            below=folder.relative_to(paths.images).as_posix(),
            record=paths.examined_deliveries,
            progress=progress,
        )


def summary(manifest: Manifest, annotations: Annotations) -> str:
    """Files by status, and what is known of each label, to be looked at before training."""
    statuses = manifest.images["status"].value_counts().sort_index()
    lines = ["files: " + ", ".join(f"{count} {status}" for status, count in statuses.items())]
    aside = manifest.images[~manifest.images["status"].isin(USABLE)]
    if len(aside):
        named = [f"{row.image_id} ({row.status})" for row in aside.head(6).itertuples()]
        lines.append(f"set aside, {len(aside)}: {first_five(named)}")
    delivered = manifest.usable[manifest.usable["delivery"] > 0]
    if len(delivered):
        tagged = positions(delivered["image_id"], manifest.labels["image_id"]) >= 0
        lines.append(
            f"delivered since: {len(delivered)} images in {delivered['delivery'].nunique()} "
            f"deliveries, {np.count_nonzero(tagged)} with a tag"
        )
    if annotations.passed_over:
        lines.append(f"passed over by name: {counts(annotations.passed_over)}")
    lines += [f"{what}: {count}" for what, count in annotations.notes.items()]
    if len(manifest.near_duplicates):
        lines.append(f"near duplicates: {len(manifest.near_duplicates)} pairs")
    if alike := _alike(manifest.label_names):
        lines.append(
            f"labels of their own, though alike but for case or spaces: {first_five(alike)}"
        )
    lines.append(f"{len(manifest.label_names)} labels (yes / no / unknown):")
    return "\n".join([*lines, *_label_lines(manifest)])


def _alike(names: Iterable[str]) -> list[str]:
    """Names that somebody may have meant as one label: "Cat / cat"."""
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [" / ".join(same) for same in spellings.values() if len(same) > 1]


def _label_lines(manifest: Manifest) -> Iterator[str]:
    usable = manifest.usable["image_id"]
    labels = manifest.labels[positions(manifest.labels["image_id"], usable) >= 0]
    columns = positions(labels["label"], manifest.label_names)
    size = len(manifest.label_names)
    closed = positions(usable, manifest.closed) >= 0
    unlisted = positions(labels["image_id"], usable[~closed]) >= 0
    present = np.bincount(columns[labels["value"] == 1], minlength=size)
    listed = np.bincount(columns[unlisted & (labels["value"] == 0)], minlength=size)
    shown = np.bincount(columns[~unlisted & (labels["value"] == 1)], minlength=size)
    absent = listed + np.count_nonzero(closed) - shown
    for name, yes, no in zip(manifest.label_names, present, absent, strict=True):
        yield f"  {name}: {yes} / {no} / {len(usable) - yes - no}"


if __name__ == "__main__":
    run_stage(main)
