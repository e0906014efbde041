"""What every request passes: the token, the log, the counters, headers, and a last refuge."""

import asyncio
import hmac
import logging
import time
from contextlib import suppress
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plmcl.serving.limits import Limits
from plmcl.serving.metrics import Metrics

logger = logging.getLogger(__name__)
access = logging.getLogger("plmcl.serving.access")

PATHS = ("/predict", "/live", "/ready", "/model", "/metrics", "/openapi.json", "/")
# A probe and a browser's address bar have no token; what these show is no secret.
OPEN_PATHS = ("/live", "/ready", "/")

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_DRAIN_SECONDS = 2.0


class Gate:
    """An ASGI application around another.

    Args:
        app: The other.
        token: That requests must bear, or None.
        limits: So many bytes more are read of a request that is refused.
        metrics: Where requests are counted.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, limits: Limits, metrics: Metrics
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._limits.request_bytes)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = scope["path"] if scope["path"] in PATHS else "other"
        started = time.monotonic()
        try:
            if path in OPEN_PATHS or self._bears_token(scope):
                await self._app(scope, exchange.receive, exchange.send)
            else:
                answer = JSONResponse(
                    {"detail": "a bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"}
                )
                await answer(scope, exchange.receive, exchange.send)
        except Exception:
            logger.exception("%s %s failed", method, path)
            if exchange.status:
                raise
            answer = JSONResponse({"detail": "a defect of the service; its log says more"}, 500)
            await answer(scope, exchange.receive, exchange.send)
        finally:
            seconds = time.monotonic() - started
            self._metrics.requests.labels(path, str(exchange.status or "none")).inc()
            self._metrics.seconds.labels(path).observe(seconds)
            access.info(
                "%s %s %s status=%s images=%s bytes=%d ms=%.1f",
                (scope.get("client") or ("-",))[0],
                method,
                path,
                exchange.status or "none",
                scope.get("state", {}).get("images", "-"),
                exchange.received,
                seconds * 1000,
            )

    def _bears_token(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return False
        scheme, _, given = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)


class _Exchange:
    """One request and its answer.

    A connection that is closed while the client still sends is cut, and the client may never see
    why. So a refusal is sent when the rest has been read, or enough of it.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, enough: int) -> None:
        self._receive, self._send, self._enough = receive, send, enough
        # Who expects "100 Continue" sends nothing before that, which reading would say.
        self._waits = any(name == b"expect" for name, _ in scope["headers"])
        self._all_read = False
        self.received = self.status = 0

    async def receive(self) -> Message:
        self._waits = False
        message = await self._receive()
        self.received += len(message.get("body", b""))
        self._all_read = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status >= 400 and self.status != 408 and not self._waits:
                await self._drain()
            named = {name.lower() for name, _ in message["headers"]}
            added: list[Any] = [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in named
            ]
            if self.status >= 400 and not self._all_read:
                added.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *added]
        await self._send(message)

    async def _drain(self) -> None:
        enough = self.received + self._enough
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._all_read and self.received < enough:
                    await self.receive()
