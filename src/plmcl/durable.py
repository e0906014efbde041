"""Files that are still there after the power went, and are what was written."""

import hashlib
import os
import shutil
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file, or a folder's names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy(source: Path, target: Path) -> None:
    """Copy a file's bytes, and wait until they are on the disk; `target` may be left half-made."""
    shutil.copyfile(source, target)
    sync(target)


def sha256(path: Path) -> str:
    """Of a file's bytes, which are not held in memory; hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
