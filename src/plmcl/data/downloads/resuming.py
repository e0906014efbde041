"""One request for a file that goes on where an earlier one ended, if the file is still the same."""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from plmcl.data.downloads.redirects import Refused, get, shown
from plmcl.progress import ProgressCallback

SLOWEST = 1000  # bytes a second; an address that is slower has stalled
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")


class Again(Exception):  # noqa: N818 (an answer, not a defect)
    """An answer that may be another when the address is asked again; `str()` is the reason.

    Attributes:
        wait_s: How long the address wants to be left alone, in seconds; None: it does not say.
    """

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Part:
    """What has arrived of a file: `<name>.part`, and beside it which version of the file that is.

    Attributes:
        name: The file's own name.
        path: Of the bytes.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{name}.part"
        self._record = folder / f"{name}.part.json"

    @property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self, address: httpx.URL) -> str | None:
        """What `address` called the version that has begun to arrive; None: it did not say."""
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            known: str | None = record["validator"] if record["address"] == shown(address) else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return known

    def start_over(self, address: httpx.URL, validator: str | None) -> None:
        """Drop what is there; what comes now is `address`'s version `validator`."""
        self.path.unlink(missing_ok=True)  # first: it must never lie beside another's record
        record = {"address": shown(address), "validator": validator}
        self._record.write_text(json.dumps(record) + "\n", encoding="utf-8")

    def remove(self) -> None:
        """Drop what is there."""
        self.path.unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)

    def become(self, path: Path) -> None:
        """Give the file its name."""
        self.path.replace(path)
        self._record.unlink(missing_ok=True)


async def receive(
    client: httpx.AsyncClient,
    address: httpx.URL,
    part: Part,
    *,
    offset: int,
    size: int | None,
    max_bytes: int,
    timeout_s: float,
    progress: ProgressCallback | None,
) -> None:
    """Ask for the bytes from `offset` on, and append them to `part`.

    Args:
        client: Makes the connections.
        address: Of the file.
        part: Keeps whatever arrives, also when this fails.
        offset: Size of `part` in bytes; 0 starts over.
        size: Of the file in bytes; None: not known.
        max_bytes: The largest file that is taken where `size` is None.
        timeout_s: The address has stalled if it takes longer for `SLOWEST * timeout_s` bytes.
        progress: Called with (bytes here, bytes of the file, 0 where that is not known).

    Raises:
        Again: Not all bytes came, or what is there cannot be gone on with and was dropped.
        Refused: The address does not have the file, or has a larger one.
    """
    validator = part.validator(address)
    headers = {"Accept-Encoding": "identity", "User-Agent": "plmcl"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator is not None:
            headers["If-Range"] = validator
    most = max_bytes if size is None else size
    try:
        # One clock for name look-up, connection, head and body. A timeout of each read would be
        # started anew by every byte of an endless head.
        async with asyncio.timeout(timeout_s) as clock:
            response = await get(client, address, headers)
            try:
                if offset and _ends_at(response, offset):
                    return
                total = _begin(response, address, part, offset, validator)
                whole = total if size is None else size
                if total is not None and total > most:
                    raise _too_large(part, total, most)
                restart = part.size
                async for here in _append(response, part, most if whole is None else whole):
                    if here >= restart + SLOWEST * timeout_s:
                        restart = here
                        clock.reschedule(asyncio.get_running_loop().time() + timeout_s)
                    if progress is not None:
                        progress(here, whole or 0)
            finally:
                await response.aclose()
    except TimeoutError:
        raise Again(f"stalled: below {SLOWEST} bytes a second for {timeout_s:g} s") from None
    except httpx.TransportError as error:
        raise Again(f"{type(error).__name__} {error}".rstrip()[:200]) from None
    if whole is not None and part.size != whole:
        raise Again(f"{part.size} of {whole} bytes came")


def _ends_at(response: httpx.Response, offset: int) -> bool:
    # All of it is here: an earlier answer announced more, or was not known to be complete.
    said = response.headers.get("Content-Range")
    return response.status_code == 416 and said == f"bytes */{offset}"


def _begin(
    response: httpx.Response, address: httpx.URL, part: Part, offset: int, validator: str | None
) -> int | None:
    # Look at the head of an answer; returns the bytes of the whole file that it announces.
    status, head = response.status_code, response.headers
    if status in {408, 429} or status >= 500:
        raise Again(f"HTTP {status}", _retry_after(head.get("Retry-After")))
    if status == 416 and offset:
        part.remove()
        raise Again(f"HTTP 416: no bytes from {offset} on")
    if status != 200 and not (status == 206 and offset):
        raise Refused(f"HTTP {status}")
    encoding = head.get("Content-Encoding", "identity")
    # Some servers call a file that is itself compressed so.
    if encoding != "identity" and not part.name.endswith((".gz", ".tgz")):
        raise Refused(f"sent with Content-Encoding {encoding[:100]!r}, asked for as it is")
    version = _version(head)
    if status == 200:
        part.start_over(address, version)
        return int(head["Content-Length"]) if "Content-Length" in head else None
    said = head.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(said)
    if match is None or int(match[1]) != offset:
        part.remove()
        raise Again(f"Content-Range is {said[:100]!r}, expected to begin at byte {offset}")
    if None not in (validator, version) and validator != version:
        part.remove()
        raise Again("another version of the file than the one that had begun to arrive")
    return None if match[2] == "*" else int(match[2])


async def _append(response: httpx.Response, part: Part, most: int) -> AsyncIterator[int]:
    # Yields the bytes that are here after each piece.
    here = part.size
    with part.path.open("ab") as file:
        async for piece in response.aiter_raw():
            here += len(piece)
            if here > most:
                raise _too_large(part, here, most)
            file.write(piece)
            yield here
        file.flush()
        os.fsync(file.fileno())


def _too_large(part: Part, found: int, most: int) -> Refused:
    part.remove()
    return Refused(f"has {found} bytes or more, expected {most} at most")


def _version(head: httpx.Headers) -> str | None:
    # What If-Range takes: a weak ETag does not promise the same bytes.
    tag: str = head.get("ETag", "W/")
    modified: str | None = head.get("Last-Modified")
    return modified if tag.startswith("W/") else tag


def _retry_after(said: str | None) -> float | None:
    if said is None:
        return None
    if re.fullmatch("[0-9]{1,9}", said):
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
