"""The whole program without a command line: a configuration in, outputs and reports of them out."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from streamdr import fitting, memory, store, synthetic
from streamdr.config import Run
from streamdr.errors import ConfigError, DataError, StoreError
from streamdr.ledger import Ledger
from streamdr.memory import Plan
from streamdr.progress import Progress
from streamdr.settings import Execution
from streamdr.sources import Source, open_source

Report = dict[str, Any]
"""What a stage says of itself: plain values, one JSON object."""


@dataclass
class Stage:
    """What a stage needs besides its configuration."""

    run: Run
    progress: Progress
    stop: threading.Event
    fresh: bool = False
    """Whether to forget what earlier runs remembered."""


Planned = Callable[[Report], None]
"""Told of the plan before the first byte is read."""


def fit(stage: Stage, planned: Planned = lambda plan: None) -> Report:
    """Fit the method to the input and publish the model, unless that very model is already there."""
    return _fit(stage, planned, [Path(stage.run.output.model)])


def _fit(stage: Stage, planned: Planned, targets: list[Path]) -> Report:
    """`fit`, which refuses to begin when one of the targets could not be written at the end."""
    run, began = stage.run, time.monotonic()
    source = open_input(run, stage.progress)
    request = _request(run, source)
    if not stage.fresh and (found := _published_model(run, request)) is not None:
        stage.progress.message(f"{run.output.model} is up to date")
        return _fit_report(run, found, source, seconds=time.monotonic() - began, reused=True)
    _check_outputs(run, targets)
    execution = execution_of(run)
    if stage.fresh:
        Ledger(cast(Path, execution.ledger)).clear()
    with _naming(source):
        fitted = fitting.fit(
            run.method,
            source,
            execution,
            progress=stage.progress,
            stop=stage.stop,
            planned=lambda chosen: planned(_plan_report(source, chosen)),
        )
    store.save_model(
        Path(run.output.model),
        fitted.model,
        method=run.method.name,
        parameters=asdict(cast(Any, run.method)),
        feature_names=source.feature_names,
        input_fingerprint=source.fingerprint(),
        n_rows=source.spec.n_rows,
        overwrite=run.output.overwrite,
        extra={"request": request, "input": source.name, "reason": fitted.plan.reason},
    )
    return {
        **_fit_report(run, fitted.model, source, seconds=time.monotonic() - began, reused=False),
        "bytes_read": fitted.bytes_read,
        "workers": fitted.plan.workers,
        "planned_peak": fitted.plan.peak,
        "memory_limit": fitted.plan.limit,
        "reason": fitted.plan.reason,
    }


def transform(stage: Stage) -> Report:
    """Map the input through the saved model and publish the embedding, unless it is already there."""
    run, began = stage.run, time.monotonic()
    target = embedding_path(run)
    if not Path(run.output.model).exists():
        raise StoreError(f"{run.output.model}: there is no model to transform by; fit it first")
    saved = store.load_model(Path(run.output.model))
    source = open_input(run, stage.progress)
    fitting.require_features(saved.model, source)
    attributes = {"model": run.output.model, "model_digest": saved.record["digest"], "method": saved.method}
    wanted = {**attributes, "input_fingerprint": source.fingerprint()}
    written = {"bytes_read": 0, "n_outputs": saved.model.n_outputs}
    reused = not stage.fresh and _has_embedding(target, wanted, run)
    if reused:
        stage.progress.message(f"{target} is up to date")
    else:
        _check_outputs(run, [target])
        done = fitting.transform(
            saved.model,
            source,
            target,
            execution_of(run),
            dtype=run.output.dtype,
            attributes=attributes,
            overwrite=run.output.overwrite,
            progress=stage.progress,
            stop=stage.stop,
        )
        written["bytes_read"] = done.bytes_read
    return {
        "command": "transform",
        "n_rows": source.spec.n_rows,
        **written,
        "seconds": time.monotonic() - began,
        "peak_rss": memory.peak_resident(),
        "model": run.output.model,
        "embedding": str(target),
        "reused": reused,
    }


def run_all(stage: Stage, planned: Planned = lambda plan: None) -> Report:
    """Fit, then transform where the configuration asks for an embedding."""
    # Whatever stands in the way of the second stage is better known before the first.
    reports = {"fit": _fit(stage, planned, _outputs(stage.run))}
    if stage.run.output.embedding is not None:
        reports["transform"] = transform(stage)
    return {
        "command": "run",
        "n_rows": reports["fit"]["n_rows"],
        "bytes_read": sum(report["bytes_read"] for report in reports.values()),
        "seconds": sum(report["seconds"] for report in reports.values()),
        "peak_rss": memory.peak_resident(),
        "model": stage.run.output.model,
        "embedding": stage.run.output.embedding,
        "reused": all(report["reused"] for report in reports.values()),
        **reports,
    }


def plan(stage: Stage) -> Report:
    """What a fit would do, reading nothing; what it would refuse is refused."""
    run = stage.run
    source = open_input(run, stage.progress)
    up_to_date = not stage.fresh and _published_model(run, _request(run, source)) is not None
    if not up_to_date:
        _check_outputs(run, [Path(run.output.model)])
    with _naming(source):
        chosen = memory.plan(run.method, source, execution_of(run))
    source.validate()
    return {**_plan_report(source, chosen), "up_to_date": up_to_date}


def open_input(run: Run, progress: Progress) -> Source:
    """The configured source, made on the spot where it is synthetic."""
    if run.input.synthetic is not None:
        synthetic.ensure(Path(run.input.path), run.input.synthetic, progress=progress)
    return open_source(
        run.input.path,
        array=run.input.array,
        sample_axis=run.input.sample_axis,
        weights=run.input.weights,
        allow_missing_chunks=run.input.allow_missing_chunks,
    )


def execution_of(run: Run) -> Execution:
    """The configured execution. The ledger's place is beside the model, unless it is given."""
    model = Path(run.output.model)
    ledger = run.execution.ledger or model.with_name(f".{model.name}.ledger")
    return Execution(
        workers=run.execution.workers,
        memory_limit=run.execution.memory_limit,
        scheduler=run.execution.scheduler,
        ledger=Path(ledger),
        checkpoint_seconds=run.execution.checkpoint_seconds,
    )


def embedding_path(run: Run) -> Path:
    """Where the embedding goes."""
    if run.output.embedding is None:
        raise ConfigError(
            f"{run.source_file or 'config'}: output.embedding: is not set, so there is nothing to transform "
            "to; give it a path"
        )
    return Path(run.output.embedding)


@contextmanager
def _naming(source: Source) -> Iterator[None]:
    """Put the input's name before what a method, which never learns where data is from, says of the data."""
    try:
        yield
    except DataError as error:
        named = [source.name] if source.weights is None else [source.name, source.weights.name]
        if str(error).startswith(tuple(named)):
            raise
        raise DataError(f"{source.name}: {error}") from error


def _outputs(run: Run) -> list[Path]:
    return [Path(path) for path in (run.output.model, run.output.embedding) if path is not None]


def _check_outputs(run: Run, targets: list[Path]) -> None:
    inputs = [Path(path) for path in (run.input.path, run.input.weights) if path is not None]
    for target in targets:
        others = [output for output in _outputs(run) if output != target]
        store.check_output(target, inputs=inputs, overwrite=run.output.overwrite, other_outputs=others)


def _request(run: Run, source: Source) -> str:
    """What a model answers to: the method and its parameters, on this very input."""
    meaning = {
        "method": run.method.name,
        "parameters": asdict(cast(Any, run.method)),
        "input": source.fingerprint(),
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def _published_model(run: Run, request: str) -> Any:
    try:
        saved = store.load_model(Path(run.output.model))
    except StoreError:
        return None
    return saved.model if saved.record["extra"].get("request") == request else None


def _has_embedding(target: Path, wanted: dict[str, str], run: Run) -> bool:
    try:
        record = store.read_group(target, "embedding").record
        dtype = store.open_embedding(target).dtype
    except StoreError:
        return False
    same_type = run.output.dtype is None or run.output.dtype == dtype
    return same_type and all(record.get(name) == value for name, value in wanted.items())


def _fit_report(run: Run, model: Any, source: Source, *, seconds: float, reused: bool) -> Report:
    return {
        "command": "fit",
        "n_rows": source.spec.n_rows,
        "n_cols": source.spec.n_cols,
        "method": run.method.name,
        "summary": model.summary(),
        "bytes_read": 0,
        "seconds": seconds,
        "peak_rss": memory.peak_resident(),
        "model": run.output.model,
        "reused": reused,
    }


def _plan_report(source: Source, chosen: Plan) -> Report:
    data, cut = source.spec, chosen.blocks
    lines = min(cut.block, cut.length)
    by_rows = cut.axis == "rows"
    return {
        "command": "plan",
        "input": source.name,
        "n_rows": data.n_rows,
        "n_cols": data.n_cols,
        "dtype": str(data.dtype),
        "solver": chosen.route.name,
        "reason": chosen.reason,
        "workers": chosen.workers,
        "passes": chosen.route.passes,
        "axis": cut.axis,
        "block_rows": lines if by_rows else data.n_rows,
        "block_columns": data.n_cols if by_rows else lines,
        "block_bytes": lines * data.line_bytes(cut.axis),
        "segments": len(cut),
        "peak": chosen.peak,
        "limit": chosen.limit,
        "parts": chosen.parts,
        "fits": chosen.peak <= chosen.limit,
    }
