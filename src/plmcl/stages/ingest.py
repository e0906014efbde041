"""Stage ingest: every file opened once, one row and one status each; the label list fixed."""

from pathlib import Path

from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.manifest import Manifest
from plmcl.data.sources import make_source
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(paths: Paths, params: Params) -> Manifest:
    """Write the manifest of the configured source."""
    source = make_source(params.data.source, params.sources)
    annotations = source.annotations(paths.raw)
    recipe = Recipe(**params.image.model_dump())
    with show_progress("ingest") as progress:
        manifest = ingest(annotations, paths.raw, recipe, progress=progress)
    manifest.write(paths.manifests)
    return manifest


def main() -> None:
    """Examine every file and write the manifest."""
    params = load_params(Path("params.yaml"))
    manifest = run(Paths.of_project(Path.cwd(), params.data.source), params)
    print(summary(manifest))


def summary(manifest: Manifest) -> str:
    """Files by status, and images a label, for a person to look at before training."""
    statuses = manifest.images["status"].value_counts().sort_index()
    positives = manifest.labels.loc[manifest.labels["value"] == 1, "label"].value_counts()
    per_label = ", ".join(f"{name} {positives.get(name, 0)}" for name in manifest.label_names)
    return "\n".join(
        (
            "files: " + ", ".join(f"{count} {status}" for status, count in statuses.items()),
            f"{len(manifest.label_names)} labels (unlisted: {manifest.unlisted}): {per_label}",
        )
    )


if __name__ == "__main__":
    run_stage(main)
