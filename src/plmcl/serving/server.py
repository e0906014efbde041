"""Run the service on a port until a signal ends it."""

import gc
import logging
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.serving.app import make_app
from plmcl.serving.limits import Limits
from plmcl.serving.protocol import Protocol
from plmcl.serving.service import Service
from plmcl.signals import exit_if_told

logger = logging.getLogger(__name__)

TOKEN = "PLMCL_SERVE_TOKEN"  # noqa: S105 (its name)
_LOCAL = ("127.0.0.1", "::1", "localhost")


def run(
    model: Path, *, host: str, port: int, limits: Limits, providers: Sequence[str] | None
) -> None:
    """Serve a model; SIGTERM and SIGINT end it when what was begun is answered.

    Args:
        model: The ONNX file, or a link to it; another file there takes its place.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which the log names.
        limits: What is refused.
        providers: As of `Tagger`.

    Raises:
        PlmclError: The model is refused, the token is empty, or nobody can listen there.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    token = _take_token()
    service = Service(model, limits, providers=providers)
    served = service.slot.current
    logger.info(
        "serving %s, sha256 %s, with %s on %d cores",
        *(served.name, served.sha256, ", ".join(served.tagger.providers), usable_cores()),
    )
    if token is None and host not in _LOCAL:
        logger.warning("%s is not set: whoever reaches %s can use the service", TOKEN, host)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(service, token=token),
            host=host,
            port=port,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # `gate` has one that names no paths of others
            server_header=False,
            proxy_headers=False,  # whoever connects may claim to come from elsewhere
            timeout_graceful_shutdown=math.ceil(limits.request_seconds),
        )
    )
    gc.collect()
    gc.freeze()  # what is there now stays: no collection has to look at it
    try:
        server.run()
    except SystemExit:
        exit_if_told()
        if server.started:
            raise
        raise PlmclError(f"{host}:{port}: the service does not start; the log says why") from None


def _take_token() -> str | None:
    # Out of the environment: the decoding processes have no need of it.
    token = os.environ.pop(TOKEN, None)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise PlmclError(f"{TOKEN}: is set, but empty or not plain ASCII; unset it to need none")
    return None if token is None else token.strip()
