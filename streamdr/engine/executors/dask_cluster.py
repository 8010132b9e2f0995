"""The executor on a dask cluster: results stay on the workers, and are merged there.

dask estimates the time of a task by that of others whose keys begin with the same word, and takes tasks for
readers of data if they depend on a few others only. So keys begin with the name of the function. Tasks that
read then go to any worker that is free, also to one that has joined late. Merges go to a worker that holds
one of the two results, and before tasks that read, so that results do not accumulate.

When a worker dies, dask computes its results again. `LostError` is raised where that is impossible: for tasks
that are blamed for the deaths of workers, and for everything if the scheduler is lost.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import dask
from distributed import CancelledError, Client, Future, KilledWorker, WorkerPlugin
from threadpoolctl import threadpool_limits

from streamdr.engine.executors.base import KilledError, LostError, merged
from streamdr.engine.executors.held import Held, value_of
from streamdr.engine.executors.identity import (
    ForeignWorkerError,
    difference,
    identity,
    identity_now,
    run_as,
)
from streamdr.engine.merge_tree import RUN
from streamdr.errors import EngineError, Interrupted, StreamdrError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
_KEPT = 32 << 20
_LONG_RUNS = 2
"""How many long runs must remain for each worker for tasks to be long, so that all workers end together."""
_FIRST = 1
"""The priority of tasks that do not read."""
_POLL_SECONDS = 0.2
_CHECK_SECONDS = 2.0
_RECONNECT_SECONDS = 12.0
"""A little longer than a client itself tries to reconnect to its scheduler."""


class Tuning(WorkerPlugin):
    """Settings of every worker process, including those that join later.

    One BLAS thread, since tasks run in parallel and bits must not depend on the number of threads. dask
    workers configure the allocator to return every freed block to the system. Allocating it again costs as
    much as decoding it, so enough memory for the next block is kept.
    """

    name = "streamdr-tuning"

    def setup(self, worker: Any) -> None:
        """Apply the settings. dask calls this on each worker."""
        threadpool_limits(1)
        if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
            mallopt(_M_MMAP_THRESHOLD, _KEPT)
            mallopt(_M_TRIM_THRESHOLD, 4 * _KEPT)


@dataclass(frozen=True)
class WorkerPolicy:
    """What is expected of the workers of a cluster."""

    expected: int = 0
    """The number of workers that the cluster will have."""
    patience: float = 30.0
    """The number of seconds for which there may be no worker."""
    replace: Callable[[], None] = lambda: None
    """Starts new workers for those that have ended for good. Calling it is harmless if none has."""


class Dask:
    """Runs tasks on the workers of a scheduler."""

    run = RUN
    shares_futures = True

    def __init__(self, client: Client, policy: WorkerPolicy, stop: Event) -> None:
        self.stopped = _never
        self.count: Callable[[int], None] = _uncounted
        self._client = client
        self._policy = policy
        self._stop = stop
        self._watch = WorkerWatch(client, policy.patience)
        self._prepare()
        self.workers: int = max(policy.expected, sum(client.nthreads().values()))
        self.long_runs = _LONG_RUNS * self.workers
        self._kept: tuple[Any, Future[Any]] | None = None
        self._placed: WeakKeyDictionary[Future[Any], Any] = WeakKeyDictionary()

    def counted(self) -> int:
        """Return 0: workers report whole tasks only."""
        return 0

    def share(self, value: Any) -> Future[Any]:
        """Send a value once, and copy it from worker to worker."""
        return self._shared("share", value)

    def keep(self, value: Any) -> Future[Any]:
        """Share a value, and keep it on the workers until another one is kept."""
        if self._kept is None or self._kept[0] is not value or self._kept[1].status != "finished":
            self._kept = value, self._shared("keep", value)
        return self._kept[1]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task."""
        return self._submit(function.__name__.strip("_"), function, *arguments)

    def merge(self, earlier: Future[Any], later: Future[Any]) -> Future[Any]:
        """Merge on a worker, into a copy: dask may run a task twice, so it must not modify its arguments."""
        return self._submit("merge", merged, earlier, later, priority=_FIRST)

    def place(self, value: Any) -> Future[Any]:
        """Send a value as if a task had computed it, so that the scheduler can restore it like any result.

        Values that are scattered to workers are lost with them. As long as the handle is used, the value
        stays here too, so that the next checkpoint does not move what has not changed since.
        """
        known = next((handle for handle, placed in self._placed.items() if placed is value), None)
        if known is not None and known.status == "finished":
            return known
        handle = self._sent("place", value)
        self._placed[handle] = value
        return handle

    def _shared(self, word: str, value: Any) -> Future[Any]:
        shared = self._sent(word, value)
        # If a worker died meanwhile, the missing copy is made when a task needs it.
        with suppress(Exception):
            self._client.replicate([shared], callback_timeout=_RECONNECT_SECONDS)
        return shared

    def _sent(self, word: str, value: Any) -> Future[Any]:
        # dask would warn that large arguments should be sent only once. This is how they are sent once.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):
            return self._submit(word, _identity_function, Held(value), priority=_FIRST)

    def _submit(
        self, word: str, function: Callable[..., Any], *arguments: Any, priority: int = 0
    ) -> Future[Any]:
        """Start a task whose key begins with a word."""
        key = f"{word}-{uuid4().hex}"
        # dask would look for other tasks in every element of a list, which takes longer than all else.
        opaque = (Held(each) if isinstance(each, list | tuple) else each for each in arguments)
        with self._noticing_loss():
            return self._client.submit(
                held_by, Held(identity()), function, *opaque, key=key, priority=priority, pure=False
            )

    def finished(self, handle: Future[Any], timeout: float) -> bool:
        """Wait for a task to end."""
        if ended := _ended(handle, timeout):
            return ended
        self._policy.replace()
        self._watch.check()
        return False

    def check(self, handle: Future[Any]) -> None:
        """Raise the exception of the task, if it failed, without fetching its result."""
        if handle.status != "finished":
            self.result(handle)

    def result(self, handle: Future[Any]) -> Any:
        """Fetch the task's value, or raise its exception. A value that was placed is here already."""
        if handle in self._placed:
            return self._placed[handle]
        while not self.finished(handle, _POLL_SECONDS):
            pass  # it was lost after it had finished, and is computed again
        with self._noticing_loss(handle):
            return value_of(handle.result())

    def width(self, planned: int) -> int:
        """Return twice the number of workers. Results wait in the memory of the workers, not here."""
        return 2 * self.workers

    def cancel(self, handles: Iterable[Future[Any]]) -> None:
        """Cancel the tasks."""
        if self._client.status == "running":
            self._client.cancel(list(handles), force=True)

    def recover(self) -> None:
        """Wait until the scheduler, if it was lost, is connected again, and until there is a worker."""
        deadline = time.monotonic() + _RECONNECT_SECONDS
        while self._client.status == "connecting" and time.monotonic() < deadline and not self._stop.is_set():
            time.sleep(_POLL_SECONDS)
        if self._client.status != "running":
            raise _disconnected(self._client)
        self._prepare()

    def _prepare(self) -> None:
        require_workers(self._client, self._policy, self._stop)
        self._client.register_plugin(Tuning())

    @contextmanager
    def _noticing_loss(self, handle: Future[Any] | None = None) -> Iterator[None]:
        try:
            yield
        except KilledWorker as error:
            attempts = error.allowed_failures + 1
            raise KilledError(f"{attempts} workers died while they ran {error.task}", attempts) from error
        except (CancelledError, OSError, TimeoutError) as error:
            if handle is not None and handle.status == "error":
                raise  # raised by the task itself, for example because a disk is full
            raise LostError(
                f"{_address(self._client)}: results were lost with the workers that held them"
            ) from error
        except Exception as error:
            if self._client.status in ("connecting", "closing", "closed"):
                raise LostError(
                    f"{_address(self._client)}: the connection to the dask scheduler was lost"
                ) from None
            if not isinstance(error, StreamdrError):
                # Other versions of the code may not be able to unpickle a task.
                _require_same_code(self._client)
                _require_same_code_of_scheduler(self._client)
            raise


class WorkerWatch:
    """Ends a run that has no workers any more, for example after a network failure."""

    def __init__(self, client: Client, patience: float) -> None:
        self._client = client
        self._patience = patience
        self._empty_since = math.inf
        self._next_check = 0.0

    def check(self) -> None:
        """Check from time to time whether there are workers. Raise if there were none for too long."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        scheduler: Any = self._client.scheduler
        try:
            workers = self._client.sync(scheduler.ncores, callback_timeout=_CHECK_SECONDS)
        except (OSError, TimeoutError):
            return  # the connection detects a scheduler that does not answer
        self._empty_since = math.inf if workers else min(self._empty_since, now)
        if now - self._empty_since >= self._patience:
            raise _no_workers(self._client, self._patience)


def require_workers(client: Client, policy: WorkerPolicy, stop: Event) -> None:
    """Wait until a first worker has run a task, and check that all workers have the code of this process."""
    watch = WorkerWatch(client, policy.patience)
    probe = client.submit(os.getpid, pure=False)
    while not _ended(probe, _POLL_SECONDS):
        if stop.is_set():
            raise Interrupted("stopped while waiting for a worker")
        watch.check()  # workers that are busy with other tasks are waited for
        policy.replace()
    if probe.status != "finished":
        raise _disconnected(client)
    _require_same_code(client)


def _require_same_code(client: Client) -> None:
    """Refuse workers whose results could differ from those of this process."""
    found = client.run(identity_now, on_error="return")
    for worker, there in found.items():
        if not isinstance(there, tuple):
            every: Any = client.get_versions(packages=["streamdr"])
            if worker not in every["workers"]:
                continue  # it has ended meanwhile
            versions = every["workers"][worker]["packages"]
            reported = {"streamdr": versions.get("streamdr") or "", "code": "unknown"}
            there = tuple((dict(identity()) | reported).items())
        if there != identity():
            raise ForeignWorkerError(difference(worker, there, identity()))


def _require_same_code_of_scheduler(client: Client) -> None:
    """Refuse a scheduler with other code, which may not be able to unpickle messages. It computes nothing."""
    try:
        there: tuple[tuple[str, str], ...] = client.run_on_scheduler(identity_now)
    except Exception:  # it has no streamdr, or an old version
        there = ()
    if there != identity():
        raise EngineError(
            f"{_address(client)}: this dask scheduler has no streamdr, or another version than this process, "
            "and cannot read its messages; install the same version there, restart it, and run again"
        )


def _ended(future: Future[Any], seconds: float) -> bool:
    """Wait up to `seconds` for a future. Return whether it has finished or failed."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True


def _no_workers(client: Client, seconds: float) -> EngineError:
    return EngineError(
        f"{_address(client)}: the dask scheduler has had no workers for {seconds:g} seconds; start some "
        "(dask worker ADDRESS), and run again"
    )


def _disconnected(client: Client) -> EngineError:
    return EngineError(
        f"{_address(client)}: the connection to the dask scheduler was lost and did not come back; check "
        "that it still runs, and run again: the run continues from the last checkpoint"
    )


def _address(client: Client) -> str:
    scheduler: Any = client.scheduler
    return str(scheduler.address) if scheduler is not None else "dask"


def held_by(expected: Held, function: Callable[..., Any], *arguments: Any) -> Held:
    """Run a task on a worker, and return its result as a value that the worker holds."""
    return Held(run_as(expected.value, function, *map(value_of, arguments)))


def _identity_function(value: Any) -> Any:
    return value


def _uncounted(lines: int) -> None:
    """Count nothing, since a worker reports whole tasks only."""


def _never() -> bool:
    return False
