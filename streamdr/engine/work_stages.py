"""The work of a run, stage by stage, and how long it takes on a machine whose speeds are known.

The work of each phase is divided among workers; its solve is not. What is predicted is only told: which
route is taken, by how many workers and in which order, never depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamdr.core.execution import Execution
from streamdr.core.mapping import keeps_sparse, mapping_work
from streamdr.core.method import Phase, Route
from streamdr.core.row_outputs import RowView
from streamdr.core.system import available_memory
from streamdr.core.work import NO_WORK, ONCE, Count, Work, reading
from streamdr.data.row_subset import RowSubset
from streamdr.data.source import Source
from streamdr.data.transformed import TransformedSource
from streamdr.engine.partition import Partition, partition

_TOUCHED = 3
"""How often the memory of an accumulator is gone through to add a block to it."""
_MERGED = 6
"""The same for a task: it is made, merged, and released."""
_BLOCK_CALLS, _TASK_CALLS, _CHUNK_CALLS = 150, 500, 40
"""The calls of a block, of a task, and of a chunk, whatever their size."""
_STAGE_CALLS = 40_000
"""The calls of a stage besides its passes: opening, locking, listing, saving."""
_FILES = 4 << 20
"""Bytes that could be written in the time in which small files are flushed to the disk."""
_SYNCED = 2
"""How much longer many chunks take to be durable than one file of their size."""
_SPARSE_STEPS = 8
"""How often a stored value is gone through while it is read: it is checked, converted, and copied."""
_STORED = 60
"""The memory traffic of a byte of an output: it is checked, copied, put into new pages of the system, and
read again to verify it. Fitted to runs."""


class Seconds(NamedTuple):
    """A predicted time: at least, usually, at most."""

    least: float
    usual: float
    most: float

    def __add__(self, other: Seconds) -> Seconds:  # type: ignore[override]
        return Seconds(*(a + b for a, b in zip(self, other, strict=True)))


NO_TIME = Seconds(0.0, 0.0, 0.0)


class Speeds(Protocol):
    """How fast a machine is."""

    def seconds(self, work: Work, workers: int = 1) -> float:
        """Return the time of work that is divided evenly among workers."""


@dataclass(frozen=True)
class Stage:
    """Work that is done one or several times: a part that workers divide, and one on a single core."""

    divided: Work
    single: Work = NO_WORK
    workers: int = 1
    unevenness: float = 1.0
    """How much longer the divided part takes because tasks are not divided evenly."""
    count: Count = ONCE
    axis: str = "rows"
    part: bool = False
    """Whether it reads a part of the rows."""
    reads: bool = True
    """Whether it reads the data at all."""

    def partly(self, share: float) -> Stage:
        """Return the stage with a share of its divided part."""
        return replace(self, divided=self.divided * share)

    def pass_seconds(self, speeds: Speeds) -> float:
        """Return the time of the divided part, done once."""
        return speeds.seconds(self.divided, self.workers) * self.unevenness

    def solve_seconds(self, speeds: Speeds) -> float:
        """Return the time of the other part, done once."""
        return speeds.seconds(self.single)

    def seconds(self, speeds: Speeds) -> Seconds:
        """Return the time of all repetitions."""
        each = self.pass_seconds(speeds) + self.solve_seconds(speeds)
        return Seconds(*(number * each for number in self.count))


NO_STAGE = Stage(Work())


def total(stages: Iterable[Stage], speeds: Speeds) -> Seconds:
    """Return the time of stages, one after the other."""
    return sum((stage.seconds(speeds) for stage in stages), start=NO_TIME)


def fit_stages(route: Route, source: Source, workers: int, execution: Execution) -> list[Stage]:
    """Return the stages of a fit by a route: those of its own phases, and what every fit does."""
    later = () if route.fallback is None else route.fallback.phases
    own = [phase for phase in route.phases if not any(phase is other for other in later)]
    stages = [_phase_stage(phase, source, workers, execution) for phase in own]
    return [*stages, Stage(Work(), Work(calls=_STAGE_CALLS, written=_FILES), reads=False)]


def fallback_stages(route: Route, source: Source, workers: int, execution: Execution) -> list[Stage]:
    """Return the stages that a fit has in addition where values are missing; none without a fallback."""
    if route.fallback is None:
        return []
    return [_phase_stage(phase, source, workers, execution) for phase in route.fallback.phases]


def output_stage(view: RowView, source: Source, dtype: np.dtype[Any], chunk_rows: int, workers: int) -> Stage:
    """Return the stage that writes an output of rows."""
    data = source.spec
    written = float(data.n_rows) * view.n_outputs * dtype.itemsize
    mapping = mapping_work(view.model, data, view.kind.method)
    sparse = data.density is not None and view.takes_sparse
    chunks = max(1, math.ceil(data.n_rows / max(1, chunk_rows)))
    storing = Work(moved=_STORED * written, crc32c=2 * written, read=written, calls=_TASK_CALLS * chunks)
    divided = _reading(source, sparse=sparse) + mapping + storing
    single = Work(written=_SYNCED * written + _FILES, calls=_STAGE_CALLS)
    return Stage(divided, single, min(workers, chunks), _uneven(chunks, workers), reads=True)


def _phase_stage(phase: Phase, source: Source, workers: int, execution: Execution) -> Stage:
    """Return the stage of the passes of a phase."""
    mapped, whole = source, source.spec.n_rows
    mapping = Work()
    if phase.through is not None:
        mapping = mapping_work(phase.through, source.spec)
        mapped = TransformedSource(source, phase.through)
    if phase.part is not None:
        mapped = RowSubset(mapped, phase.part)
    data = mapped.spec
    share = data.n_rows / whole if phase.axis == "rows" and whole else 1.0
    empty = phase.accumulator_bytes if phase.empty_bytes is None else phase.empty_bytes
    sparse = phase.takes_sparse and data.density is not None
    blocks = partition(data, mapped.chunks, phase.axis, empty, phase.cost_factor, sparse=sparse)
    filled = phase.accumulator_bytes
    if phase.total_accumulator_bytes is not None:
        filled = min(filled, phase.total_accumulator_bytes // max(1, len(blocks)))
    number = n_blocks(blocks)
    work = (phase.work + mapping) * share
    work += Work(moved=float(_TOUCHED * number * filled + _MERGED * len(blocks) * filled))
    work += Work(calls=_BLOCK_CALLS * number + _TASK_CALLS * len(blocks))
    if not phase.in_memory:
        keeps = phase.through is None or keeps_sparse(source.spec, phase.through)
        work += _reading(source, sparse=sparse and keeps) * share
    single = phase.solve_work
    if not phase.in_memory and execution.ledger is not None:
        kept = min(len(blocks), 2 + len(blocks.tail()))
        single += Work(written=float(kept * filled), moved=float(2 * kept * filled))
    return Stage(
        work,
        single,
        workers if phase.in_memory else min(workers, len(blocks)),
        1.0 if phase.in_memory else _uneven(blocks.whole, workers),
        phase.count,
        phase.axis,
        phase.part is not None,
        not phase.in_memory,
    )


def n_blocks(blocks: Partition) -> int:
    """Return about how many blocks a pass has: the first ones and the last ones are shorter."""
    whole = blocks.length / max(1, blocks.block)
    growing = 16 * math.log2(max(1, blocks.block // max(1, blocks.chunk)) + 1)
    return math.ceil(min(whole + growing, blocks.length / max(1, min(blocks.chunk, blocks.length)) + 1))


def _reading(source: Source, *, sparse: bool) -> Work:
    """Return the work of reading all rows once: sparse, or dense."""
    data = source.spec
    size = float(data.n_rows) * source.stored_line_bytes("rows") * source.cost_factor
    rows, cols = source.chunks
    chunks = math.ceil(data.n_rows / max(1, rows)) * math.ceil(data.n_cols / max(1, cols))
    work = reading(size, source.codecs)
    if size > available_memory():
        work += Work(disk=size)
    if data.density is None:
        work += Work(calls=_CHUNK_CALLS * chunks)
        widened = data.working != data.dtype
        copied = size * (1 + (data.working.itemsize / data.dtype.itemsize if widened else 0))
        return work + Work(moved=copied if widened or "blosc" not in source.codecs else 0.0)
    stored = data.density * data.n_rows * data.n_cols
    work += Work(moved=6 * size, scattered=_SPARSE_STEPS * stored)
    if not sparse:
        work += Work(moved=float(data.n_rows) * data.line_bytes("rows"), scattered=stored)
    return work


def _uneven(tasks: int, workers: int) -> float:
    """Return how much longer tasks of one length take than if they were divided evenly."""
    if tasks < 1 or workers < 2:
        return 1.0
    return math.ceil(tasks / workers) * min(workers, tasks) / tasks
