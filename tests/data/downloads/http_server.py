"""An HTTP server on this machine that answers as it is told to, and lies if it is told to."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = '"v1"'


@dataclass(frozen=True)
class Answer:
    """What a request gets; without further values an honest 200, or 206 to a request for a range.

    `send`: bytes of the body that are sent; then the connection is closed, or left open in silence
    (`stall`). `drip`: seconds between single bytes of the body, or of an endless head.
    `head`: replaces what the headers would be, None removes one.
    """

    body: bytes = b""
    status: int | None = None
    head: dict[str, str | None] = field(default_factory=dict)
    send: int | None = None
    stall: bool = False
    ranges: bool = True
    drip: float | None = None
    drip_head: float | None = None
    chunked: bool = False


@dataclass
class Server:
    """Its address, and the headers of the requests it had, by path."""

    url: str
    requests: list[tuple[str, dict[str, str]]]

    def ranges(self) -> list[str | None]:
        return [head.get("range") for _, head in self.requests]


@contextmanager
def serve(*answers: Answer, host: str = "127.0.0.1", **paths: list[Answer]) -> Iterator[Server]:
    """Answer requests one after the other as told; the last answer is repeated.

    Args:
        answers: For every path that `paths` does not name.
        host: To listen on.
        paths: Answers by path, without its slash.
    """
    requests: list[tuple[str, dict[str, str]]] = []
    closing = threading.Event()
    queues = {path: list(queue) for path, queue in paths.items()}
    others = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            head = {name.lower(): value for name, value in self.headers.items()}
            requests.append((self.path, head))
            queue = queues.get(self.path.strip("/"), others)
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            self.close_connection = True
            with suppress(OSError):  # the other side has had enough
                _send(self, answer, head, closing)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Server(f"http://{host}:{server.server_address[1]}", requests)
        finally:
            closing.set()
            server.shutdown()
            thread.join()


def _send(
    handler: BaseHTTPRequestHandler, answer: Answer, asked: dict[str, str], closing: threading.Event
) -> None:
    status, offset, total = answer.status or 200, 0, len(answer.body)
    head: dict[str, str | None] = {"ETag": VERSION}
    wanted = re.fullmatch(r"bytes=(\d+)-", asked.get("range", ""))
    same = asked.get("if-range", VERSION) == answer.head.get("ETag", VERSION)
    if wanted and answer.ranges and same and answer.status is None:
        offset = int(wanted[1])
        status = 206 if offset < total else 416
        span = f"{offset}-{total - 1}" if status == 206 else "*"
        head["Content-Range"] = f"bytes {span}/{total}"
    body = answer.body[offset:]
    if answer.chunked:
        head["Transfer-Encoding"] = "chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head["Content-Length"] = str(len(body))
    handler.send_response_only(status)
    for name, value in (head | answer.head).items():
        if value is not None:
            handler.send_header(name, value)
    while answer.drip_head is not None and not closing.wait(answer.drip_head):
        handler.flush_headers()
        handler.wfile.write(b"X-More: y\r\n")
    handler.end_headers()
    if answer.drip is not None:
        for byte in body:
            handler.wfile.write(bytes([byte]))
            if closing.wait(answer.drip):
                return
    handler.wfile.write(body[: answer.send])
    handler.wfile.flush()
    if answer.stall:
        closing.wait()
