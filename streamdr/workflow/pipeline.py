"""The stages of a run: plan, status, fit, transform, run and reprocess, from a configuration to reports."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from streamdr.core.execution import Execution
from streamdr.core.method import HasOutlines, Model
from streamdr.core.row_outputs import EMBEDDING, RowOutput, RowView
from streamdr.data import Source
from streamdr.data.examples import datasets
from streamdr.data.labelled.opening import Labelled
from streamdr.engine import calibration, fitting, planner
from streamdr.engine.calibration import Calibrated
from streamdr.engine.fitting import Kept
from streamdr.engine.planner import TransformPlan
from streamdr.engine.read_estimates import (
    NOTHING,
    estimate_step_reads,
    estimate_transform_reads,
    together,
)
from streamdr.errors import MemoryLimitError, ParameterError, StoreError
from streamdr.methods.chain import parameters_of
from streamdr.store import Fence, SavedModel
from streamdr.workflow.annotated import require_observations, with_contents
from streamdr.workflow.predicting import predicted
from streamdr.workflow.reporting import (
    fit_plan,
    fit_report,
    output_plans,
    rows_report,
    run_report,
    stage_state,
    step_states,
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
from streamdr.workflow.staleness import (
    ModelState,
    OpenedInput,
    State,
    maker_of,
    model_digest,
    model_state,
    rows_state,
)

__all__ = ["RunContext", "dry_run", "fit", "plan", "reprocess", "run_all", "status", "transform"]

Planned = Callable[[FitPlan], None]
"""Called with the plan before anything is read."""


def _ignore_plan(plan: FitPlan) -> None:
    pass


@add_error_positions
def fit(context: RunContext, planned: Planned = _ignore_plan) -> FitReport:
    """Fit the method to the input and publish the model, unless the model is up to date."""
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
    """Map the input through the saved model and publish the outputs of rows that are not up to date."""
    before = planner.resident()
    targets = list(context.rows.values()) or [context.embedding]  # raises the error that none is configured
    saved = _saved_model(context)
    opened = context.open_input(saved.model)
    fitting.require_features(saved.model, opened.source, saved.axes, saved.feature_names)
    states = _row_states(context, opened, saved)
    if all(state.fresh for state in states.values()):
        context.tidy(targets)
        return _up_to_date(context, opened, saved, states)
    _check_outputs(context, opened, states)
    with context.leased(targets) as fence:
        saved = _saved_model(context)
        return _transform(context, saved, context.open_input(saved.model), fence, before)


@add_error_positions
def run_all(
    context: RunContext, planned: Planned = _ignore_plan, opened: OpenedInput | None = None
) -> RunReport:
    """Fit, then transform if the configuration has an embedding or another output of rows.

    `opened` is the input, if the caller has opened it already. Its snapshot decides whether the outputs are
    up to date.
    """
    before = planner.resident()
    began, opened = time.monotonic(), opened or context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    states = _row_states(context, opened, state.saved, state)
    if state.fresh and all(rows.fresh for rows in states.values()):
        context.tidy(context.outputs)
        fitted = fit_report(context, opened.source, state, began)
        saved = cast(SavedModel, state.saved)
        return run_report(context, fitted, _up_to_date(context, opened, saved, states) if states else None)
    # What would stop the transform is refused before the fit.
    if not state.fresh:
        context.check_output(context.model, "model", state)
    _check_outputs(context, opened, states)
    _transform_plans(context, opened, state, states)
    with context.leased(context.outputs) as fence:
        # Opened again: before the lease, another run may have written outputs from a longer input.
        opened = context.open_input()
        fitted = _fit(context, opened, planned, fence)
        transformed = _transform(context, _saved_model(context), opened, fence, before) if states else None
    return run_report(context, fitted, transformed)


def reprocess(contexts: Sequence[RunContext], planned: Planned = _ignore_plan) -> ReprocessReport:
    """Bring the outputs of changed configurations up to date, reading only what is needed.

    Configurations over one input share one ledger, so a pass that several need is read for the first of
    them only.
    """
    shared = contexts[0].ledger_location
    reports = [run_all(replace(context, replace=True, ledger=shared), planned) for context in contexts]
    files = [context.run.source_file for context in contexts]
    return ReprocessReport(planner.peak_resident(), tuple(map(ConfigurationRun, files, reports)))


def plan(context: RunContext, *, calibrate: bool = False) -> PlanReport:
    """Return which stages are stale and how and how long they would run, reading no data.

    What cannot be done is refused. Outputs of another recipe stop `run`, and are replaced by `reprocess`. The
    plan covers both. The speeds of this machine are measured if they never were, or if `calibrate`.
    """

    def speeds() -> Calibrated:
        if calibrate or calibration.remembered() is None:
            context.progress.message("measuring the speeds of this machine")
        return calibration.calibrate(again=calibrate)

    return dry_run(replace(context, replace=True), allowed=context, speeds=speeds)


@add_error_positions
def dry_run(
    context: RunContext,
    allowed: RunContext | None = None,
    speeds: Callable[[], Calibrated] = calibration.known,
) -> PlanReport:
    """Return the plan of a run, and refuse what the run would refuse; `allowed` says what may be replaced.

    `speeds` returns the speeds of the machine. It is called last, since measuring them takes memory.
    """
    opened = context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    if not state.fresh:
        context.check_output(context.model, "model", state)
    states = _row_states(context, opened, state.saved, state)
    _check_outputs(context, opened, states)
    transforms = _transform_plans(context, opened, state, states)
    with naming(opened.source):
        chosen = planner.plan(context.run.method, opened.features, context.execution())
        stages = _stages(allowed or context, opened, state)
    opened.source.validate(opened.snapshot)
    known = speeds()
    return PlanReport(
        fit_plan(opened.features, chosen, known),
        output_plans(transforms, known),
        state.fresh,
        stages,
        predicted(chosen, transforms, stages, opened.features, known),
    )


@add_error_positions
def status(context: RunContext) -> StatusReport:
    """Return which stages are fresh or stale, why, and how much would be read to bring them up to date."""
    opened = context.open_input()
    state = model_state(opened, context.model, fresh=context.fresh)
    return StatusReport(_stages(context, opened, state))


def _fit(context: RunContext, opened: OpenedInput, planned: Planned, fence: Fence) -> FitReport:
    """Fit the method and save the model, under the lease."""
    began = time.monotonic()
    state = model_state(opened, context.model, fresh=context.fresh)  # another run may have been faster
    if state.fresh:
        return fit_report(context, opened.source, state, began)
    run, source, facts = context.run, opened.source, opened.facts()
    if state.ours:
        context.progress.message(f"{run.output.model}: is computed again: {state.reason}")
    with naming(source):
        fitted = fitting.fit(
            run.method,
            source,
            context.execution(),
            progress=context.progress,
            stop=context.stop,
            fresh=context.fresh,
            planned=lambda features, chosen: planned(fit_plan(features, chosen, calibration.known())),
            start=state.start,
            start_axes=state.start_axes,
            seen=opened.snapshot,
        )
    context.model.save_model(
        fitted.model,
        method=run.method.name,
        parameters=parameters_of(run.method),
        feature_names=source.feature_names,
        input_fingerprint=opened.fingerprint,
        n_rows=source.spec.n_rows,
        overwrite=context.may_replace(state),
        extra={**facts, "input": source.name, "reason": fitted.plan.reason, **_labelled(context, source)},
        axes=fitted.axes,
        fence=fence,
    )
    return fit_report(context, source, state, began, fitted)


def _row_states(
    context: RunContext, opened: OpenedInput, saved: SavedModel | None, before: ModelState | None = None
) -> dict[RowOutput, State]:
    """Return the state of each output of rows, and refuse those that the saved model does not have.

    `before` is the state of the model before a run, which may fit it again.
    """
    for kind in context.rows:
        if saved is not None and not kind.made_by(saved.model):
            raise ParameterError(
                kind.key,
                f"{context.run.output.model} is a model by {saved.method}, which {kind.refusal}; "
                "fit it again",
            )
    states = {}
    for kind, output in context.rows.items():
        maker = saved if before is None else maker_of(kind, opened, before)
        states[kind] = rows_state(opened.up_to(kind.step), kind, output, maker, fresh=context.fresh)
    return states


def _transform_plans(
    context: RunContext, opened: OpenedInput, model: ModelState, states: Mapping[RowOutput, State]
) -> dict[RowOutput, TransformPlan]:
    """Return the plan of each output that has to be written, for the saved model or the expected one.

    What cannot be written within the memory limit is refused before the fit. The limit that the error advises
    is enough for the fit and for all outputs.
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


def _labelled(context: RunContext, source: Source) -> dict[str, Any]:
    """Return what is recorded with a model of labelled rows: how to open them, and the positions selected."""
    given = context.run.input
    how = Labelled(given.variable, given.sample_dims, given.select).record
    return {"labelled": how, "selected": dict(source.selected)} if how else {}


def _transform_plans_within(
    execution: Execution,
    context: RunContext,
    opened: OpenedInput,
    model: ModelState,
    states: Mapping[RowOutput, State],
) -> dict[RowOutput, TransformPlan]:
    """Return the plans within one memory limit, or raise the first refusal."""
    source, dtype = opened.source, context.run.output.dtype
    plans: dict[RowOutput, TransformPlan] = {}
    with naming(source):
        for kind, state in states.items():
            if state.fresh:
                continue
            if model.fresh and model.saved is not None:
                saved = model.saved
                view, read = planner.view_and_source(saved.model, source, kind, saved.axes)
                plans[kind] = planner.plan_transform(
                    view, read, execution, planner.stored_type(view, read, dtype)
                )
                continue
            seen = opened.features
            route = planner.plan(context.run.method, seen, execution).route
            foreseen = planner.foresee_transform(route.method, seen, execution, kind, dtype)
            if foreseen is not None:
                plans[kind] = foreseen
    return plans


def _check_outputs(context: RunContext, opened: OpenedInput, states: Mapping[RowOutput, State]) -> None:
    """Refuse stale outputs that cannot or may not be written."""
    for kind, state in states.items():
        if not state.fresh:
            context.check_output(context.rows[kind], kind.name, state, kind.key)
            require_observations(context.rows[kind], opened.source)


def _up_to_date(
    context: RunContext, opened: OpenedInput, saved: SavedModel, states: Mapping[RowOutput, State]
) -> TransformReport:
    """Return the report of a transform whose outputs are all up to date."""
    began = time.monotonic()
    outputs: dict[str, RowsReport] = {
        kind.key: rows_report(context, opened, kind.of(saved.model, saved.axes), state, began)
        for kind, state in states.items()
    }
    return transform_report(context, outputs)


def _transform(
    context: RunContext, saved: SavedModel, opened: OpenedInput, fence: Fence, process_bytes: int
) -> TransformReport:
    """Write the outputs one after the other, all from one snapshot of the input."""
    return transform_report(
        context,
        {kind.key: _write_rows(context, kind, saved, opened, fence, process_bytes) for kind in context.rows},
    )


def _write_rows(
    context: RunContext,
    kind: RowOutput,
    saved: SavedModel,
    opened: OpenedInput,
    fence: Fence,
    process_bytes: int,
) -> RowsReport:
    """Write one output of rows, unless it is up to date."""
    began, output = time.monotonic(), context.rows[kind]
    view = kind.of(saved.model, saved.axes)
    seen = opened.up_to(kind.step)
    state = rows_state(seen, kind, output, saved, fresh=context.fresh)
    if state.fresh:
        return rows_report(context, opened, view, state, began)
    mapping = planner.view_and_source(saved.model, opened.source, kind, saved.axes)
    kept = _kept_rows(context, *mapping, state)
    done = fitting.transform(
        saved.model,
        opened.source,
        with_contents(output, saved, opened.source),
        context.execution(),
        kind=kind,
        dtype=context.run.output.dtype,
        attributes={
            "model": context.run.output.model,
            "model_digest": model_digest(kind, saved),
            "method": saved.method,
            **({} if kind.step is None else {"step": kind.step}),
            "made_from": seen.facts(),
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
        axes=saved.axes,
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


class _KeptRows(NamedTuple):
    """The rows of an output that stay, how far the model has moved from them, and the bytes read for that."""

    rows: Kept | None = None
    moved: float | None = None
    bytes_read: int = 0


def _kept_rows(context: RunContext, view: RowView, source: Source, state: State) -> _KeptRows:
    """Keep the existing rows if they are close to what the model gives now."""
    if not state.unchanged_rows:
        return _KeptRows()
    output, tolerance = context.rows[view.kind], context.run.output.refresh_tolerance
    written = output.open_rows(view.kind.name)
    moved, read = fitting.movement(view, source, written, state.unchanged_rows)
    if moved is not None and moved <= tolerance:
        return _KeptRows(Kept(output.place, state.unchanged_rows, written.chunks[0]), moved, read)
    measured = None
    if moved is None or math.isinf(moved):
        how = "the first rows do not show how far the model has moved"
    else:
        measure = "spread" if view.kind.centred else "size"
        how = (
            f"the model has moved by {moved:.2g} of the {measure} of the {view.kind.title}, more than the "
            f"refresh_tolerance of {tolerance:g}"
        )
        measured = moved
    context.progress.message(f"{output}: {how}: all rows are written again")
    return _KeptRows(None, measured, read)


def _saved_model(context: RunContext) -> SavedModel:
    if not context.model.exists():
        raise StoreError(f"{context.run.output.model}: there is no model; fit it first")
    return context.model.load_model()


def _stages(context: RunContext, opened: OpenedInput, model: ModelState) -> tuple[StageState, ...]:
    """Return the state of every stage, with the bytes that it would read."""
    to_fit = [NOTHING]
    if not model.fresh:
        to_fit = estimate_step_reads(
            context.run.method,
            opened.source,
            context.execution(),
            fresh=context.fresh,
            start=model.start,
            start_axes=model.start_axes,
            seen=opened.snapshot,
        )
    steps = step_states(opened, model, to_fit)
    stages = [stage_state(context, "fit", context.model, model, together(to_fit), steps)]
    models = _saved_or_outlined(context, opened, model)
    for kind, state in _row_states(context, opened, model.saved, model).items():
        to_map = NOTHING
        if not state.fresh:
            axes = None if model.saved is None else model.saved.axes
            to_map = estimate_transform_reads(opened.features, kind, models, state.unchanged_rows, axes)
        name = "transform" if kind == EMBEDDING else kind.key
        stages.append(stage_state(context, name, context.rows[kind], state, to_map))
    return tuple(stages)


def _saved_or_outlined(context: RunContext, opened: OpenedInput, model: ModelState) -> Sequence[Model]:
    """Return the saved model if it is fresh, otherwise outlines of the models that a fit may give, if any."""
    if model.fresh and model.saved is not None:
        return [model.saved.model]
    source = opened.features
    method = planner.plan(context.run.method, source, context.execution()).route.method
    return method.outlines(source.spec) if isinstance(method, HasOutlines) else []
