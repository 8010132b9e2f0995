"""Runs contenders in turn, each run in a fresh process, and keeps the best of several rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.child import peak_bytes
from benchmarks.contender import Contender, Solution
from benchmarks.revisions import ROOT

POLL_SECONDS = 0.2

Judge = Callable[[Solution], Mapping[str, float | str]]
"""Measures the accuracy of a solution, as columns of the table."""


@dataclass(frozen=True)
class Settings:
    """What the command line chose."""

    data: Path
    scale: float = 1.0
    rounds: int = 3
    slow_seconds: float = 60.0
    """A contender slower than this is not run again."""
    timeout_seconds: float = 900.0
    memory_cap: int = 0
    """A contender that uses more bytes than this is killed, before the machine runs out of memory."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of contenders that cannot share this one, by the contender's name."""
    before: Path | None = None
    """The tree of an earlier revision to compare with, instead of with peers."""


@dataclass(frozen=True)
class Outcome:
    """One run of one contender: figures, or the reason why there are none."""

    name: str
    failure: str = ""
    seconds: float = float("inf")
    cpu: float = 0.0
    """Seconds of CPU time, of all threads but not of helper processes."""
    load: float = 0.0
    """The number of other runnable tasks just before the run."""
    peak: int = 0
    reads: float = 0.0
    """Bytes read during the fit, in units of the store's size."""
    runs: int = 1
    notes: Mapping[str, float | str] = field(default_factory=dict)
    verdict: Mapping[str, float | str] = field(default_factory=dict)
    memory: Sequence[tuple[float, int]] = ()
    """Resident bytes of the process and its helpers over the seconds of the run, imports included."""


def race(contenders: Sequence[Contender], settings: Settings, judge: Judge) -> list[Outcome]:
    """Run every contender once per round, so that other load affects all alike, and keep the best runs."""
    if settings.before is not None:
        contenders = list(with_earlier(contenders, settings.before))
    runs: dict[str, list[Outcome]] = {contender.name: [] for contender in contenders}
    for round_number in range(settings.rounds):
        for contender in contenders:
            past = runs[contender.name]
            if any(run.failure or run.seconds > settings.slow_seconds for run in past):
                continue
            outcome = run_once(contender, settings, judge)
            figures = outcome.failure or f"{outcome.seconds:.2f} s, {outcome.peak / 1e6:.0f} MB"
            print(f"  round {round_number + 1}: {contender.name}: {figures}", file=sys.stderr, flush=True)
            past.append(outcome)
    return [best(past) for past in runs.values()]


def with_earlier(contenders: Sequence[Contender], tree: Path) -> Iterator[Contender]:
    """Yield the floors, and streamdr of this tree and of an earlier one in turn."""
    for contender in contenders:
        module = contender.prepare.__module__
        if module in ("benchmarks.floors", "benchmarks.ours"):
            yield contender
        if module == "benchmarks.ours":
            yield replace(contender, name=f"{contender.name}, before", root=tree)


def best(runs: Sequence[Outcome]) -> Outcome:
    """Return the fastest run with the worst peak, or the failure if there was one."""
    failed = [run for run in runs if run.failure]
    if failed:
        return failed[0]
    fastest = min(runs, key=lambda run: run.seconds)
    return Outcome(
        name=fastest.name,
        seconds=fastest.seconds,
        cpu=fastest.cpu,
        load=max(run.load for run in runs),
        peak=max(run.peak for run in runs),
        reads=fastest.reads,
        runs=len(runs),
        notes=fastest.notes,
        verdict=fastest.verdict,
        memory=fastest.memory,
    )


def run_once(contender: Contender, settings: Settings, judge: Judge) -> Outcome:
    """Run a contender in a process of its own, from a page cache that has the store, or has nothing of it."""
    prepare = chill if contender.cold else warm
    store_bytes, load = prepare(contender.store), other_runnable()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        spec = Path(scratch, "spec.json")
        spec.write_text(
            json.dumps(
                {
                    "module": contender.prepare.__module__,
                    "function": contender.prepare.__name__,
                    "store": str(contender.store),
                    "arguments": dict(contender.arguments),
                }
            )
        )
        python, root = settings.pythons.get(contender.name, sys.executable), contender.root or ROOT
        process = subprocess.Popen(
            [python, "-m", "benchmarks.child", str(spec)],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)} | thread_environment(contender.blas_threads),
        )
        try:
            watched = watch(process, settings)
        finally:
            process.kill()
        report = spec.with_name("outcome.json")
        if watched.ended or not report.exists():
            failure = watched.ended or f"ended with code {process.returncode}"
            return Outcome(contender.name, failure=failure, memory=watched.memory)
        outcome = json.loads(report.read_text())
        if "failure" in outcome:
            return Outcome(contender.name, failure=outcome["failure"], memory=watched.memory)
        with np.load(spec.with_name("solution.npz")) as found:
            solution = Solution(**{name: found[name] for name in found})
        return Outcome(
            name=contender.name,
            seconds=outcome["seconds"],
            cpu=outcome["cpu"],
            load=load,
            peak=outcome["peak"] + watched.helpers_peak,
            reads=outcome["read"] / store_bytes,
            notes=outcome["notes"],
            verdict={} if solution.is_nothing else judge(solution),
            memory=watched.memory,
        )


def thread_environment(blas_threads: int) -> dict[str, str]:
    """Return the variables that set the number of threads of every BLAS in use here."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(blas_threads))


@dataclass(frozen=True)
class Watched:
    """What was seen of a process while it ran."""

    helpers_peak: int
    """The summed peaks of its helper processes."""
    memory: Sequence[tuple[float, int]]
    ended: str = ""
    """Why it was ended, if it was."""


def watch(process: subprocess.Popen[bytes], settings: Settings) -> Watched:
    """Wait for a process, and end it if it needs too much memory or time."""
    peaks: dict[int, int] = {}
    memory: list[tuple[float, int]] = []
    ended = ""
    start = time.monotonic()
    while process.poll() is None:
        resident = 0
        for pid in tree(process.pid):
            try:
                peaks[pid] = peak_bytes(str(pid))
                resident += resident_bytes(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
        memory.append((round(time.monotonic() - start, 2), resident))
        if settings.memory_cap and sum(peaks.values()) > settings.memory_cap:
            ended = f"out of memory: over {settings.memory_cap / 1e9:.1f} GB"
        elif time.monotonic() - start > settings.timeout_seconds:
            ended = f"out of time: over {settings.timeout_seconds:.0f} s"
        if ended:
            process.kill()
            process.wait()
            break
        time.sleep(POLL_SECONDS)
    return Watched(sum(peak for pid, peak in peaks.items() if pid != process.pid), memory, ended)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            listed = children.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in listed:
            found += tree(int(child))
    return found


def other_runnable() -> float:
    """Return the number of other runnable tasks: the mean of a few samples."""
    samples = []
    for _ in range(10):
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        samples.append(int(running) - 1)
        time.sleep(0.05)
    return sum(samples) / len(samples)


def warm(store: Path) -> int:
    """Read every file of a store into the page cache and return its size in bytes."""
    size = 0
    buffer = bytearray(1 << 20)
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    size += count
    return size


def chill(store: Path) -> int:
    """Drop every file of a store from the page cache and return its size in bytes."""
    size = 0
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                os.fsync(file.fileno())  # pages that are not written yet would stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                size += os.fstat(file.fileno()).st_size
    return size
