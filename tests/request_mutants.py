"""Requests that no honest client sends, each another for its seed."""

import random
import struct
import zlib

from data import image_bytes as made
from data.image_mutations import mutate_image

KINDS = ("image", "truncated", "bomb", "random", "form", "type", "name", "head")
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


def mutant(seed, whole):
    """(what it is, body, headers) of one request."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    content = mutate_image(rng.choice(whole), whole, rng)
    head = {"Content-Type": "image/png"}
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
        name = rng.choice(["X", "Cookie", "Authorization", "Accept", "Range", "Content-Encoding"])
        head[name] = rng.choice(["", "x" * 30_000, "bytes=0-99999", "gzip", "\xff\x80", ";" * 999])
    elif kind in ("form", "name"):
        name = rng.choice(_NAMES) if kind == "name" else "a.png"
        content = form(content, name, rng)
        head["Content-Type"] = "multipart/form-data; boundary=b"
    return kind, content, {k: v.encode("latin-1") for k, v in head.items()}
