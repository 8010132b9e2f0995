"""A model of the time and the traffic of fits on clusters.

`python -m benchmarks.scaling_model` prints the tables of docs/SCALING.md.
The terms are fitted to a few runs of `python -m benchmarks weak_scaling`. The error is that of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.weak_scaling import ROUTES, K
from streamdr.core.blocks import SEGMENT_BYTES
from streamdr.engine.executors.dask_cluster import _LONG_RUNS
from streamdr.engine.merge_tree import LONG_RUN, RADIX, RUN

BYTES = 1 << 30
"""The stored values of a worker in the runs below."""
CORES = 2
LINK = 125e6
"""The bytes per second between two hosts (1 Gbit/s)."""
WIDTH = K + 10
"""The vectors that the Krylov solver iterates."""
_VECTORS = 6
"""Means and the like that an accumulator of such a pass has besides."""
_ITEM = 4
_HOPS = 2
"""Results reach the client through the scheduler."""


@dataclass(frozen=True)
class Run:
    """A measured run: of a route, with so many workers, on one host or two."""

    route: str
    workers: int
    hosts: int
    seconds: float
    folding: float
    """Seconds in which tasks were reading and accumulating, of all workers together."""
    merges: int
    moved: float
    """The megabytes of results that workers have sent to each other."""
    fitted: bool = False
    """Whether the terms of the model are fitted to this run."""


RUNS = (
    Run("d=256", 1, 1, 1.38, 1.17, 7, 0.0),
    Run("d=256", 2, 1, 1.61, 2.55, 15, 4.76, fitted=True),
    Run("d=256", 4, 1, 3.15, 10.8, 31, 14.8),
    Run("d=256", 2, 2, 2.80, 2.59, 15, 4.76),
    Run("d=512", 1, 1, 2.00, 1.81, 7, 0.0),
    Run("d=512", 2, 1, 2.73, 4.70, 15, 19.0),
    Run("d=512", 4, 1, 6.32, 17.7, 31, 69.5),
    Run("d=512", 2, 2, 3.76, 4.50, 15, 19.0),
    Run("d=1024", 1, 1, 3.64, 3.34, 7, 0.0),
    Run("d=1024", 2, 1, 4.18, 7.46, 15, 67.2, fitted=True),
    Run("d=1024", 4, 1, 8.16, 28.7, 31, 227.0),
    Run("d=1024", 2, 2, 5.51, 7.35, 15, 67.2),
    Run("Krylov, d=1024", 1, 1, 3.96, 3.54, 28, 0.0),
    Run("Krylov, d=1024", 2, 1, 4.77, 8.11, 60, 18.4, fitted=True),
    Run("Krylov, d=1024", 4, 1, 10.28, 35.1, 124, 53.6),
    Run("Krylov, d=1024", 2, 2, 6.21, 8.36, 60, 18.4, fitted=True),
)
TASK_SECONDS = 0.005
"""What the client and the scheduler spend on a task."""
MERGE_SECONDS = 0.0026
"""Merging two accumulators of 8.4 MB on one worker: copying the first, and adding the second."""
SOLVE_SECONDS = 0.1
"""The eigendecomposition for 1,024 columns."""


@dataclass(frozen=True)
class Machine:
    """The terms that are fitted."""

    read: float
    """Bytes per second that a core reads, decodes and centres."""
    products: float
    """Operations per second of a core in products X'X, in single precision."""
    thin: float
    """The same for products with a few vectors."""
    start: float
    """Seconds of a fit besides its passes: opening, planning, checking the workers."""
    latency: float
    """Seconds of a pass besides its tasks: sharing its arguments, the last parts, the result."""
    joining: float
    """Seconds of joining and leaving a scheduler on the network."""


@dataclass(frozen=True)
class Prediction:
    """The time and the traffic of a fit."""

    seconds: float
    tasks: float
    """The tasks of all passes, with those that merge."""
    merges: float
    moved: float
    """The bytes that workers send to each other."""
    to_client: float
    """The bytes of results that the client receives, without checkpoints."""
    checkpoint: float
    """The most bytes that one checkpoint moves."""
    scheduling: float
    """The share of the time in which the scheduler is busy."""


def columns(route: str) -> int:
    """Return the number of columns of a route."""
    return ROUTES[route][0]


def passes(route: str) -> int:
    """Return the number of passes over the data."""
    return int(ROUTES[route][1].get("max_passes", 1))


def state_bytes(route: str) -> int:
    """Return the bytes of an accumulator: of an iterative pass, its sums and its parameters."""
    cols = columns(route)
    return 8 * cols * (2 * WIDTH + _VECTORS if passes(route) > 1 else cols)


def seconds_per_byte(route: str, machine: Machine) -> float:
    """Return the time of a core for a stored byte: reading it, and the products of its row."""
    if passes(route) > 1:  # two products of a row with all vectors
        return 1 / machine.read + 4 * WIDTH / _ITEM / machine.thin
    return 1 / machine.read + 2 * columns(route) / _ITEM / machine.products


def fitted() -> Machine:
    """Fit the terms to runs on two workers of one host, and to one run on two hosts."""
    narrow, wide, krylov, apart = (run for run in RUNS if run.fitted)
    per_byte = [run.folding / passes(run.route) / run.workers / BYTES for run in (narrow, wide, krylov)]
    rest = columns(wide.route) - columns(narrow.route)
    products = 2 * rest / _ITEM / (per_byte[1] - per_byte[0])
    read = 1 / (per_byte[0] - 2 * columns(narrow.route) / _ITEM / products)
    thin = 4 * WIDTH / _ITEM / (per_byte[2] - 1 / read)
    once, often = (run.seconds - run.folding / run.workers for run in (narrow, krylov))
    latency = max((often - once) / (passes(krylov.route) - 1), 0.0)
    moving = apart.moved * 1e6 / LINK
    return Machine(
        read, products, thin, max(once - latency, 0.0), latency, apart.seconds - krylov.seconds - moving
    )


def predicted(
    route: str, data: float, workers: int, machine: Machine, *, hosts: int, cores: int | None = None
) -> Prediction:
    """Return the time and the traffic of a fit to so many stored bytes.

    `cores` is the number of all cores, if there are fewer than workers.
    """
    state, number = state_bytes(route), passes(route)
    segment = max(SEGMENT_BYTES, 4 * state)
    folds = tasks_of(data / segment, workers)
    merges = max(folds - 1, 0)
    apart = 1 - 1 / min(hosts, workers)
    """The share of merges whose arguments are on different hosts."""
    merging = MERGE_SECONDS * state / state_bytes("d=1024")
    per_byte = seconds_per_byte(route, machine)
    busy = data * per_byte / min(workers, cores or workers)
    moved = merges * state * (1 - 1 / workers)
    busy += merges * (merging + apart * state / LINK) / workers
    last = (RUN * segment * per_byte / 2) * (
        workers > 1
    )  # on average, the last task of a worker is half done
    levels = _levels(data / segment)
    ending = levels * (merging + apart * state / LINK)
    sharing = math.ceil(math.log2(workers + 1)) * shared_bytes(route) / LINK * (hosts > 1)
    scheduling = (folds + merges) * TASK_SECONDS
    solving = SOLVE_SECONDS * (columns(route) / 1024) ** 3 if number == 1 else 0.0
    each = max(busy, scheduling) + last + ending + sharing + machine.latency
    seconds = machine.start + machine.joining * (hosts > 1) + number * each + solving
    return Prediction(
        seconds=seconds,
        tasks=number * (folds + merges),
        merges=number * merges,
        moved=number * moved,
        to_client=number * state,
        checkpoint=2 * _HOPS * levels * state,
        scheduling=number * scheduling / seconds,
    )


def shared_bytes(route: str) -> int:
    """Return the bytes that every worker receives in every pass: vectors. Zeros are not sent."""
    return 8 * columns(route) * WIDTH if passes(route) > 1 else 0


def tasks_of(segments: float, workers: int) -> float:
    """Return the number of tasks that read: long runs, and at the end short ones."""
    reserved = _LONG_RUNS * workers * LONG_RUN
    long_runs = max(math.floor((segments - reserved) / LONG_RUN) + 1, 0) if segments >= reserved else 0
    return long_runs + math.ceil((segments - long_runs * LONG_RUN) / RUN)


def _levels(segments: float) -> int:
    """Return the number of levels of the merge tree, with the parts of the last segment."""
    return 2 + math.ceil(math.log(max(segments / RUN, 2), RADIX))


def errors() -> Iterator[tuple[Run, Prediction]]:
    """Yield the measured runs with their predictions."""
    machine = fitted()
    for run in RUNS:
        yield (
            run,
            predicted(run.route, run.workers * BYTES, run.workers, machine, hosts=run.hosts, cores=CORES),
        )


def error_table() -> str:
    """Return the table of measured and predicted runs."""
    lines = [
        "| route | workers | hosts | measured, s | model, s | error | merges | model "
        "| MB between workers | model |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run, model in errors():
        error = "fitted" if run.fitted else f"{100 * (model.seconds / run.seconds - 1):+.0f}%"
        cells = (
            *(run.route, run.workers, run.hosts, f"{run.seconds:.2f}", f"{model.seconds:.2f}", error),
            *(run.merges, f"{model.merges:.0f}", f"{run.moved:.1f}", f"{model.moved / 1e6:.1f}"),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def term_table() -> str:
    """Return the table of terms."""
    machine = fitted()
    terms = {
        "reading, decoding and centring, per core": f"{machine.read / 1e6:,.0f} MB/s",
        "products X'X, per core": f"{machine.products / 1e9:.0f} GFLOP/s",
        "products with 30 vectors, per core": f"{machine.thin / 1e9:.1f} GFLOP/s",
        "client and scheduler, per task": f"{1e3 * TASK_SECONDS:.1f} ms",
        "a merge of 8.4 MB, on one worker": f"{1e3 * MERGE_SECONDS:.0f} ms",
        "a fit, besides its passes": f"{machine.start:.2f} s",
        "a pass, besides its tasks": f"{machine.latency:.2f} s",
        "joining and leaving a scheduler on the network": f"{machine.joining:.2f} s",
        "eigenvectors of 1,024 columns": f"{SOLVE_SECONDS:.1f} s",
        "the link between hosts": f"{LINK / 1e6:.0f} MB/s (set)",
    }
    lines = [
        "| term | value |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in terms.items()),
    ]
    return "\n".join(lines)


def forecast_table() -> str:
    """Return the table of times and traffic on large clusters, with a host for every worker."""
    lines = [
        "| route | data | workers | time | read, GB/s | tasks | scheduler busy | moved per worker "
        "| moved / data | a checkpoint, at most |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    machine = fitted()
    for route in ("d=256", "d=1024", "Krylov, d=1024"):
        for data in (1e12, 1e13, 1e14, 1e15):
            for workers in (10, 100, 1000):
                model = predicted(route, data, workers, machine, hosts=workers)
                cells = (
                    *(route, f"{data / 1e12:,.0f} TB", f"{workers:,}", _duration(model.seconds)),
                    f"{passes(route) * data / model.seconds / 1e9:.1f}",
                    f"{model.tasks:,.0f}",
                    f"{100 * model.scheduling:.1f}%",
                    f"{model.moved / workers / 1e6:,.0f} MB",
                    f"{100 * model.moved / data / passes(route):.2f}%",
                    f"{model.checkpoint / 1e6:,.0f} MB",
                )
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> tuple[str, ...]:
    """Return the tables of docs/SCALING.md."""
    return term_table(), error_table(), forecast_table()


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"


if __name__ == "__main__":
    print("\n\n".join(tables()))
