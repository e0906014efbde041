"""One command a stage of the pipeline, and the check before them."""

from pathlib import Path
from typing import Annotated

import typer

from plmcl.cli.serve import CHAMPION
from plmcl.errors import PlmclError

Setting = Annotated[str, typer.Argument(help="Label setting, such as sspl-40, fspl, given.")]
Method = Annotated[str, typer.Argument(help="Method, such as epr, plmcl, ridge.")]


def check() -> None:
    """Find what is wrong in params.yaml before anything is downloaded.

    Example: plmcl check
    """
    from plmcl.stages.check import main

    main()


def download() -> None:
    """Fetch, draw or copy the configured source into data/raw.

    Example: plmcl download
    """
    from plmcl.stages.download import main

    main()


def ingest() -> None:
    """Open every file once and write the manifest.

    Example: plmcl ingest
    """
    from plmcl.stages.ingest import main

    main()


def split() -> None:
    """Make train / val / test and the labels that each setting shows.

    Example: plmcl split
    """
    from plmcl.stages.split import main

    main()


def train(setting: Setting, method: Method) -> None:
    """Train METHOD under SETTING.

    Example: plmcl train sspl-40 plmcl
    """
    from plmcl.stages.train import main

    main(setting, method)


def evaluate(setting: Setting, method: Method) -> None:
    """Evaluate METHOD under SETTING on the test split.

    Example: plmcl evaluate sspl-40 plmcl
    """
    from plmcl.stages.evaluate import main

    main(setting, method)


def export(
    setting: Annotated[str | None, typer.Argument(help="As of train.")] = None,
    method: Annotated[str | None, typer.Argument(help="As of train.")] = None,
    triton: Annotated[
        Path | None, typer.Option(help="A Triton model repository to write --model into, instead.")
    ] = None,
    model: Annotated[Path, typer.Option(help="A model.onnx of ours, for Triton.")] = CHAMPION,
    name: Annotated[str, typer.Option(help="Of the model in Triton's repository.")] = "plmcl",
) -> None:
    """Export the model of METHOD under SETTING to ONNX; or, with --triton, a model to Triton.

    Example: plmcl export --triton repository --model tagger/model.onnx
    """
    if triton is not None:
        from plmcl.triton import write_repository

        if setting is not None:
            raise PlmclError(f"--triton: takes the file of --model, and not {setting!r:.80}")
        typer.echo(write_repository(model, triton, name=name))
        return
    if setting is None or method is None:
        raise PlmclError("expected SETTING and METHOD, or --triton DIR")
    from plmcl.stages.export import main

    main(setting, method)


def report() -> None:
    """Write reports/index.html.

    Example: plmcl report
    """
    from plmcl.stages.report import main

    main()


def track() -> None:
    """Put runs into MLflow that it lacks: of a fresh clone, or out of DVC's run cache.

    Example: plmcl track
    """
    from plmcl.stages.track import main

    main()
