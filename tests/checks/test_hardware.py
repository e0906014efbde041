from collections import namedtuple

import pytest

from plmcl.checks import hardware
from plmcl.checks.hardware import usable_memory

GIB = 2**30
MEMINFO = (
    "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\nHugePages_Total: 0"
)
V2, V1 = "0::/pod/app", "3:cpu:/x\n2:memory:/docker/1\n0::/"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (V2, {}, (8, 4)),
        (V2, {"pod/app/memory.max": "max", "pod/app/memory.current": GIB}, (8, 4)),
        (V2, {"pod/app/memory.max": 2 * GIB, "pod/app/memory.current": GIB}, (2, 1)),
        # Half a GiB of what is used are pages of files, which the kernel gives back.
        (
            V2,
            {
                "pod/app/memory.max": 2 * GIB,
                "pod/app/memory.current": GIB,
                "pod/app/memory.stat": f"anon 7\ninactive_file {GIB // 2}",
            },
            (2, 1.5),
        ),
        # The pod's limit holds for its container; a container that sees itself at the top.
        (V2, {"pod/memory.max": 3 * GIB, "pod/memory.current": GIB}, (3, 2)),
        (V2, {"memory.max": 3 * GIB, "memory.current": 2 * GIB}, (3, 1)),
        # The machine has less free than the container may use.
        (V2, {"memory.max": 6 * GIB, "memory.current": 0}, (6, 4)),
        (
            V1,
            {
                "memory/docker/1/memory.limit_in_bytes": GIB,
                "memory/docker/1/memory.usage_in_bytes": GIB // 4,
            },
            (1, 0.75),
        ),
        # Version 1 without a limit says a number beyond any memory.
        (
            V1,
            {
                "memory/memory.limit_in_bytes": 9223372036854771712,
                "memory/memory.usage_in_bytes": GIB,
            },
            (8, 4),
        ),
    ],
)
def test_memory_is_what_the_control_groups_leave(tmp_path, groups, files, expected):
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": groups})
    write(root / "sys/fs/cgroup", files)
    assert tuple(size / GIB for size in usable_memory(root)) == expected


def test_this_machines_memory_is_between_nothing_and_all_of_it():
    psutil = pytest.importorskip("psutil")
    total, free = usable_memory(hardware._ROOT)
    assert 0 < free <= total <= psutil.virtual_memory().total


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("free", "status"), [(64 * 2**20, "warning"), (GIB, "ok")])
def test_dockers_64_mib_of_shared_memory_are_a_warning(tmp_path, monkeypatch, free, status):
    monkeypatch.setattr(hardware.shutil, "disk_usage", lambda _: Usage(free, 0, free))
    (finding,) = hardware.shared_memory(tmp_path)
    assert finding.status == status
    assert ("--shm-size" in finding.advice) == (status == "warning")


@pytest.mark.parametrize(("free", "status"), [(0.5, "problem"), (5, "warning"), (50, "ok")])
def test_a_full_disk_is_a_problem(tmp_path, monkeypatch, free, status):
    size = int(free * GIB)
    monkeypatch.setattr(hardware.shutil, "disk_usage", lambda _: Usage(size, 0, size))
    assert next(hardware.disk(tmp_path)).status == status


def test_a_folder_that_cannot_be_written_is_a_problem(monkeypatch, tmp_path):
    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hardware.tempfile, "TemporaryFile", refuse)
    finding = next(hardware.disk(tmp_path))
    assert (finding.status, finding.found) == ("problem", f"{tmp_path}: Permission denied")


def test_more_threads_than_cores_are_a_warning(monkeypatch):
    monkeypatch.setenv("PLMCL_CORES", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    (finding,) = hardware.cores()
    assert finding.status == "warning"
    assert finding.advice.endswith("set OMP_NUM_THREADS to 2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert next(hardware.cores()).status == "ok"
