"""Commands for a user's own photos."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from plmcl.data import MAX_PIXELS

PARTIAL = 3  # exit code: something was answered, and something was not


def can_be_made(path: Path | None) -> Path | None:
    """An option's file or folder, refused before hours of work and not after them."""
    if path is not None:
        here = path.absolute()
        # A file is written beside its place, and takes it when it is whole.
        folders = (here, *here.parents) if here.is_dir() else here.parents
        nearest = next(folder for folder in folders if folder.exists())
        if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
            raise typer.BadParameter(f"{path}: {nearest} is no folder that can be written to")
    return path


def fit(
    photos: Annotated[Path, typer.Argument(help="Folder of images.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for the tagger and all that belongs to it.",
            file_okay=False,
            callback=can_be_made,
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV, Parquet, COCO or Label Studio JSON, or a folder of VOC or YOLO files. "
            "Else: one sub-folder a tag."
        ),
    ] = None,
    unlisted: Annotated[
        Literal["unknown", "negative"],
        typer.Option(help="What it means that a label is not listed for a labeled image."),
    ] = "unknown",
    minus_one: Annotated[
        Literal["refuse", "negative", "unknown"],
        typer.Option(help="What -1 means in the labels, if it is there."),
    ] = "refuse",
    setting: Annotated[
        str, typer.Option(help="given: your labels as they are. sspl-40, …: hide some, to measure.")
    ] = "given",
    method: Annotated[
        list[str] | None, typer.Option(help="Repeat it to compare. Default: an, epr, ridge.")
    ] = None,
    labels_per_photo: Annotated[
        float | None, typer.Option(help="How many labels a photo has, on average.")
    ] = None,
    fine_tune: Annotated[
        bool, typer.Option("--fine-tune", help="Also train the backbone: better, and slower.")
    ] = False,
    format: Annotated[
        str, typer.Option(help="Of the labels, if their names do not tell.")
    ] = "auto",
    missing: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the photos in labels that may be absent.")
    ] = 0.0,
) -> None:
    """Train a tagger on a folder of photos of which some carry a label.

    Example: plmcl fit photos --labels labels.csv --out tagger
    """
    from plmcl.errors import PlmclError
    from plmcl.stages.request import Request, in_options, survey

    request = Request(
        photos=photos,
        labels=labels,
        unlisted=unlisted,
        minus_one=minus_one,
        setting=setting,
        methods=method or ["an", "epr", "ridge"],
        labels_per_photo=labels_per_photo,
        fine_tune=fine_tune,
        format=format,
        missing=missing,
    )
    try:
        annotations = survey(request, out)
        # With torch, which takes seconds: only for what can be used.
        from plmcl.stages.fit import run

        run(request, annotations, out)
    except PlmclError as error:
        error.args = (in_options(str(error)),)
        raise


def doctor(
    folder: Annotated[Path, typer.Argument(help="Folder of images.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a file.")] = False,
    parquet: Annotated[
        Path | None,
        typer.Option(help="Also write a table of all files.", dir_okay=False, callback=can_be_made),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write a page with pictures.", dir_okay=False, callback=can_be_made),
    ] = None,
    quarantine: Annotated[
        Path | None,
        typer.Option(help="Move what cannot be used to this folder.", callback=can_be_made),
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(min=1, max=MAX_PIXELS, help="Larger images are refused.")
    ] = 50_000_000,
) -> None:
    """Examine every file of a folder: one status and one reason each. Nothing is deleted.

    Exit code 3: some files that should be images cannot be used, or are there twice.

    Example: plmcl doctor photos --html checkup.html
    """
    from plmcl.data.doctor.checkup import check_quarantine, check_up
    from plmcl.data.doctor.checkup import quarantine as move_aside
    from plmcl.data.images import Recipe
    from plmcl.progress import show_progress
    from plmcl.report.checkup import in_words, json_lines, write_checkup
    from plmcl.schemas import write_table
    from plmcl.stages.paths import record_of

    if quarantine is not None:
        check_quarantine(folder, quarantine)
    recipe = Recipe(size=224, background=(255, 255, 255), max_pixels=max_pixels)
    with show_progress("doctor") as progress:
        checkup = check_up(folder, recipe, record=record_of(folder), progress=progress)
    if as_json:
        for line in json_lines(checkup):
            typer.echo(line)
    else:
        typer.echo(in_words(checkup))
    if parquet is not None:
        write_table(checkup.files, parquet)
    if html is not None:
        write_checkup(checkup, html)
    if quarantine is not None:
        typer.echo(f"moved to {quarantine}: {move_aside(checkup, quarantine)} files", err=True)
    if len(checkup.set_aside):
        raise typer.Exit(PARTIAL)
