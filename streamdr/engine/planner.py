"""The memory plan: the peak memory of a run, computed from shapes before anything is read.

A route has phases, and its peak is that of its largest phase. A phase needs the interpreter and its
libraries, what the method holds, and the larger of two sums. While reading: for each worker a block, what
decoding it needs, and the scratch of the update; and the accumulators that are being filled or wait for
merging, with one per level of the merge tree. While solving: the full accumulator and the arrays of the
solve. Blocks and scratch have been released before the solve (`buffers.release`, `give_back`).
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Axis, MatrixSpec
from streamdr.core.byte_sizes import format_bytes, format_seconds
from streamdr.core.execution import Execution
from streamdr.core.mapping import columns_read, keeps_sparse
from streamdr.core.method import HasOutlines, Method, Model, Phase, Route, SelectsColumns, require_labels
from streamdr.core.row_outputs import RowOutput, RowView
from streamdr.core.system import available_cores, available_memory
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.feature_subset import FeatureSubset, first_rows_bytes
from streamdr.data.features import for_model
from streamdr.data.row_subset import RowSubset
from streamdr.data.source import Source
from streamdr.data.transformed import TransformedSource
from streamdr.engine.merge_tree import RADIX
from streamdr.engine.partition import Partition, column_tiles, partition
from streamdr.engine.work_stages import NO_STAGE, Stage, fallback_stages, fit_stages, output_stage
from streamdr.errors import MemoryLimitError

BASELINE = 140 << 20
"""The memory of Python with numpy, scipy, zarr and the other libraries loaded."""
_M_ARENA_MAX = -8  # as in malloc.h
_FREE_SHARE = 0.8
_SMALL_ACCUMULATOR = 64 << 20
_OUTPUT_CHUNK = 1 << 20
_WRITTEN = 3
"""The copies of an output chunk while it is written: as rows, as bytes, and with its checksum."""
_SMALL_ARRAYS = 1 << 20
"""The memory of a model besides its outline, such as a number per iteration or per candidate."""
_DIFFERENCE = 16 << 20
"""The difference in memory between two processes that do the same."""
_CHUNK_BLOCKS = 16
"""The most blocks in one output chunk. Otherwise narrow rows would wait for a million others."""
_FLOPS = 6e10
"""Nominal speeds of one worker: the same on every machine, so that `auto` chooses the same everywhere."""
_READ = 0.65e9
_STORED_BYTES = 12
"""The nominal bytes of a stored value of sparse rows, with its column."""
_COLUMN_BYTES = 4
_PREFER_EXACT = 2.0
"""How many times faster an iterative route must be to be preferred to an exact one."""


@dataclass(frozen=True)
class Plan:
    """How a fit will run, how much memory and time it needs, and why this route was chosen."""

    route: Route
    workers: int
    window: int
    blocks: Partition
    """The partition of the first phase."""
    limit: int
    parts: dict[str, int]
    """The terms of the peak, in the largest phase."""
    seconds: float
    """The nominal time for the largest number of passes, by which routes are compared."""
    usual_seconds: float = 0.0
    """The nominal time for the usual number of passes. What is told to people comes from `stages`."""
    reason: str = ""
    stages: tuple[Stage, ...] = ()
    """The work of the fit, to tell how long it will take."""
    fallback_stages: tuple[Stage, ...] = ()
    """The same for the fallback of the route."""

    @property
    def peak(self) -> int:
        """The peak memory of the process, in bytes."""
        return sum(self.parts.values())


def block_bytes(chosen: Plan, data: MatrixSpec) -> int:
    """Return the bytes of a block of the first phase: of its stored values, where rows stay sparse."""
    lines = min(chosen.blocks.block, chosen.blocks.length)
    first = next(iter(chosen.route.phases), None)
    unmapped = first is not None and (first.through is None or keeps_sparse(data, first.through))
    if data.density is None or first is None or not (first.takes_sparse and unmapped):
        return lines * data.line_bytes(chosen.blocks.axis)
    return round(data.density * lines * data.n_cols) * (data.working.itemsize + _COLUMN_BYTES)


def plan(method: Method, source: Source, execution: Execution) -> Plan:
    """Return the plan of the fastest route that fits in the limit, with as many workers as it allows."""
    limit = execution.memory_limit or _default_limit()
    require_labels(method, source.spec)
    drafts = [_widest(route, source, execution, limit) for route in method.routes(source.named_spec)]
    fitting = [draft for draft in drafts if draft.peak <= limit]
    if not fitting:
        raise _refusal(drafts, source, limit)
    best = min(fitting, key=_preference)
    how = best.route, source, best.workers, execution
    return replace(
        best,
        reason=_reason(best, drafts) + _made_dense(best.route, source.spec),
        stages=tuple(fit_stages(*how)),
        fallback_stages=tuple(fallback_stages(*how)),
    )


def require_first_rows(source: Source, execution: Execution) -> None:
    """Refuse a source whose first rows do not fit into memory. They are read before a fit is planned."""
    limit = execution.memory_limit or _default_limit()
    peak = max(BASELINE, resident()) + first_rows_bytes(source)
    if peak > limit:
        raise MemoryLimitError(
            f"{source.name}: reading the first rows takes {format_bytes(peak)}, and the memory limit is "
            f"{format_bytes(limit)}",
            _advised(peak),
            _smaller_chunks(source),
        )


def plan_counting(method: Method, source: Source, phase: Phase, execution: Execution) -> Plan:
    """Return the plan of the pass that counts observed values, before the features of a fit are chosen."""
    limit = execution.memory_limit or _default_limit()
    route = Route(method=method, name="observed values", exact=True, passes=1, flops=0.0, phases=(phase,))
    draft = _widest(route, source, execution, limit)
    if draft.peak > limit:
        raise _refusal([draft], source, limit)
    return draft


@dataclass(frozen=True)
class TransformPlan:
    """How a transform will run, and how much memory it needs."""

    axis: Axis
    workers: int
    window: int
    block_rows: int
    chunk_rows: int
    """The number of rows in an output chunk: whole blocks, written by one task."""
    peak: int
    limit: int
    stage: Stage = NO_STAGE
    """The work, to tell how long it will take."""


def plan_transform(
    view: RowView,
    source: Source,
    execution: Execution,
    dtype: np.dtype[Any],
    chunk_rows: int | None = None,
    *,
    process_bytes: int | None = None,
) -> TransformPlan:
    """Return a plan that reads by rows if a block of rows fits in the limit, and otherwise by columns.

    `chunk_rows` is given if the output already has chunks. `process_bytes` is the memory of the process
    before there was a model, if that is known. The memory of the fit is free by now, except for the model.
    """
    limit = execution.memory_limit or _default_limit()
    wanted = execution.workers or available_cores()
    held = _model_bytes(view)
    if process_bytes is None:
        base = max(BASELINE + held, resident())
    else:
        base = max(BASELINE, process_bytes) + held
    base += held  # arrays that the model derives from its own, in the type of the rows
    base += source.held_bytes
    drafts = [_by_rows(view, source, execution, dtype, chunk_rows, workers) for workers in _fewer(wanted)]
    if view.maps_by_columns:
        drafts += [_by_columns(view, source, execution, workers) for workers in _fewer(wanted)]
    drafts = [replace(draft, peak=base + draft.peak, limit=limit) for draft in drafts]
    for draft in drafts:
        if draft.peak <= limit:
            stage = output_stage(view, source, dtype, draft.chunk_rows, draft.workers)
            return replace(draft, stage=stage)
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
    """Return the largest plan for an output of a model that is not fitted yet.

    None if the method has no outlines of its models. `method` is the method of a route.
    """
    if not isinstance(method, HasOutlines):
        return None
    held = max(BASELINE, resident()) + _SMALL_ARRAYS
    plans = []
    for model in method.outlines(source.named_spec):
        view, seen = view_and_source(model, source, kind)
        output = stored_type(view, seen, dtype)
        try:
            plans.append(plan_transform(view, seen, execution, output, process_bytes=held))
        except MemoryLimitError as refusal:
            otherwise = f"{refusal.otherwise}{kind.advice and f', or {kind.advice}'}"
            raise MemoryLimitError(refusal.problem, refusal.least, otherwise) from None
    return max(plans, key=lambda chosen: chosen.peak)


def view_and_source(
    model: Model, source: Source, kind: RowOutput, axes: FeatureAxes | None = None
) -> tuple[RowView, Source]:
    """Return the view of a model for an output, and the part of the source that it reads.

    `axes` are those of the features that the model was fitted to, if it leaves some out or weighs them.
    """
    model = kind.maker(model)
    reads = columns_read(model)
    if reads is not None and isinstance(model, SelectsColumns) and kind.columns != "feature":
        features = source if isinstance(source, FeatureSubset) else for_model(source, axes)
        return RowView(model.narrowed(), kind), ColumnSubset(features, reads)
    if isinstance(source, FeatureSubset):
        return RowView(model, kind, source.axes), source
    return RowView(model, kind, axes), for_model(source, axes)


def stored_type(view: RowView, source: Source, requested: str | None) -> np.dtype[Any]:
    """Return the type of an output that is written: by default that of the input before it is weighted."""
    whole = source.whole if isinstance(source, FeatureSubset) else source
    return view.stored(requested, whole.spec)


def _advised(peak: int) -> int:
    """Return a limit in MiB that is enough for this peak, also in another, larger process."""
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
    """Return the plan by rows: for each worker a block, its mapped values, and the output chunk."""
    data = source.spec
    sparse = data.density is not None
    blocks_of_rows = partition(data, source.chunks, "rows", 0, source.cost_factor, sparse=sparse)
    rows = min(blocks_of_rows.block, data.n_rows)
    out_bytes = view.n_outputs * dtype.itemsize
    blocks = min(math.ceil(_OUTPUT_CHUNK / (rows * out_bytes)), _CHUNK_BLOCKS)
    chunk_rows = chunk_rows or min(rows * blocks, data.n_rows)
    here = min(workers, math.ceil(data.n_rows / chunk_rows)) if execution.in_process else 1
    line = data.line_bytes("rows")
    mapped = view.made_bytes(rows, data) + 2 * rows * view.n_outputs  # with the masks of the check for NaN
    chunk = chunk_rows * out_bytes
    if sparse:
        mapping = view.sparse_scratch_bytes(rows) + mapped + chunk
        reading = source.sparse_bytes(rows)
    else:
        mapping = view.scratch_bytes(rows, line) + mapped + chunk
        reading = rows * line + source.overhead(rows, data.n_cols) + source.checking_bytes(rows, data.n_cols)
    task = reading + max(mapping, _WRITTEN * chunk)
    return TransformPlan("rows", workers, 2 * workers, rows, chunk_rows, here * task, 0)


def _by_columns(view: RowView, source: Source, execution: Execution, workers: int) -> TransformPlan:
    if view.columns_through is not None:
        source = TransformedSource(source, view.columns_through)
    data = source.spec
    scores = 8 * data.n_rows * view.n_outputs
    blocks = partition(data, source.chunks, "columns", scores)
    columns = blocks.longest
    here = min(workers, len(blocks)) if execution.in_process else 1
    reading = source.overhead(data.n_rows, columns) + source.checking_bytes(data.n_rows, columns)
    own = source.private_buffers or data.dtype != data.working  # else they are copied to be centred
    task = (1 if own else 2) * columns * data.line_bytes("columns") + reading + scores
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 2
    peak = here * task + (2 * workers + levels + 1) * scores
    return TransformPlan("columns", workers, 2 * workers, 0, data.n_rows, peak, 0)


def _model_bytes(model: Any) -> int:
    """Return the size of the arrays of a model, and of the model inside a view."""
    held = [getattr(model, field.name) for field in fields(model)]
    within = sum(_model_bytes(each) for each in held if is_dataclass(each))
    return within + sum(array.nbytes for array in held if isinstance(array, np.ndarray))


def _default_limit() -> int:
    """Return a share of the free memory plus that of this process, which the plan counts too."""
    return int(_FREE_SHARE * (available_memory() + resident()))


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    return _status("VmRSS")


def peak_resident() -> int:
    """Return the peak of the resident memory of this process, in bytes."""
    return _status("VmHWM")


def forget_peak() -> None:
    """Reset the peak to the present resident memory. Where the system does not allow it, do nothing."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Return freed memory to the system, which the allocator would keep, where that is supported."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_one_arena() -> None:
    """Let new threads allocate from the main arena.

    Other arenas do not return their last part, up to 64 MiB each, after their threads have freed it.
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
    largest = max((phase.accumulator_bytes for phase in route.phases), default=0)
    window = 2 * workers if largest <= _SMALL_ACCUMULATOR else workers
    described = route.phases or (Phase(0),)  # a method that learns nothing reads nothing
    phases = [_phase(phase, source, execution, workers, window) for phase in described]
    first = 0.0
    if isinstance(source, FeatureSubset) and source.counting is not None:
        phases.append(_phase(source.counting, source.whole, execution, workers, window))
        first = source.spec.n_rows * source.whole.spec.line_bytes("rows") / _READ / workers
    parts = max((parts for _, parts in phases), key=lambda parts: sum(parts.values()))
    data = source.spec
    return Plan(
        route,
        workers,
        window,
        phases[0][0],
        limit,
        parts,
        seconds=first + _seconds(route, data, route.passes) / workers,
        usual_seconds=first + _seconds(route, data, route.usual_passes or route.passes) / workers,
    )


def _phase(
    phase: Phase, source: Source, execution: Execution, workers: int, window: int
) -> tuple[Partition, dict[str, int]]:
    """Return the partition of a phase, and the terms of its peak."""
    if phase.through is not None:
        source = TransformedSource(source, phase.through)
    if phase.part is not None:
        source = RowSubset(source, phase.part)
    data = source.spec
    empty = phase.accumulator_bytes if phase.empty_bytes is None else phase.empty_bytes
    sparse = phase.takes_sparse and data.density is not None
    blocks = partition(data, source.chunks, phase.axis, empty, phase.cost_factor, sparse=sparse)
    # Threads share this process. Each process of a cluster has the limit for itself.
    here = min(workers, len(blocks)) if execution.in_process else 1
    updating = here
    if phase.in_memory:  # in this process, whatever the executor
        updating = workers if execution.in_process else window
    if sparse:
        reading, scratch = source.sparse_bytes(blocks.longest), phase.sparse_scratch_bytes
    else:
        reading, scratch = _dense_reading(phase, source, blocks.longest)
    levels = math.ceil(math.log(max(len(blocks), 2), RADIX)) + 1
    waiting = min(window, len(blocks)) + min(levels, blocks.whole) + len(blocks.tail())
    filling = min(waiting, len(blocks)) * phase.accumulator_bytes
    if phase.total_accumulator_bytes is not None:
        filling = min(filling, phase.total_accumulator_bytes)
    parts = {
        "interpreter": max(BASELINE, resident()),
        "blocks": here * reading,
        "scratch": updating * scratch,
        "accumulators": phase.gathered_bytes + filling,
        "held": phase.held_bytes + source.held_bytes,
    }
    solve = phase.gathered_bytes + phase.accumulator_bytes + phase.solve_bytes
    filled = parts["blocks"] + parts["scratch"] + parts["accumulators"]
    parts["solve"] = max(0, solve - filled)
    return blocks, parts


def _dense_reading(phase: Phase, source: Source, lines: int) -> tuple[int, int]:
    """Return the bytes of a dense block with those to read it, and those that an update with it allocates."""
    data = source.spec
    if phase.takes_tiles and phase.axis == "rows":
        columns = len(column_tiles(data, source.chunks, lines)[0])
        scratch = phase.scratch_bytes + source.checking_bytes(lines, data.n_cols)
        return lines * columns * data.working.itemsize + source.overhead(lines, columns), scratch
    # The overhead of a source counts the values as they are stored, if that is another type.
    as_stored = phase.takes_stored and data.dtype != data.working
    block = 0 if as_stored else lines * data.line_bytes(phase.axis)
    shape = (lines, data.n_cols) if phase.axis == "rows" else (data.n_rows, lines)
    scratch = round(phase.scratch_per_block * block) + phase.scratch_bytes
    if phase.max_scratch_bytes is not None:
        scratch = min(scratch, phase.max_scratch_bytes)
    return block + source.overhead(*shape), scratch + source.checking_bytes(*shape)


def _seconds(route: Route, data: MatrixSpec, passes: int) -> float:
    """Return the modelled time of a route with one worker."""
    row = data.line_bytes("rows")
    if data.density is not None and all(phase.takes_sparse for phase in _own_phases(route)):
        row = round(data.density * data.n_cols * _STORED_BYTES)
    return route.flops / _FLOPS + passes * data.n_rows * row / _READ


def _preference(draft: Plan) -> float:
    return draft.seconds * (1.0 if draft.route.exact else _PREFER_EXACT)


def _made_dense(route: Route, data: MatrixSpec) -> str:
    """Return the note that sparse rows are made dense, and why; empty where they are not."""
    if data.density is None:
        return ""
    if any(phase.through is not None and not keeps_sparse(data, phase.through) for phase in route.phases):
        return "; rows are made dense, block by block, by a step that does not keep zeros"
    if not all(phase.takes_sparse for phase in _own_phases(route)):
        return f"; rows are made dense, block by block: {_titled(route)} takes dense rows"
    other = route.fallback
    if other is None or all(phase.takes_sparse for phase in other.phases):
        return ""
    return (
        f"; where values are missing, rows are made dense, block by block: {_titled(other)} takes dense rows"
    )


def _titled(route: Route) -> str:
    """Return the name of a method with that of its route."""
    return f"{route.method.name} ({route.name})"


def _own_phases(route: Route) -> list[Phase]:
    """Return the phases of a route without those of its fallback."""
    later = () if route.fallback is None else route.fallback.phases
    return [phase for phase in route.phases if not any(phase is other for other in later)]


def _reason(best: Plan, drafts: list[Plan]) -> str:
    others = [draft for draft in drafts if draft.route is not best.route]
    chosen = f"{best.route.name} {best.route.note}".rstrip()
    if not others:
        return f"{chosen}: the only way for these parameters"
    best_time = format_seconds(best.usual_seconds)
    verdicts = []
    for draft in others:
        if draft.peak > draft.limit:
            verdicts.append(f"{draft.route.name} would take {format_bytes(draft.peak)}")
        else:
            iterative = "" if draft.route.exact else ", iterative"
            verdicts.append(f"{draft.route.name} takes {format_seconds(draft.usual_seconds)}{iterative}")
    return f"{chosen}: {best_time} at nominal speeds, where {'; '.join(verdicts)}"


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
