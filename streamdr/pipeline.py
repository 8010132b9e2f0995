"""The whole program without a command line: a configuration in, outputs and reports of them out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from streamdr import fitting, memory, store
from streamdr.errors import StoreError
from streamdr.fitting import Kept
from streamdr.freshness import ModelState, State, Wanted, embedding_state, model_state
from streamdr.reports import Report, fit_report, plan_report, run_report, stage_report, transform_report
from streamdr.stage import Stage, naming, placing_errors
from streamdr.store import Fence, SavedModel

__all__ = ["Report", "Stage", "fit", "plan", "rehearse", "reprocess", "run_all", "status", "transform"]

Planned = Callable[[Report], None]
"""Told of the plan before the first byte is read."""


def _tell_nobody(report: Report) -> None:
    pass


@placing_errors
def fit(stage: Stage, planned: Planned = _tell_nobody) -> Report:
    """Fit the method to the input and publish the model, unless that very model is already there."""
    began, wanted = time.monotonic(), stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)
    if state.fresh:
        stage.tidy([stage.model])
        return fit_report(stage, wanted.source, state, began)
    stage.check_output(stage.model, state)
    with stage.leased([stage.model]) as fence:
        return _fit(stage, planned, fence)


@placing_errors
def transform(stage: Stage) -> Report:
    """Map the input through the saved model and publish the embedding, unless it is already there."""
    began, target = time.monotonic(), stage.embedding
    saved, wanted = _saved_model(stage), stage.wanted()
    fitting.require_features(saved.model, wanted.source)
    state = embedding_state(wanted, target, saved, fresh=stage.fresh)
    if state.fresh:
        stage.tidy([stage.embedding])
        return transform_report(stage, wanted, saved, state, began)
    stage.check_output(target, state)
    with stage.leased([target]) as fence:
        return _transform(stage, fence)


@placing_errors
def run_all(stage: Stage, planned: Planned = _tell_nobody) -> Report:
    """Fit, then transform where the configuration asks for an embedding."""
    began, wanted = time.monotonic(), stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)
    if state.fresh and stage.run.output.embedding is None:
        stage.tidy(stage.outputs)
        return run_report(stage, {"fit": fit_report(stage, wanted.source, state, began)})
    # Whatever stands in the way of the second stage is better known before the first.
    if not state.fresh:
        stage.check_output(stage.model, state)
    if stage.run.output.embedding is not None:
        there = embedding_state(wanted, stage.embedding, state.saved, fresh=stage.fresh)
        if there.fresh:
            stage.tidy(stage.outputs)
            reports = {
                "fit": fit_report(stage, wanted.source, state, began),
                "transform": transform_report(stage, wanted, cast(SavedModel, state.saved), there, began),
            }
            return run_report(stage, reports)
        stage.check_output(stage.embedding, there)
    with stage.leased(stage.outputs) as fence:
        reports = {"fit": _fit(stage, planned, fence)}
        if stage.run.output.embedding is not None:
            reports["transform"] = _transform(stage, fence)
    return run_report(stage, reports)


def reprocess(stages: Sequence[Stage], planned: Planned = _tell_nobody) -> Report:
    """Bring the outputs of changed configurations up to date, reading only what has to be read again.

    Configurations over one input share one ledger, so a pass that several need is read for the first of
    them only.
    """
    shared = stages[0].remembers_at
    reports = [run_all(replace(stage, replace=True, ledger=shared), planned) for stage in stages]
    return {
        "command": "reprocess",
        "bytes_read": sum(report["bytes_read"] for report in reports),
        "seconds": sum(report["seconds"] for report in reports),
        "peak_rss": memory.peak_resident(),
        "reused": all(report["reused"] for report in reports),
        "runs": [
            {"config": stage.run.source_file, **report} for stage, report in zip(stages, reports, strict=True)
        ],
    }


def plan(stage: Stage) -> Report:
    """What is stale, and how it would be brought up to date, reading nothing.

    What cannot be done is refused. Outputs that another recipe made are in the way of a run, and are what
    reprocessing replaces: the plan is of either.
    """
    return rehearse(replace(stage, replace=True), allowed=stage)


@placing_errors
def rehearse(stage: Stage, allowed: Stage | None = None) -> Report:
    """The plan of a run, which refuses all that the run would refuse; `allowed` is what may be replaced."""
    wanted = stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)
    if not state.fresh:
        stage.check_output(stage.model, state)
    if stage.run.output.embedding is not None:
        there = embedding_state(wanted, stage.embedding, state.saved, fresh=stage.fresh)
        if not there.fresh:
            stage.check_output(stage.embedding, there)
    with naming(wanted.source):
        chosen = memory.plan(stage.run.method, wanted.source, stage.execution())
        stages = _stages(allowed or stage, wanted, state)
    wanted.source.validate()
    return {**plan_report(wanted.source, chosen), "up_to_date": state.fresh, "stages": stages}


@placing_errors
def status(stage: Stage) -> Report:
    """Which stages are fresh and which are stale, why, and what it would cost to bring them up to date."""
    wanted = stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)
    return {"command": "status", "stages": _stages(stage, wanted, state)}


def _fit(stage: Stage, planned: Planned, fence: Fence) -> Report:
    began, wanted = time.monotonic(), stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)  # another run may have been faster
    if state.fresh:
        return fit_report(stage, wanted.source, state, began)
    run, source = stage.run, wanted.source
    if state.ours:
        stage.progress.message(f"{run.output.model}: is made anew, since {state.reason}")
    with naming(source):
        fitted = fitting.fit(
            run.method,
            source,
            stage.execution(),
            progress=stage.progress,
            stop=stage.stop,
            fresh=stage.fresh,
            planned=lambda chosen: planned(plan_report(source, chosen)),
            start=state.start,
        )
    store.save_model(
        stage.model,
        fitted.model,
        method=run.method.name,
        parameters=asdict(cast(Any, run.method)),
        feature_names=source.feature_names,
        input_fingerprint=wanted.fingerprint,
        n_rows=source.spec.n_rows,
        overwrite=stage.may_replace(state),
        extra={**wanted.facts(), "input": source.name, "reason": fitted.plan.reason},
        fence=fence,
    )
    return {
        **fit_report(stage, source, state, began, fitted.model),
        "bytes_read": fitted.bytes_read,
        "workers": fitted.plan.workers,
        "planned_peak": fitted.plan.peak,
        "memory_limit": fitted.plan.limit,
        "reason": fitted.plan.reason,
    }


def _transform(stage: Stage, fence: Fence) -> Report:
    began, wanted = time.monotonic(), stage.wanted()
    saved = _saved_model(stage)
    state = embedding_state(wanted, stage.embedding, saved, fresh=stage.fresh)
    if state.fresh:
        return transform_report(stage, wanted, saved, state, began)
    kept = _kept_rows(stage, wanted, saved, state)
    done = fitting.transform(
        saved.model,
        wanted.source,
        stage.embedding,
        stage.execution(),
        dtype=stage.run.output.dtype,
        attributes={
            "model": stage.run.output.model,
            "model_digest": saved.record["digest"],
            "method": saved.method,
            "made_from": wanted.facts(),
            "kept_rows": kept.rows.rows if kept.rows else 0,
            "model_moved": kept.moved,
        },
        kept=kept.rows,
        overwrite=stage.may_replace(state),
        progress=stage.progress,
        stop=stage.stop,
        fence=fence,
    )
    return {
        **transform_report(stage, wanted, saved, state, began),
        "rows_written": done.rows_written,
        "bytes_read": kept.bytes_read + done.bytes_read,
        "model_moved": kept.moved,
    }


class _Keeping(NamedTuple):
    """Which rows of an embedding stay, how far the model has moved from them, and the bytes read to tell."""

    rows: Kept | None = None
    moved: float | None = None
    bytes_read: int = 0


def _kept_rows(stage: Stage, wanted: Wanted, saved: SavedModel, state: State) -> _Keeping:
    """Keep the rows of the embedding that is there if they are close to what the model gives now."""
    if not state.unchanged_rows:
        return _Keeping()
    embedding = store.open_embedding(stage.embedding)
    moved, read = fitting.movement(saved.model, wanted.source, embedding, state.unchanged_rows)
    tolerance = stage.run.output.refresh_tolerance
    if moved > tolerance:
        stage.progress.message(
            f"{stage.embedding}: the model has moved by {moved:.2g} of the embedding's spread, more than the "
            f"refresh_tolerance of {tolerance:g}: all rows are written anew"
        )
        return _Keeping(None, moved, read)
    return _Keeping(Kept(stage.embedding, state.unchanged_rows, embedding.chunks[0]), moved, read)


def _saved_model(stage: Stage) -> SavedModel:
    if not store.exists(stage.model):
        raise StoreError(f"{stage.run.output.model}: there is no model to transform by; fit it first")
    return store.load_model(stage.model)


def _stages(stage: Stage, wanted: Wanted, model: ModelState) -> list[Report]:
    spec, to_fit = wanted.source.spec, 0
    if not model.fresh:
        to_fit = fitting.outlook(
            stage.run.method, wanted.source, stage.execution(), fresh=stage.fresh, start=model.start
        )
    stages = [stage_report(stage, "fit", stage.model, model, to_fit)]
    if stage.run.output.embedding is not None:
        state = embedding_state(wanted, stage.embedding, model.saved, fresh=stage.fresh)
        to_map = 0 if state.fresh else (spec.n_rows - state.unchanged_rows) * spec.line_bytes("rows")
        stages.append(stage_report(stage, "transform", stage.embedding, state, to_map))
    return stages
