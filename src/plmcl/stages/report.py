"""Stage report: one page that shows all runs of the grid."""

from pathlib import Path

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.params import load_params
from plmcl.report import write_report
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def main() -> None:
    """Write reports/index.html."""
    params = load_params(Path("params.yaml"))
    paths = Paths.of_project(Path.cwd(), params.data.source)
    runs = [paths.run(s, m) for s in params.grid.settings for m in params.grid.methods]
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    write_report(runs, Manifest.read(paths.manifests), splits, paths.images, paths.report)
    print(f"report: {paths.report}")


if __name__ == "__main__":
    run_stage(main)
