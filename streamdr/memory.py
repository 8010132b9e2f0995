"""The memory plan: what a run will take, computed from shapes before a byte is read, and kept to.

The peak is the interpreter and its libraries; for each worker a block, what decoding it takes, and the
update's scratch; and the larger of two: the accumulators that are filling or waiting to merge, with one a
level of the counter, or the full accumulator and the arrays of the solve. Reading is over when solving
begins, but the allocator may not yet have given back what blocks took, so both are counted.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.blocks import Axis
from streamdr.engines import available_cores
from streamdr.errors import MemoryLimitError
from streamdr.methods import Method, Model, Route
from streamdr.methods.base import UsesScratch, require_labels
from streamdr.methods.rows import RowView
from streamdr.segments import RADIX, Cut, cut
from streamdr.settings import Execution
from streamdr.sizes import format_bytes
from streamdr.sources.base import Source

BASELINE = 140 << 20
"""Python with numpy, scipy, zarr and the rest loaded, and what they keep for themselves."""
_FREE_SHARE = 0.8
_SMALL_ACCUMULATOR = 64 << 20
_OUTPUT_CHUNK = 1 << 20
_CHUNK_BLOCKS = 16
"""The most blocks that make one chunk: rows of a single number must not wait for a million others."""
_FLOPS = 6e10
"""Nominal speeds of one worker: the same on every machine, so that `auto` chooses the same everywhere."""
_READ = 0.65e9
_PREFER_EXACT = 2.0
"""How many times cheaper an iterative route must be before an exact one is passed over."""


@dataclass(frozen=True)
class Plan:
    """How a fit will run, what it will take, and why."""

    route: Route
    workers: int
    window: int
    blocks: Cut
    limit: int
    parts: dict[str, int]
    """The peak, by what takes it."""
    seconds: float
    """A modelled time, to compare routes by."""
    reason: str = ""

    @property
    def peak(self) -> int:
        """The most that the process will take."""
        return sum(self.parts.values())


def plan(method: Method, source: Source, execution: Execution) -> Plan:
    """The cheapest route that keeps within the limit, with as many workers as it allows."""
    limit = execution.memory_limit or int(_FREE_SHARE * available_memory())
    require_labels(method, source.spec)
    drafts = [_widest(route, source, execution, limit) for route in method.routes(source.spec)]
    fitting = [draft for draft in drafts if draft.peak <= limit]
    if not fitting:
        raise MemoryLimitError(_refusal(drafts, source, limit))
    best = min(fitting, key=_preference)
    return replace(best, reason=_reason(best, drafts))


@dataclass(frozen=True)
class TransformPlan:
    """How a transform will run and what it will take."""

    axis: Axis
    workers: int
    window: int
    block_rows: int
    chunk_rows: int
    """Rows of a chunk of the output: whole blocks, written by one task."""
    peak: int
    limit: int


def plan_transform(
    model: Model | RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None = None,
) -> TransformPlan:
    """Read by rows where a block of rows fits in the limit, by columns where only that does.

    `chunk_rows` is given where the output has its chunks already.
    """
    limit = execution.memory_limit or int(_FREE_SHARE * available_memory())
    wanted = execution.workers or available_cores()
    drafts = [
        draft(model, source, execution, dtype, chunk_rows, limit, workers)
        for draft in (_by_rows, _by_columns)
        for workers in range(wanted, 0, -1)
        if draft is _by_rows or model.scores_by_columns(source.spec.n_rows) is not None
    ]
    for draft in drafts:
        if draft.peak <= limit:
            return draft
    smallest = min(drafts, key=lambda draft: draft.peak)
    raise MemoryLimitError(
        f"{source.name}: transforming {source.spec.n_rows} x {source.spec.n_cols} takes "
        f"{format_bytes(smallest.peak)} even with one worker, and the memory limit is {format_bytes(limit)}: "
        f"raise memory_limit, or store the data in smaller chunks (now {source.chunks[0]} rows x "
        f"{source.chunks[1]} columns)"
    )


def _by_rows(
    model: Model | RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    limit: int,
    workers: int,
) -> TransformPlan:
    data = source.spec
    rows = min(cut(data, source.chunks, "rows", 0, source.labour).block, data.n_rows)
    out_bytes = model.n_outputs * dtype.itemsize
    blocks = min(math.ceil(_OUTPUT_CHUNK / (rows * out_bytes)), _CHUNK_BLOCKS)
    chunk_rows = chunk_rows or min(rows * blocks, data.n_rows)
    here = workers if execution.in_process else 1
    block = rows * data.line_bytes("rows")
    mapped = rows * model.n_outputs * data.working.itemsize
    scratch = model.scratch_bytes(rows) if isinstance(model, UsesScratch) else 0
    task = 2 * block + source.overhead(rows, data.n_cols) + scratch + 2 * mapped + 2 * chunk_rows * out_bytes
    peak = max(BASELINE, resident()) + here * task + 2 * _model_bytes(model)
    return TransformPlan("rows", workers, 2 * workers, rows, chunk_rows, peak, limit)


def _by_columns(
    model: Model | RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    limit: int,
    workers: int,
) -> TransformPlan:
    data = source.spec
    scores = 8 * data.n_rows * model.n_outputs
    blocks = cut(data, source.chunks, "columns", scores)
    columns = min(blocks.block, blocks.length)
    here = workers if execution.in_process else 1
    task = 2 * columns * data.line_bytes("columns") + source.overhead(data.n_rows, columns) + scores
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 2
    peak = max(BASELINE, resident()) + here * task + (2 * workers + levels + 1) * scores
    return TransformPlan(
        "columns", workers, 2 * workers, 0, data.n_rows, peak + 2 * _model_bytes(model), limit
    )


def _model_bytes(model: Any) -> int:
    """What its arrays take, and those of the model that it is a view of."""
    held = [getattr(model, field.name) for field in fields(model)]
    within = sum(_model_bytes(each) for each in held if is_dataclass(each))
    return within + sum(array.nbytes for array in held if isinstance(array, np.ndarray))


def available_memory() -> int:
    """Bytes that could be had now, under the container's limit where there is one."""
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(facts["MemAvailable"].split()[0]) * 1024
    ceiling = Path("/sys/fs/cgroup/memory.max")
    words = ceiling.read_text().strip() if ceiling.exists() else "max"
    return min(free, int(words)) if words.isdigit() else free


def resident() -> int:
    """Bytes that this process holds now."""
    return _status("VmRSS")


def peak_resident() -> int:
    """The most bytes that this process has held."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Let the peak begin anew at what is held now. Where the system cannot, it goes on from the old one."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Return freed memory to the system, which the allocator would keep for later, where it can be asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def _widest(route: Route, source: Source, execution: Execution, limit: int) -> Plan:
    wanted = execution.workers or available_cores()
    drafts = (_draft(route, source, execution, limit, workers) for workers in range(wanted, 0, -1))
    for draft in drafts:
        if draft.peak <= limit:
            break
    return draft


def _draft(route: Route, source: Source, execution: Execution, limit: int, workers: int) -> Plan:
    data = source.spec
    blocks = cut(data, source.chunks, route.axis, route.accumulator_bytes, route.labour)
    lines = min(blocks.block, blocks.length)
    block = lines * data.line_bytes(route.axis)
    shape = (lines, data.n_cols) if route.axis == "rows" else (data.n_rows, lines)
    window = 2 * workers if route.accumulator_bytes <= _SMALL_ACCUMULATOR else workers
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 1
    # Threads share this process; processes of a cluster each keep to the limit on their own.
    here = workers if execution.in_process else 1
    waiting = min(window, len(blocks)) + min(levels, blocks.whole) + len(blocks.tail())
    parts = {
        "interpreter": max(BASELINE, resident()),
        "blocks": here * (block + source.overhead(*shape)),
        "scratch": here * (round(route.scratch_per_block * block) + route.scratch_bytes),
        "accumulators": route.gathered_bytes + waiting * route.accumulator_bytes,
    }
    solve = route.gathered_bytes + route.accumulator_bytes + route.solve_bytes
    parts["solve"] = max(0, solve - parts["accumulators"])
    seconds = route.flops / _FLOPS + route.passes * data.n_rows * data.line_bytes("rows") / _READ
    return Plan(route, workers, window, blocks, limit, parts, seconds / workers)


def _preference(draft: Plan) -> float:
    return draft.seconds * (1.0 if draft.route.exact else _PREFER_EXACT)


def _reason(best: Plan, drafts: list[Plan]) -> str:
    others = [draft for draft in drafts if draft.route is not best.route]
    if not others:
        return f"{best.route.name}: the only way for these parameters"
    verdicts = []
    for draft in others:
        if draft.peak > draft.limit:
            verdicts.append(f"{draft.route.name} would take {format_bytes(draft.peak)}")
        else:
            iterative = "" if draft.route.exact else ", iterative"
            verdicts.append(f"{draft.route.name} {draft.seconds:.3g} s{iterative}")
    return f"{best.route.name}: about {best.seconds:.3g} s, where {', '.join(verdicts)}"


def _refusal(drafts: list[Plan], source: Source, limit: int) -> str:
    smallest = min(drafts, key=lambda draft: draft.peak)
    needs = "; ".join(f"{draft.route.name} {format_bytes(draft.peak)}" for draft in drafts)
    where = ", ".join(f"{name} {format_bytes(size)}" for name, size in smallest.parts.items())
    advice = f"raise memory_limit to {math.ceil(smallest.peak / 2**20)} MiB"
    if smallest.parts["blocks"] > smallest.peak / 2:
        rows, cols = source.chunks
        advice += f", or store the data in smaller chunks (now {rows} rows x {cols} columns)"
    if smallest.route.advice:
        advice += f", {smallest.route.advice}"
    return (
        f"{source.name}: {source.spec.n_rows} x {source.spec.n_cols} does not fit in the memory limit of "
        f"{format_bytes(limit)}, even with one worker: {needs} ({smallest.route.name}: {where}); {advice}"
    )
