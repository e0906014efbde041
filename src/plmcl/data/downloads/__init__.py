"""Files from the web: several addresses, resumed after a break, checked before they get a name."""

import asyncio
import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path

import httpx

from plmcl.data.downloads.redirects import Refused, is_web_address, shown
from plmcl.data.downloads.resuming import Again, Part, receive
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

logger = logging.getLogger(__name__)

MAX_BYTES = 50_000_000_000
LONGEST_WAIT_S = 120.0
_ENOUGH = 2**20  # bytes; an attempt that brought them was no failure, however it ended
_CHECKSUM_DIGITS = {"md5": 32, "sha256": 64}


@dataclass(frozen=True)
class Remote:
    """A file, where it can be had, and how it is known to be the right one.

    Attributes:
        name: File name, without a folder.
        urls: http or https; the official address first, then mirrors.
        size: Bytes; None: not known.
        md5: Hexadecimal, in small letters; None: not known.
        sha256: As `md5`.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        """Refuse what nothing could be fetched with."""
        if self.name in {".", ".."} or not re.fullmatch(r"[^/\\\0]+", self.name):
            raise PlmclError(f"download: name must be a file name, found {self.name!r}")
        if not self.urls:
            raise PlmclError(f"download of {self.name}: there is no URL")
        for number, url in enumerate(self.urls, start=1):
            if not _can_be_asked(url):  # it is not shown: it may hold a password
                raise PlmclError(
                    f"download of {self.name}: URL {number} is not an http or https address"
                )
        if self.size is not None and self.size < 1:
            raise PlmclError(
                f"download of {self.name}: size must be at least 1 byte, found {self.size}"
            )
        for kind, checksum in self.checksums.items():
            if not re.fullmatch(f"[0-9a-f]{{{_CHECKSUM_DIGITS[kind]}}}", checksum):
                raise PlmclError(
                    f"download of {self.name}: {kind} must be {_CHECKSUM_DIGITS[kind]} "
                    f"hexadecimal digits in small letters, found {checksum!r}"
                )

    @property
    def checksums(self) -> dict[str, str]:
        """Those that are known, by kind."""
        both = {"md5": self.md5, "sha256": self.sha256}
        return {kind: checksum for kind, checksum in both.items() if checksum is not None}


def fetch(
    remote: Remote,
    folder: Path,
    *,
    progress: ProgressCallback | None = None,
    retries: int = 5,
    timeout_s: float = 60.0,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Download a file, or go on where an earlier call ended; nothing if it is there already.

    What has arrived lies in `folder` as `<name>.part`, with `<name>.part.json` beside it. It gets
    its name when it is complete and checked.

    Args:
        remote: What to fetch.
        folder: Made if it does not exist.
        progress: Called with (bytes here, bytes of the file, 0 where that is not known).
        retries: How often an address is asked again without having brought much in between.
        timeout_s: An address has stalled if it takes longer for `SLOWEST * timeout_s` bytes.
            The first wait before a retry is 1/32 of it, each other twice the one before.
        max_bytes: The largest file that is taken where `remote.size` is None.

    Returns:
        The path of the file.

    Raises:
        PlmclError: No address has the right file (an empty one never is), a file of that
            name is there with other content, or it cannot be written.
    """
    path = folder / remote.name
    part = Part(folder, remote.name)
    try:
        if path.exists():
            wrong = _what_is_wrong(path, remote)
            if wrong is not None:
                raise PlmclError(f"{path}: {wrong}; move it away to have it downloaded")
            return path
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_Download(remote, part, progress, retries, timeout_s, max_bytes).run())
        part.become(path)
    except OSError as error:
        raise PlmclError(
            f"{path}: {error.strerror}; what has arrived is kept, and the next call goes on there"
        ) from None
    if not remote.checksums:
        logger.warning("%s: no checksum to check it; its sha256: %s", path, _digest(path, "sha256"))
    return path


@dataclass(frozen=True)
class _Download:
    remote: Remote
    part: Part
    progress: ProgressCallback | None
    retries: int
    timeout_s: float
    max_bytes: int

    async def run(self) -> None:
        """Leave the complete, checked file in `part`."""
        reasons = []
        # A connection kept open could hold what a wrong Content-Length left unread.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            timeout=None,  # noqa: S113 (`receive` has a clock for all of it)
            limits=limits,
        ) as client:
            for address in map(httpx.URL, self.remote.urls):
                try:
                    return await self._insist(client, address)
                except Refused as refused:
                    reasons.append(f"{shown(address)}: {refused}")
        raise PlmclError(f"{self.remote.name}: could not be downloaded; {'; '.join(reasons)}")

    async def _insist(self, client: httpx.AsyncClient, address: httpx.URL) -> None:
        failures, most = 0, self.part.size
        while True:
            try:
                return await self._attempt(client, address)
            except Again as again:
                if self.part.size >= most + _ENOUGH:
                    failures, most = 0, self.part.size
                failures += 1
                if failures > self.retries:
                    raise Refused(f"{again} (asked {failures} times)") from None
                wait_s = again.wait_s
            if wait_s is None:
                wait_s = self.timeout_s / 32 * 2 ** (failures - 1)
            await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))

    async def _attempt(self, client: httpx.AsyncClient, address: httpx.URL) -> None:
        offset = self.part.size
        # Without a checksum nobody would notice that two versions were joined.
        if not self.remote.checksums and self.part.validator(address) is None:
            offset = 0
        if offset != self.remote.size:
            await receive(
                client,
                address,
                self.part,
                offset=offset,
                size=self.remote.size,
                max_bytes=self.max_bytes,
                timeout_s=self.timeout_s,
                progress=self.progress,
            )
        wrong = _what_is_wrong(self.part.path, self.remote)
        if wrong is None:
            return
        self.part.remove()
        if offset:  # the fault may lie in the bytes that were there before
            raise Again(wrong)
        raise Refused(wrong)


def _can_be_asked(url: str) -> bool:
    try:
        return is_web_address(httpx.URL(url))
    except httpx.InvalidURL:
        return False


def _what_is_wrong(path: Path, remote: Remote) -> str | None:
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    if remote.size is not None and size != remote.size:
        return f"size is {size} bytes, expected {remote.size}"
    for kind, expected in remote.checksums.items():
        found = _digest(path, kind)
        if found != expected:
            return f"{kind} is {found}, expected {expected}"
    return None


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
