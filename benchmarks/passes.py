"""How much of a fit its passes over the data take: the rest is solved for in memory."""

from __future__ import annotations

import time
from typing import Any

SECONDS = "seconds of passes"


def timed_passes() -> dict[str, float]:
    """Return a note that goes on, of the seconds that the passes of this process have taken."""
    from streamdr.runner import Runner

    notes = {SECONDS: 0.0}
    run = Runner.run

    def timed(runner: Runner, request: Any) -> Any:
        start = time.perf_counter()
        full = run(runner, request)
        notes[SECONDS] += time.perf_counter() - start
        return full

    Runner.run = timed  # type: ignore[method-assign]
    return notes
