"""The whole program without a command line: a configuration in, outputs and reports of them out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from streamdr import examples, fitting, memory, store
from streamdr.errors import MemoryLimitError, ParameterError, StoreError
from streamdr.fitting import Kept
from streamdr.freshness import ModelState, State, Wanted, model_state, rows_state
from streamdr.memory import TransformPlan
from streamdr.methods import Model
from streamdr.methods.base import Foreseeable
from streamdr.methods.rows import EMBEDDING, RowOutput, RowView
from streamdr.reports import (
    Report,
    fit_report,
    plan_report,
    rows_report,
    run_report,
    stage_report,
    transform_report,
)
from streamdr.settings import Execution
from streamdr.sources import Source
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
    stage.check_output(stage.model, "model", state)
    with stage.leased([stage.model]) as fence:
        return _fit(stage, planned, fence)


@placing_errors
def transform(stage: Stage) -> Report:
    """Map the input through the saved model and publish what is asked for of rows, unless it is there."""
    before = memory.resident()
    targets = list(stage.rows.values()) or [stage.embedding]  # which says that it is not set
    saved = _saved_model(stage)
    wanted = stage.wanted(saved.model)
    fitting.require_features(saved.model, wanted.source)
    states = _row_states(stage, wanted, saved)
    if all(state.fresh for state in states.values()):
        stage.tidy(targets)
        return _up_to_date(stage, wanted, saved, states)
    _check_outputs(stage, states)
    with stage.leased(targets) as fence:
        return _transform(stage, fence, before)


@placing_errors
def run_all(stage: Stage, planned: Planned = _tell_nobody) -> Report:
    """Fit, then transform where the configuration asks for an embedding, or for anything else of rows."""
    before = memory.resident()
    began, wanted = time.monotonic(), stage.wanted()
    state = model_state(wanted, stage.model, fresh=stage.fresh)
    states = _row_states(stage, wanted, state.saved)
    if state.fresh and all(there.fresh for there in states.values()):
        stage.tidy(stage.outputs)
        reports = {"fit": fit_report(stage, wanted.source, state, began)}
        if states:
            reports["transform"] = _up_to_date(stage, wanted, cast(SavedModel, state.saved), states)
        return run_report(stage, reports)
    # Whatever stands in the way of the second stage is better known before the first.
    if not state.fresh:
        stage.check_output(stage.model, "model", state)
    _check_outputs(stage, states)
    _transform_plans(stage, wanted, state, states)
    with stage.leased(stage.outputs) as fence:
        reports = {"fit": _fit(stage, planned, fence)}
        if states:
            reports["transform"] = _transform(stage, fence, before)
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
        stage.check_output(stage.model, "model", state)
    states = _row_states(stage, wanted, state.saved)
    _check_outputs(stage, states)
    transforms = _transform_plans(stage, wanted, state, states)
    with naming(wanted.source):
        chosen = memory.plan(stage.run.method, wanted.source, stage.execution())
        stages = _stages(allowed or stage, wanted, state)
    wanted.source.validate()
    return {
        **plan_report(wanted.source, chosen, transforms),
        "up_to_date": state.fresh,
        "stages": stages,
    }


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


def _row_states(stage: Stage, wanted: Wanted, saved: SavedModel | None) -> dict[RowOutput, State]:
    """The state of what is asked for of rows, all of which a model that is there must be able to make."""
    for kind in stage.rows:
        if saved is not None and not kind.made_by(type(saved.model)):
            raise ParameterError(
                kind.name,
                f"{stage.run.output.model} is a model by {saved.method}, which {kind.lacking}; fit it again",
            )
    return {
        kind: rows_state(wanted, kind, place, saved, fresh=stage.fresh) for kind, place in stage.rows.items()
    }


def _transform_plans(
    stage: Stage, wanted: Wanted, model: ModelState, states: Mapping[RowOutput, State]
) -> dict[RowOutput, TransformPlan]:
    """How each output that is to be written will be, by the model that is there or the one that will be.

    What cannot be written within the memory limit is refused: better before a fit than after it, and with
    advice that will do for the fit and for all outputs.
    """
    execution = stage.execution()
    refusals: list[MemoryLimitError] = []
    while True:
        try:
            plans = _transform_plans_within(execution, stage, wanted, model, states)
            break
        except MemoryLimitError as refusal:
            refusals.append(refusal)
            execution = replace(execution, memory_limit=refusal.least << 20)
    if refusals:
        raise MemoryLimitError(refusals[0].problem, refusals[-1].least, refusals[0].otherwise)
    return plans


def _transform_plans_within(
    execution: Execution,
    stage: Stage,
    wanted: Wanted,
    model: ModelState,
    states: Mapping[RowOutput, State],
) -> dict[RowOutput, TransformPlan]:
    source, dtype = wanted.source, stage.run.output.dtype
    plans: dict[RowOutput, TransformPlan] = {}
    with naming(source):
        for kind, state in states.items():
            if state.fresh:
                continue
            if model.fresh and model.saved is not None:
                view, seen = memory.seen_by(model.saved.model, source, kind)
                plans[kind] = memory.plan_transform(view, seen, execution, view.stored(dtype, seen.spec))
                continue
            route = memory.plan(stage.run.method, source, execution).route
            foreseen = memory.foresee_transform(route.method, source, execution, kind, dtype)
            if foreseen is not None:
                plans[kind] = foreseen
    return plans


def _check_outputs(stage: Stage, states: Mapping[RowOutput, State]) -> None:
    for kind, state in states.items():
        if not state.fresh:
            stage.check_output(stage.rows[kind], kind.name, state)


def _up_to_date(stage: Stage, wanted: Wanted, saved: SavedModel, states: Mapping[RowOutput, State]) -> Report:
    began = time.monotonic()
    outputs: dict[str, Report] = {
        kind.name: rows_report(stage, wanted, kind.of(saved.model), state, began)
        for kind, state in states.items()
    }
    return transform_report(stage, outputs)


def _transform(stage: Stage, fence: Fence, process_bytes: int) -> Report:
    """One output after the other, each of the input as it is then."""
    return transform_report(
        stage, {kind.name: _write(stage, kind, fence, process_bytes) for kind in stage.rows}
    )


def _write(stage: Stage, kind: RowOutput, fence: Fence, process_bytes: int) -> Report:
    began, saved, place = time.monotonic(), _saved_model(stage), stage.rows[kind]
    wanted = stage.wanted(saved.model)
    view = kind.of(saved.model)
    state = rows_state(wanted, kind, place, saved, fresh=stage.fresh)
    if state.fresh:
        return rows_report(stage, wanted, view, state, began)
    kept = _kept_rows(stage, *memory.seen_by(saved.model, wanted.source, kind), state)
    done = fitting.transform(
        saved.model,
        wanted.source,
        place,
        stage.execution(),
        kind=kind,
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
        process_bytes=process_bytes,
    )
    return {
        **rows_report(stage, wanted, view, state, began),
        "rows_written": done.rows_written,
        "bytes_read": kept.bytes_read + done.bytes_read,
        "model_moved": kept.moved,
        **_against_the_truth(stage, kind, saved.model),
    }


def _against_the_truth(stage: Stage, kind: RowOutput, model: Model) -> Report:
    """How well holes were filled, or noise was taken away, where it is known what was there before."""
    example = stage.run.input.example
    if example is None:
        return {}
    if kind.name == "imputed" and example.missing:
        stage.progress.message(
            "the holes are filled; comparing with column means and with scikit-learn's IterativeImputer, "
            "which takes a minute or more"
        )
        return {"filling": examples.filling_errors(example, store.open_rows(stage.rows[kind], kind.name)[:])}
    if kind.name == "denoised" and example.noise:
        rows, number = store.open_rows(stage.rows[kind], kind.name)[:], model.summary()["n_components"]
        return {"denoising": examples.denoising_errors(example, rows, number)}
    return {}


class _Keeping(NamedTuple):
    """Which rows of an output stay, how far the model has moved from them, and the bytes read to tell."""

    rows: Kept | None = None
    moved: float | None = None
    bytes_read: int = 0


def _kept_rows(stage: Stage, view: RowView, source: Source, state: State) -> _Keeping:
    """Keep the rows that are there if they are close to what the model gives now."""
    if not state.unchanged_rows:
        return _Keeping()
    place, tolerance = stage.rows[view.kind], stage.run.output.refresh_tolerance
    written = store.open_rows(place, view.kind.name)
    moved, read = fitting.movement(view, source, written, state.unchanged_rows)
    if moved is not None and moved <= tolerance:
        return _Keeping(Kept(place, state.unchanged_rows, written.chunks[0]), moved, read)
    known = None
    if moved is None or math.isinf(moved):
        how = "how far the model has moved cannot be told from its first rows"
    else:
        measure = "spread" if view.kind.centred else "size"
        how = (
            f"the model has moved by {moved:.2g} of the {measure} of the {view.kind.title}, more than the "
            f"refresh_tolerance of {tolerance:g}"
        )
        known = moved
    stage.progress.message(f"{place}: {how}: all rows are written anew")
    return _Keeping(None, known, read)


def _saved_model(stage: Stage) -> SavedModel:
    if not store.exists(stage.model):
        raise StoreError(f"{stage.run.output.model}: there is no model to transform by; fit it first")
    return store.load_model(stage.model)


def _stages(stage: Stage, wanted: Wanted, model: ModelState) -> list[Report]:
    source, to_fit = wanted.source, fitting.Outlook(0, 0)
    if not model.fresh:
        to_fit = fitting.outlook(
            stage.run.method, wanted.source, stage.execution(), fresh=stage.fresh, start=model.start
        )
    stages = [stage_report(stage, "fit", stage.model, model, to_fit)]
    mapped_by = _models(stage, source, model)
    for kind, state in _row_states(stage, wanted, model.saved).items():
        to_map = fitting.Outlook(0, 0)
        if not state.fresh:
            to_map = fitting.transform_outlook(source, kind, mapped_by, state.unchanged_rows)
        name = "transform" if kind == EMBEDDING else kind.name
        stages.append(stage_report(stage, name, stage.rows[kind], state, to_map))
    return stages


def _models(stage: Stage, source: Source, model: ModelState) -> Sequence[Model]:
    """The model that is there, or outlines of those that may come; nothing where none can be given."""
    if model.fresh and model.saved is not None:
        return [model.saved.model]
    method = memory.plan(stage.run.method, source, stage.execution()).route.method
    return method.outlines(source.spec) if isinstance(method, Foreseeable) else []
