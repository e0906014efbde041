"""Requests that no honest client sends, each another for its seed, and what comes back for them."""

import random
import socket
import struct
import zlib
from collections import Counter
from typing import NamedTuple

from data import image_bytes as made
from data.image_mutations import mutate_image
from running_service import picture

KINDS = (
    "image", "truncated", "bomb", "random", "form", "type", "name", "head", "huge head", "path",
    "no HTTP",
)  # fmt: skip
SECONDS = 20
_TYPES = (
    "image/jpeg", "application/json", "text/plain", "multipart/form-data",
    "multipart/form-data; boundary=", "multipart/form-data; boundary=x\x80y", "image/\xff", ";;;",
    "multipart/mixed; boundary=b", "application/x-www-form-urlencoded", "x" * 5000,
)  # fmt: skip
_NAMES = (
    "../../../etc/passwd", "/dev/zero", "C:\\windows\\win.ini", "a\0b.png", "a;b=c", "\xff\xfe",
    "%2e%2e%2f", "|sh", "$(reboot)", "'; drop table", "CON", "\u202egnp.exe", "file:///etc/passwd",
    "http://127.0.0.1/", "x" * 5000, "a\r\nX-Injected: yes",
)  # fmt: skip
_HEADS = ("X", "Cookie", "Authorization", "Accept", "Range", "Content-Encoding")
_VALUES = ("", "x" * 30_000, "bytes=0-99999", "gzip", "\xff\x80", ";" * 999)
_PATHS = (
    "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//predict", "/predict/", "/predict/..",
    "/PREDICT", "/predict%00", "/predict;x", "/./model.onnx", "/static/../../etc/passwd", "/docs",
    "/openapi.json/", "/" + "x" * 5000, "/%ff%fe", "/predict%2f", "*", "http://10.0.0.1/predict",
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")


class Answer(NamedTuple):
    """Of the service: 0 where it cut the connection without one."""

    status: int
    body: bytes


def seeds():
    """Whole images of many kinds."""
    pictures = [made.drawn(i) for i in range(3)]
    formats = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
    whole = [made.encoded(p, f) for p in pictures for f in formats]
    return [*whole, made.encoded(pictures[0], "JPEG", progressive=True)]


def bomb(rng):
    """A small file whose head promises more pixels than anybody has memory for."""
    width, height = (rng.choice([30_000, 2**20, 2**31 - 1]) for _ in range(2))
    head = struct.pack(">IIBBBBB", width, height, 8, rng.choice([0, 2, 6]), 0, 0, 0)
    data = zlib.compress(b"\0" * 10_000)
    chunks = made.png_chunk(b"IHDR", head) + made.png_chunk(b"IDAT", data)
    return made.PNG_BEGIN + chunks + made.png_chunk(b"IEND", b"")


def form(content, name, rng):
    """A multipart body, perhaps a damaged one."""
    body = (
        b'--b\r\nContent-Disposition: form-data; name="images"; filename="'
        + name.encode("utf-8", "surrogatepass")
        + b'"\r\n\r\n'
        + content
        + b"\r\n--b--\r\n"
    )
    return body if rng.random() < 0.3 else mutate_image(body, [content], rng)


def request(body, head, *, method="POST", path="/predict"):
    """The bytes of one request, after which the connection is closed."""
    head = {"Host": "x", "Connection": "close", "Content-Length": str(len(body))} | head
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def mutant(seed, whole):
    """(what it is, its bytes) of one request; `whole` are `seeds()`."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    content = mutate_image(rng.choice(whole), whole, rng)
    head, where = {"Content-Type": "image/png"}, {}
    if kind == "truncated":
        content = rng.choice(whole)
        content = content[: rng.randint(1, len(content) - 1)]
    elif kind == "bomb":
        content = bomb(rng)
    elif kind == "random":
        content = rng.randbytes(rng.choice([0, 1, 10, 1000, 100_000]))
    elif kind == "type":
        head["Content-Type"] = rng.choice(_TYPES)
    elif kind == "head":
        head[rng.choice(_HEADS)] = rng.choice(_VALUES)
    elif kind == "huge head":
        size, count = rng.choice([(100_000, 1), (1_000_000, 1), (10, 20_000), (0, 50_000)])
        head |= {f"X-{i}": "y" * size for i in range(count)}
    elif kind == "path":
        where = {"method": rng.choice(_METHODS), "path": rng.choice(_PATHS)}
    elif kind in ("form", "name"):
        name = rng.choice(_NAMES) if kind == "name" else "a.png"
        content = form(content, name, rng)
        head["Content-Type"] = "multipart/form-data; boundary=b"
    sent = request(content, head, **where)
    if kind == "no HTTP":
        end = sent.index(b"\r\n\r\n") + 4
        sent = mutate_image(sent[:end], [sent[:end]], rng) + b"\r\n\r\n" + sent[end:]
    return kind, sent


def send(port, data):
    """What comes back for bytes on a connection of their own."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(1 << 16):
                received += part
        except ConnectionError:  # it answered before it had read all
            pass
    head, _, body = received.partition(b"\r\n\r\n")
    return Answer(int(head[9:12]) if head.startswith(b"HTTP/1.") else 0, body)


def fuzz_service(port, count, *, check=lambda seed, kind, answer: None):
    """Send `count` mutants one after the other; (kind, status) -> number.

    Args:
        port: Of the service, on this machine.
        count: Of requests.
        check: Called for each answer.

    Raises:
        AssertionError: A status of 500 or above, or an answer to a good request that changes.
    """
    whole, found = seeds(), Counter()
    good = request(picture((255, 0, 0)), {"Content-Type": "image/png"})
    expected = send(port, good)
    assert expected.status == 200
    for seed in range(count):
        kind, data = mutant(seed, whole)
        answer = send(port, data)
        assert answer.status < 500, (seed, kind, answer)
        check(seed, kind, answer)
        found[kind, answer.status] += 1
        if seed % 100 == 0:
            assert send(port, good) == expected
    assert send(port, good) == expected
    return found
