"""The cores and the memory that this process may use, under the limits of its containers.

psutil knows the memory of the machine. Control groups are read here: `dask.system` looks at the process's own
group only, `distributed.system` at the root of the mount only, and a limit on any group above holds as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil

_ROOT = Path("/")
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


def available_cores(root: Path = _ROOT) -> int:
    """Return how many cores this process may use: by its affinity, and by the quotas of its control groups.

    Half a core counts as one, as in dask.

    Parameters
    ----------
    root : Path
        Where `/proc` and the mounts of control groups are.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root)
    return affinity if math.isinf(quota) else min(affinity, max(1, math.ceil(quota)))


def cpu_quota(root: Path = _ROOT) -> float:
    """Return how many cores' time control groups allow; infinity where they set no limit."""
    return min(_quotas(root), default=math.inf)


def memory_limit(root: Path = _ROOT) -> int:
    """Return the most bytes that this process may hold: the machine's memory, or a container's limit."""
    return min([int(psutil.virtual_memory().total), *(limit for _, limit in _memory_limits(root))])


def available_memory(root: Path = _ROOT) -> int:
    """Return the bytes that are available now, on the machine and under the limit of every container."""
    free = [limit - _memory_in_use(group) for group, limit in _memory_limits(root)]
    return max(0, min([int(psutil.virtual_memory().available), *free]))


def _quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        # Version 2 has "max 100000" or "50000 100000" in one file; version 1 has two, and -1 for no quota.
        words = _words(group / "cpu.max") or [
            *_words(group / "cpu.cfs_quota_us"),
            *_words(group / "cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(word.isdigit() for word in words):
            yield int(words[0]) / int(words[1])


def _memory_limits(root: Path) -> Iterator[tuple[Path, int]]:
    for group in _groups(root, "memory"):
        # Above `memory.high` a process is not killed, but throttled to a standstill.
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            for word in _words(group / name):
                if word.isdigit():  # and not "max"
                    yield group, int(word)


def _memory_in_use(group: Path) -> int:
    """Return the memory in use by a group, without file pages and caches, which the kernel can reclaim."""
    used = _words(group / "memory.current") or _words(group / "memory.usage_in_bytes") or ["0"]
    words = _words(group / "memory.stat")
    stat = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    # In version 1 the plain counters are of the group alone, those with `total_` include the groups below.
    reclaimable = [stat.get(f"total_{name}", stat.get(name, 0)) for name in _RECLAIMABLE]
    return max(0, int(used[0]) - sum(reclaimable))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's groups, from its own up to the root of each mount.

    A machine may have version 1, version 2, or both, each with some of the controllers.
    """
    for mounted, mount_point, kind, options in _mounts(root):
        if kind not in ("cgroup", "cgroup2") or (kind == "cgroup" and controller not in options):
            continue
        for line in _lines(root / "proc/self/cgroup"):
            _, controllers, path = line.split(":", 2)
            if (controller in controllers.split(",")) if kind == "cgroup" else not controllers:
                top = root / mount_point.lstrip("/")
                # A container may see a subtree only, and be named by a path outside of it.
                inside = PurePosixPath(path).is_relative_to(mounted) and ".." not in path
                own = top / PurePosixPath(path).relative_to(mounted) if inside else top
                yield own
                while own != top:
                    own = own.parent
                    yield own


def _mounts(root: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield each mount (see proc(5), mountinfo): the subtree, where it is, its type, its options."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        yield before.split()[3], before.split()[4], kind, options.split(",")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:  # another system than Linux, or a file that the root group does not have
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()
