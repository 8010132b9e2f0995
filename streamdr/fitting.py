"""The drivers: fit a method to a source, and map a source through a model."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamdr.blocks import Array, Span
from streamdr.engines import engine_for
from streamdr.errors import DataError, Interrupted
from streamdr.ledger import Ledger
from streamdr.memory import Plan, TransformPlan, give_back, plan, plan_transform
from streamdr.methods import Method, Model, Pass
from streamdr.progress import Progress, Silent
from streamdr.runner import Runner, in_order
from streamdr.settings import Execution
from streamdr.sources.base import Source
from streamdr.store import Staging, create_embedding, existing_chunks, finish, require_space, write_rows


@dataclass(frozen=True)
class Fitted:
    """A model, and what it took to get it."""

    model: Model
    plan: Plan
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class Transformed:
    """What a transform wrote, and what that took."""

    path: Path
    n_rows: int
    n_outputs: int
    bytes_read: int
    seconds: float


def fit(
    method: Method,
    source: Source,
    execution: Execution,
    *,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Fitted:
    """Run the passes that a method asks for, and return its model.

    Resuming needs no code of its own: a pass that the ledger knows is answered at once, so a generator
    that is started again arrives where it was.
    """
    began, stop = time.monotonic(), stop or threading.Event()
    chosen = plan(method, source, execution)
    planned(chosen)
    source.validate()
    ledger = None if execution.ledger is None else Ledger(execution.ledger)
    with one_blas_thread(), engine_for(execution, chosen.workers, stop) as engine:
        runner = Runner(
            engine, source, chosen.window, progress or Silent(), stop, ledger, execution.checkpoint_seconds
        )
        passes = chosen.route.method.passes(source.spec)
        request = next(passes)
        while True:
            full = runner.run(request)
            give_back()
            try:
                request = passes.send(full)
            except StopIteration as finished:
                seconds = time.monotonic() - began
                return Fitted(finished.value, chosen, runner.bytes_read, seconds)


def transform(
    model: Model,
    source: Source,
    target: Path,
    execution: Execution,
    *,
    dtype: str | None = None,
    attributes: Mapping[str, Any],
    overwrite: bool = False,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Transformed:
    """Write a source's embedding to `target`, which appears whole or not at all.

    `attributes` are recorded with it, and say, with the source's fingerprint, which unfinished work of
    a killed run is this one's to continue.
    """
    began, stop, progress = time.monotonic(), stop or threading.Event(), progress or Silent()
    require_features(model, source)
    output = np.dtype(dtype or source.spec.working)
    chosen = plan_transform(model, source, execution, output)
    source.validate()
    row_bytes = model.n_outputs * output.itemsize
    require_space(target, source.spec.n_rows * row_bytes)
    fingerprint = source.fingerprint()
    identity = repr((sorted(attributes.items()), fingerprint, output.str, chosen.chunk_rows))
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    with Staging(target, overwrite=overwrite, key=key) as staging:
        create_embedding(
            staging.path,
            n_rows=source.spec.n_rows,
            n_outputs=model.n_outputs,
            dtype=output,
            chunk_rows=chosen.chunk_rows,
            attributes={**attributes, "input_fingerprint": fingerprint},
        )
        write = _write_by_columns if chosen.axis == "columns" else _write_by_rows
        with one_blas_thread(), engine_for(execution, chosen.workers, stop) as engine:
            runner = Runner(engine, source, chosen.window, progress, stop)
            write(model, runner, staging.path, chosen, output)
        if source.fingerprint() != fingerprint:
            raise DataError(
                f"{source.name}: changed while it was being read; run again when nothing writes to it"
            )
        finish(staging.path)
        staging.publish()
    seconds = time.monotonic() - began
    return Transformed(target, source.spec.n_rows, model.n_outputs, runner.bytes_read, seconds)


def require_features(model: Model, source: Source) -> None:
    """Refuse data that the model was not fitted to."""
    if source.spec.n_cols != model.n_features:
        raise DataError(
            f"{source.name}: has {source.spec.n_cols} features, and the model takes {model.n_features}: "
            "give it data with the columns that it was fitted to"
        )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Leave the cores to the workers. And the same number of BLAS threads everywhere gives the same bits."""
    with threadpool_limits(1, "blas"):
        yield


def _write_by_rows(
    model: Model, runner: Runner, path: Path, chosen: TransformPlan, dtype: np.dtype[Any]
) -> None:
    spec, engine = runner.source.spec, runner.engine
    done = existing_chunks(path)
    chunks = [
        span
        for number, span in enumerate(Span(0, spec.n_rows).split(chosen.chunk_rows))
        if number not in done
    ]
    rows_done = spec.n_rows - sum(len(span) for span in chunks)
    if rows_done:
        runner.progress.message(f"resuming transform: {rows_done:,} rows are already written")
    row_bytes = spec.line_bytes("rows")
    shared, source = engine.share(model), engine.share(runner.source)
    tasks = (
        (_project, shared, source, path, list(span.split(chosen.block_rows)), dtype, engine.stopped)
        for span in chunks
    )
    runner.progress.start("transform", spec.n_rows, rows_done, float(row_bytes))
    try:
        with closing(in_order(engine, tasks, chosen.window, runner.stop)) as handles:
            for span, _ in zip(chunks, handles, strict=True):
                runner.bytes_read += len(span) * row_bytes
                runner.progress.advance(len(span))
    finally:
        runner.progress.finish()


def _project(
    model: Model,
    source: Source,
    path: Path,
    blocks: Sequence[Span],
    dtype: np.dtype[Any],
    stopped: Callable[[], bool],
) -> None:
    """The task: read and map block after block, and write the chunk that they make."""
    rows = np.empty((blocks[-1].stop - blocks[0].start, model.n_outputs), dtype)
    for span in blocks:
        if stopped():
            raise Interrupted("stopped between two blocks")
        here = slice(span.start - blocks[0].start, span.stop - blocks[0].start)
        block = source.loan(span)
        rows[here] = model.transform(block.values)
        if not np.isfinite(rows[here]).all():
            block.suspect()
    write_rows(path, blocks[0].start, rows)


def _write_by_columns(
    model: Model, runner: Runner, path: Path, chosen: TransformPlan, dtype: np.dtype[Any]
) -> None:
    empty = model.scores_by_columns(runner.source.spec.n_rows)
    assert empty is not None  # the plan chose columns because there is one
    scores: Array = runner.run(Pass(empty, axis="columns", label="transform")).arrays()["scores"]
    for span in Span(0, len(scores)).split(chosen.chunk_rows):
        write_rows(path, span.start, scores[span.slice].astype(dtype))
