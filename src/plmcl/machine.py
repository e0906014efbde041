"""What this process may use of the machine."""

import os


def usable_cores() -> int:
    """Cores that this process may use: a container or `taskset` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
