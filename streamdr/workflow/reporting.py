"""The reports of stages, made of what is known of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

from streamdr.core.row_outputs import RowOutput, RowView
from streamdr.data import Source
from streamdr.engine import planner
from streamdr.engine.fitting import Fitted, ReadEstimate
from streamdr.engine.planner import Plan, TransformPlan
from streamdr.store import Backend, SavedModel
from streamdr.workflow.reports import (
    Fallback,
    FitPlan,
    FitPlanned,
    FitReport,
    OutputPlan,
    RowsReport,
    RunReport,
    StageState,
    TransformReport,
)
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.staleness import ModelState, OpenedInput, State


def stage_state(
    context: RunContext, name: str, output: Backend, state: State, reads: ReadEstimate
) -> StageState:
    """Whether a stage has anything to do, what it would read, and whether what is there is in its way."""
    return StageState(
        name=name,
        state="fresh" if state.fresh else "stale",
        reason=state.reason,
        bytes_to_read=reads.most,
        least_bytes_to_read=reads.least,
        in_the_way=not state.fresh and output.exists() and not context.may_replace(state),
    )


def fit_report(
    context: RunContext, source: Source, state: ModelState, began: float, fitted: Fitted | None = None
) -> FitReport:
    """What came of a fit: of the one that was just made, or of the model that was there."""
    if state.fresh:
        context.progress.message(f"{context.run.output.model} is up to date")
    model = cast(SavedModel, state.saved).model if fitted is None else fitted.model
    return FitReport(
        n_rows=source.spec.n_rows,
        n_cols=source.spec.n_cols,
        method=context.run.method.name,
        summary=model.summary(),
        bytes_read=0 if fitted is None else fitted.bytes_read,
        seconds=time.monotonic() - began,
        peak_rss=planner.peak_resident(),
        model=context.run.output.model,
        reused=state.fresh,
        because=state.reason,
        planned=None if fitted is None else _planned(fitted.plan),
        facts=model.facts(),
        tables=model.tables(),
    )


def _planned(plan: Plan) -> FitPlanned:
    return FitPlanned(plan.workers, plan.peak, plan.limit, plan.reason)


def rows_report(
    context: RunContext, opened: OpenedInput, view: RowView, state: State, began: float
) -> RowsReport:
    """What came of one output that has a row for every row, as far as it is known before it is made."""
    path = context.run.output.rows[view.kind.name]
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
    """What came of a transform, given what came of each output."""
    given = context.run.output
    return TransformReport(planner.peak_resident(), given.model, given.embedding, outputs)


def run_report(context: RunContext, fit: FitReport, transform: TransformReport | None) -> RunReport:
    """What came of a run, given what came of its stages."""
    given = context.run.output
    return RunReport(planner.peak_resident(), given.model, given.embedding, fit, transform)


def fit_plan(source: Source, chosen: Plan) -> FitPlan:
    """What a fit will do, and what it will take."""
    data, partition = source.spec, chosen.blocks
    lines = min(partition.block, partition.length)
    by_rows = partition.axis == "rows"
    return FitPlan(
        input=source.name,
        n_rows=data.n_rows,
        n_cols=data.n_cols,
        dtype=str(data.dtype),
        solver=chosen.route.name,
        reason=chosen.reason,
        workers=chosen.workers,
        passes=chosen.route.passes,
        seconds=chosen.usual_seconds,
        if_values_are_missing=_fallback(chosen),
        axis=partition.axis,
        block_rows=lines if by_rows else data.n_rows,
        block_columns=data.n_cols if by_rows else lines,
        block_bytes=lines * data.line_bytes(partition.axis),
        segments=len(partition),
        peak=chosen.peak,
        limit=chosen.limit,
        parts=chosen.parts,
        fits=chosen.peak <= chosen.limit,
    )


def _fallback(chosen: Plan) -> Fallback | None:
    """What the chosen route goes on with when it finds a value missing."""
    other = chosen.route.fallback
    if other is None or chosen.fallback_seconds is None:
        return None
    return Fallback(other.name, other.passes, chosen.fallback_seconds)


def output_plans(transforms: Mapping[RowOutput, TransformPlan]) -> dict[str, OutputPlan]:
    """How outputs of rows will be written, by their names."""
    return {
        kind.name: OutputPlan(kind.title, each.peak, each.workers, each.axis)
        for kind, each in transforms.items()
    }
