"""Where new images arrive: a folder that is emptied, or an address that is copied from."""

import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import fsspec
import numpy as np
import pandas as pd
from fsspec.implementations.local import LocalFileSystem

from plmcl.data.decoding import MAX_BYTES
from plmcl.data.listing import SUFFIXES, PassedOver, is_utf8, list_files
from plmcl.durable import sync
from plmcl.errors import PlmclError
from plmcl.retraining.tags import TAG_FILE

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_THREADS = 16


class UnreachableError(PlmclError):
    """An address that cannot be read now; a later try may go well."""

    exit_code = 75  # sysexits.h: try again later


@dataclass(frozen=True)
class Found:
    """What lies in a place.

    Attributes:
        files: One row an image by name, sorted by it: `name` (posix path below the place),
            `version` (what tells two contents of that name apart) and `changed` (float64, seconds
            since 1970; NaN where the place does not say).
        tag_file: When the tag file was changed; None: there is none.
        passed_over: All other files.
    """

    files: pd.DataFrame
    tag_file: float | None
    passed_over: list[PassedOver]


class Place(Protocol):
    """Where new images arrive.

    Attributes:
        shown: The place, for messages: without credentials.
    """

    shown: str

    @property
    def folder(self) -> Path | None:
        """Where it is on this machine; None: elsewhere."""

    @property
    def source(self) -> Path | None:
        """The folder that files are moved out of; None: they are copied, and stay."""

    def find(self) -> Found:
        """List it."""

    def fetch(self, names: list[str], target: Path) -> list[bool]:
        """Copy files to the same names below `target`, durably; False for those that are gone."""


def open_place(incoming: str) -> Place:
    """The place that a path or an address (with ://) names.

    Raises:
        PlmclError: No such folder, or an address of a kind that cannot be read here.
    """
    if "://" not in incoming:
        return Folder(Path(incoming), is_emptied=True)
    try:
        files, root = fsspec.core.url_to_fs(incoming)
    except (ImportError, ValueError) as error:
        scheme = incoming.partition("://")[0]
        why = re.search(r"[Ii]nstall \S+", str(error))
        raise PlmclError(
            f"retraining.incoming: {without_secrets(incoming)}: addresses that begin with "
            f"{scheme}:// cannot be read here" + (f": {why[0].lower()}" if why else "")
        ) from None
    if isinstance(files, LocalFileSystem):
        return Folder(Path(root), is_emptied=False)
    return Address(files, root, without_secrets(incoming))


def without_secrets(address: str) -> str:
    """An address without the name and password, and without the query, that may stand in it."""
    return re.sub(r"://[^/@]*@", "://", address).partition("?")[0]


class Folder:
    """A folder of this machine; the doctor's rules say which files count."""

    def __init__(self, root: Path, *, is_emptied: bool) -> None:
        if not root.is_dir():
            raise PlmclError(f"retraining.incoming: {root}: not found, or not a folder")
        self.shown, self.folder = str(root), root
        self.source = root if is_emptied else None

    def find(self) -> Found:
        """List it; no link leads out of it, and none is taken where files are moved."""
        listing = list_files(self.folder)
        names, versions, changed = [], [], []
        passed_over = [file for file in listing.passed_over if file.path != TAG_FILE]
        # A third of pathlib's time.
        root, stat_of = str(self.folder), os.lstat if self.source else os.stat
        for name in listing.files:
            try:
                status = stat_of(f"{root}/{name}")
            except OSError:  # gone since it was listed
                continue
            if stat.S_ISLNK(status.st_mode):
                passed_over.append(PassedOver(name, "link", "a link; only files are moved"))
                continue
            names.append(name)
            versions.append(f"{status.st_size}-{status.st_mtime_ns}")
            changed.append(status.st_mtime)
        tags = self.folder / TAG_FILE
        return Found(
            _table(names, versions, changed),
            tags.stat().st_mtime if tags.is_file() else None,
            passed_over,
        )

    def fetch(self, names: list[str], target: Path) -> list[bool]:
        """As `Place` has it."""

        def fetch(name: str) -> None:
            shutil.copyfile(self.folder / name, target / name)

        return _fetch(fetch, names, target)


class Address:
    """A place that fsspec reads, such as a bucket; its listing is never taken from a cache."""

    folder = source = None

    def __init__(self, files: fsspec.AbstractFileSystem, root: str, shown: str) -> None:
        self._files, self._prefix = files, root.rstrip("/") + "/"
        self.shown = shown

    def find(self) -> Found:
        """List it.

        Raises:
            UnreachableError: It cannot be listed.
        """
        self._files.invalidate_cache()
        try:
            infos = self._files.find(self._prefix, detail=True)
        except Exception as error:
            raise self._unreachable(error) from None
        entries = {
            path.removeprefix(self._prefix): info
            for path, info in infos.items()
            if path.startswith(self._prefix) and not path.endswith("/")
        }
        tag_file = entries.pop(TAG_FILE, None)
        folders = _folders(entries)
        names, passed_over = [], []
        for name in sorted(entries):
            reason = _why_not(name, entries[name], folders)
            if reason is None:
                names.append(name)
            else:
                passed_over.append(PassedOver(name, *reason))
        versions = [_version(entries[name]) for name in names]
        changed = [_changed(entries[name]) for name in names]
        return Found(
            _table(names, versions, changed),
            None if tag_file is None else _changed(tag_file),
            passed_over,
        )

    def fetch(self, names: list[str], target: Path) -> list[bool]:
        """As `Place` has it.

        Raises:
            UnreachableError: A file is there and cannot be read.
        """

        def fetch(name: str) -> None:
            try:
                self._files.get_file(self._prefix + name, str(target / name))
            except FileNotFoundError:
                raise
            except Exception as error:
                raise self._unreachable(error) from None

        return _fetch(fetch, names, target)

    def _unreachable(self, error: Exception) -> UnreachableError:
        # What else an error of a client's library says may hold credentials.
        said = error.strerror if isinstance(error, OSError) and error.errno else None
        reason = ": ".join(filter(None, [type(error).__name__, said]))
        return UnreachableError(f"{self.shown}: cannot be read now: {without_secrets(reason)}")


def _fetch(fetch: Callable[[str], None], names: list[str], target: Path) -> list[bool]:
    for folder in {(target / name).parent for name in names}:
        folder.mkdir(parents=True, exist_ok=True)

    def fetch_one(name: str) -> bool:
        try:
            fetch(name)
        except FileNotFoundError:
            return False
        sync(target / name)
        return True

    # Waiting, for a network or for the disk, is what takes the time.
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(fetch_one, names))


def _table(names: list[str], versions: list[str], changed: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": pd.Series(names, dtype="str"),
            "version": pd.Series(versions, dtype="str"),
            "changed": np.array(changed, dtype=np.float64),
        }
    )


def _folders(names: Mapping[str, Any]) -> set[str]:
    # all that must be a folder for the names to be files
    folders: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return folders


def _why_not(name: str, info: Mapping[str, Any], folders: set[str]) -> tuple[str, str] | None:
    # (status, reason) of a file that is passed over; `listing` has the same rules for a folder
    parts = name.split("/")
    if not is_utf8(name):
        return "unreadable_name", "the name is not UTF-8; rename it"
    if not {"", ".", ".."}.isdisjoint(parts):
        return "unreadable_name", "the name is no plain path"
    if "\0" in name or name in folders or max(len(part.encode()) for part in parts) > 255:
        return "unreadable_name", "no file of a folder can have the name"
    if any(part.startswith(".") for part in parts):
        return "hidden", "hidden"
    if "__MACOSX" in parts[:-1]:
        return "hidden", "__MACOSX"
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in SUFFIXES:
        return "other_file", f"suffix {suffix}" if suffix else "no suffix"
    if (info.get("size") or 0) > MAX_BYTES:
        return "too_large", f"more than {MAX_BYTES} bytes, not fetched"
    return None


def _version(info: Mapping[str, Any]) -> str:
    etag = info.get("ETag") or info.get("etag")
    return str(etag).strip('"') if etag else f"{info.get('size')}-{_time(info)}"


def _time(info: Mapping[str, Any]) -> Any:
    return next((info[key] for key in _TIMES if info.get(key) is not None), "")


def _changed(info: Mapping[str, Any]) -> float:
    time = _time(info)
    try:
        if isinstance(time, str):
            time = datetime.fromisoformat(time)
        return time.timestamp() if isinstance(time, datetime) else float(time)
    except ValueError:  # "", or a text of another form
        return float("nan")
