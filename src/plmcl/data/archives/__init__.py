"""Unpacks archives that nobody vouches for: all of one or nothing, and below its folder only."""

import io
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plmcl.data.archives.members import Member, read_members, read_pieces
from plmcl.data.filling import filling
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

_NAME_LENGTH = 1000
_FORBIDDEN = (
    (r"[\ud800-\udfff]", "has a name that is not UTF-8"),  # how tarfile keeps other bytes
    (r"\0", "has a NUL in its name"),
    (r"\\", "has a backslash in its name"),
    (r"\A/", "has an absolute path"),
    (r"\A[A-Za-z]:", "has a drive letter in its path"),
    (r"(\A|/)\.\.(/|\Z)", "has '..' in its path"),
)


@dataclass(frozen=True)
class Limits:
    """What an archive may hold, wanted or not.

    Attributes:
        max_files: Files and folders; a folder that only the path of a file names is one, too.
        max_bytes: Of all files, unpacked.
        max_file_bytes: Of one file, unpacked.
    """

    max_files: int
    max_bytes: int
    max_file_bytes: int


def extract(
    archive: Path,
    target: Path,
    *,
    wanted: Callable[[str], bool] | None = None,
    limits: Limits,
    progress: ProgressCallback | None = None,
) -> list[str]:
    """Unpack a zip or a tar (.gz, .bz2), as its content says, not its name.

    Files get their bytes and nothing else: no mode, owner or time. A folder without a file in it
    is not made.

    Args:
        archive: The file.
        target: Folder to fill, which is empty or does not exist.
        wanted: Takes the posix path of a file below `target`, and says whether to write it. The
            rules hold for the others, too.
        limits: Of the whole archive.
        progress: Called with (bytes of `archive` that are done, its bytes).

    Returns:
        Posix paths below `target` of the files written, in their order in the archive.

    Raises:
        PlmclError: A member is not a plain file or folder, or cannot have its own place below
            `target`; a limit is passed; the archive is damaged; or `target` holds something.
    """
    try:
        with archive.open("rb", buffering=0) as raw, filling(target) as partial:
            return _unpack(archive, raw, partial, wanted, limits, progress)
    except OSError as error:
        raise PlmclError(f"{archive}: not unpacked into {target}: {error.strerror}") from None


class _Refused(Exception):  # noqa: N818 (a finding, not a failure)
    """A rule that a member breaks, as the end of a sentence that begins with its name."""


def _unpack(
    archive: Path,
    raw: io.FileIO,
    folder: Path,
    wanted: Callable[[str], bool] | None,
    limits: Limits,
    progress: ProgressCallback | None,
) -> list[str]:
    size = archive.stat().st_size

    def advance() -> None:
        if progress is not None:
            progress(raw.tell(), size)

    tree = _Tree()
    written = []
    unpacked = 0
    for count, member in enumerate(read_members(archive, raw, limits.max_files), start=1):
        try:
            path = tree.add(member)
            unpacked += member.size
            _check(member, max(count, len(tree)), unpacked, limits)
            if not member.is_folder and (wanted is None or wanted(path)):
                _write(archive, member, folder / path, advance)
                written.append(path)
        except _Refused as rule:
            raise PlmclError(f"{archive}: member {member.name[:200]!r} {rule}") from None
    if progress is not None:
        progress(size, size)
    return written


def _check(member: Member, count: int, unpacked: int, limits: Limits) -> None:
    if member.fault is not None:
        raise _Refused(f"is {member.fault}")
    if count > limits.max_files:
        raise _Refused(f"makes more than {limits.max_files} files and folders")
    if member.size > limits.max_file_bytes:
        raise _Refused(f"has {member.size} bytes, more than {limits.max_file_bytes}")
    if unpacked > limits.max_bytes:
        raise _Refused(f"makes {unpacked} bytes in all, more than {limits.max_bytes}")


def _write(archive: Path, member: Member, path: Path, advance: Callable[[], None]) -> None:
    # The limits were held against what a header declares; now that is held against what comes.
    path.parent.mkdir(parents=True, exist_ok=True)
    done = 0
    with path.open("xb") as file:
        for piece in read_pieces(archive, member):
            done += len(piece)
            if done > member.size:
                raise _Refused(f"unpacks to more than the {member.size} bytes that it declares")
            file.write(piece)
            advance()
    if done < member.size:
        raise _Refused(f"unpacks to {done} bytes, but declares {member.size}")


class _Tree:
    """The files and folders so far, compared as a file system would that knows no case."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bool]] = {}  # folded -> (as it is, is it a folder)

    def __len__(self) -> int:
        return len(self._known)

    def add(self, member: Member) -> str:
        """The path of a member below the target, "" for the target itself."""
        for pattern, rule in _FORBIDDEN:
            if re.search(pattern, member.name):
                raise _Refused(rule)
        if len(member.name) > _NAME_LENGTH:
            raise _Refused(f"has a name of {len(member.name)} characters, more than {_NAME_LENGTH}")
        parts = [part for part in member.name.split("/") if part not in {"", "."}]
        if not parts and not member.is_folder:
            raise _Refused("has no name")
        for depth in range(1, len(parts) + 1):
            self._claim("/".join(parts[:depth]), depth < len(parts) or member.is_folder)
        return "/".join(parts)

    def _claim(self, path: str, is_folder: bool) -> None:
        folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())
        if folded not in self._known:
            self._known[folded] = path, is_folder
            return
        earlier, was_folder = self._known[folded]
        if is_folder != was_folder:
            raise _Refused(f"makes {path!r} a file and a folder")
        if path != earlier:
            raise _Refused(f"makes {path!a}, which is {earlier!a} but for case or Unicode form")
        if not is_folder:
            raise _Refused("is there twice")
