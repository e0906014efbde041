"""The order of the tests, and what several files of them need: photographs, SIGTERM's handler."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from plmcl.signals import exit_on_sigterm

# The files that take longest, longest first: begun last, one would keep all but one worker waiting.
LONGEST = (
    "flows/test_retrain.py",
    "test_pipeline.py",
    "grid/test_runner.py",
    "test_cli.py",
    "stages/test_fit.py",
    "test_pipeline_runs.py",
    "test_export.py",
    "stages/test_job.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the order within a file stays."""
    rank = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(LONGEST)))


@pytest.fixture
def signals_end() -> Iterator[None]:
    """SIGTERM and SIGINT end this process as they end a command; what came is forgotten after."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    exit_on_sigterm()
    # Whoever started the tests in the background let them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    exit_on_sigterm()
    for number, handler in before.items():
        signal.signal(number, handler)


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
