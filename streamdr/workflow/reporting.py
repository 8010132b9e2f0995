"""Builds the reports of stages from the state and the results of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from streamdr.core.row_outputs import RowOutput, RowView
from streamdr.data import Source
from streamdr.data.feature_subset import FeatureSubset
from streamdr.engine import planner
from streamdr.engine.calibration import Calibrated
from streamdr.engine.fitting import Fitted
from streamdr.engine.planner import Plan, TransformPlan
from streamdr.engine.read_estimates import ReadEstimate
from streamdr.methods.chain import Chain
from streamdr.store import Backend, SavedModel
from streamdr.workflow.predicting import fallback_seconds, fit_seconds
from streamdr.workflow.recipes import step_changes, steps_of
from streamdr.workflow.reports import (
    Fallback,
    FitPlan,
    FitPlanned,
    FitReport,
    OutputPlan,
    RowsReport,
    RunReport,
    StageState,
    StepState,
    TransformReport,
)
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.staleness import ModelState, OpenedInput, State, recorded_recipe, same_rows

_UNCHANGED = "it is as in the saved model"
_CHANGED_BEFORE = "the steps before it have changed"


def stage_state(
    context: RunContext,
    name: str,
    output: Backend,
    state: State,
    reads: ReadEstimate,
    steps: tuple[StepState, ...] = (),
) -> StageState:
    """Return whether a stage is stale, what it would read, and whether an existing output stops it."""
    return StageState(
        name=name,
        state="fresh" if state.fresh else "stale",
        reason=state.reason,
        bytes_to_read=reads.most,
        least_bytes_to_read=reads.least,
        in_the_way=not state.fresh and output.exists() and not context.may_replace(state),
        steps=steps,
    )


def step_states(
    opened: OpenedInput, model: ModelState, reads: Sequence[ReadEstimate]
) -> tuple[StepState, ...]:
    """Return which steps of a chain have to be fitted again, why, and what that reads; none without a chain.

    A step is fresh if it and those before it are as in the saved model, and the ledger has what it learned.
    """
    method = opened.run.method
    if not isinstance(method, Chain):
        return ()
    if model.fresh:
        return tuple(StepState(name, "fresh", model.reason, 0, 0) for name in method.names)
    found: list[StepState] = []
    reasons = _step_reasons(opened, method, model)
    for name, reason, read in zip(method.names, reasons, reads, strict=True):
        if not reason and read.most:
            reason = "what it learned is no longer in the ledger"
        state = StepState(name, "stale" if reason else "fresh", reason or _UNCHANGED, read.most, read.least)
        found.append(state)
    return tuple(found)


def _step_reasons(opened: OpenedInput, method: Chain, model: ModelState) -> list[str]:
    """Return why each step has to be fitted again, as far as the saved model shows; "" if it does not."""
    if model.earlier is None or not same_rows(opened, model.earlier):
        return [model.reason] * len(method.steps)
    recipe = recorded_recipe(model.earlier)
    own = step_changes(recipe, opened.recipe, method)
    before = [str(step["as"]) for step in steps_of(recipe)]
    reasons: list[str] = []
    for number, (name, change) in enumerate(zip(method.names, own, strict=True)):
        follows = before[:number] == list(method.names[:number]) and not any(reasons)
        reasons.append(change or ("" if follows and name in before else _CHANGED_BEFORE))
    return reasons


def fit_report(
    context: RunContext, source: Source, state: ModelState, began: float, fitted: Fitted | None = None
) -> FitReport:
    """Return the report of a fit that was just done, or of a saved model that is up to date."""
    if state.fresh:
        context.progress.message(f"{context.run.output.model} is up to date")
    made = cast(SavedModel, state.saved) if fitted is None else fitted
    model, axes = made.model, made.axes
    return FitReport(
        n_rows=source.spec.n_rows,
        n_cols=source.spec.n_cols,
        n_left_out=0 if axes is None else axes.n_left_out,
        method=context.run.method.name,
        summary=model.summary(),
        bytes_read=0 if fitted is None else fitted.bytes_read,
        seconds=time.monotonic() - began,
        peak_rss=planner.peak_resident(),
        model=context.run.output.model,
        reused=state.fresh,
        because=state.reason,
        planned=None if fitted is None else _planned(fitted.plan),
        facts=(*(() if axes is None else axes.facts()), *model.facts()),
        tables=model.tables(),
    )


def _planned(plan: Plan) -> FitPlanned:
    return FitPlanned(plan.workers, plan.peak, plan.limit, plan.reason)


def rows_report(
    context: RunContext, opened: OpenedInput, view: RowView, state: State, began: float
) -> RowsReport:
    """Return the report of one output of rows, before any of its rows are written."""
    path = context.run.output.rows[view.kind.key]
    if state.fresh:
        context.progress.message(f"{path} is up to date")
    return RowsReport(
        title=view.kind.title,
        path=path,
        n_rows=opened.source.spec.n_rows,
        n_outputs=view.n_outputs,
        rows_written=0,
        bytes_read=0,
        seconds=time.monotonic() - began,
        peak_rss=planner.peak_resident(),
        reused=state.fresh,
        because=state.reason,
    )


def transform_report(context: RunContext, outputs: Mapping[str, RowsReport]) -> TransformReport:
    """Return the report of a transform from those of its outputs."""
    given = context.run.output
    return TransformReport(planner.peak_resident(), given.model, given.embedding, outputs)


def run_report(context: RunContext, fit: FitReport, transform: TransformReport | None) -> RunReport:
    """Return the report of a run from those of its stages."""
    given = context.run.output
    return RunReport(planner.peak_resident(), given.model, given.embedding, fit, transform)


def fit_plan(source: Source, chosen: Plan, speeds: Calibrated) -> FitPlan:
    """Return what a fit to the features that a method sees will do, with its time and memory."""
    data, partition = source.spec, chosen.blocks
    whole = source.whole if isinstance(source, FeatureSubset) else source
    counts = isinstance(source, FeatureSubset) and source.counting is not None
    lines = min(partition.block, partition.length)
    by_rows = partition.axis == "rows"
    seconds = fit_seconds(chosen, speeds)
    return FitPlan(
        input=source.name,
        n_rows=data.n_rows,
        n_cols=whole.spec.n_cols,
        n_left_out=whole.spec.n_cols - data.n_cols,
        dtype=str(whole.spec.dtype),
        density=whole.spec.density,
        solver=chosen.route.name,
        reason=chosen.reason,
        workers=chosen.workers,
        counting_passes=int(counts),
        passes=chosen.route.passes,
        seconds=seconds.usual,
        least_seconds=seconds.least,
        most_seconds=seconds.most,
        speeds=speeds.origin,
        if_values_are_missing=_fallback(chosen, speeds),
        axis=partition.axis,
        block_rows=lines if by_rows else data.n_rows,
        block_columns=data.n_cols if by_rows else lines,
        block_bytes=planner.block_bytes(chosen, data),
        segments=len(partition),
        peak=chosen.peak,
        limit=chosen.limit,
        parts=chosen.parts,
        fits=chosen.peak <= chosen.limit,
    )


def _fallback(chosen: Plan, speeds: Calibrated) -> Fallback | None:
    """Return the route that continues the chosen one if a value is missing."""
    fallback = chosen.route.fallback
    if fallback is None:
        return None
    return Fallback(fallback.name, fallback.passes, fallback_seconds(chosen, speeds))


def output_plans(transforms: Mapping[RowOutput, TransformPlan], speeds: Calibrated) -> dict[str, OutputPlan]:
    """Return the plans of outputs of rows, by their names."""
    return {
        kind.key: OutputPlan(
            kind.title, each.peak, each.workers, each.axis, each.stage.seconds(speeds.speeds).usual
        )
        for kind, each in transforms.items()
    }
