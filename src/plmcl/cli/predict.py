"""Commands that tag many images with a model: on one machine, and on many."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plmcl.cli.own import PARTIAL, can_be_made

if TYPE_CHECKING:
    from collections.abc import Mapping

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="PATHS...",
        help="Images, folders, patterns in quotes ('photos/**/*.jpg'), addresses (s3://...), "
        "or - for a list of files on standard input.",
    ),
]
Model = Annotated[Path, typer.Option(help="A model.onnx of ours.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images that the network takes at once.")]


def predict(
    paths: Inputs,
    model: Model,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .jsonl, .csv or .parquet. A killed run goes on where it stopped. "
            "Default: standard output.",
            dir_okay=False,
            callback=can_be_made,
        ),
    ] = None,
    output: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        typer.Option("--format", help="Default: as the suffix of --out says, else jsonl."),
    ] = None,
    batch_size: BatchSize = 16,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="ONNX Runtime's, in order; each must be there. Default: CUDA or CPU."),
    ] = None,
    require_gpu: Annotated[
        bool, typer.Option("--require-gpu", help="Refuse to run where CUDA does not work.")
    ] = False,
) -> None:
    """Tag images with an ONNX model. Exit code 3: some could not be read, their answers say why.

    Example: plmcl predict --model tagger/model.onnx photos --out tags.parquet
    """
    from plmcl.scoring.predict import predict as run

    # What Pillow thinks of a file's metadata is nothing to the user of its pixels.
    warnings.filterwarnings("ignore", module="PIL")
    outcome = run(
        paths,
        model,
        out=out,
        output=output,
        batch_size=batch_size,
        providers=provider,
        require_gpu=require_gpu,
    )
    _report(outcome.listed.passed_over, outcome.errors, outcome.listed.total)


def _report(passed_over: "Mapping[str, int]", errors: int, total: int) -> None:
    from plmcl.scoring.inputs import in_words

    if passed_over:
        typer.echo(f"passed over by name: {in_words(passed_over)}", err=True)
    if errors:
        typer.echo(f"{errors} of {total} could not be read; their lines say why", err=True)
        raise typer.Exit(PARTIAL)


def score(
    paths: Inputs,
    model: Model,
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="For the shards and their index; or an address."),
    ],
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster, or auto. Default: the cores of this machine."),
    ] = None,
    shard_size: Annotated[int, typer.Option(min=1, help="Images in a file, on average.")] = 1000,
    batch_size: BatchSize = 16,
    cores: Annotated[int, typer.Option(min=1, help="Of each worker.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="Of each worker; 0.5: two share one.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="At most. Default: as many as there is room for.")
    ] = None,
) -> None:
    """Tag images on the machines of a Ray cluster. A killed run goes on where it stopped.

    Exit code 3: some could not be read, their rows say why.

    Example: plmcl score --model tagger/model.onnx photos --out scores
    """
    from plmcl.scoring.cluster import Workers
    from plmcl.scoring.cluster import score as run

    outcome = run(
        paths,
        model,
        out,
        shard_size=shard_size,
        batch_size=batch_size,
        workers=Workers(cores, gpus, workers),
        address=address,
    )
    _report(outcome.listed.passed_over, outcome.errors, outcome.listed.total)
