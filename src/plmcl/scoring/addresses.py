"""Images behind an address (with ://), such as a bucket's: found and read with fsspec.

An address is opened because the user typed it, never because a list or a server names it.
"""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from plmcl.data.decoding import MAX_BYTES
from plmcl.data.images import ImageProblem
from plmcl.data.listing import SUFFIXES, PassedOver, is_utf8
from plmcl.errors import PlmclError
from plmcl.scoring.patterns import has_magic, matches, split_pattern

TRIES = 3
SECONDS_BETWEEN_TRIES = 1.0

# What says a file's content apart from another one's, where a store has no ETag.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


class UnreachableError(PlmclError):
    """A file that is there and cannot be read now; a later try may go well."""


class Address:
    """One address: a file, a folder, or a pattern.

    Args:
        url: As the user typed it; it may hold a password.

    Attributes:
        shown: The address without name, password and query.
        local: Where it is on this machine (file://), or None.

    Raises:
        PlmclError: It is chained (::), or of a kind that cannot be read here.
    """

    def __init__(self, url: str) -> None:
        self.shown = without_secrets(url)
        self.protocol = url.partition("://")[0]
        if "::" in url:
            raise PlmclError(f"{self.shown}: chained addresses (::) are not read")
        try:
            # Its listings would be kept in memory, and outlive a change.
            self._files, self._root = fsspec.core.url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True
            )
        except (ImportError, ValueError) as error:
            why = re.search(r"[Ii]nstall \S+", str(error))
            raise PlmclError(
                f"{self.shown}: addresses that begin with {self.protocol}:// cannot be read here"
                + (f": {why[0].lower()}" if why else "")
            ) from None
        self.local = Path(self._root) if isinstance(self._files, LocalFileSystem) else None

    def find(self) -> Iterator[tuple[str, str, str] | PassedOver]:
        """What is there, in no order: (name to show, path to `read`, version) of each image.

        The version tells two contents of a path apart. A file that the address itself names is
        given whatever it is called.

        Raises:
            FileNotFoundError: Nothing is there.
            PlmclError: It cannot be listed.
        """
        try:
            # What a page of the web links to may be anywhere.
            if self.protocol in ("http", "https"):
                yield self.shown, "", ""
                return
            pattern: list[str] = []
            try:
                info = self._files.info(self._root)
            except FileNotFoundError:
                if not has_magic(self._root):
                    raise
                root, pattern = split_pattern(self._root)
                yield from self._walk(root, pattern)
                return
            if info["type"] == "directory":
                yield from self._walk(self._root, ["**"])
            else:
                yield self.shown, self._root, _version(info)
        except (FileNotFoundError, PlmclError):
            raise
        except Exception as error:
            raise PlmclError(f"{self.shown}: cannot be listed: {_plainly(error)}") from None

    def read(self, path: str) -> bytes:
        """All of a file that `find` gave; "": of the one that the address names.

        Raises:
            ImageProblem: It is gone, forbidden or too large.
            UnreachableError: It cannot be read, after some tries.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                with self._files.open(path or self._root, "rb") as file:
                    content: bytes = file.read(MAX_BYTES + 1)
            except FileNotFoundError:
                raise ImageProblem("unreadable", "No such file or directory") from None
            except PermissionError:
                raise ImageProblem("unreadable", "Permission denied") from None
            except Exception as error:  # each store's client has its own
                if not tries_left:
                    raise UnreachableError(f"unreachable: {_plainly(error)}") from None
                time.sleep(SECONDS_BETWEEN_TRIES * 2 ** (TRIES - 1 - tries_left))
            else:
                if len(content) > MAX_BYTES:
                    raise ImageProblem("too_large", f"the limit is {MAX_BYTES} bytes")
                return content
        raise AssertionError

    def _walk(self, root: str, pattern: list[str]) -> Iterator[tuple[str, str, str] | PassedOver]:
        depth = None if "**" in pattern else len(pattern)
        prefix = root.rstrip("/") + "/"
        # Of a pattern, the part that is none stands before the rest in the address, too.
        shown = self.shown.removesuffix("/".join(pattern)).rstrip("/")
        walk = self._files.walk(root, maxdepth=depth, detail=True, on_error="raise")
        for _, _, files in walk:
            for info in files.values():
                path: str = info["name"]
                name = path.removeprefix(prefix)
                parts = name.split("/")
                if not path.startswith(prefix) or not matches(parts, pattern):
                    continue
                reason = _why_not(parts)
                if reason is None:
                    yield f"{shown}/{name}", path, _version(info)
                else:
                    yield PassedOver(name.encode("utf-8", "backslashreplace").decode(), *reason)


def without_secrets(url: str) -> str:
    """An address without the name and password, and of the web without the query, in it."""
    url = re.sub(r"://[^/@]*@", "://", url)
    return url.partition("?")[0] if url.startswith(("http://", "https://")) else url


def _plainly(error: Exception) -> str:
    # What else an error of a client's library says may hold credentials.
    said = error.strerror if isinstance(error, OSError) and error.errno else None
    return without_secrets(": ".join(filter(None, [type(error).__name__, said])))


def _why_not(parts: list[str]) -> tuple[str, str] | None:
    # (status, reason) of a file that is passed over; `listing` has the same rules for a folder
    if not is_utf8(parts[-1]):
        return "unreadable_name", "the name is not UTF-8; rename it"
    if any(part.startswith(".") for part in parts):
        return "hidden", "hidden"
    if "__MACOSX" in parts[:-1]:
        return "hidden", "__MACOSX"
    suffix = PurePosixPath(parts[-1]).suffix.lower()
    if suffix not in SUFFIXES:
        return "other_file", f"suffix {suffix}" if suffix else "no suffix"
    return None


def _version(info: Mapping[str, Any]) -> str:
    etag = info.get("ETag") or info.get("etag")
    if etag:
        return str(etag).strip('"')
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), "")
    return f"{info.get('size')}-{changed}"
