"""Commands that ask people about labels, and take their answers."""

from pathlib import Path
from typing import Annotated

import typer

NOT_SURE = "not sure"

Folder = Annotated[Path, typer.Argument(help="A project, or the --out of plmcl fit.")]
Run = Annotated[
    str | None,
    typer.Option(help="Such as sspl-40-ridge. Default: the best on the validation split."),
]
Url = Annotated[
    str | None,
    typer.Option(help="What stands before an image's path. Default: Label Studio's local files."),
]
NotSure = Annotated[str, typer.Option(help="Text of the choice that gives no label.")]


def audit(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder for the page, the CSV and the questions.")],
    run: Run = None,
    images_url: Url = None,
    not_sure: NotSure = NOT_SURE,
) -> None:
    """Find labels that look missing or wrong: a page with pictures, a CSV, Label Studio tasks.

    Example: plmcl audit tagger --out audit
    """
    from plmcl.labelling.audit import audit as find
    from plmcl.labelling.audit import describe, write_audit
    from plmcl.labelling.audit_page import write_audit_page
    from plmcl.labelling.trained import open_trained

    found = find(open_trained(folder, run))
    write_audit(found, out, url=images_url, not_sure=not_sure)
    write_audit_page(found, out / "index.html")
    for line in describe(found):
        typer.echo(line)
    typer.echo(
        f"\nLook: {out / 'index.html'}\nAsk in Label Studio: {out / 'config.xml'} and "
        f"{out / 'tasks.json'}; then plmcl answers EXPORT.json {folder} --out answers"
    )


def suggest(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder for the list and the questions.")],
    budget: Annotated[int, typer.Option(min=1, help="How many images.")],
    run: Run = None,
    decisions: Annotated[
        Path | None,
        typer.Option(help="decisions.csv of plmcl answers: what is in it is not asked again."),
    ] = None,
    images_url: Url = None,
    not_sure: NotSure = NOT_SURE,
) -> None:
    """Choose the images to label next: one label each, asked in Label Studio.

    Example: plmcl suggest tagger --budget 100 --out next
    """
    from plmcl.labelling.decisions import read_decisions
    from plmcl.labelling.suggest import describe, write_suggestion
    from plmcl.labelling.suggest import suggest as find
    from plmcl.labelling.trained import open_trained

    answered = [] if decisions is None else read_decisions(decisions)["image_id"].tolist()
    found = find(open_trained(folder, run), budget, answered=answered)
    write_suggestion(found, out, url=images_url, not_sure=not_sure)
    for line in describe(found):
        typer.echo(line)
    typer.echo(
        f"\nAsk in Label Studio: {out / 'config.xml'} and {out / 'tasks.json'}; then "
        f"plmcl answers EXPORT.json {folder} --out answers"
    )


def answers(
    export: Annotated[Path, typer.Argument(help="Label Studio's export, as JSON.")],
    folder: Folder,
    out: Annotated[Path, typer.Option(help="Folder for labels.csv and decisions.csv.")],
    run: Run = None,
) -> None:
    """Take Label Studio's answers: labels to train with, and who decided what and when.

    Exit code 3: some answers could not be taken; decisions.csv says why.

    Example: plmcl answers export.json tagger --out answers
    """
    from plmcl.cli.own import PARTIAL
    from plmcl.labelling.decisions import REFUSED
    from plmcl.labelling.merge import describe, merge, write_merged
    from plmcl.labelling.trained import open_trained

    trained = open_trained(folder, run)
    merged = merge(trained, export, out / "decisions.csv")
    write_merged(merged, trained.manifest.label_names, out)
    for line in describe(merged):
        typer.echo(line)
    typer.echo(
        f"\nTrain with them: plmcl fit {trained.paths.images} --labels {out / 'labels.csv'} "
        "--out tagger-2"
    )
    if (merged.decisions["answer"] == REFUSED).any():
        raise typer.Exit(PARTIAL)
