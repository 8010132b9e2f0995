"""The graph of a dask array, flattened once, and how parts of it are computed: here, or by a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
from streamdr.data.shared_tasks import Key, keys_to_hold, repetition
from streamdr.errors import DataError

_LARGE = 64 << 20
"""Bytes of this process's own that are not sent to a cluster to be computed with."""
_SHARE = 4
"""What blocks share may take this part of the memory limit."""
_REPEATED = 8.0
"""How many times most of the work may be done, where what is shared does not fit in memory."""


@dataclass(frozen=True)
class Held:
    """A result that is known, as a task of a graph: values of any type, whatever they look like to dask."""

    value: Any

    def __call__(self) -> Any:
        """The value."""
        return self.value


class Graph:
    """The tasks that lead to the chunks of an array, and the client that has to compute them, if any.

    A client has to if some of the results are held by its cluster. It may if it is the one that dask itself
    would use, unless the graph carries much data of this process, which would travel with every chunk.
    """

    def __init__(self, array: Any) -> None:
        # Slicing the array for each block would go through the whole graph each time, and the time for all
        # blocks would grow with the square of their number.
        (optimised,) = dask.optimize(array)
        self.name: str = optimised.name
        self._tasks: dict[Key, Any] = dict(optimised.__dask_graph__())
        self._futures: dict[Key, Any] = futures_in(array)
        self._tasks |= self._futures  # which optimising leaves out
        self._dependencies: dict[Key, set[Key]] = get_deps(self._tasks)[0]

    def hold(self, known: dict[Key, Any]) -> None:
        """Take the results of some tasks as known."""
        self._tasks |= {key: self._futures.get(key) or (Held(value),) for key, value in known.items()}
        self._dependencies |= {key: set() for key in known}

    def shared(
        self, bands: Sequence[Sequence[Key]], blocks: Sequence[Sequence[Key]], name: str
    ) -> dict[Key, Any]:
        """The results that bands share, computed once; nothing where it costs little to compute them again.

        `bands` are computed together in the smallest reads, `blocks` in those of usual size.
        """
        given = set(self._futures)
        wanted = keys_to_hold(self._dependencies, bands, given)
        if not wanted:
            return {}
        limit = (current().memory_limit or memory_limit()) // _SHARE
        try:
            return self._computed_within(sorted(wanted, key=str), limit, self.client(name))
        except _TooLarge:
            again = repetition(self._dependencies, blocks, given)
            if again <= _REPEATED:
                return {}
            raise DataError(
                f"{name}: what its blocks share takes more than {format_bytes(limit)}, and would be computed "
                "again for every block; write it to a store first, as in array.to_zarr('x.zarr'), or keep it "
                "in memory with persist()"
            ) from None

    def compute(self, keys: Sequence[Key], client: Any = None) -> list[Any]:
        """The results of some tasks, in the calling thread, or by a client."""
        part = self._part(keys)
        if client is not None:
            results: list[Any] = client.get(part, list(keys), sync=True)
            return results
        return list(dask.get(part, list(keys)))

    def client(self, name: str) -> Any:
        """The client that has to compute, or may, in this process; None for the calling thread."""
        if "distributed" not in sys.modules or _in_a_worker():
            return None
        if self._futures:
            found = next(iter(self._futures.values())).client
            if found is None or found.status != "running":
                raise DataError(
                    f"{name}: its chunks were held by a client that is closed; persist() it again by one "
                    "that is open"
                )
            return found
        found = _active_client()
        return None if found is None or self._carries_much() else found

    def _carries_much(self) -> bool:
        total = 0
        for task in self._tasks.values():
            inner = getattr(task, "value", None)
            for value in (task, inner, *getattr(task, "args", ())):
                total += value.nbytes if isinstance(value, np.ndarray) else 0
            if total > _LARGE:
                return True
        return False

    def _computed_within(self, keys: list[Key], limit: int, client: Any) -> dict[Key, Any]:
        if client is not None:
            return self._fetched_within(client, keys, limit)
        wanted, sizes = set(keys), {"total": 0}

        def weigh(key: Key, value: Any, *_: Any) -> None:
            if key in wanted:
                sizes["total"] += sizeof(value)
                if sizes["total"] > limit:
                    raise _TooLarge

        with Callback(posttask=weigh):
            values = dask.threaded.get(self._part(keys), keys, num_workers=current().workers)
        return dict(zip(keys, values, strict=True))

    def _fetched_within(self, client: Any, keys: list[Key], limit: int) -> dict[Key, Any]:
        from distributed import wait

        pending = client.get(self._part(keys), keys, sync=False)
        with client.as_current():
            wait(pending)
        sizes = client.nbytes(summary=False)
        if sum(sizes.get(future.key, 0) for future in pending) > limit:
            raise _TooLarge
        known = dict(zip(keys, pending, strict=True))
        values: dict[Key, Any] = client.gather(known)
        # To the cluster these tasks have results, by the same names: it must not receive others.
        self._futures |= known
        return values

    def _part(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """The tasks that lead to some keys."""
        found = set(keys)
        pending = list(found)
        while pending:
            fresh = self._dependencies[pending.pop()] - found
            found |= fresh
            pending.extend(fresh)
        return {key: self._tasks[key] for key in found}


class _TooLarge(Exception):  # noqa: N818  (it is caught here)
    """What is shared does not fit."""


def futures_in(array: Any) -> dict[Key, Any]:
    """The chunks, of an array or of what it is computed from, that a cluster holds."""
    if "distributed" not in sys.modules:
        return {}
    future = sys.modules["distributed"].Future
    return {key: value for key, value in array.__dask_graph__().items() if isinstance(value, future)}


def _active_client() -> Any:
    """The client that dask would compute with now."""
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, sys.modules["distributed"].Client) else None


def _in_a_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True
