"""The worker process of a flow: it runs stages on request.

One process serves any number of requests, because starting Python takes longer than some of them. A flow
sends a request and waits; the worker runs the stage, and answers with a report or an error.
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
"""The stages that can be requested."""

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
"""The report of each stage."""


@dataclass(frozen=True)
class StageRequest:
    """A request for a stage."""

    act: StageName
    configurations: Sequence[dict[str, Any]]
    """One configuration as plain data, or several for `reprocess`."""
    fresh: bool = False
    reports: StagesReport = field(default_factory=StagesReport)
    """The reports of earlier stages, for a summary."""
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Storage options for remote stores, besides the environment. They are sent by a pipe, and not kept."""


class WorkerProcess:
    """The process that serves requests. A process that was lost or stopped is replaced by a new one."""

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
        """Run a stage, and return its report, one of `REPORTS`, or raise a StageError.

        An exception that interrupts the waiting, for example from a signal handler, also stops the work,
        after a checkpoint if one can be written within seconds.
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
        assert report is not None  # `read` has no time limit here
        return from_message(REPORTS[request.act], report)


def main() -> None:
    """Serve requests from standard input until it is closed."""
    serve(_answer_all, int(sys.argv[1]), os.dup(0), os.dup(1))


def _answer_all(channel: Channel) -> None:
    console.silence_libraries()
    for received in channel.requests():
        console.answer(channel, partial(_answer, from_message(StageRequest, received), channel))


def _answer(request: StageRequest, channel: Channel) -> dict[str, Any]:
    with addresses.storage_options(request.storage):
        return to_message(_run_stage(request, channel))


def _run_stage(request: StageRequest, channel: Channel) -> Report:
    """Run the requested stage, and return its report."""
    if request.act == "compare":
        from streamdr.workflow import comparison  # imports scikit-learn

        given = read_comparison(request.configurations[0])
        return comparison.compare(given, channel, channel.stop, fresh=request.fresh)
    contexts = [
        RunContext(read(given), channel, channel.stop, request.fresh) for given in request.configurations
    ]
    stages: dict[StageName, Callable[[RunContext], Report]] = {
        "plan": pipeline.dry_run,
        "status": pipeline.status,
        "fit": pipeline.fit,
        "transform": pipeline.transform,
        "verify": verification.verify,
        "summarise": lambda context: summary.summarise(context, request.reports),
        "reprocess": lambda context: pipeline.reprocess(contexts),
    }
    return stages[request.act](contexts[0])


if __name__ == "__main__":
    main()
