"""The whole program without a command line: a configuration in, outputs and reports of them out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from streamdr.core.execution import Execution
from streamdr.core.method import HasOutlines, Model
from streamdr.core.row_outputs import EMBEDDING, RowOutput, RowView
from streamdr.data import Source
from streamdr.data.examples import datasets
from streamdr.engine import fitting, planner
from streamdr.engine.fitting import Kept
from streamdr.engine.planner import TransformPlan
from streamdr.errors import MemoryLimitError, ParameterError, StoreError
from streamdr.store import Fence, SavedModel
from streamdr.workflow.reporting import (
    fit_plan,
    fit_report,
    output_plans,
    rows_report,
    run_report,
    stage_state,
    transform_report,
)
from streamdr.workflow.reports import (
    ConfigurationRun,
    FitPlan,
    FitReport,
    PlanReport,
    ReprocessReport,
    RowsReport,
    RunReport,
    StageState,
    StatusReport,
    TransformReport,
)
from streamdr.workflow.run_context import RunContext, add_error_positions, naming
from streamdr.workflow.staleness import ModelState, OpenedInput, State, model_state, rows_state

__all__ = ["RunContext", "dry_run", "fit", "plan", "reprocess", "run_all", "status", "transform"]

Planned = Callable[[FitPlan], None]
"""Told of the plan before the first byte is read."""


def _ignore_plan(plan: FitPlan) -> None:
    pass


@add_error_positions
def fit(context: RunContext, planned: Planned = _ignore_plan) -> FitReport:
    """Fit the method to the input and publish the model, unless that very model is already there."""
    began, opened = time.monotonic(), context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    if state.fresh:
        context.tidy([context.model])
        return fit_report(context, opened.source, state, began)
    context.check_output(context.model, "model", state)
    with context.leased([context.model]) as fence:
        return _fit(context, context.open_input(), planned, fence)


@add_error_positions
def transform(context: RunContext) -> TransformReport:
    """Map the input through the saved model and publish what is asked for of rows, unless it is there."""
    before = planner.resident()
    targets = list(context.rows.values()) or [context.embedding]  # which says that it is not set
    saved = _saved_model(context)
    opened = context.open_input(saved.model)
    fitting.require_features(saved.model, opened.source)
    states = _row_states(context, opened, saved)
    if all(state.fresh for state in states.values()):
        context.tidy(targets)
        return _up_to_date(context, opened, saved, states)
    _check_outputs(context, states)
    with context.leased(targets) as fence:
        saved = _saved_model(context)
        return _transform(context, saved, context.open_input(saved.model), fence, before)


@add_error_positions
def run_all(
    context: RunContext, planned: Planned = _ignore_plan, opened: OpenedInput | None = None
) -> RunReport:
    """Fit, then transform where the configuration asks for an embedding, or for anything else of rows.

    `wanted` is what is asked for of the input, where the caller has opened it: whether outputs are up to date
    is told by it.
    """
    before = planner.resident()
    began, opened = time.monotonic(), opened or context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    states = _row_states(context, opened, state.saved)
    if state.fresh and all(rows.fresh for rows in states.values()):
        context.tidy(context.outputs)
        there = fit_report(context, opened.source, state, began)
        saved = cast(SavedModel, state.saved)
        return run_report(context, there, _up_to_date(context, opened, saved, states) if states else None)
    # Whatever stands in the way of the second stage is better known before the first.
    if not state.fresh:
        context.check_output(context.model, "model", state)
    _check_outputs(context, states)
    _transform_plans(context, opened, state, states)
    with context.leased(context.outputs) as fence:
        opened = (
            context.open_input()
        )  # anew: another run may have written meanwhile, of more rows than there were
        fitted = _fit(context, opened, planned, fence)
        transformed = _transform(context, _saved_model(context), opened, fence, before) if states else None
    return run_report(context, fitted, transformed)


def reprocess(contexts: Sequence[RunContext], planned: Planned = _ignore_plan) -> ReprocessReport:
    """Bring the outputs of changed configurations up to date, reading only what has to be read again.

    Configurations over one input share one ledger, so a pass that several need is read for the first of
    them only.
    """
    shared = contexts[0].ledger_location
    reports = [run_all(replace(context, replace=True, ledger=shared), planned) for context in contexts]
    files = [context.run.source_file for context in contexts]
    return ReprocessReport(planner.peak_resident(), tuple(map(ConfigurationRun, files, reports)))


def plan(context: RunContext) -> PlanReport:
    """What is stale, and how it would be brought up to date, reading nothing.

    What cannot be done is refused. Outputs that another recipe made are in the way of a run, and are what
    reprocessing replaces: the plan is of either.
    """
    return dry_run(replace(context, replace=True), allowed=context)


@add_error_positions
def dry_run(context: RunContext, allowed: RunContext | None = None) -> PlanReport:
    """The plan of a run, which refuses all that the run would refuse; `allowed` is what may be replaced."""
    opened = context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    if not state.fresh:
        context.check_output(context.model, "model", state)
    states = _row_states(context, opened, state.saved)
    _check_outputs(context, states)
    transforms = _transform_plans(context, opened, state, states)
    with naming(opened.source):
        chosen = planner.plan(context.run.method, opened.source, context.execution())
        stages = _stages(allowed or context, opened, state)
    opened.source.validate(opened.snapshot)
    return PlanReport(fit_plan(opened.source, chosen), output_plans(transforms), state.fresh, stages)


@add_error_positions
def status(context: RunContext) -> StatusReport:
    """Which stages are fresh and which are stale, why, and what it would cost to bring them up to date."""
    opened = context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    return StatusReport(_stages(context, opened, state))


def _fit(context: RunContext, opened: OpenedInput, planned: Planned, fence: Fence) -> FitReport:
    began = time.monotonic()
    state = model_state(opened, context.model, fresh=context.fresh)  # another run may have been faster
    if state.fresh:
        return fit_report(context, opened.source, state, began)
    run, source, facts = context.run, opened.source, opened.facts()
    if state.ours:
        context.progress.message(f"{run.output.model}: is made anew, since {state.reason}")
    with naming(source):
        fitted = fitting.fit(
            run.method,
            source,
            context.execution(),
            progress=context.progress,
            stop=context.stop,
            fresh=context.fresh,
            planned=lambda chosen: planned(fit_plan(source, chosen)),
            start=state.start,
            seen=opened.snapshot,
        )
    context.model.save_model(
        fitted.model,
        method=run.method.name,
        parameters=asdict(cast(Any, run.method)),
        feature_names=source.feature_names,
        input_fingerprint=opened.fingerprint,
        n_rows=source.spec.n_rows,
        overwrite=context.may_replace(state),
        extra={**facts, "input": source.name, "reason": fitted.plan.reason},
        fence=fence,
    )
    return fit_report(context, source, state, began, fitted)


def _row_states(context: RunContext, opened: OpenedInput, saved: SavedModel | None) -> dict[RowOutput, State]:
    """The state of what is asked for of rows, all of which a model that is there must be able to make."""
    for kind in context.rows:
        if saved is not None and not kind.supported_by(type(saved.model)):
            raise ParameterError(
                kind.name,
                f"{context.run.output.model} is a model by {saved.method}, which {kind.lacking}; "
                "fit it again",
            )
    return {
        kind: rows_state(opened, kind, output, saved, fresh=context.fresh)
        for kind, output in context.rows.items()
    }


def _transform_plans(
    context: RunContext, opened: OpenedInput, model: ModelState, states: Mapping[RowOutput, State]
) -> dict[RowOutput, TransformPlan]:
    """How each output that is to be written will be, by the model that is there or the one that will be.

    What cannot be written within the memory limit is refused: better before a fit than after it, and with
    advice that will do for the fit and for all outputs.
    """
    execution = context.execution()
    refusals: list[MemoryLimitError] = []
    while True:
        try:
            plans = _transform_plans_within(execution, context, opened, model, states)
            break
        except MemoryLimitError as refusal:
            refusals.append(refusal)
            execution = replace(execution, memory_limit=refusal.least << 20)
    if refusals:
        raise MemoryLimitError(refusals[0].problem, refusals[-1].least, refusals[0].otherwise)
    return plans


def _transform_plans_within(
    execution: Execution,
    context: RunContext,
    opened: OpenedInput,
    model: ModelState,
    states: Mapping[RowOutput, State],
) -> dict[RowOutput, TransformPlan]:
    source, dtype = opened.source, context.run.output.dtype
    plans: dict[RowOutput, TransformPlan] = {}
    with naming(source):
        for kind, state in states.items():
            if state.fresh:
                continue
            if model.fresh and model.saved is not None:
                view, seen = planner.view_and_source(model.saved.model, source, kind)
                plans[kind] = planner.plan_transform(view, seen, execution, view.stored(dtype, seen.spec))
                continue
            route = planner.plan(context.run.method, source, execution).route
            foreseen = planner.foresee_transform(route.method, source, execution, kind, dtype)
            if foreseen is not None:
                plans[kind] = foreseen
    return plans


def _check_outputs(context: RunContext, states: Mapping[RowOutput, State]) -> None:
    for kind, state in states.items():
        if not state.fresh:
            context.check_output(context.rows[kind], kind.name, state)


def _up_to_date(
    context: RunContext, opened: OpenedInput, saved: SavedModel, states: Mapping[RowOutput, State]
) -> TransformReport:
    began = time.monotonic()
    outputs: dict[str, RowsReport] = {
        kind.name: rows_report(context, opened, kind.of(saved.model), state, began)
        for kind, state in states.items()
    }
    return transform_report(context, outputs)


def _transform(
    context: RunContext, saved: SavedModel, opened: OpenedInput, fence: Fence, process_bytes: int
) -> TransformReport:
    """One output after the other, all of the input as it was looked at."""
    return transform_report(
        context,
        {kind.name: _write(context, kind, saved, opened, fence, process_bytes) for kind in context.rows},
    )


def _write(
    context: RunContext,
    kind: RowOutput,
    saved: SavedModel,
    opened: OpenedInput,
    fence: Fence,
    process_bytes: int,
) -> RowsReport:
    began, output = time.monotonic(), context.rows[kind]
    view = kind.of(saved.model)
    state = rows_state(opened, kind, output, saved, fresh=context.fresh)
    if state.fresh:
        return rows_report(context, opened, view, state, began)
    kept = _kept_rows(context, *planner.view_and_source(saved.model, opened.source, kind), state)
    done = fitting.transform(
        saved.model,
        opened.source,
        output,
        context.execution(),
        kind=kind,
        dtype=context.run.output.dtype,
        attributes={
            "model": context.run.output.model,
            "model_digest": saved.record["digest"],
            "method": saved.method,
            "made_from": opened.facts(),
            "kept_rows": kept.rows.rows if kept.rows else 0,
            "model_moved": kept.moved,
        },
        kept=kept.rows,
        overwrite=context.may_replace(state),
        progress=context.progress,
        stop=context.stop,
        fence=fence,
        process_bytes=process_bytes,
        seen=opened.snapshot,
    )
    report = replace(
        rows_report(context, opened, view, state, began),
        rows_written=done.rows_written,
        bytes_read=kept.bytes_read + done.bytes_read,
        model_moved=kept.moved,
    )
    example = context.run.input.example
    if example is None or (compare := datasets.comparison(example, kind.name)) is None:
        return report
    if compare.message:
        context.progress.message(compare.message)
    return replace(report, errors=compare.errors(example, output.open_rows(kind.name)[:], saved.model))


class _Keeping(NamedTuple):
    """Which rows of an output stay, how far the model has moved from them, and the bytes read to tell."""

    rows: Kept | None = None
    moved: float | None = None
    bytes_read: int = 0


def _kept_rows(context: RunContext, view: RowView, source: Source, state: State) -> _Keeping:
    """Keep the rows that are there if they are close to what the model gives now."""
    if not state.unchanged_rows:
        return _Keeping()
    output, tolerance = context.rows[view.kind], context.run.output.refresh_tolerance
    written = output.open_rows(view.kind.name)
    moved, read = fitting.movement(view, source, written, state.unchanged_rows)
    if moved is not None and moved <= tolerance:
        return _Keeping(Kept(output.place, state.unchanged_rows, written.chunks[0]), moved, read)
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
    context.progress.message(f"{output}: {how}: all rows are written anew")
    return _Keeping(None, known, read)


def _saved_model(context: RunContext) -> SavedModel:
    if not context.model.exists():
        raise StoreError(f"{context.run.output.model}: there is no model to transform by; fit it first")
    return context.model.load_model()


def _stages(context: RunContext, opened: OpenedInput, model: ModelState) -> tuple[StageState, ...]:
    source, to_fit = opened.source, fitting.ReadEstimate(0, 0)
    if not model.fresh:
        to_fit = fitting.estimate_fit_reads(
            context.run.method,
            opened.source,
            context.execution(),
            fresh=context.fresh,
            start=model.start,
            seen=opened.snapshot,
        )
    stages = [stage_state(context, "fit", context.model, model, to_fit)]
    mapped_by = _models(context, source, model)
    for kind, state in _row_states(context, opened, model.saved).items():
        to_map = fitting.ReadEstimate(0, 0)
        if not state.fresh:
            to_map = fitting.estimate_transform_reads(source, kind, mapped_by, state.unchanged_rows)
        name = "transform" if kind == EMBEDDING else kind.name
        stages.append(stage_state(context, name, context.rows[kind], state, to_map))
    return tuple(stages)


def _models(context: RunContext, source: Source, model: ModelState) -> Sequence[Model]:
    """The model that is there, or outlines of those that may come; nothing where none can be given."""
    if model.fresh and model.saved is not None:
        return [model.saved.model]
    method = planner.plan(context.run.method, source, context.execution()).route.method
    return method.outlines(source.spec) if isinstance(method, HasOutlines) else []
