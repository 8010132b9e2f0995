"""Replacement of workers that have ended for good: jobs that timed out, processes that are not restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distributed import Nanny, SpecCluster
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from streamdr.engine.executors.queues import end_of
from streamdr.errors import EngineError

_RESTART_SECONDS = 3.0
"""How long the process of a worker may be missing before its nanny counts as having given up."""
_REFUSALS = 3
"""How often a queue may refuse the first jobs."""
_DEATHS = 3
"""How many jobs in a row may end before their workers start, while there is no worker at all."""
_ASK_SECONDS = 30.0
_AGAIN_SECONDS = 5.0
_LONGEST_SECONDS = 600.0


class WorkerReplacement:
    """Replaces the workers of a cluster that have ended for good.

    A nanny restarts a worker that dies, but gives up on one that dies while it starts. dask does not resubmit
    a job that its queue refuses: it is submitted again here, and if no job was ever accepted, that is an
    error. Nor does dask notice that a job has ended before its worker started: another job is submitted, a
    few times.
    """

    def __init__(self, cluster: SpecCluster, name: str, hide: Callable[[str], str]) -> None:
        self._cluster = cluster
        self._name = name
        self._hide = hide
        self._missed: dict[Any, float] = {}
        self._refusals = 0
        self._next_submission = 0.0
        self._served: set[str] = set()
        self._deaths = 0
        self._next_question = time.monotonic() + _ASK_SECONDS

    def __call__(self) -> None:
        """Check all workers once."""
        wanted, now = len(self._cluster.worker_spec), time.monotonic()
        for name, worker in list(self._cluster.workers.items()):
            if not isinstance(worker, Nanny) or worker.is_alive():
                self._missed.pop(name, None)
            elif now - self._missed.setdefault(name, now) > _RESTART_SECONDS:
                del self._missed[name]
                self._dismiss(name)
        self._submit_again(now)
        self._give_up_ended(now)
        SpecCluster.scale(self._cluster, wanted)

    def _dismiss(self, name: Any) -> None:
        """Close a worker that has ended. The cluster then starts another with the same name."""
        if (worker := self._cluster.workers.pop(name, None)) is not None:
            loop: Any = self._cluster.loop
            loop.add_callback(worker.close)

    def _submit_again(self, now: float) -> None:
        refused = list(_jobs(self._cluster, Status.created).values())
        if not refused or now < self._next_submission:
            return
        try:
            self._cluster.sync(_submitted, refused[0])
            self._refusals = 0
        except Exception as error:
            self._refusals += 1
            if self._refusals >= _REFUSALS and len(refused) == len(self._cluster.workers):
                # Not chained: the message of a library may contain the arguments.
                raise EngineError(
                    f"{self._name}: the queue refuses the jobs of workers: {self._hide(_reason(error))}; "
                    "check execution.cluster.arguments, or submit a job of this kind by hand"
                ) from None
            wait = min(_AGAIN_SECONDS * 2**self._refusals, _LONGEST_SECONDS)
            self._next_submission = time.monotonic() + wait

    def _give_up_ended(self, now: float) -> None:
        """Ask the queue from time to time about the oldest job without a worker."""
        present = {worker["name"] for worker in list(self._cluster.scheduler_info["workers"].values())}
        jobs = _jobs(self._cluster, Status.running)
        serving = {job.job_id for name, job in jobs.items() if present & _worker_names(self._cluster, name)}
        if serving - self._served:
            self._served |= serving
            self._deaths = 0
        absent = next((name for name, job in jobs.items() if job.job_id not in serving), None)
        if absent is None or now < self._next_question:
            return
        self._next_question = now + _ASK_SECONDS
        if (report := end_of(self._name, jobs[absent].job_id)) is None:
            return
        jobs[absent].status = Status.failed
        self._dismiss(absent)
        self._deaths += jobs[absent].job_id not in self._served
        if self._deaths >= _DEATHS and not present:
            raise EngineError(
                f"{self._name}: {self._deaths} jobs ended before their workers had started; the queue says "
                f"of the last: {self._hide(report)}. Check their logs (log_directory in "
                "execution.cluster.arguments, or the folder in which they were submitted), and check that "
                "nodes have the same Python, the same streamdr and shared_temp_directory"
            )


def forget_jobs(cluster: Any) -> None:
    """Mark all jobs as failed, so that a cluster can end even if its jobs have ended before."""
    for job in list(cluster.workers.values()) if isinstance(cluster, SpecCluster) else []:
        if isinstance(job, ProcessInterface):
            job.status = Status.failed


def _jobs(cluster: SpecCluster, status: Status) -> dict[Any, Any]:
    """Return the jobs of a cluster in a state, by name: `created` if refused, `running` if submitted."""
    workers = list(cluster.workers.items())
    return {name: job for name, job in workers if isinstance(job, ProcessInterface) and job.status == status}


def _worker_names(cluster: SpecCluster, job: Any) -> set[str]:
    """Return the names of the workers of a job: one with the name of the job, or several numbered ones."""
    return {f"{job}{suffix}" for suffix in cluster.worker_spec.get(job, {}).get("group", [""])}


async def _submitted(job: ProcessInterface) -> None:
    await job


def _reason(error: Exception) -> str:
    """Return the output of the command that submits jobs, on one line."""
    text = str(error)
    return " ".join((text.partition("stderr:")[2].strip() or text or type(error).__name__).split())
