"""Folders that are filled whole or not at all, and the files that are copied into them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plmcl.errors import PlmclError


@contextmanager
def filling(raw: Path) -> Iterator[Path]:
    """Yield a folder beside `raw` that becomes `raw` if the block ends well, and is removed if not.

    Raises:
        PlmclError: `raw` holds something: a snapshot is never mixed with an older one.
    """
    if raw.exists() and any(raw.iterdir()):
        raise PlmclError(f"{raw}: is not empty; move it away to take a new snapshot")
    partial = raw.with_name(raw.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)  # what a call of this function left that was killed
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)  # the failure itself is what counts
        raise
    if raw.exists():
        raw.rmdir()
    partial.rename(raw)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its time, by which later runs know it, and make the folders above it.

    Raises:
        PlmclError: It cannot be read or written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as error:
        raise PlmclError(f"{source}: cannot be copied to {target}: {error.strerror}") from None
