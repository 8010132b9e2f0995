"""The memory plan: what a run will take, computed from shapes before a byte is read, and kept to.

A route has phases, and the peak is that of the phase that takes most: the interpreter and its libraries; what
the method holds; and the larger of two. While reading: for each worker a block, what decoding it takes, and
the update's scratch, and the accumulators that are filling or waiting to merge, with one a level of the
counter. While solving: the full accumulator and the arrays of the solve, for which blocks and scratch have
made room (`scratch.release`, `give_back`).
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.blocks import Axis, MatrixSpec
from streamdr.core.byte_sizes import format_bytes, format_seconds
from streamdr.core.execution import Execution
from streamdr.core.method import HasOutlines, Method, Model, Phase, Route, SelectsColumns, require_labels
from streamdr.core.row_outputs import RowOutput, RowView
from streamdr.core.system import available_cores, available_memory
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.row_subset import RowSubset
from streamdr.data.source import Source
from streamdr.engine.merge_tree import RADIX
from streamdr.engine.partition import Partition, partition
from streamdr.errors import MemoryLimitError

BASELINE = 140 << 20
"""Python with numpy, scipy, zarr and the rest loaded, and what they keep for themselves."""
_M_ARENA_MAX = -8  # as in malloc.h
_FREE_SHARE = 0.8
_SMALL_ACCUMULATOR = 64 << 20
_OUTPUT_CHUNK = 1 << 20
_WRITTEN = 3
"""How often a chunk of the output exists while it is written: as rows, as bytes, and with its checksum."""
_SMALL_ARRAYS = 1 << 20
"""What a model may have besides its outline: a number for each iteration, for each candidate and the like."""
_DIFFERENCE = 16 << 20
"""By how much one process may be larger than another that does the same."""
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
    blocks: Partition
    """How the first phase is cut."""
    limit: int
    parts: dict[str, int]
    """The peak, by what takes it, in the phase that takes most."""
    seconds: float
    """A modelled time at the most passes, to compare routes by."""
    usual_seconds: float = 0.0
    """A modelled time at the usual number of passes."""
    fallback_seconds: float | None = None
    """The same for what the route goes on with when it finds a value missing."""
    reason: str = ""

    @property
    def peak(self) -> int:
        """The most that the process will take."""
        return sum(self.parts.values())


def plan(method: Method, source: Source, execution: Execution) -> Plan:
    """The cheapest route that keeps within the limit, with as many workers as it allows."""
    limit = execution.memory_limit or _default_limit()
    require_labels(method, source.spec)
    drafts = [_widest(route, source, execution, limit) for route in method.routes(source.spec)]
    fitting = [draft for draft in drafts if draft.peak <= limit]
    if not fitting:
        raise _refusal(drafts, source, limit)
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
    view: RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None = None,
    *,
    process_bytes: int | None = None,
) -> TransformPlan:
    """Read by rows where a block of rows fits in the limit, by columns where only that does.

    `chunk_rows` is given where the output has its chunks already. `process_bytes` is what the process held
    before there was a model, where that is known: what a fit has left is free by now, or the model itself.
    """
    limit = execution.memory_limit or _default_limit()
    wanted = execution.workers or available_cores()
    held = _model_bytes(view)
    if process_bytes is None:
        base = max(BASELINE + held, resident())
    else:
        base = max(BASELINE, process_bytes) + held
    base += held  # what it derives from its arrays, in the type of the rows
    drafts = [_by_rows(view, source, execution, dtype, chunk_rows, workers) for workers in _fewer(wanted)]
    if view.maps_by_columns:
        drafts += [_by_columns(view, source, execution, workers) for workers in _fewer(wanted)]
    drafts = [replace(draft, peak=base + draft.peak, limit=limit) for draft in drafts]
    for draft in drafts:
        if draft.peak <= limit:
            return draft
    smallest = min(drafts, key=lambda draft: draft.peak)
    raise MemoryLimitError(
        f"{source.name}: writing the {view.kind.title} of {source.spec.n_rows} x {source.spec.n_cols} takes "
        f"{format_bytes(smallest.peak)} even with one worker, and the memory limit is {format_bytes(limit)}",
        _advised(smallest.peak),
        _smaller_chunks(source),
    )


def foresee_transform(
    method: Method, source: Source, execution: Execution, kind: RowOutput, dtype: str | None
) -> TransformPlan | None:
    """The plan of writing what a model that is yet to be fitted will make of rows, at most.

    None where a method does not say how large its models may become. `method` is that of a route.
    """
    if not isinstance(method, HasOutlines):
        return None
    held = max(BASELINE, resident()) + _SMALL_ARRAYS
    plans = []
    for model in method.outlines(source.spec):
        view, seen = view_and_source(model, source, kind)
        output = view.stored(dtype, seen.spec)
        try:
            plans.append(plan_transform(view, seen, execution, output, process_bytes=held))
        except MemoryLimitError as refusal:
            otherwise = f"{refusal.otherwise}{kind.advice and f', or {kind.advice}'}"
            raise MemoryLimitError(refusal.problem, refusal.least, otherwise) from None
    return max(plans, key=lambda chosen: chosen.peak)


def view_and_source(model: Model, source: Source, kind: RowOutput) -> tuple[RowView, Source]:
    """A model as what makes an output, and as much of the source as it looks at."""
    if isinstance(model, SelectsColumns):
        return kind.of(model.narrowed()), ColumnSubset(source, model.reads)
    return kind.of(model), source


def _advised(peak: int) -> int:
    """The limit, in MiB, that a plan of such a peak keeps, in another process too, which may be larger."""
    return math.ceil((peak + (_DIFFERENCE if resident() > BASELINE else 0)) / 2**20)


def _fewer(workers: int) -> range:
    return range(workers, 0, -1)


def _by_rows(
    view: RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None,
    workers: int,
) -> TransformPlan:
    """A block, what it becomes, and the chunk that is made of it: mapped, or written."""
    data = source.spec
    rows = min(partition(data, source.chunks, "rows", 0, source.cost_factor).block, data.n_rows)
    out_bytes = view.n_outputs * dtype.itemsize
    blocks = min(math.ceil(_OUTPUT_CHUNK / (rows * out_bytes)), _CHUNK_BLOCKS)
    chunk_rows = chunk_rows or min(rows * blocks, data.n_rows)
    here = min(workers, math.ceil(data.n_rows / chunk_rows)) if execution.in_process else 1
    line = data.line_bytes("rows")
    mapped = view.made_bytes(rows, data) + 2 * rows * view.n_outputs  # and whether each of it is finite
    chunk = chunk_rows * out_bytes
    mapping = view.scratch_bytes(rows, line) + mapped + chunk
    reading = rows * line + source.overhead(rows, data.n_cols) + source.checking_bytes(rows, data.n_cols)
    task = reading + max(mapping, _WRITTEN * chunk)
    return TransformPlan("rows", workers, 2 * workers, rows, chunk_rows, here * task, 0)


def _by_columns(view: RowView, source: Source, execution: Execution, workers: int) -> TransformPlan:
    data = source.spec
    scores = 8 * data.n_rows * view.n_outputs
    blocks = partition(data, source.chunks, "columns", scores)
    columns = blocks.longest
    here = min(workers, len(blocks)) if execution.in_process else 1
    reading = source.overhead(data.n_rows, columns) + source.checking_bytes(data.n_rows, columns)
    task = 2 * columns * data.line_bytes("columns") + reading + scores
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 2
    peak = here * task + (2 * workers + levels + 1) * scores
    return TransformPlan("columns", workers, 2 * workers, 0, data.n_rows, peak, 0)


def _model_bytes(model: Any) -> int:
    """What its arrays take, and those of the model that it is a view of."""
    held = [getattr(model, field.name) for field in fields(model)]
    within = sum(_model_bytes(each) for each in held if is_dataclass(each))
    return within + sum(array.nbytes for array in held if isinstance(array, np.ndarray))


def _default_limit() -> int:
    """A share of what is free and of what this process holds already, since a plan counts that too."""
    return int(_FREE_SHARE * (available_memory() + resident()))


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


def share_one_arena() -> None:
    """Let threads that are yet to start take memory from the main arena.

    The ends of other arenas, 64 MiB each, are not given back when threads have freed what they took.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


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
    largest = max(phase.accumulator_bytes for phase in route.phases)
    window = 2 * workers if largest <= _SMALL_ACCUMULATOR else workers
    phases = [_phase(phase, source, execution, workers, window) for phase in route.phases]
    parts = max((parts for _, parts in phases), key=lambda parts: sum(parts.values()))
    data, other = source.spec, route.fallback
    return Plan(
        route,
        workers,
        window,
        phases[0][0],
        limit,
        parts,
        seconds=_seconds(route, data, route.passes) / workers,
        usual_seconds=_seconds(route, data, route.usual_passes or route.passes) / workers,
        fallback_seconds=None if other is None else _seconds(other, data, other.usual_passes) / workers,
    )


def _phase(
    phase: Phase, source: Source, execution: Execution, workers: int, window: int
) -> tuple[Partition, dict[str, int]]:
    """How a phase is cut, and what it takes."""
    if phase.part is not None:
        source = RowSubset(source, phase.part)
    data = source.spec
    empty = phase.accumulator_bytes if phase.empty_bytes is None else phase.empty_bytes
    blocks = partition(data, source.chunks, phase.axis, empty, phase.cost_factor)
    lines = blocks.longest
    block = lines * data.line_bytes(phase.axis)
    shape = (lines, data.n_cols) if phase.axis == "rows" else (data.n_rows, lines)
    # Threads share this process; processes of a cluster each keep to the limit on their own.
    here = min(workers, len(blocks)) if execution.in_process else 1
    scratch = round(phase.scratch_per_block * block) + phase.scratch_bytes
    if phase.max_scratch_bytes is not None:
        scratch = min(scratch, phase.max_scratch_bytes)
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 1
    waiting = min(window, len(blocks)) + min(levels, blocks.whole) + len(blocks.tail())
    filling = min(waiting, len(blocks)) * phase.accumulator_bytes
    if phase.total_accumulator_bytes is not None:
        filling = min(filling, phase.total_accumulator_bytes)
    parts = {
        "interpreter": max(BASELINE, resident()),
        "blocks": here * (block + source.overhead(*shape)),
        "scratch": here * (scratch + source.checking_bytes(*shape)),
        "accumulators": phase.gathered_bytes + filling,
        "held": phase.held_bytes,
    }
    solve = phase.gathered_bytes + phase.accumulator_bytes + phase.solve_bytes
    reading = parts["blocks"] + parts["scratch"] + parts["accumulators"]
    parts["solve"] = max(0, solve - reading)
    return blocks, parts


def _seconds(route: Route, data: MatrixSpec, passes: int) -> float:
    """The modelled time of one worker."""
    return route.flops / _FLOPS + passes * data.n_rows * data.line_bytes("rows") / _READ


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
            verdicts.append(f"{draft.route.name} takes {format_seconds(draft.usual_seconds)}{iterative}")
    return f"{best.route.name}: {format_seconds(best.usual_seconds)}, where {'; '.join(verdicts)}"


def _refusal(drafts: list[Plan], source: Source, limit: int) -> MemoryLimitError:
    smallest = min(drafts, key=lambda draft: draft.peak)
    needs = "; ".join(f"{draft.route.name} {format_bytes(draft.peak)}" for draft in drafts)
    where = ", ".join(f"{name} {format_bytes(size)}" for name, size in smallest.parts.items())
    otherwise = _smaller_chunks(source) if smallest.parts["blocks"] > smallest.peak / 2 else ""
    if smallest.route.advice:
        otherwise += f", {smallest.route.advice}"
    return MemoryLimitError(
        f"{source.name}: {source.spec.n_rows} x {source.spec.n_cols} does not fit in the memory limit of "
        f"{format_bytes(limit)}, even with one worker: {needs} ({smallest.route.name}: {where})",
        _advised(smallest.peak),
        otherwise,
    )


def _smaller_chunks(source: Source) -> str:
    rows, cols = source.chunks
    return f", or store the data in smaller chunks (now {rows} rows x {cols} columns)"
