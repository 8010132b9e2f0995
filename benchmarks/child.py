"""The process of one contender: reads a specification, and writes the outcome beside it."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import CORES


def peak_bytes(process: str = "self") -> int:
    """Return the peak memory of a process, as the kernel counts it."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"/proc/{process}/status has no VmHWM line: the process has ended")


def bytes_read() -> int:
    """Return the number of bytes that this process has read from files, including the page cache."""
    return int(Path("/proc/self/io").read_text().split()[1])


def run(spec: dict[str, Any], solution_path: Path) -> dict[str, Any]:
    """Prepare a contender, time its fit, save its solution, and return the measurements."""
    fit = getattr(import_module(spec["module"]), spec["function"])(spec["store"], **spec["arguments"])
    before, cpu_start, start = bytes_read(), time.process_time(), time.perf_counter()
    solution = fit()
    seconds, cpu = time.perf_counter() - start - solution.aside, time.process_time() - cpu_start
    peak, read = peak_bytes(), bytes_read() - before
    np.savez(solution_path, noise=solution.noise, **solution.arrays)
    return {"seconds": seconds, "cpu": cpu, "peak": peak, "read": read, "notes": dict(solution.notes)}


def main(path: Path) -> None:
    """Run the contender that a spec names; a failure is a result like any other."""
    spec = json.loads(path.read_text())
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    try:
        outcome = run(spec, path.with_name("solution.npz"))
    except ModuleNotFoundError as error:
        outcome = {"failure": f"not installed: {error.name}"}
    except MemoryError:
        outcome = {"failure": "out of memory"}
    except Exception as error:
        traceback.print_exc()
        outcome = {"failure": f"failed: {type(error).__name__}: {error}"}
    path.with_name("outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
