"""Stage download: a source's images and annotations into data/raw, for good."""

from pathlib import Path

from plmcl.data.sources import make_source
from plmcl.params import Params, load_params
from plmcl.progress import show_progress
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(paths: Paths, params: Params) -> None:
    """Fetch, draw or copy what the configured source consists of."""
    source = make_source(params.data.source, params.sources)
    with show_progress(f"download {params.data.source}") as progress:
        source.download(
            paths.root / params.data.path, paths.raw, seed=params.seed, progress=progress
        )


def main() -> None:
    """Fetch the configured source."""
    params = load_params(Path("params.yaml"))
    run(Paths.of_project(Path.cwd(), params.data.source), params)


if __name__ == "__main__":
    run_stage(main)
