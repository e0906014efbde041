"""Run the service on a port until a signal ends it."""

import asyncio
import gc
import logging
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.serving.app import make_app
from plmcl.serving.limits import Limits
from plmcl.serving.service import Service

logger = logging.getLogger(__name__)

TOKEN = "PLMCL_SERVE_TOKEN"  # noqa: S105 (its name)
HEAD_SECONDS = 10.0
MAX_CONNECTIONS = 512

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'content-length: 32\r\n\r\n{"detail":"not an HTTP request"}'
)
_LAST_SECONDS = 2.0
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
            http=_Protocol,
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
        if server.started:
            raise
        raise PlmclError(f"{host}:{port}: the service does not start; the log says why") from None


def _take_token() -> str | None:
    # Out of the environment: the decoding processes have no need of it.
    token = os.environ.pop(TOKEN, None)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
        raise PlmclError(f"{TOKEN}: is set, but empty or not plain ASCII; unset it to need none")
    return None if token is None else token.strip()


class _Protocol(H11Protocol):
    """uvicorn's, for clients that are not nice.

    A connection whose next request's head does not come is closed; uvicorn waits for ever. What is
    no HTTP gets its answer even where more of it comes; uvicorn would cut the connection.
    """

    _patience: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._be_patient()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_patience()
        elif self._patience is None:
            self._be_patient()

    def send_400_response(self, msg: str) -> None:
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        self.transport.write(_BAD_REQUEST)
        self.transport.write_eof()
        self.loop.call_later(_LAST_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_patience()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
