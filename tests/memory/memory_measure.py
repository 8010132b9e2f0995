"""One run in a separate process: the planned and the measured memory, printed as one JSON object."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from memory_cases import built

from streamdr.core.execution import Execution
from streamdr.core.row_outputs import ROW_OUTPUTS, of_step
from streamdr.data import open_source
from streamdr.engine import fitting, planner


def main(request: dict) -> dict:
    """Fit, and write the requested row outputs."""
    place = Path(request["place"])
    execution = Execution(
        memory_limit=request["limit"],
        workers=request["workers"],
        ledger=place / "ledger",
        checkpoint_seconds=0.2,
    )
    before = planner.resident()
    source = open_source(request["store"], **request["options"])
    fitted = fitting.fit(built(request["method"], request["parameters"]), source, execution)
    stages = {
        "fit": {
            "planned": fitted.plan.peak,
            "peak": planner.peak_resident(),
            "workers": fitted.plan.workers,
        }
    }
    steps = [of_step(name) for name in getattr(fitted.model, "names", ())]
    for kind in (*ROW_OUTPUTS, *steps):
        if kind.key not in request["outputs"]:
            continue
        planner.give_back()
        planner.forget_peak()
        view, seen = planner.view_and_source(fitted.model, source, kind, fitted.axes)
        output = planner.stored_type(view, seen, None)
        planned = planner.plan_transform(view, seen, execution, output, process_bytes=before)
        fitting.transform(
            fitted.model,
            source,
            place / kind.key,
            execution,
            kind=kind,
            attributes={},
            process_bytes=before,
            axes=fitted.axes,
        )
        stages[kind.key] = {"planned": planned.peak, "peak": planner.peak_resident()}
    return stages


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
