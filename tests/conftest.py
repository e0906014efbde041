"""The photographs that some tests need; where they are absent those tests are skipped."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def photos5() -> Path:
    """1,507 photographs with 5 labels; see PLMCL_SHARED_DATA in the Makefile."""
    return _photographs("photos5")


@pytest.fixture(scope="session")
def coco160() -> Path:
    """160 photographs of MS-COCO 2017 with its 80 labels."""
    return _photographs("coco160")


def _photographs(name: str) -> Path:
    folder = Path(os.environ.get("PLMCL_SHARED_DATA", "")) / name
    if not os.environ.get("PLMCL_SHARED_DATA") or not folder.is_dir():
        pytest.skip(f"needs the photographs of {name}: set PLMCL_SHARED_DATA to their folder")
    return folder
