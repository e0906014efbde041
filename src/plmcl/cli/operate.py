"""Commands for whoever runs the tagger: which version is served, where it comes from, what goes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

KILOBYTE = 1000


def receive() -> None:
    """Take in the images that have arrived: examine them, store them; nothing is trained.

    Example: plmcl receive
    """
    from plmcl.retraining.rounds import Retraining

    with _lock("receiving") as root:
        retraining = Retraining(root)
        typer.echo(str(retraining.receive()))
        typer.echo(retraining.due().reason)


def retrain(
    force: Annotated[
        bool, typer.Option("--force", help="Also if nothing new has arrived.")
    ] = False,
) -> None:
    """Receive; retrain if there is a reason to; promote what passes the gate.

    Example: plmcl retrain
    """
    from plmcl.retraining.rounds import Due, Retraining

    with _lock("retraining") as root:
        ended = Retraining(root).run(typer.echo, force=force)
    if isinstance(ended, Due):
        typer.echo(f"skipped: {ended.reason}")
        return
    typer.echo(f"{ended.version}: {ended.result}")
    for line in (*ended.reasons, *ended.notes):
        typer.echo(f"  {line}")


def promote(
    version: Annotated[str, typer.Argument(help="Such as v0002; `plmcl lineage` says which.")],
) -> None:
    """Make a version the champion, whatever the gate said of it.

    Example: plmcl promote v0002
    """
    from plmcl.retraining.production import Production

    with _lock(f"promoting {version}") as root:
        production = Production(root)
        before = production.champion
        production.promote(production.version(version))
    instead = f", instead of {before.version}" if before and before.version != version else ""
    typer.echo(f"{version} is the champion{instead}; back: plmcl rollback")


def rollback() -> None:
    """Make the champion's predecessor the champion again, everywhere.

    Example: plmcl rollback
    """
    from plmcl.retraining.rounds import Retraining

    with _lock("rolling back") as root:
        retraining = Retraining(root)
        before = retraining.production.champion
        version = retraining.roll_back()
    assert before is not None
    typer.echo(
        f"{version.version} is the champion; {before.version} is kept: "
        f"plmcl promote {before.version}"
    )


def lineage(
    what: Annotated[
        str,
        typer.Argument(help="An ONNX file, a version, an MLflow run id or a git commit."),
    ] = "champion",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say where a model comes from: data, splits, code, dvc.lock, MLflow run, registry.

    Example: plmcl lineage models/production/champion/model.onnx
    """
    from plmcl.retraining.lineage import trace

    found = trace(Path.cwd(), what)
    typer.echo(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else found.text())


def prune(
    keep: Annotated[
        int, typer.Option(min=1, help="How many of the newest versions stay, beside the champion.")
    ],
) -> None:
    """Remove old versions, their branches, tags and registered models, and unused cache files.

    The champion and the version that it replaced always stay.

    Example: plmcl prune --keep 5
    """
    from plmcl.retraining.housekeeping import prune as remove_old

    with _lock("pruning") as root:
        removed = remove_old(root, keep)
    for item in removed:
        typer.echo(f"removed {item.what}{f': {_in_words(item.bytes)}' if item.bytes else ''}")
    typer.echo(f"freed {_in_words(sum(item.bytes for item in removed))}")
    typer.echo("DVC's cache: dvc gc --workspace --all-branches --all-tags --dry says what would go")


def forget(
    images: Annotated[
        list[str],
        typer.Argument(help="Image ids (delivered/0001/photo.jpg), or files with their bytes."),
    ],
) -> None:
    """Remove delivered images, and what is kept of them, because somebody asks for it.

    Example: plmcl forget delivered/0001/photo.jpg
    """
    from plmcl.retraining.forgetting import forget as remove

    with _lock("forgetting images") as root:
        forgotten = remove(root, images)
    for image in forgotten:
        seen = ", ".join(image.versions) or "no version"
        typer.echo(f"{', '.join(image.image_ids)}: gone; {seen} was trained with it")
    typer.echo(
        "Weights keep what they learned: with retraining.start: scratch, the next retraining makes "
        "some that never saw it. `dvc repro` makes manifest and report without it. A DVC remote "
        "and backups are not touched."
    )


def refreeze() -> None:
    """Score the champion again, on the test split as it is now; the earlier figures are kept.

    Example: plmcl refreeze
    """
    from plmcl.retraining.refreeze import refreeze as score_again

    with _lock("scoring the champion again") as root:
        said = score_again(root)
    for line in said:
        typer.echo(line)


@contextmanager
def _lock(purpose: str) -> Iterator[Path]:
    """The project's root, with the lock held of all that changes what is served or received."""
    from plmcl.retraining.lock import held
    from plmcl.stages.paths import Paths

    root = Path.cwd()
    with held(Paths.of_project(root, "").retraining / "lock", purpose):
        yield root


def _in_words(size: int) -> str:
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= KILOBYTE and len(units) > 1:
        value, units = value / KILOBYTE, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" else f"{value:.1f} {units[0]}"
