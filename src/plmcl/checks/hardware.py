"""Cores, memory, shared memory, disk and GPU, as this process and its container have them."""

import importlib.util
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from plmcl.checks.finding import Finding, in_words
from plmcl.machine import and_above, cpu_quota, usable_cores
from plmcl.session import has_cuda_driver

_ROOT = Path("/")
GIB = 2**30
LITTLE_MEMORY, LITTLE_SHARED_MEMORY = 4 * GIB, 256 * 2**20
FULL_DISK, LITTLE_DISK = GIB, 10 * GIB


def cores() -> Iterator[Finding]:
    """Cores that may be used, and whether something else limits the threads."""
    usable, there = usable_cores(), os.cpu_count() or 1
    quota = cpu_quota(_ROOT)
    granted = "" if math.isinf(quota) else f"; the container grants {quota:g}"
    found = f"{usable} of {there} usable{granted}"
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > usable:
        yield Finding(
            "cores",
            "warning",
            f"{found}; OMP_NUM_THREADS is {threads}",
            f"more threads than cores wait for each other: set OMP_NUM_THREADS to {usable}",
        )
    else:
        yield Finding("cores", "ok", found)


def memory() -> Iterator[Finding]:
    """Memory that is free to this process: of the machine, and of what its container may use."""
    total, free = usable_memory(_ROOT)
    found = f"{in_words(free)} free of {in_words(total)}"
    if free < LITTLE_MEMORY:
        yield Finding(
            "memory",
            "warning",
            found,
            "a training with the default network takes 2 to 4 GiB: end other programs, raise the "
            "container's limit, or lower train.*.batch_size",
        )
    else:
        yield Finding("memory", "ok", found)


def usable_memory(root: Path) -> tuple[float, float]:
    """Bytes of memory, and how many of them are free, within the limits of the control groups.

    Pages of files that the kernel would give back count as free.

    Args:
        root: What `proc` and `sys` are below.
    """
    rows = (line.partition(":") for line in _lines(root / "proc/meminfo"))
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in rows if rest.split()}
    total = kilobytes.get("MemTotal", 0) * 1024.0
    free = kilobytes.get("MemAvailable", 0) * 1024.0
    top = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            folders, names = and_above(top, path), ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            folders = and_above(top / controllers, path)
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        for folder in folders:
            limit, used = (_number(folder / name) for name in names)
            if limit is None or used is None or limit >= total:
                continue
            statistics = dict(line.split() for line in _lines(folder / "memory.stat"))
            reclaimable = int(statistics.get("inactive_file", 0))
            total, free = limit, min(free, limit - used + reclaimable)
    return total, max(free, 0.0)


def shared_memory(folder: Path = Path("/dev/shm")) -> Iterator[Finding]:  # noqa: S108
    """Where the processes that load images leave their batches; a container has 64 MiB of it."""
    if not folder.is_dir():
        yield Finding("shared memory", "ok", f"no {folder} on this system")
        return
    space = shutil.disk_usage(folder)
    found = f"{in_words(space.free)} free of {in_words(space.total)} in {folder}"
    if space.free < LITTLE_SHARED_MEMORY:
        yield Finding(
            "shared memory",
            "warning",
            found,
            "large images or batches end in a bus error: docker run --shm-size=1g, or "
            "--ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm",
        )
    else:
        yield Finding("shared memory", "ok", found)


def disk(root: Path) -> Iterator[Finding]:
    """Space where a run writes, and whether it may."""
    for name, folder in (("disk", root), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        found = f"{in_words(free)} free in {folder.resolve()}"
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            advice = "a run writes there: change the rights, or start it elsewhere"
            yield Finding(name, "problem", f"{folder}: {error.strerror}", advice)
            continue
        if free < FULL_DISK:
            yield Finding(name, "problem", found, "make room: a run needs more than 1 GiB")
        elif free < LITTLE_DISK and name == "disk":
            yield Finding(name, "warning", found, "enough for small sets; a published one is more")
        else:
            yield Finding(name, "ok", found)


def gpu() -> Iterator[Finding]:
    """The GPUs that torch can use, each by an addition that is done on it."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        if has_cuda_driver():
            yield Finding(
                "gpu",
                "warning",
                f"an NVIDIA driver, but torch {torch.__version__} cannot use it",
                "trainings run on the CPU: look whether nvidia-smi shows a GPU, and whether "
                f"the driver is new enough for CUDA {torch.version.cuda}",
            )
        else:
            yield Finding("gpu", "ok", "none; trainings run on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        try:
            torch.ones(1, device=f"cuda:{index}").add_(1).item()
            free, total = torch.cuda.mem_get_info(index)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            advice = "another process may hold it: nvidia-smi; CUDA_VISIBLE_DEVICES hides it"
            yield Finding("gpu", "problem", f"{name} ({index}): {reason}", advice)
        else:
            found = f"{name} ({index}): {in_words(free)} free of {in_words(total)}"
            yield Finding("gpu", "ok", found)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    text = "".join(_lines(file))
    return int(text) if text.isdigit() else None
