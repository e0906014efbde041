"""What this process may use of the machine."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from plmcl.errors import PlmclError

_ROOT = Path("/")


def usable_cores() -> int:
    """Cores that this process may use: a container or `taskset` may allow fewer than there are.

    The smaller of its affinity and its control groups' quota of CPU time, rounded up; an equal
    part of it, where `torchrun` started several processes. The environment variable PLMCL_CORES
    overrides all that.

    Raises:
        PlmclError: PLMCL_CORES is no whole number from 1.
    """
    if (text := os.environ.get("PLMCL_CORES", "")) != "":
        if not (text.isascii() and text.isdigit() and int(text) >= 1):
            raise PlmclError(f"PLMCL_CORES: expected a whole number from 1, found {text!r:.80}")
        return int(text)
    cores: float = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        cores = min(len(os.sched_getaffinity(0)), cpu_quota(_ROOT))
    return math.ceil(cores / int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def cpu_quota(root: Path) -> float:
    """Cores' worth of CPU time that the control groups of this process grant; inf without a limit.

    Args:
        root: What `proc` and `sys` are below.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    top, quotas = root / "sys/fs/cgroup", [math.inf]
    for _, controllers, path in (group.split(":", 2) for group in groups):
        if controllers == "":  # version 2
            quotas += [_quota(f / "cpu.max") for f in and_above(top, path)]
        elif "cpu" in controllers.split(","):
            folders = and_above(top / controllers, path)
            quotas += [_quota(f / "cpu.cfs_quota_us", f / "cpu.cfs_period_us") for f in folders]
    return min(quotas)


def and_above(top: Path, path: str) -> Iterator[Path]:
    """The folder of a control group, and those of the groups that it is in, up to `top`."""
    # In a container the path may be the host's: then only the top is there, and is the container's.
    folder = top / path.strip("/")
    yield folder
    while folder != top:
        folder = folder.parent
        yield folder


def _quota(*files: Path) -> float:
    try:
        quota, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # not there, or "max"
        return math.inf
    return quota / period if quota > 0 < period else math.inf
