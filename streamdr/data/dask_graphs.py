"""The graph of a dask array, flattened once. Parts of it are computed in this process or on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from dask.callbacks import Callback
from dask.core import get_deps
from dask.sizeof import sizeof

from streamdr.core.byte_sizes import format_bytes
from streamdr.core.execution import current
from streamdr.core.system import memory_limit
from streamdr.data.dask_stores import direct_nodes
from streamdr.data.remote_results import at_hand
from streamdr.data.shared_tasks import Key, keys_to_hold, repetition
from streamdr.errors import DataError

_MAX_SENT_BYTES = 64 << 20
"""Arrays in the graph that are larger than this, in bytes, are not sent to a cluster."""
_SHARE = 4
"""Shared results may take the memory limit divided by this number."""
_MAX_REPETITION = 8.0
"""How often, on average, work may be repeated if the shared results do not fit in memory."""


@dataclass(frozen=True)
class Held:
    """A computed result as a task of a graph. The value may be of any type; dask does not interpret it."""

    value: Any

    def __call__(self) -> Any:
        """Return the value."""
        return self.value


class Graph:
    """The tasks that compute the chunks of an array, and the dask client that computes them, if any.

    A client is required if its cluster holds some of the results. Otherwise the client that dask itself would
    use computes them, unless the graph contains large arrays of this process: these would be sent with every
    chunk.
    """

    def __init__(self, array: Any) -> None:
        # Slicing the array for each block would traverse the whole graph each time. The total time would be
        # quadratic in the number of blocks.
        (optimised,) = dask.optimize(array)
        self.name: str = optimised.name
        self._tasks: dict[Key, Any] = dict(optimised.__dask_graph__())
        self._futures: dict[Key, Any] = futures_in(array)
        self._tasks |= self._futures  # dask.optimize leaves them out
        self._dependencies: dict[Key, set[Key]] = get_deps(self._tasks)[0]
        self._direct = direct_nodes(self._tasks)

    def __getstate__(self) -> dict[str, Any]:
        """Return the graph without futures, which a worker receives as results at hand."""
        tasks = {key: task for key, task in self._tasks.items() if key not in self._futures}
        return self.__dict__ | {"_tasks": tasks, "_futures": {}}

    def futures(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return the futures of the results on a cluster that are needed to compute the keys."""
        return {key: self._futures[key] for key in self._needed(keys) if key in self._futures}

    def hold(self, results: dict[Key, Any]) -> None:
        """Replace tasks by their results."""
        self._tasks |= {key: self._futures.get(key) or (Held(value),) for key, value in results.items()}
        self._dependencies |= {key: set() for key in results}

    def shared(
        self, bands: Sequence[Sequence[Key]], blocks: Sequence[Sequence[Key]], name: str
    ) -> dict[Key, Any]:
        """Compute the results that bands share and return them; none if it is cheap to compute them again.

        `bands` are the keys of the smallest reads, `blocks` those of reads of the usual size.
        """
        available = set(self._futures)
        wanted = keys_to_hold(self._dependencies, bands, available)
        if not wanted:
            return {}
        limit = (current().memory_limit or memory_limit()) // _SHARE
        try:
            return self._computed_within(sorted(wanted, key=str), limit, self.client(name))
        except _TooLarge:
            repeated = repetition(self._dependencies, blocks, available)
            if repeated <= _MAX_REPETITION:
                return {}
            raise DataError(
                f"{name}: the results that its blocks share take more than {format_bytes(limit)}, and would "
                "be computed again for every block; write the array to a store first, as in "
                "array.to_zarr('x.zarr'), or keep it in memory with persist()"
            ) from None

    def compute(self, keys: Sequence[Key], client: Any = None) -> list[Any]:
        """Return the results of tasks, computed in the calling thread or by a client."""
        if client is not None:
            results: list[Any] = client.get(self._part(keys), list(keys), sync=True)
            return results
        return list(dask.get(self._part_here(keys), list(keys)))

    def client(self, name: str) -> Any:
        """Return the client that computes the tasks, or None for the calling thread."""
        if "distributed" not in sys.modules or _in_a_worker():
            return None
        if self._futures:
            found = next(iter(self._futures.values())).client
            if found is None or found.status != "running":
                raise DataError(
                    f"{name}: its chunks were held by a client that is closed; persist() it again with an "
                    "open client"
                )
            return found
        found = active_client()
        return None if found is None or self._has_large_arrays() else found

    def _has_large_arrays(self) -> bool:
        """Whether the graph contains arrays of this process that are too large to send to a cluster."""
        total = 0
        for task in self._tasks.values():
            inner = getattr(task, "value", None)
            for value in (task, inner, *getattr(task, "args", ())):
                total += value.nbytes if isinstance(value, np.ndarray) else 0
            if total > _MAX_SENT_BYTES:
                return True
        return False

    def _computed_within(self, keys: list[Key], limit: int, client: Any) -> dict[Key, Any]:
        """Compute results, and raise `_TooLarge` if they take more than `limit` bytes."""
        if client is not None:
            return self._fetched_within(client, keys, limit)
        wanted, sizes = set(keys), {"total": 0}

        def add_size(key: Key, value: Any, *_: Any) -> None:
            if key in wanted:
                sizes["total"] += sizeof(value)
                if sizes["total"] > limit:
                    raise _TooLarge

        with Callback(posttask=add_size):
            values = dask.threaded.get(self._part_here(keys), keys, num_workers=current().workers)
        return dict(zip(keys, values, strict=True))

    def _fetched_within(self, client: Any, keys: list[Key], limit: int) -> dict[Key, Any]:
        """Compute results on a cluster and fetch them, unless they take more than `limit` bytes."""

        from distributed import wait

        pending = client.get(self._part(keys), keys, sync=False)
        with client.as_current():
            wait(pending)
        sizes = client.nbytes(summary=False)
        if sum(sizes.get(future.key, 0) for future in pending) > limit:
            raise _TooLarge
        futures = dict(zip(keys, pending, strict=True))
        values: dict[Key, Any] = client.gather(futures)
        # The cluster already has results under these keys. It must not receive other tasks for them.
        self._futures |= futures
        return values

    def _part(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return the tasks that are needed to compute the keys."""
        return {key: self._tasks[key] for key in self._needed(keys)}

    def _part_here(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Return the tasks for this process: with results at hand, and stores that are read directly."""
        results = at_hand()
        return {
            key: (Held(results[key]),) if key in results else self._direct.get(key) or self._tasks[key]
            for key in self._needed(keys, results)
        }

    def _needed(self, keys: Sequence[Key], results: Collection[Key] = ()) -> set[Key]:
        """Return the keys, and those of the tasks that they depend on, up to the results."""
        found = set(keys)
        pending = list(found)
        while pending:
            key = pending.pop()
            if key not in results:
                fresh = self._dependencies[key] - found
                found |= fresh
                pending.extend(fresh)
        return found


class _TooLarge(Exception):  # noqa: N818  (it is caught here)
    """The shared results do not fit in memory."""


def futures_in(array: Any) -> dict[Key, Any]:
    """Return the futures in the graph of an array: results that a cluster holds."""
    if "distributed" not in sys.modules:
        return {}
    future = sys.modules["distributed"].Future
    return {key: value for key, value in array.__dask_graph__().items() if isinstance(value, future)}


def active_client() -> Any:
    """Return the client that dask would use now, or None, as on a worker."""
    if "distributed" not in sys.modules or _in_a_worker():
        return None
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, sys.modules["distributed"].Client) else None


def _in_a_worker() -> bool:
    """Whether this code runs on a dask worker."""

    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True
