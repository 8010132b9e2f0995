"""The whole program without a command line: a configuration in, outputs and reports of them out."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from streamdr import fitting, memory, store, synthetic
from streamdr.config import Run
from streamdr.errors import ConfigError, StoreError
from streamdr.execution import Execution
from streamdr.ledger import Ledger
from streamdr.memory import Plan
from streamdr.progress import Progress
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


def fit(stage: Stage, planned: Callable[[Plan], None] = lambda plan: None) -> Report:
    """Fit the method to the input and publish the model, unless that very model is already there."""
    run, began = stage.run, time.monotonic()
    source = open_input(run, stage.progress)
    target = Path(run.output.model)
    request = _request(run, source)
    if not stage.fresh and (found := _published_model(target, request)) is not None:
        stage.progress.message(f"{target} is up to date")
        return _fit_report(run, found, source, seconds=time.monotonic() - began, reused=True)
    _check_outputs(run, [target])
    execution = execution_of(run)
    if stage.fresh:
        Ledger(cast(Path, execution.ledger)).clear()
    fitted = fitting.fit(
        run.method, source, execution, progress=stage.progress, stop=stage.stop, planned=planned
    )
    store.save_model(
        target,
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


def run_all(stage: Stage, planned: Callable[[Plan], None] = lambda plan: None) -> Report:
    """Fit, then transform where the configuration asks for an embedding."""
    if stage.run.output.embedding is not None:
        # Whatever stands in the way of the second stage is better known before the first.
        targets = [Path(stage.run.output.model), Path(stage.run.output.embedding)]
        _check_outputs(stage.run, [target for target in targets if not target.exists()])
    report: Report = {"command": "run", "fit": fit(stage, planned)}
    if stage.run.output.embedding is not None:
        report["transform"] = transform(stage)
    return report


def plan(run: Run, progress: Progress) -> tuple[Source, Plan]:
    """What a fit would do, reading nothing."""
    source = open_input(run, progress)
    return source, memory.plan(run.method, source, execution_of(run))


def open_input(run: Run, progress: Progress) -> Source:
    """The configured source, made on the spot where it is synthetic."""
    if run.input.synthetic is not None:
        synthetic.ensure(Path(run.input.path), **asdict(run.input.synthetic), progress=progress)
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


def _check_outputs(run: Run, targets: list[Path]) -> None:
    inputs = [Path(path) for path in (run.input.path, run.input.weights) if path is not None]
    for target in targets:
        store.check_output(target, inputs=inputs, overwrite=run.output.overwrite)


def _request(run: Run, source: Source) -> str:
    """What a model answers to: the method and its parameters, on this very input."""
    meaning = {
        "method": run.method.name,
        "parameters": asdict(cast(Any, run.method)),
        "input": source.fingerprint(),
    }
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def _published_model(target: Path, request: str) -> Any:
    try:
        saved = store.load_model(target)
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
        **model.summary(),
        "bytes_read": 0,
        "seconds": seconds,
        "peak_rss": memory.peak_resident(),
        "model": run.output.model,
        "reused": reused,
    }
