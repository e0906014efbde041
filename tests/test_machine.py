import math
import os

import pytest

from plmcl import machine
from plmcl.errors import PlmclError
from plmcl.machine import cpu_quota, usable_cores


def test_usable_cores_are_those_of_this_process_not_of_the_machine():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_cores() == math.ceil(min(len(allowed), cpu_quota(machine._ROOT)))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


V2, V1 = "0::/pod/app", "3:memory:/x\n2:cpu,cpuacct:/docker/1\n0::/"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (V2, {"pod/app/cpu.max": "150000 100000"}, 1.5),
        (V2, {"pod/app/cpu.max": "max 100000"}, math.inf),
        (V2, {"pod/app/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 0.5),
        (V2, {"cpu.max": "300000 100000"}, 3),  # a container that sees itself at the top
        (V2, {"pod/app/cpu.max": "nonsense"}, math.inf),
        (V2, {}, math.inf),
        (
            V1,
            {
                "cpu,cpuacct/docker/1/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
        (
            V1,
            {"cpu,cpuacct/cpu.cfs_quota_us": "20000", "cpu,cpuacct/cpu.cfs_period_us": "10000"},
            2,
        ),
        (
            V1,
            {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            math.inf,
        ),
    ],
)
def test_case_94_the_quota_of_control_groups_of_both_versions_is_read(root, groups, files, quota):
    write(root, **{"proc/self/cgroup": groups})
    write(root, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert cpu_quota(root) == quota


def test_case_94_a_quota_limits_the_cores_and_is_rounded_up(root, monkeypatch):
    monkeypatch.setattr(machine, "_ROOT", root)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert cpu_quota(root) == math.inf  # not Linux, or a closed /proc
    assert usable_cores() == 8
    write(root, **{"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "150000 100000"})
    assert usable_cores() == 2
    write(root, **{"sys/fs/cgroup/cpu.max": "10000 100000"})
    assert usable_cores() == 1
    write(root, **{"sys/fs/cgroup/cpu.max": "1000000 100000"})
    assert usable_cores() == 8


def test_processes_of_torchrun_share_the_cores(root, monkeypatch):
    monkeypatch.setattr(machine, "_ROOT", root)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10)))
    for processes, cores in (("1", 10), ("4", 3), ("16", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert usable_cores() == cores


def test_case_94_the_environment_overrides(monkeypatch):
    monkeypatch.setenv("PLMCL_CORES", "5")
    assert usable_cores() == 5
    monkeypatch.setenv("PLMCL_CORES", "")
    assert usable_cores() >= 1
    for wrong in ("0", "-1", "1.5", "many", "²"):
        monkeypatch.setenv("PLMCL_CORES", wrong)
        with pytest.raises(PlmclError, match="PLMCL_CORES: expected a whole number from 1"):
            usable_cores()
