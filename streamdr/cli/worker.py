"""The worker process of a flow: stages of runs, on request.

One process serves any number of requests, since starting Python takes longer than some of them. A flow sends
a request and waits; the worker carries out the stage, and answers with a report or an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self

from streamdr.cli import console
from streamdr.cli.supervisor import Channel, StageError, Worker, serve
from streamdr.config import read, read_comparison
from streamdr.core import addresses
from streamdr.core.progress import Progress
from streamdr.workflow import pipeline, summary, verification
from streamdr.workflow.reports import (
    CompareReport,
    FitReport,
    PlanReport,
    Report,
    ReprocessReport,
    StagesReport,
    StatusReport,
    SummaryReport,
    TransformReport,
    VerifyReport,
    from_message,
    to_message,
)
from streamdr.workflow.run_context import RunContext

StageName = Literal["plan", "status", "fit", "transform", "reprocess", "compare", "verify", "summarise"]
"""What can be requested."""

REPORTS: dict[StageName, type[Report]] = {
    "plan": PlanReport,
    "status": StatusReport,
    "fit": FitReport,
    "transform": TransformReport,
    "reprocess": ReprocessReport,
    "compare": CompareReport,
    "verify": VerifyReport,
    "summarise": SummaryReport,
}
"""What comes of each."""


@dataclass(frozen=True)
class StageRequest:
    """What is to be done."""

    act: StageName
    configurations: Sequence[dict[str, Any]]
    """One, as plain data, or several where the act is to reprocess."""
    fresh: bool = False
    reports: StagesReport = field(default_factory=StagesReport)
    """What the stages before it reported, for a summary."""
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What opens remote stores, beyond what the environment says. It goes through a pipe, and is not kept."""


class WorkerProcess:
    """The process that carries out requests. Another one takes the place of one that was lost or stopped."""

    def __init__(self) -> None:
        self._worker = Worker(__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._worker.pid

    def run(self, request: StageRequest, progress: Progress) -> Any:
        """Have a request carried out, and return its report, one of `REPORTS`, or raise a StageError.

        Whatever interrupts the waiting, a signal's handler for one, stops the work as well, after a
        checkpoint if that can be had within seconds.
        """
        if self._worker.exit_code is not None:
            self._worker = Worker(__name__)
        try:
            self._worker.send(to_message(request))
            report = self._worker.read(progress)
        except StageError:
            raise
        except BaseException:
            self._worker.stop()
            raise
        assert report is not None  # it was waited for without a limit
        return from_message(REPORTS[request.act], report)


def main() -> None:
    """Carry out requests from standard input until there are no more."""
    serve(_answer_all, int(sys.argv[1]), os.dup(0), os.dup(1))


def _answer_all(channel: Channel) -> None:
    console.silence_libraries()
    for received in channel.requests():
        console.answer(channel, partial(_act, from_message(StageRequest, received), channel))


def _act(request: StageRequest, channel: Channel) -> dict[str, Any]:
    with addresses.storage_options(request.storage):
        return to_message(_carried_out(request, channel))


def _carried_out(request: StageRequest, channel: Channel) -> Report:
    if request.act == "compare":
        from streamdr.workflow import comparison  # which brings scikit-learn along

        given = read_comparison(request.configurations[0])
        return comparison.compare(given, channel, channel.stop, fresh=request.fresh)
    stages = [
        RunContext(read(given), channel, channel.stop, request.fresh) for given in request.configurations
    ]
    acts: dict[StageName, Callable[[RunContext], Report]] = {
        "plan": pipeline.dry_run,
        "status": pipeline.status,
        "fit": pipeline.fit,
        "transform": pipeline.transform,
        "verify": verification.verify,
        "summarise": lambda stage: summary.summarise(stage, request.reports),
        "reprocess": lambda stage: pipeline.reprocess(stages),
    }
    return acts[request.act](stages[0])


if __name__ == "__main__":
    main()
