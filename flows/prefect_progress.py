"""Progress in Prefect: lines in the log, and a progress artifact."""

from __future__ import annotations

import logging
import threading
import time
from contextvars import copy_context
from types import TracebackType
from typing import Self
from uuid import UUID

from streamdr.core.progress import Meter, PassStart
from streamdr.core.safe_text import one_line
from streamdr.flows.prefect_setup import create_progress_artifact, get_run_logger, update_progress_artifact

EVERY_SECONDS = 2.0
LINE_SECONDS = 30.0
_JOIN_SECONDS = 5.0


class PrefectProgress:
    """The progress of a stage. A thread updates the artifact, so that the work does not wait for a server.

    Each pass has its own artifact, so that the page of a run shows one bar per pass.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._logger = get_run_logger()
        self._meter: Meter | None = None
        self._next_line = 0.0
        self._over = threading.Event()
        self._context = copy_context()
        self._thread = threading.Thread(
            target=lambda: self._context.run(self._update), name="streamdr-progress", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_JOIN_SECONDS)

    def start(self, begun: PassStart) -> None:
        """Start a pass."""
        self._meter = Meter(begun, time.monotonic)
        self._next_line = time.monotonic() + LINE_SECONDS

    def advance(self, rows: int) -> None:
        """Count the rows, and write a line when one is due."""
        assert self._meter is not None
        self._meter.advance(rows)
        if time.monotonic() >= self._next_line:
            self.message(self._meter.under_way())
            self._next_line = time.monotonic() + LINE_SECONDS

    def finish(self) -> None:
        """Write the last line of the pass."""
        assert self._meter is not None
        self.message(self._meter.outcome())

    def message(self, text: str) -> None:
        """Write the text as a line to the log of the run."""
        self._logger.info(one_line(text))

    def _update(self) -> None:
        """Update the artifact regularly, until the stage is over."""
        shown: Meter | None = None
        artifact: UUID | None = None
        percent = -1.0
        while True:
            last = self._over.wait(EVERY_SECONDS)
            meter = self._meter
            if meter is not None:
                try:
                    if meter is not shown:
                        artifact = _create(self._key, meter)
                        shown, percent = meter, 100 * meter.fraction
                    elif artifact is not None and percent != (percent := 100 * meter.fraction):
                        update_progress_artifact(artifact, percent)
                except Exception as error:  # without a server the work continues
                    self._logger.log(logging.DEBUG, "progress could not be shown: %s", one_line(str(error)))
            if last:
                return


def _create(key: str, meter: Meter) -> UUID:
    made = create_progress_artifact(100 * meter.fraction, key=key, description=meter.label)
    assert isinstance(made, UUID)
    return made
