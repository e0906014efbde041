"""Stage split: train / val / test, the one positive of each image, what each setting shows."""

from collections.abc import Iterable
from pathlib import Path

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.splits import make_splits
from plmcl.labels.settings import Setting, describe, make_draws, observe
from plmcl.params import Params, load_params
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(paths: Paths, params: Params, settings: Iterable[str]) -> None:
    """Write splits, draws and the observed labels of each setting, all validated."""
    manifest = Manifest.read(paths.manifests)
    images = manifest.usable
    splits = make_splits(
        images,
        seed=params.seed,
        val=params.split.val,
        test=params.split.test,
        protocol=params.split.protocol,
    )
    base = set(images.loc[images["delivery"] == 0, "image_id"])
    train_ids = [
        image_id
        for image_id in splits.loc[splits["split"] == "train", "image_id"]
        if image_id in base
    ]
    draws = make_draws(manifest.labels, train_ids, seed=params.seed)
    schemas.write_table(splits, paths.splits / "splits.parquet")
    schemas.write_table(draws, paths.splits / "draws.parquet")
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


def main() -> None:
    """Make the splits and the observed labels of every setting in the grid."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params, params.grid.settings)


if __name__ == "__main__":
    run_stage(main)
