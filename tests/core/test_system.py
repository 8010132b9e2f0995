"""The cores and the memory that containers allow, in both versions of control groups."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from streamdr.core.system import available_cores, available_memory, cpu_quota, memory_limit

MIB = 2**20
CORES = len(os.sched_getaffinity(0))
UNLIMITED = 2**63 - 4096  # what version 1 shows where there is no limit


class Kernel:
    """A directory with the files of /proc and /sys/fs/cgroup, laid out as the kernel does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._append("proc/self/mountinfo", "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw")

    def mount(self, kind: str, at: str, options: str = "rw", shown: str = "/") -> None:
        """Mount a hierarchy, of which the subtree below `shown` is visible."""
        self._append("proc/self/mountinfo", f"32 31 0:29 {shown} {at} rw,nosuid - {kind} cgroup {options}")

    def member(self, line: str) -> None:
        """Add the process to a group of a hierarchy."""
        self._append("proc/self/cgroup", line)

    def group(self, path: str, **files: str | int) -> None:
        """Make a group with the files `memory_max` for memory.max, and so on."""
        for name, text in files.items():
            self._append(f"{path}/{name.replace('_', '.', 1)}".lstrip("/"), str(text))

    def _append(self, path: str, line: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        with open(self.root / path, "a") as file:
            file.write(line + "\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def unified(kernel: Kernel, group: str) -> None:
    kernel.mount("cgroup2", "/sys/fs/cgroup", "rw,nsdelegate")
    kernel.member(f"0::{group}")


def test_without_other_limits_those_of_the_machine_hold(kernel):
    unified(kernel, "/")
    assert cpu_quota(kernel.root) == math.inf
    assert available_cores(kernel.root) == CORES
    assert memory_limit(kernel.root) == psutil.virtual_memory().total
    assert 0 < available_memory(kernel.root) <= psutil.virtual_memory().total


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert available_cores(tmp_path) == CORES
    assert memory_limit(tmp_path) == psutil.virtual_memory().total


def test_a_container_that_sees_its_own_group_as_the_root(kernel):
    unified(kernel, "/")
    kernel.group("/sys/fs/cgroup", cpu_max="350000 100000", memory_max=512 * MIB, memory_high="max")
    assert cpu_quota(kernel.root) == 3.5
    assert memory_limit(kernel.root) == 512 * MIB


@pytest.mark.parametrize(
    "limiting", ["/batch.slice", "/batch.slice/job.scope", "/batch.slice/job.scope/step"]
)
def test_the_limit_of_any_group_above_holds(kernel, limiting):
    unified(kernel, "/batch.slice/job.scope/step")
    for group in ("/batch.slice", "/batch.slice/job.scope", "/batch.slice/job.scope/step"):
        tight = group == limiting
        kernel.group(
            f"/sys/fs/cgroup{group}",
            cpu_max="200000 100000" if tight else "max 100000",
            memory_max=300 * MIB if tight else "max",
            memory_high="max",
        )
    kernel.group("/sys/fs/cgroup/other.slice", cpu_max="100000 100000", memory_max=MIB)
    assert cpu_quota(kernel.root) == 2
    assert memory_limit(kernel.root) == 300 * MIB


def test_of_several_limits_the_smallest_counts(kernel):
    unified(kernel, "/a/b")
    kernel.group("/sys/fs/cgroup/a", cpu_max="300000 100000", memory_max=300 * MIB, memory_high=200 * MIB)
    kernel.group("/sys/fs/cgroup/a/b", cpu_max="800000 100000", memory_max=900 * MIB, memory_high="max")
    assert cpu_quota(kernel.root) == 3
    assert memory_limit(kernel.root) == 200 * MIB


@pytest.mark.parametrize("shares", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
def test_groups_of_version_one(kernel, shares):
    kernel.mount("cgroup", f"/sys/fs/cgroup/{shares}", f"rw,{shares}")
    kernel.mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory")
    kernel.mount("cgroup", "/sys/fs/cgroup/cpuset", "rw,cpuset")
    kernel.member("9:cpuset:/")
    kernel.member(f"4:{shares}:/slurm/job_7/step_0")
    kernel.member("3:memory:/slurm/job_7/step_0")
    root = "/sys/fs/cgroup"
    kernel.group(f"{root}/{shares}/slurm/job_7", cpu_cfs_quota_us=150000, cpu_cfs_period_us=50000)
    kernel.group(f"{root}/{shares}/slurm/job_7/step_0", cpu_cfs_quota_us=-1, cpu_cfs_period_us=100000)
    kernel.group(f"{root}/memory", memory_limit_in_bytes=UNLIMITED)
    kernel.group(f"{root}/memory/slurm/job_7", memory_limit_in_bytes=700 * MIB)
    kernel.group(f"{root}/memory/slurm/job_7/step_0", memory_limit_in_bytes=UNLIMITED)
    assert cpu_quota(kernel.root) == 3
    assert memory_limit(kernel.root) == 700 * MIB


def test_a_container_of_version_one_may_see_a_subtree_only(kernel):
    for controller in ("cpu,cpuacct", "memory"):
        kernel.mount("cgroup", f"/sys/fs/cgroup/{controller}", f"rw,{controller}", shown="/docker/0f3a")
        kernel.member(f"5:{controller}:/docker/0f3a/inner")
    kernel.group("/sys/fs/cgroup/cpu,cpuacct", cpu_cfs_quota_us=200000, cpu_cfs_period_us=100000)
    kernel.group("/sys/fs/cgroup/memory/inner", memory_limit_in_bytes=64 * MIB)
    assert cpu_quota(kernel.root) == 2
    assert memory_limit(kernel.root) == 64 * MIB


def test_limits_of_both_versions_are_combined(kernel):
    kernel.mount("cgroup", "/sys/fs/cgroup/cpu", "rw,cpu")
    kernel.mount("cgroup2", "/sys/fs/cgroup/unified")
    kernel.member("1:cpu:/half")
    kernel.member("0::/job")
    kernel.group("/sys/fs/cgroup/cpu/half", cpu_cfs_quota_us=50000, cpu_cfs_period_us=100000)
    kernel.group("/sys/fs/cgroup/unified/job", memory_max=80 * MIB)
    assert cpu_quota(kernel.root) == 0.5
    assert available_cores(kernel.root) == 1
    assert memory_limit(kernel.root) == 80 * MIB


@pytest.mark.parametrize("path", ["/../../elsewhere", "/not/below/the/mount"])
def test_for_a_group_outside_of_the_mount_only_the_root_is_read(kernel, path):
    kernel.mount("cgroup2", "/sys/fs/cgroup", shown="/kubepods")
    kernel.member(f"0::{path}")
    kernel.group("/sys/fs/cgroup", memory_max=90 * MIB)
    assert memory_limit(kernel.root) == 90 * MIB


def test_memory_in_use_is_not_available_except_file_pages(kernel):
    unified(kernel, "/outer/inner")
    stat = f"anon {40 * MIB}\ninactive_file {30 * MIB}\nactive_file {20 * MIB}\nslab_reclaimable {MIB}"
    kernel.group("/sys/fs/cgroup/outer", memory_max=200 * MIB, memory_current=91 * MIB, memory_stat=stat)
    kernel.group(
        "/sys/fs/cgroup/outer/inner", memory_max=180 * MIB, memory_current=10 * MIB, memory_stat="anon 1"
    )
    assert available_memory(kernel.root) == 160 * MIB


def test_in_version_one_the_groups_below_count(kernel):
    kernel.mount("cgroup", "/sys/fs/cgroup/memory", "rw,memory")
    kernel.member("3:memory:/job")
    kernel.group(
        "/sys/fs/cgroup/memory/job",
        memory_limit_in_bytes=100 * MIB,
        memory_usage_in_bytes=70 * MIB,
        memory_stat=f"inactive_file 0\ntotal_inactive_file {50 * MIB}\ntotal_active_file 0",
    )
    assert available_memory(kernel.root) == 80 * MIB


def test_a_group_above_its_limit_has_nothing_left(kernel):
    unified(kernel, "/job")
    kernel.group("/sys/fs/cgroup/job", memory_high=50 * MIB, memory_current=60 * MIB)
    assert available_memory(kernel.root) == 0


def test_no_more_cores_are_found_than_by_dask():
    from dask.system import cpu_count

    assert 1 <= available_cores() <= cpu_count()
    assert 0 < available_memory() <= memory_limit() <= psutil.virtual_memory().total


def test_the_affinity_of_the_process_counts():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program += "from streamdr.core.system import available_cores; print(available_cores())"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "1\n"
