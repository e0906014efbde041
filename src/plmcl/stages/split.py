"""Stage split: train / val / test, the one positive of each image, what each setting shows."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from plmcl import schemas
from plmcl.data.duplicates import alike_across, refuse_if_drawn_apart, same_bytes_across
from plmcl.data.listing import first_five
from plmcl.data.manifest import Manifest
from plmcl.data.splits import make_splits
from plmcl.labels.settings import Setting, describe, make_draws, observe
from plmcl.ordering import positions
from plmcl.params import Params, load_params
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(paths: Paths, params: Params, settings: Iterable[str]) -> None:
    """Write splits, draws and the observed labels of each setting, all validated."""
    manifest = Manifest.read(paths.manifests)
    splits = make_splits(
        manifest,
        seed=params.seed,
        val=params.split.val,
        test=params.split.test,
        protocol=params.split.protocol,
        draw=params.split.draw,
    )
    crossing = same_bytes_across(manifest, splits)
    if params.split.draw == "hash":  # the reference code's draw knows nothing of bytes
        refuse_if_drawn_apart(crossing)
    base = manifest.images.loc[manifest.images["delivery"] == 0, "image_id"]
    train_ids = splits.loc[splits["split"] == "train", "image_id"]
    train_ids = train_ids[positions(train_ids, base) >= 0]
    draws = make_draws(manifest, train_ids, seed=params.seed, draw=params.split.draw)
    schemas.write_table(splits, paths.splits / "splits.parquet")
    schemas.write_table(draws, paths.splits / "draws.parquet")
    for line in _warnings(manifest, splits, crossing):
        print(line)
    for name in settings:
        setting = Setting.parse(name)
        observed = observe(setting, truth=manifest, splits=splits, draws=draws, seed=params.seed)
        schemas.validate_observed(
            observed,
            setting=setting,
            draws=draws,
            splits=splits,
            manifest=manifest,
            report_to=paths.splits,
        )
        schemas.write_table(observed, paths.observed(name))
        counts = describe(observed, draws, splits, setting)
        print(f"{name}: " + ", ".join(f"{value} {key}" for key, value in counts.items() if value))


def _warnings(manifest: Manifest, splits: pd.DataFrame, crossing: pd.DataFrame) -> Iterator[str]:
    # What a person should know of the splits before any figure that comes from them.
    for name in splits["split"].unique():
        ids = splits.loc[splits["split"] == name, "image_id"]
        here = positions(manifest.labels["image_id"], ids) >= 0
        held = set(manifest.labels.loc[here & (manifest.labels["value"] == 1), "label"])
        absent = [label for label in manifest.label_names if label not in held]
        if absent:
            yield f"{name}: no known positive of {len(absent)} labels: {first_five(absent)}"
    if len(crossing):
        yield (
            f"same bytes in two splits: {len(crossing)} images, and they stay where the published "
            f"split has them: {first_five(crossing['image_id'].tolist())}"
        )
    alike = alike_across(manifest, splits)
    if len(alike):
        shown = [f"{pair.image_id} and {pair.other_id}" for pair in alike.head(6).itertuples()]
        yield f"near duplicates in two splits: {len(alike)} pairs: {first_five(shown)}"


def main() -> None:
    """Make the splits and the observed labels of every setting in the grid."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params, params.grid.settings)


if __name__ == "__main__":
    run_stage(main)
