"""The time of the passes over the data in a fit. The rest is the solve in memory."""

from __future__ import annotations

import time

SECONDS = "seconds of passes"


def timed_passes() -> dict[str, float]:
    """Return a note with the seconds of all passes of this process, which is updated after each pass."""
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
