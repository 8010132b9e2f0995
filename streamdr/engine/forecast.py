"""What is expected of the passes of a fit, as they come: for the time left that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamdr.core.method import Pass
from streamdr.engine.work_stages import Speeds, Stage


class Expected(NamedTuple):
    """The predicted time of a pass, and of what follows it; 0 where that is not known."""

    seconds: float = 0.0
    later: float = 0.0


class Forecast:
    """Follows the passes of a fit through its predicted stages.

    Passes do not say which phase they belong to. They come in the order of the phases, and those of one phase
    read the same part of the data along the same axis.
    """

    def __init__(
        self, stages: Sequence[Stage] = (), fallback: Sequence[Stage] = (), speeds: Speeds | None = None
    ) -> None:
        self._stages = stages if speeds is not None else ()
        self._fallback = fallback
        self._speeds = speeds
        self._at, self._done = 0, 0

    def begin(self, request: Pass) -> Expected:
        """Return what is expected of the pass that begins."""
        at = next((i for i in range(self._at, len(self._stages)) if self._is_of(request, i)), None)
        if at is None or self._speeds is None:
            return Expected()
        self._done = self._done + 1 if at == self._at else 1
        self._at = at
        stage, speeds = self._stages[at], self._speeds
        each, solve = stage.pass_seconds(speeds), stage.solve_seconds(speeds)
        others = max(0, stage.count.usual - self._done) * (each + solve)
        later = sum(other.seconds(speeds).usual for other in self._stages[at + 1 :])
        return Expected(each, solve + others + later)

    def missing(self) -> None:
        """Go on with the stages of the fallback, since a value is missing."""
        self._stages, self._at, self._done = self._fallback, 0, 0

    def _is_of(self, request: Pass, number: int) -> bool:
        """Return whether a pass may belong to a stage."""
        stage = self._stages[number]
        if number == self._at and self._done >= stage.count.most:
            return False
        if request.in_memory is not None:
            return not stage.reads
        return stage.axis == request.axis and stage.part == (request.part is not None)
