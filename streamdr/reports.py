"""What stages say of themselves: plain values, one JSON object each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from streamdr import memory, store
from streamdr.addresses import Place
from streamdr.fitting import Outlook
from streamdr.freshness import ModelState, State, Wanted
from streamdr.memory import Plan, TransformPlan
from streamdr.methods.rows import RowOutput, RowView
from streamdr.sources import Source
from streamdr.stage import Stage
from streamdr.store import SavedModel

Report = dict[str, Any]


def stage_report(stage: Stage, name: str, output: Place, state: State, reads: Outlook) -> Report:
    """Whether a stage has anything to do, what it would read, and whether what is there is in its way."""
    return {
        "name": name,
        "state": "fresh" if state.fresh else "stale",
        "reason": state.reason,
        "bytes_to_read": reads.most,
        "least_bytes_to_read": reads.least,
        "in_the_way": not state.fresh and store.exists(output) and not stage.may_replace(state),
    }


def fit_report(stage: Stage, source: Source, state: ModelState, began: float, model: Any = None) -> Report:
    """What came of a fit: of `model`, or of the model that was there."""
    if state.fresh:
        stage.progress.message(f"{stage.run.output.model} is up to date")
    fitted = cast(SavedModel, state.saved).model if model is None else model
    return {
        "command": "fit",
        "n_rows": source.spec.n_rows,
        "n_cols": source.spec.n_cols,
        "method": stage.run.method.name,
        "summary": fitted.summary(),
        "bytes_read": 0,
        "seconds": time.monotonic() - began,
        "peak_rss": memory.peak_resident(),
        "model": stage.run.output.model,
        "reused": state.fresh,
        "because": state.reason,
    }


def rows_report(stage: Stage, wanted: Wanted, view: RowView, state: State, began: float) -> Report:
    """What came of one output that has a row for every row, as far as it is known before it is made."""
    path = stage.run.output.rows[view.kind.name]
    if state.fresh:
        stage.progress.message(f"{path} is up to date")
    return {
        "title": view.kind.title,
        "path": path,
        "n_rows": wanted.source.spec.n_rows,
        "n_outputs": view.n_outputs,
        "rows_written": 0,
        "bytes_read": 0,
        "seconds": time.monotonic() - began,
        "peak_rss": memory.peak_resident(),
        "reused": state.fresh,
        "because": state.reason,
    }


def transform_report(stage: Stage, outputs: Mapping[str, Report]) -> Report:
    """What came of a transform: of each output, of all together, and beside that what is the embedding's."""
    embedding = outputs.get("embedding", {})
    own = ("n_outputs", "rows_written", "because", "model_moved")
    return {
        "command": "transform",
        "n_rows": max(report["n_rows"] for report in outputs.values()),
        **{key: embedding[key] for key in own if key in embedding},
        "bytes_read": sum(report["bytes_read"] for report in outputs.values()),
        "seconds": sum(report["seconds"] for report in outputs.values()),
        "peak_rss": memory.peak_resident(),
        "model": stage.run.output.model,
        "embedding": stage.run.output.embedding,
        "reused": all(report["reused"] for report in outputs.values()),
        "outputs": dict(outputs),
    }


def run_report(stage: Stage, reports: dict[str, Report]) -> Report:
    """What came of the stages of a run."""
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


def plan_report(
    source: Source, chosen: Plan, transforms: Mapping[RowOutput, TransformPlan] | None = None
) -> Report:
    """What a fit will do, and what it and its outputs will take, where that is known."""
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
        "seconds": chosen.usual_seconds,
        "if_values_are_missing": _fallback_report(chosen),
        "axis": cut.axis,
        "block_rows": lines if by_rows else data.n_rows,
        "block_columns": data.n_cols if by_rows else lines,
        "block_bytes": lines * data.line_bytes(cut.axis),
        "segments": len(cut),
        "peak": chosen.peak,
        "limit": chosen.limit,
        "parts": chosen.parts,
        "fits": chosen.peak <= chosen.limit,
        "transforms": {
            kind.name: {
                "title": kind.title,
                "peak": each.peak,
                "workers": each.workers,
                "axis": each.axis,
            }
            for kind, each in (transforms or {}).items()
        },
    }


def _fallback_report(chosen: Plan) -> Report | None:
    """What the chosen route goes on with when it finds a value missing."""
    other = chosen.route.fallback
    if other is None:
        return None
    return {"solver": other.name, "passes": other.passes, "seconds": chosen.fallback_seconds}
