"""A request's body as image files in memory, refused as soon as it breaks a limit."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from plmcl.serving.limits import LARGEST_REQUESTS, Limits
from plmcl.serving.refusal import Refusal, busy

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_NAME_CHARACTERS = 255
_HOW = "send image files as multipart/form-data, or one image as image/* or octet-stream"


class Upload(NamedTuple):
    """One file: what its sender calls it, which is never used as a path, and its bytes."""

    name: str
    content: bytes


class Memory:
    """Bytes of bodies that are held at a time, of all requests together."""

    def __init__(self, limits: Limits) -> None:
        self._left = LARGEST_REQUESTS * limits.request_bytes

    @contextmanager
    def claim(self) -> Iterator["Claim"]:
        """One request's share, given back at the end."""
        claim = Claim(self)
        try:
            yield claim
        finally:
            self._left += claim.taken

    def take(self, count: int) -> None:
        """Refuse what does not fit."""
        if count > self._left:
            raise busy("too many bytes are held for other requests")
        self._left -= count


class Claim:
    """What one request holds."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.taken = 0

    def grow(self, count: int) -> None:
        """Hold `count` bytes more."""
        self._memory.take(count)
        self.taken += count


async def read_uploads(
    headers: Mapping[str, str], body: AsyncIterator[bytes], claim: Claim, limits: Limits
) -> list[Upload]:
    """The files of one request.

    Args:
        headers: Of the request, found by lower-case name.
        body: Its parts as they arrive; nothing is believed of what a header says of its length.
        claim: Grows with what arrives.
        limits: Those on bytes and images apply.

    Returns:
        One or more.

    Raises:
        Refusal: 400 empty or broken, 413 over a limit, 415 of another type, 429 no memory left.
    """
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "content-encoding: send the files as they are")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.request_bytes:
        raise _too_large("request", limits.request_bytes)
    kind, options = parse_options_header(headers.get("content-type"))
    chunks = _limited(body, claim, limits)
    if kind == b"multipart/form-data":
        uploads = await _read_form(chunks, options.get(b"boundary", b""), limits)
    elif kind in (b"", b"application/octet-stream") or kind.startswith(b"image/"):
        uploads = [Upload("", await _read_whole(chunks, limits))]
    else:
        raise Refusal(415, f"content-type: {_text(kind)!r:.80} is not read; {_HOW}")
    return uploads


async def _limited(
    body: AsyncIterator[bytes], claim: Claim, limits: Limits
) -> AsyncIterator[bytes]:
    async for chunk in body:
        claim.grow(len(chunk))
        if claim.taken > limits.request_bytes:
            raise _too_large("request", limits.request_bytes)
        yield chunk


async def _read_whole(chunks: AsyncIterator[bytes], limits: Limits) -> bytes:
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > limits.image_bytes:
            raise _too_large("image", limits.image_bytes)
    if not content:
        raise Refusal(400, f"the body is empty; {_HOW}")
    return bytes(content)


async def _read_form(chunks: AsyncIterator[bytes], boundary: bytes, limits: Limits) -> list[Upload]:
    if not boundary:
        raise Refusal(400, "multipart/form-data: without a boundary")
    form = _Form(limits)
    try:
        parser = MultipartParser(boundary, form.callbacks)
        async for chunk in chunks:
            parser.write(chunk)
    except FormParserError as error:
        raise Refusal(400, f"multipart/form-data: {error!s:.200}") from None
    if not form.ended:
        raise Refusal(400, "multipart/form-data: it ends in the midst of a part")
    if not form.uploads:
        raise Refusal(400, f"multipart/form-data: without a file; {_HOW}")
    return form.uploads


class _Form:
    """Gathers what the parser calls out."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.uploads: list[Upload] = []
        self.ended = False
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value, self._content = bytearray(), bytearray(), bytearray()
        self._name = ""

    @property
    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self.part_begin,
            "on_header_field": self.header_field,
            "on_header_value": self.header_value,
            "on_header_end": self.header_end,
            "on_headers_finished": self.headers_finished,
            "on_part_data": self.part_data,
            "on_part_end": self.part_end,
            "on_end": self.end,
        }

    def part_begin(self) -> None:
        if len(self.uploads) == self._limits.images:
            raise Refusal(413, f"more images than {self._limits.images}, the limit of a request")
        self._headers, self._content = {}, bytearray()

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def headers_finished(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"").decode("latin-1")
        _, options = parse_options_header(disposition)
        name = options.get(b"filename")
        if name is None:
            field = _text(options.get(b"name", b""))
            raise Refusal(400, f"multipart/form-data: the part {field!r:.80} is no file; {_HOW}")
        self._name = _text(name)[:_NAME_CHARACTERS]

    def part_data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]
        if len(self._content) > self._limits.image_bytes:
            raise _too_large("image", self._limits.image_bytes)

    def part_end(self) -> None:
        self.uploads.append(Upload(self._name, bytes(self._content)))

    def end(self) -> None:
        self.ended = True


def _too_large(what: str, limit: int) -> Refusal:
    return Refusal(413, f"{what}: more bytes than {limit}, the limit")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
