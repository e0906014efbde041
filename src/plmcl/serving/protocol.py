"""uvicorn's HTTP, for clients that are not nice."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
MAX_CONNECTIONS = 512
MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 16

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'content-length: 32\r\n\r\n{"detail":"not an HTTP request"}'
)
_LAST_SECONDS = 2.0


class Protocol(HttpToolsProtocol):
    """One connection.

    Where uvicorn waits for ever for a head, this one closes the connection. Where it holds heads,
    trailers and requests that come before the answer to the last without end, this one refuses.
    What is no HTTP gets its answer even where more of it comes; uvicorn would cut the connection.
    """

    _patience: asyncio.TimerHandle | None = None
    _refused = False
    _advanced = False
    _held = 0  # bytes in a row that were neither the end of a head nor part of a body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse one too many; of the others a head is expected."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._be_patient()

    def data_received(self, data: bytes) -> None:
        """Parse what came, as long as it leads anywhere."""
        if self._refused:
            return
        self._advanced = False
        super().data_received(data)
        self._held = 0 if self._advanced else self._held + len(data)
        if self._held > MAX_HEAD_BYTES and not self._refused:
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Expect the rest of a head."""
        super().on_message_begin()
        if self._patience is None:
            self._be_patient()

    def on_headers_complete(self) -> None:
        """Answer a request, if it is one; the parser makes a 400 of what is raised here."""
        self._stop_patience()
        self._advanced = True
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("head too large")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and self.parser.get_http_version() != "1.0":
            raise ValueError("expected one Host")
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise ValueError("too many requests at once")

    def on_body(self, body: bytes) -> None:
        """Hand on a part of a body."""
        self._advanced = True
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Say that it is no HTTP, once, and read no more of it."""
        self._refused = True
        self._stop_patience()
        self.pipeline.clear()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        self.transport.write(_BAD_REQUEST)
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LAST_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._stop_patience()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
