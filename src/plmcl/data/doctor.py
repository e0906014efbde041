"""Every file gets exactly one status and a reason; nothing is changed, moved or deleted."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from plmcl.data.images import ImageProblem, Recipe, decode
from plmcl.machine import usable_cores
from plmcl.progress import ProgressCallback


@dataclass(frozen=True)
class Finding:
    """What is known of one file.

    Attributes:
        status: "ok", or why it cannot be used: an `images.Status`.
        reason: The status in words; "" where it is "ok".
        sha256: Of the file's bytes; "" where they cannot be read.
        width: In pixels, turned as EXIF says; 0 where it cannot be used.
        height: As `width`.
    """

    status: str
    reason: str
    sha256: str
    width: int
    height: int


def examine(path: Path, recipe: Recipe) -> Finding:
    """Read and decode one file completely: a header that looks fine proves nothing."""
    try:
        if not path.is_file():
            reason = "not a regular file" if path.exists() else "the file has vanished"
            return Finding("unreadable", reason, "", 0, 0)
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return Finding("unreadable", error.strerror or str(error), "", 0, 0)
    try:
        height, width, _ = decode(path, recipe).shape
    except ImageProblem as problem:
        return Finding(problem.status, str(problem), sha256, 0, 0)
    return Finding("ok", "", sha256, width, height)


def examine_all(
    root: Path,
    files: Sequence[str],
    recipe: Recipe,
    *,
    progress: ProgressCallback | None = None,
) -> list[Finding]:
    """Examine files in parallel.

    Args:
        root: Folder that `files` are below.
        files: Posix paths.
        recipe: Its pixel limit applies.
        progress: Called with (done, total) after each file, in order.

    Returns:
        One finding a file, in the order of `files`.
    """
    findings = []
    with ThreadPoolExecutor(usable_cores()) as pool:
        # Decoding and hashing release the interpreter's lock.
        for finding in pool.map(lambda file: examine(root / file, recipe), files):
            findings.append(finding)
            if progress is not None:
                progress(len(findings), len(files))
    return findings
