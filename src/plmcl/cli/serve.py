"""The command that serves a model over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

CHAMPION = Path("models/production/champion/model.onnx")


def serve(
    model: Annotated[
        Path, typer.Option(help="A model.onnx of ours; another file put there takes its place.")
    ] = CHAMPION,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8000,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="ONNX Runtime's, in order; each must be there. Default: CUDA or CPU."),
    ] = None,
    request_mb: Annotated[float, typer.Option(help="Largest request, in MiB.")] = 64,
    image_mb: Annotated[float, typer.Option(help="Largest image file, in MiB.")] = 32,
    max_pixels: Annotated[
        int | None, typer.Option(help="Largest image. Default: what the model's recipe allows.")
    ] = None,
    max_images: Annotated[int, typer.Option(help="Images in one request.")] = 32,
    queue: Annotated[int, typer.Option(help="Images at work or waiting; above: 429.")] = 128,
    batch_size: Annotated[int, typer.Option(help="Images that the network takes at once.")] = 16,
    wait_ms: Annotated[float, typer.Option(help="How long a batch waits to fill.")] = 5,
    request_seconds: Annotated[
        float, typer.Option(help="To send a request, and again to answer it.")
    ] = 30,
    decode_seconds: Annotated[float, typer.Option(help="To decode one image.")] = 10,
) -> None:
    """Tag images over HTTP. The environment's PLMCL_SERVE_TOKEN, if set, is asked of requests.

    Example: plmcl serve --model tagger/model.onnx --port 8000
    """
    from plmcl.data import MAX_PIXELS
    from plmcl.errors import PlmclError
    from plmcl.serving.limits import Limits
    from plmcl.serving.server import run

    if model == CHAMPION and not model.exists():
        raise PlmclError(
            f"{model}: no model is in production yet; plmcl retrain makes one, or name a "
            "file: --model tagger/model.onnx"
        )
    limits = Limits(
        request_bytes=int(request_mb * 2**20),
        image_bytes=int(image_mb * 2**20),
        images=max_images,
        pixels=MAX_PIXELS if max_pixels is None else max_pixels,
        queue=queue,
        batch=batch_size,
        wait_ms=wait_ms,
        request_seconds=request_seconds,
        decode_seconds=decode_seconds,
    )
    run(model, host=host, port=port, limits=limits, providers=provider)
