"""A dask cluster as an engine: results stay on the workers, and merge there.

What a task computed, dask computes again when the worker that held it dies. `LostError` says what it could
not do so for: tasks that are blamed for the deaths of workers, and everything when the scheduler is gone.
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

import dask
from distributed import CancelledError, Client, Future, KilledWorker, WorkerPlugin
from threadpoolctl import threadpool_limits

from streamdr.engine.executors.base import KilledError, LostError, merged
from streamdr.engine.executors.identity import ForeignWorkerError, difference, identity, identity_now, run_as
from streamdr.engine.merge_tree import RUN
from streamdr.errors import EngineError, Interrupted, StreamdrError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
_KEPT = 32 << 20
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 2.0
_RECONNECT_SECONDS = 12.0
"""A little longer than a client itself tries to find its scheduler again."""


class Tuning(WorkerPlugin):
    """What holds for a worker's process, whoever started it, now or later.

    One BLAS thread, since tasks are the parallelism and bits must not depend on it; blocks reused. dask's
    workers tell the allocator to hand every freed block back to the system. Taking it again costs as much
    as decoding it: keep what the next block needs.
    """

    name = "streamdr-tuning"

    def setup(self, worker: Any) -> None:
        """Called on each worker."""
        threadpool_limits(1)
        if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
            mallopt(_M_MMAP_THRESHOLD, _KEPT)
            mallopt(_M_TRIM_THRESHOLD, 4 * _KEPT)


@dataclass(frozen=True)
class WorkerPolicy:
    """What is known of a cluster's workers beforehand."""

    expected: int = 0
    """How many there will be some time."""
    patience: float = 30.0
    """How many seconds there may be none."""
    replace: Callable[[], None] = lambda: None
    """Starts others for those that ended for good. There is no harm in calling it when none did."""


class Dask:
    """The workers of one client's scheduler."""

    run = RUN

    def __init__(self, client: Client, staff: WorkerPolicy, stop: Event) -> None:
        self.stopped = _never
        self.count: Callable[[int], None] = _uncounted
        self._client = client
        self._staff = staff
        self._stop = stop
        self._attendance = WorkerWatch(client, staff.patience)
        self._prepare()
        self.workers: int = max(staff.expected, sum(client.nthreads().values()))

    def counted(self) -> int:
        """None: workers tell of whole tasks only."""
        return 0

    def share(self, value: Any) -> Future[Any]:
        """Send a value once, and copy it from worker to worker."""
        shared = self.place(value)
        # A copy that could not be made, since a worker died meanwhile, is made when a task asks for it.
        with suppress(Exception):
            self._client.replicate([shared], callback_timeout=_RECONNECT_SECONDS)
        return shared

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Start a task."""
        with self._noticing_loss():
            return self._client.submit(run_as, identity(), function, *arguments, pure=False)

    def merge(self, earlier: Future[Any], later: Future[Any]) -> Future[Any]:
        """Merge on a worker, into a copy: a task must not change what it was given, dask may run it twice."""
        return self.submit(merged, earlier, later)

    def place(self, value: Any) -> Future[Any]:
        """Send a value as if a task had computed it: the scheduler can have it again, as it can any result.

        What is merely scattered to workers is gone with them.
        """
        # dask would say that large arguments should travel once. This is how they do.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):
            return self.submit(_itself, value)

    def finished(self, handle: Future[Any], timeout: float) -> bool:
        """Wait for a task to end."""
        if ended := _ended(handle, timeout):
            return ended
        self._staff.replace()
        self._attendance.check()
        return False

    def check(self, handle: Future[Any]) -> None:
        """Raise what the task raised, without fetching what it gave."""
        if handle.status != "finished":
            self.result(handle)

    def result(self, handle: Future[Any]) -> Any:
        """Fetch the task's value, or raise its exception."""
        while not self.finished(handle, _POLL_SECONDS):
            pass  # it was lost after it had ended, and is computed again
        with self._noticing_loss(handle):
            return handle.result()

    def width(self, planned: int) -> int:
        """Results wait on the workers, which have memory of their own: keep all of them busy."""
        return 2 * self.workers

    def cancel(self, handles: Iterable[Future[Any]]) -> None:
        """Cancel the tasks."""
        if self._client.status == "running":
            self._client.cancel(list(handles), force=True)

    def recover(self) -> None:
        """Wait for the scheduler, if it is that which was lost, to come back, and for a worker."""
        deadline = time.monotonic() + _RECONNECT_SECONDS
        while self._client.status == "connecting" and time.monotonic() < deadline and not self._stop.is_set():
            time.sleep(_POLL_SECONDS)
        if self._client.status != "running":
            raise _disconnected(self._client)
        self._prepare()

    def _prepare(self) -> None:
        require_workers(self._client, self._staff, self._stop)
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
                raise  # by the task itself: a disk that is full, say
            raise LostError(
                f"{_address(self._client)}: results were lost with the workers that held them"
            ) from error
        except Exception as error:
            if self._client.status in ("connecting", "closing", "closed"):
                raise LostError(
                    f"{_address(self._client)}: the connection to the dask scheduler was lost"
                ) from None
            if not isinstance(error, StreamdrError):
                # Code of another version may not even know what it was sent.
                _require_same_code(self._client)
                _require_same_code_of_scheduler(self._client)
            raise


class WorkerWatch:
    """Ends a run whose workers have all left, as by a cut of the network, instead of waiting for ever."""

    def __init__(self, client: Client, patience: float) -> None:
        self._client = client
        self._patience = patience
        self._deserted_at = math.inf
        self._next_look = 0.0

    def check(self) -> None:
        """Look, now and then, whether there is a worker; raise when there has been none for too long."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        scheduler: Any = self._client.scheduler
        try:
            workers = self._client.sync(scheduler.ncores, callback_timeout=_LOOK_SECONDS)
        except (OSError, TimeoutError):
            return  # a scheduler that does not answer is noticed by its connection
        self._deserted_at = math.inf if workers else min(self._deserted_at, now)
        if now - self._deserted_at >= self._patience:
            raise _deserted(self._client, self._patience)


def require_workers(client: Client, staff: WorkerPolicy, stop: Event) -> None:
    """Wait for a first worker, by asking for one, and see that workers run what runs here."""
    attendance = WorkerWatch(client, staff.patience)
    asked = client.submit(os.getpid, pure=False)
    while not _ended(asked, _POLL_SECONDS):
        if stop.is_set():
            raise Interrupted("stopped while waiting for a worker")
        attendance.check()  # those that are busy with somebody else's tasks are waited for
        staff.replace()
    if asked.status != "finished":
        raise _disconnected(client)
    _require_same_code(client)


def _require_same_code(client: Client) -> None:
    """Refuse workers whose results could differ, in the last bits or altogether, from those computed here."""
    found = client.run(identity_now, on_error="return")
    for worker, there in found.items():
        if not isinstance(there, tuple):
            every: Any = client.get_versions(packages=["streamdr"])
            versions = every["workers"][worker]["packages"]
            reported = {"streamdr": versions.get("streamdr") or "", "code": "unknown"}
            there = tuple((dict(identity()) | reported).items())
        if there != identity():
            raise ForeignWorkerError(difference(worker, there, identity()))


def _require_same_code_of_scheduler(client: Client) -> None:
    """Refuse a scheduler that may not know what passes through it. It computes nothing with what it knows."""
    try:
        there: tuple[tuple[str, str], ...] = client.run_on_scheduler(identity_now)
    except Exception:  # it has no streamdr, or one of long ago
        there = ()
    if there != identity():
        raise EngineError(
            f"{_address(client)}: this dask scheduler has no streamdr, or another one than this process, and "
            "does not understand what it is sent; install the same one there, start it again, and run again"
        )


def _ended(future: Future[Any], seconds: float) -> bool:
    """Wait for a future to be decided, well or badly, for so many seconds; whether it is."""
    try:
        future.exception(timeout=seconds)
    except TimeoutError:
        return False
    return True


def _deserted(client: Client, seconds: float) -> EngineError:
    return EngineError(
        f"{_address(client)}: the dask scheduler has had no workers for {seconds:g} seconds; start some "
        "(dask worker ADDRESS), and run again"
    )


def _disconnected(client: Client) -> EngineError:
    return EngineError(
        f"{_address(client)}: the connection to the dask scheduler was lost and did not come back; see "
        "whether it still runs, and run again: work goes on at the last checkpoint"
    )


def _address(client: Client) -> str:
    scheduler: Any = client.scheduler
    return str(scheduler.address) if scheduler is not None else "dask"


def _itself(value: Any) -> Any:
    return value


def _uncounted(lines: int) -> None:
    """Stands for counting lines, on a worker."""


def _never() -> bool:
    return False
