"""The drivers: fit a method to a source, and map a source through a model."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from streamdr.core.accumulator import Accumulator, copied
from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import BLOCK_BYTES, Array, Block, Span, SparseBlock
from streamdr.core.execution import Execution
from streamdr.core.linalg import ignore_overflow
from streamdr.core.method import Method, Model, Pass, Passes
from streamdr.core.progress import PassStart, Progress, Silent
from streamdr.core.row_outputs import EMBEDDING, RowOutput, RowView
from streamdr.core.solving import solving_with
from streamdr.data.feature_subset import FeatureSubset
from streamdr.data.same_features import require_grid_of_model, require_names_of_model
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.calibration import known
from streamdr.engine.coordinates import row_frame, sample_shape
from streamdr.engine.executors import Recovery, open_executor
from streamdr.engine.forecast import Forecast
from streamdr.engine.ledger import Ledger
from streamdr.engine.narrowing import select_features, usable_start
from streamdr.engine.planner import (
    Plan,
    TransformPlan,
    give_back,
    plan,
    plan_transform,
    share_one_arena,
    stored_type,
    view_and_source,
)
from streamdr.engine.runner import Advance, Runner, in_order
from streamdr.errors import DataError, Interrupted, MissingValuesError, RowError
from streamdr.store import Backend, Fence, Location, open_backend
from streamdr.store.remote.key_value_folder import open_folder

_SAMPLE_ROWS = 64


@dataclass(frozen=True)
class Fitted:
    """A model, its plan, and what the fit has read."""

    model: Model
    plan: Plan
    bytes_read: int
    seconds: float
    statistics: Accumulator | None = None
    """The statistics of the fit, if it was one pass over the rows and they were to be kept."""
    axes: FeatureAxes | None = None
    """The axes of the features, if they are labelled, or some were left out."""


@dataclass(frozen=True)
class Transformed:
    """What a transform has written and read."""

    path: Location
    n_rows: int
    n_outputs: int
    rows_written: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class Kept:
    """The first rows of an earlier output, which are not computed again."""

    path: Location
    rows: int
    chunk_rows: int


def fit(
    method: Method,
    source: Source,
    execution: Execution,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    fresh: bool = False,
    planned: Callable[[Source, Plan], None] = lambda source, plan: None,
    start: Model | None = None,
    start_axes: FeatureAxes | None = None,
    keep_bytes: int = 0,
    seen: Snapshot | None = None,
) -> Fitted:
    """Run the passes that a method requests, and return its model.

    `start` is the model of an earlier fit to the first of these rows, for methods that iterate, and
    `start_axes` are those of its features. The
    statistics of a fit with one pass over the rows are returned with the model, if they have at most
    `keep_bytes`. `seen` is a snapshot of the source. If it is not given and a ledger needs it, it is taken
    here. After the last pass the source is compared with it, to detect changes during the fit.

    Resuming needs no further code: a pass that is in the ledger is answered at once, so a generator that is
    started again arrives at the same point. `fresh` ignores the entries of earlier runs.
    """
    began, stop = time.monotonic(), stop or threading.Event()
    share_one_arena()
    execution = _with_scheduler(execution, source)
    if seen is None and execution.ledger is not None:
        seen = source.snapshot()
    ledger = None if execution.ledger is None else Ledger(open_folder(execution.ledger), fresh=fresh)
    progress = progress or Silent()
    counted: Runner | None = None
    if source.axes is None:
        chosen = _planned(method, source, execution)
        source.validate(seen)
    else:
        source.validate(seen)
        with arithmetic():
            source, counted = select_features(method, source, execution, progress, stop, ledger, seen)
        chosen = _planned(method, source, execution)
    planned(source, chosen)
    workers = chosen.workers
    with arithmetic(), solving_with(workers), open_executor(execution, workers, stop) as engine:
        if counted is None:
            pause = execution.checkpoint_seconds
            runner = Runner(engine, source, chosen.window, progress, stop, ledger, pause, seen)
        else:
            runner = counted.continued(engine, source, chosen.window)
        if not isinstance(progress, Silent):
            runner.forecast = Forecast(chosen.stages, chosen.fallback_stages, known().speeds)
        passes = chosen.route.method.passes(source.named_spec, usable_start(start, start_axes, source))
        kept = _KeptStatistics(keep_bytes)
        try:
            request = next(passes)
            while True:
                request = _run_and_send(passes, request, runner, kept)
        except StopIteration as finished:
            runner.require_unchanged()
            if ledger is not None:
                ledger.prune()
            seconds = time.monotonic() - began
            require_finite(finished.value)
            statistics = None if isinstance(source, FeatureSubset) else kept.statistics
            return Fitted(finished.value, chosen, runner.bytes_read, seconds, statistics, source.axes)


def _planned(method: Method, source: Source, execution: Execution) -> Plan:
    """Return the plan. It needs the size of what the blocks of a lazy array share, which is computed here."""
    with arithmetic():
        return plan(method, source, execution)


class _KeptStatistics:
    """A copy of the statistics of a single pass, since the solve may overwrite them."""

    def __init__(self, most_bytes: int) -> None:
        self.statistics: Accumulator | None = None
        self._most_bytes = most_bytes
        self._passes = 0

    def take(self, request: Pass, full: Accumulator) -> None:
        """Copy the statistics of a pass, if it is the first one."""
        self._passes += 1
        only = self._passes == 1 and request.axis == "rows" and request.part is None
        held = sum(array.nbytes for array in full.arrays().values())
        self.statistics = copied(full) if only and held <= self._most_bytes else None


def _with_scheduler(execution: Execution, source: Source) -> Execution:
    """Return the execution on the cluster that computes or holds the source, unless another one was chosen.

    A source that is in the memory of another cluster is read here, block by block.
    """
    holder = source.holder
    if holder is not None and execution.cluster is None and execution.scheduler in (None, holder):
        return replace(execution, scheduler=holder)
    if source.is_process_local:
        return replace(execution, scheduler="threads", cluster=None, tls=None)
    if execution.scheduler is not None or execution.cluster is not None or source.client is None:
        return execution
    return replace(execution, scheduler=source.client)


def _run_and_send(passes: Passes, request: Pass, runner: Runner, kept: _KeptStatistics) -> Pass:
    """Run a pass, send its result to the generator, and return the next request."""
    missing: MissingValuesError | None = None
    try:
        full = runner.run(request)
    except MissingValuesError as error:
        # A method that continues without the value may keep the error. Its frames would keep a block alive.
        missing = error.with_traceback(None)
    give_back()
    if missing is None:
        kept.take(request, full)
        try:
            return passes.send(full)
        except StopIteration:
            raise
        except Exception:  # the solve may have failed because rows changed between two passes
            runner.require_unchanged()
            raise
    following = passes.throw(missing)  # raises it again if the method does not accept missing values
    runner.forecast.missing()
    runner.progress.message(f"values are missing: continuing with {following.label}")
    return following


def transform(
    model: Model,
    source: Source,
    target: Location | Backend,
    execution: Execution,
    *,
    kind: RowOutput = EMBEDDING,
    dtype: str | None = None,
    attributes: Mapping[str, Any],
    kept: Kept | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    fence: Fence | None = None,
    process_bytes: int | None = None,
    seen: Snapshot | None = None,
    axes: FeatureAxes | None = None,
) -> Transformed:
    """Write the embedding of a source, or another output of rows, to `target` atomically.

    `attributes` are recorded with it. Together with the fingerprint of the source they determine whether
    the unfinished work of a killed run is continued. Rows of an earlier output that are `kept` are not read.
    `process_bytes` is the memory of the process before there was a model, if that is known. `seen` is a
    snapshot of the source, which is compared with the source after the last read. `axes` are those of the
    features that the model was fitted to.
    """
    began, stop, progress = time.monotonic(), stop or threading.Event(), progress or Silent()
    output = open_backend(target)
    require_features(model, source, axes)
    view, source = view_and_source(model, source, kind, axes)
    stored = stored_type(view, source, dtype)
    give_back()
    share_one_arena()
    chunk_rows = None if kept is None else kept.chunk_rows
    chosen = plan_transform(view, source, execution, stored, chunk_rows, process_bytes=process_bytes)
    kept = kept if chosen.axis == "rows" else None
    if seen is None:
        seen = source.snapshot()
    source.validate(seen)
    row_bytes = view.n_outputs * stored.itemsize
    output.require_space(source.spec.n_rows * row_bytes)
    fingerprint = seen.digest(source.spec.n_rows)
    frame = row_frame(view, source)
    identity = repr((kind.key, sorted(attributes.items()), fingerprint, stored.str, chosen.chunk_rows, kept))
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    with output.stage(kind=kind.name, overwrite=overwrite, key=key, fence=fence) as staging:
        staged = open_backend(staging.path)
        staged.create_rows(
            kind.name,
            shape=frame.shape,
            dims=frame.dims,
            dtype=stored,
            chunk_rows=chosen.chunk_rows,
            attributes={**attributes, "input_fingerprint": fingerprint},
            array_attributes=frame.attributes,
            coordinates=frame.coordinates,
        )
        if kept is not None:
            staged.adopt_rows(kept.path, kept.rows, kind.name)
        with one_blas_thread(), open_executor(execution, chosen.workers, stop) as engine:
            runner = Runner(engine, source, chosen.window, progress, stop)
            if chosen.axis == "rows":
                recovery = runner.recovery()
                write = partial(_write_by_rows, view, runner, recovery, staged, chosen, stored, kept)
                written = recovery.retry(write)
            else:
                written = _write_by_columns(view, runner, staged, chosen, stored)
        for coordinate in frame.coordinates:
            staged.write_coordinate(coordinate)
        if source.fingerprint() != fingerprint:
            raise DataError(
                f"{source.name}: changed while it was being read; run again when nothing writes to it"
            )
        staged.finish(kind.name)
        staging.publish()
    seconds = time.monotonic() - began
    return Transformed(output.place, source.spec.n_rows, view.n_outputs, written, runner.bytes_read, seconds)


def movement(view: RowView, source: Source, written: Any, rows: int) -> tuple[float | None, int]:
    """Return how far the rows of an output move under a new model, and the bytes read to measure it.

    It is measured on the rows that were written first, where it is largest. None if it cannot be measured.
    """
    sample = first_rows(source, rows)
    values = source.block(sample, allow_nan=view.allow_nan).values
    old = np.asarray(written[sample.slice], np.float64).reshape(len(sample), view.n_outputs)
    new = np.asarray(view.transform(values), np.float64)
    return view.kind.change(values, old, new), source.stored_bytes([sample])


def first_rows(source: Source, rows: int) -> Span:
    """Return the leading rows on which the change of a model is measured."""
    return Span(0, min(rows, _SAMPLE_ROWS, max(1, BLOCK_BYTES // source.spec.line_bytes("rows"))))


def require_features(
    model: Model, source: Source, axes: FeatureAxes | None = None, names: Sequence[str] | None = None
) -> None:
    """Refuse data with other features than the fit: their number, their names, or their grid."""
    require_grid_of_model(source, axes)
    expected = model.n_features if axes is None else axes.n_features
    if source.spec.n_cols != expected:
        raise DataError(
            f"{source.name}: has {source.spec.n_cols} features, and the model takes {expected}: "
            "give it data with the columns that it was fitted to"
        )
    require_names_of_model(source, names, axes)


@contextmanager
def arithmetic() -> Iterator[None]:
    """Use one BLAS thread, and suppress overflow warnings of numpy, since results are checked afterwards."""
    with one_blas_thread(), ignore_overflow():
        yield


def require_finite(model: Model) -> None:
    """Refuse a model in which values have overflowed. NaN may stand for values that were never observed."""
    for value in vars(model).values():
        if isinstance(value, tuple):  # the models of a chain
            for each in value:
                if is_dataclass(each):
                    require_finite(cast(Model, each))
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or np.isfinite(value).all():
            continue
        if np.isinf(value).any() or not model.allow_nan:
            raise DataError(
                "the data's values are so large, or so small, that the fit overflows: rescale them"
            )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread: cores are for the workers, and bits depend on the number of BLAS threads."""
    with threadpool_limits(1, "blas"):
        yield


def _write_by_rows(
    view: RowView,
    runner: Runner,
    recovery: Recovery,
    staged: Backend,
    chosen: TransformPlan,
    dtype: np.dtype[Any],
    kept: Kept | None,
) -> int:
    spec, engine = runner.source.spec, runner.engine
    done = staged.existing_chunks(view.kind.name)
    chunks = [
        span
        for number, span in enumerate(Span(0, spec.n_rows).split(chosen.chunk_rows))
        if number not in done
    ]
    heads = [_head(span, kept, view) for span in chunks]
    new = [Span(span.start + len(head), span.stop) for span, head in zip(chunks, heads, strict=True)]
    rows_done = spec.n_rows - sum(len(span) for span in new)
    label = "transform" if view.kind == EMBEDDING else view.kind.title
    if rows_done:
        runner.progress.message(f"resuming {label}: {rows_done:,} rows are already written")
    recovery.begin(rows_done)
    row_bytes = runner.source.stored_line_bytes("rows")
    shared, source = engine.share(view), engine.share(runner.source)
    tasks = (
        (
            _project,
            shared,
            source,
            staged,
            head,
            list(span.split(chosen.block_rows)),
            dtype,
            engine.stopped,
            engine.count,
        )
        for head, span in zip(heads, new, strict=True)
    )
    expected = 0.0 if isinstance(runner.progress, Silent) else chosen.stage.pass_seconds(known().speeds)
    runner.progress.start(PassStart(label, spec.n_rows, rows_done, float(row_bytes), "rows", expected))
    shown = Advance(engine, runner.progress, spec.n_rows - rows_done)
    try:
        with closing(in_order(recovery, tasks, runner.stop, shown.look)) as handles:
            for span, _ in zip(new, recovery.watch(handles, new), strict=True):
                runner.bytes_read += runner.source.stored_bytes(span.split(chosen.block_rows))
                shown.take(len(span))
    finally:
        runner.progress.finish()
    return spec.n_rows - recovery.first


def _head(chunk: Span, kept: Kept | None, view: RowView) -> Array:
    """Return the first rows of a chunk, as far as an earlier output has them."""
    if kept is None or chunk.start >= kept.rows:
        return np.empty((0, view.n_outputs))
    rows: Array = open_backend(kept.path).open_rows(view.kind.name)[chunk.start : min(kept.rows, chunk.stop)]
    return rows.reshape(len(rows), view.n_outputs)


def _project(
    view: RowView,
    source: Source,
    staged: Backend,
    head: Array,
    blocks: Sequence[Span],
    dtype: np.dtype[Any],
    stopped: Callable[[], bool],
    count: Callable[[int], None],
) -> None:
    """Read and map the blocks of a chunk, and write the chunk, which begins with `head`. This is one task."""
    start = blocks[0].start - len(head)
    rows = np.empty((blocks[-1].stop - start, view.n_outputs), dtype)
    rows[: len(head)] = head
    for span in blocks:
        if stopped():
            raise Interrupted("stopped between two blocks")
        for block in _blocks_to_map(view, source, span):
            _map_block(view, source, block, rows[block.span.start - start : block.span.stop - start])
        count(len(span))
        del block  # before the next one is read
    staged.write_rows(start, view.shaped(rows, sample_shape(source)), view.kind.name)


def _blocks_to_map(view: RowView, source: Source, span: Span) -> Iterator[Block | SparseBlock]:
    """Yield rows as they are mapped: sparse ones piece by piece."""
    if source.spec.density is None:
        yield source.scratch_block(span, allow_nan=view.allow_nan)
    else:
        yield from source.sparse_blocks(span, allow_nan=view.allow_nan)


def _map_block(view: RowView, source: Source, block: Block | SparseBlock, out: Array) -> None:
    """Map the rows of a block into `out`, and check them."""
    try:
        with ignore_overflow():
            values = block.values
            out[...] = (
                view.transform(values) if isinstance(values, np.ndarray) else view.transform_sparse(values)
            )
    except RowError as error:
        block.locate_nonfinite()  # a value that is not finite is the first cause
        place = source.stored_row(block.span.start + error.row)
        raise error.located(*place, source.described_column) from None
    sound = view.is_valid(out)
    if view.hides_bad_value(block.values) or not sound:
        block.locate_nonfinite()
    if not sound:
        raise DataError(
            f"{source.name}: the {view.kind.title} of rows {block.span.start}-{block.span.stop - 1} "
            f"overflows {out.dtype}: are these rows like those that the model was fitted to?"
        )


def _write_by_columns(
    view: RowView, runner: Runner, staged: Backend, chosen: TransformPlan, dtype: np.dtype[Any]
) -> int:
    empty = view.scores_by_columns(runner.source.spec.n_rows)
    assert empty is not None  # the plan chooses columns only if there is one
    request = Pass(empty, axis="columns", label="transform", through=view.columns_through)
    scores: Array = runner.run(request).arrays()["scores"]
    for span in Span(0, len(scores)).split(chosen.chunk_rows):
        staged.write_rows(span.start, scores[span.slice].astype(dtype), view.kind.name)
    return len(scores)
