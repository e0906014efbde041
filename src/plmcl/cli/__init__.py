"""The command line: one command a stage, and what a user needs beside them.

Each command imports what it runs only when it runs, so that `--help` answers at once and
`predict` needs neither torch nor pandas.
"""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from plmcl import __version__
from plmcl.cli import checks, labelling, many, operate, own, pipeline, predict, serve
from plmcl.stages.entry import run_app

PANELS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "From your own photos": (own.fit, predict.predict, own.doctor),
    "Before a run": (checks.checks,),
    "Label what helps most": (labelling.audit, labelling.suggest, labelling.answers),
    "Experiments": (many.preset, many.grid, many.diff),
    "In production": (
        serve.serve,
        predict.score,
        operate.receive,
        operate.retrain,
        operate.promote,
        operate.rollback,
        operate.refreeze,
        operate.lineage,
        operate.prune,
        operate.forget,
    ),
    "The pipeline's stages (dvc repro runs them in order)": (
        pipeline.check,
        pipeline.download,
        pipeline.ingest,
        pipeline.split,
        pipeline.train,
        pipeline.evaluate,
        pipeline.export,
        pipeline.report,
        pipeline.track,
    ),
}

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def say_version(asked: bool) -> None:
    """Of the package, and nothing else."""
    if asked:
        typer.echo(f"plmcl {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=say_version, help="Say which version this is."
        ),
    ] = False,
) -> None:
    """Multi-label image tagging from almost no annotation."""


def main() -> None:
    """The console script."""
    run_app(app)
