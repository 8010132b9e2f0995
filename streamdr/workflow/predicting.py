"""How long the stages of a run will take on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamdr.core.row_outputs import RowOutput
from streamdr.engine.calibration import Calibrated
from streamdr.engine.planner import Plan, TransformPlan
from streamdr.engine.work_stages import NO_TIME, Seconds, Stage, total
from streamdr.workflow.reports import Predicted

if TYPE_CHECKING:
    from streamdr.data import Source
    from streamdr.workflow.reports import StageState


def predicted(
    chosen: Plan,
    transforms: Mapping[RowOutput, TransformPlan],
    states: Sequence[StageState],
    source: Source,
    known: Calibrated,
) -> Predicted:
    """Return the time of the stages that are stale, as far as they can be planned.

    A stage that surely reads a part of the data only, because the rest is in the ledger or in an earlier
    output, takes this part of the time.
    """
    found = {state.name: state for state in states}
    whole = source.spec.n_rows * source.stored_line_bytes("rows")
    speeds = known.speeds
    fit = NO_TIME
    if found["fit"].state == "stale":
        passes = sum(stage.count.usual for stage in chosen.stages if stage.reads)
        share = _share(found["fit"], passes * whole)
        fit = total((_partly(stage, share) for stage in chosen.stages), speeds)
    outputs = {
        kind.key: total([_partly(each.stage, _share(found[_stage_name(kind)], whole))], speeds)
        for kind, each in transforms.items()
    }
    whole_run = sum(outputs.values(), start=fit)
    return Predicted(
        seconds=whole_run.usual,
        least_seconds=whole_run.least,
        most_seconds=whole_run.most,
        fit_seconds=fit.usual,
        output_seconds={name: each.usual for name, each in outputs.items()},
        start_seconds=speeds.start,
        speeds=known.origin,
        problem=known.problem,
    )


def fit_seconds(chosen: Plan, known: Calibrated) -> Seconds:
    """Return the time of a whole fit."""
    return total(chosen.stages, known.speeds)


def fallback_seconds(chosen: Plan, known: Calibrated) -> float:
    """Return the usual time of the fallback of a fit."""
    return total(chosen.fallback_stages, known.speeds).usual


def _share(state: StageState, whole: int) -> float:
    """Return the share of the bytes of a whole stage that it will read; one where that is not known."""
    least, most = state.least_bytes_to_read, state.bytes_to_read
    return min(1.0, most / whole) if whole and least == most else 1.0


def _stage_name(kind: RowOutput) -> str:
    return "transform" if kind.key == "embedding" else kind.key


def _partly(stage: Stage, share: float) -> Stage:
    """Return a stage of which a part is already done: of what it reads."""
    return stage.partly(share) if stage.reads else stage
