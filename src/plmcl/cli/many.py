"""Commands for experiments: the paper's protocol, many trainings, what differs between two."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, or its name below reports/runs.")
]


def preset(
    data_set: Annotated[
        Literal["voc", "coco", "nuswide"], typer.Argument(help="A published data set.")
    ],
    mode: Annotated[
        Literal["linear", "linear_init", "end_to_end"], typer.Option(help="What is trained.")
    ] = "linear_init",
    backbone: Annotated[
        Literal["resnet50", "resnet101"], typer.Option(help="With its ImageNet weights.")
    ] = "resnet50",
    protocol: Annotated[
        Literal["holdout", "paper"],
        typer.Option(help="paper: train on all images, choose the epoch on the test split."),
    ] = "holdout",
) -> None:
    """Print a params.yaml with the paper's protocol, and that of Cole et al. where it is silent.

    Example: plmcl preset voc --mode end_to_end > params.yaml
    """
    from plmcl.presets import compose

    typer.echo(compose(data_set, mode=mode, backbone=backbone, protocol=protocol), nl=False)


def grid(
    spec: Annotated[Path, typer.Argument(help="Grid file, such as grids/sspl.yaml.")],
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time. Default: one a core.")
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Train nothing: make the tables of these CSVs. Repeat it to join them."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the tables. Default: reports/grids/<name>.")
    ] = None,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Whether MLflow keeps the tables.")
    ] = True,
) -> None:
    """Train every method of a grid file under every setting and seed, and make its tables.

    What is done is skipped, so a grid that was stopped goes on. Exit code 1: some runs failed.

    Example: plmcl grid grids/frozen.yaml --jobs 8
    """
    from plmcl.grid.runner import run

    failures = run(spec, root=Path.cwd(), jobs=jobs, files=results or [], out=out, track=track)
    if failures:
        typer.echo(f"{len(failures)} runs failed:", err=True)
        for failure in failures:
            typer.echo(f"  {failure}", err=True)
        raise typer.Exit(1)


def diff(first: RunFolder, second: RunFolder) -> None:
    """Print what differs between two runs: parameters, data, code, versions, figures.

    Example: plmcl diff sspl-40-an sspl-40-plmcl
    """
    from plmcl.comparison import differences

    found = differences(_run_folder(first), _run_folder(second))
    if not found:
        typer.echo("no difference: same parameters, data, code, versions and figures")
        return
    lines = [(d.key, _in_words(d.first), _in_words(d.second)) for d in found]
    for line in _aligned([("", str(first), str(second)), *lines]):
        typer.echo(line)


def _run_folder(run: Path) -> Path:
    return run if run.is_dir() or len(run.parts) > 1 else Path("reports", "runs") / run


def _in_words(value: object) -> str:
    return "(none)" if value is None else str(value)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
