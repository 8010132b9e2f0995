"""Workers for those that ended for good: jobs whose time was up, processes that nobody restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distributed import Nanny, SpecCluster
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from streamdr.errors import EngineError

_RESTART_SECONDS = 3.0
"""How long a worker's process may be missing before its nanny is taken to have given up."""
_REFUSALS = 3
"""How often a queue may refuse the first jobs."""
_AGAIN_SECONDS = 5.0
_LONGEST_SECONDS = 600.0


class Replacing:
    """Looks after the workers of a cluster.

    A nanny starts its worker again when it dies, but gives up on one that dies while it starts. dask forgets
    a job that its queue refuses: it is submitted again, and where not one was ever taken, that is an error.
    """

    def __init__(self, cluster: SpecCluster, name: str, hide: Callable[[str], str]) -> None:
        self._cluster = cluster
        self._name = name
        self._hide = hide
        self._missed: dict[Any, float] = {}
        self._refusals = 0
        self._next_submission = 0.0

    def __call__(self) -> None:
        """Look after them, once."""
        wanted, now = len(self._cluster.worker_spec), time.monotonic()
        for name, worker in list(self._cluster.workers.items()):
            if not isinstance(worker, Nanny) or worker.is_alive():
                self._missed.pop(name, None)
            elif now - self._missed.setdefault(name, now) > _RESTART_SECONDS:
                del self._missed[name]
                self._cluster.worker_spec.pop(name, None)
        self._submit_again(now)
        SpecCluster.scale(self._cluster, wanted)

    def _submit_again(self, now: float) -> None:
        refused = _refused(self._cluster)
        if not refused or now < self._next_submission:
            return
        try:
            self._cluster.sync(_submitted, refused[0])
            self._refusals = 0
        except Exception as error:
            self._refusals += 1
            if self._refusals >= _REFUSALS and len(refused) == len(self._cluster.workers):
                # Not chained: what a library says of its arguments may show them.
                raise EngineError(
                    f"{self._name}: the queue refuses the jobs of workers: {self._hide(_reason(error))}; "
                    "check execution.cluster.arguments, or submit a job of this kind by hand"
                ) from None
            wait = min(_AGAIN_SECONDS * 2**self._refusals, _LONGEST_SECONDS)
            self._next_submission = time.monotonic() + wait


def forget_refused(cluster: Any) -> None:
    """Let a cluster end although its queue refused jobs: dask would miss them then."""
    for job in _refused(cluster) if isinstance(cluster, SpecCluster) else []:
        job.status = Status.failed


def _refused(cluster: SpecCluster) -> list[ProcessInterface]:
    jobs = [job for job in cluster.workers.values() if isinstance(job, ProcessInterface)]
    return [job for job in jobs if job.status == Status.created]


async def _submitted(job: ProcessInterface) -> None:
    await job


def _reason(error: Exception) -> str:
    """What the command that submits jobs said, on one line."""
    said = str(error)
    return " ".join((said.partition("stderr:")[2].strip() or said or type(error).__name__).split())
