"""How much of a fit its passes over the data take: the rest is solved for in memory."""

from __future__ import annotations

import time

SECONDS = "seconds of passes"


def timed_passes() -> dict[str, float]:
    """Return a live note of the seconds that the passes of this process have taken."""
    from streamdr.core.accumulator import Accumulator
    from streamdr.core.method import Pass
    from streamdr.engine.runner import Runner

    notes = {SECONDS: 0.0}
    run = Runner.run

    def timed(self: Runner, request: Pass) -> Accumulator:
        start = time.perf_counter()
        full = run(self, request)
        notes[SECONDS] += time.perf_counter() - start
        return full

    Runner.run = timed  # type: ignore[method-assign]
    return notes
