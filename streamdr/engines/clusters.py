"""The clusters that can be started by name, and every way to an engine on one.

A name stands for one class of one package. Nothing else is ever imported on a configuration's word.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from typing import Any, Literal

import dask
from distributed import Client, Nanny, SpecCluster

from streamdr.engines.connecting import CONNECT_SECONDS, OPEN_TO_OTHERS, certificates, is_loopback, join
from streamdr.engines.dask_cluster import Dask, Staff
from streamdr.errors import EngineError, ParameterError
from streamdr.settings import Cluster, Execution

ALLOWED_FAILURES = 2
"""How many workers a task may take with it before dask holds it to be the cause. The next one is the last."""
_START_SECONDS = 120.0
_RESTART_SECONDS = 3.0
"""How long a worker's process may be missing before its nanny is taken to have given up."""
_CEILING = 2
"""A worker is ended when it takes twice what it promised to keep to: the machine comes first."""


@dataclass(frozen=True)
class Kind:
    """Where a class of clusters comes from, and how its scheduler and workers are kept from others."""

    module: str
    attribute: str
    package: str
    privacy: Literal["loopback", "certificates", "its own", "none"]


KNOWN: dict[str, Kind] = {
    "LocalCluster": Kind("distributed", "LocalCluster", "distributed", "loopback"),
    **{
        name: Kind("dask_jobqueue", name, "dask-jobqueue", "certificates")
        for name in (
            "SLURMCluster",
            "PBSCluster",
            "SGECluster",
            "LSFCluster",
            "HTCondorCluster",
            "OARCluster",
            "MoabCluster",
        )
    },
    "KubeCluster": Kind("dask_kubernetes.operator", "KubeCluster", "dask-kubernetes", "none"),
    "Coiled": Kind("coiled", "Cluster", "coiled", "its own"),
}


@contextmanager
def dask_engine(execution: Execution, workers: int, stop: Event) -> Iterator[Dask]:
    """The engine of a cluster that runs already, or of one that lasts as long as this context."""
    scheduler, cluster = execution.scheduler, execution.cluster
    if isinstance(scheduler, Client):
        yield Dask(scheduler, Staff(), stop)
    elif cluster is None and scheduler != "processes":
        with join(scheduler, execution) as client:
            yield Dask(client, Staff(), stop)
    else:
        wanted = cluster or Cluster("LocalCluster", workers=workers)
        with (
            start(wanted, execution, workers) as started,
            Client(started, timeout=CONNECT_SECONDS, set_as_default=False) as client,
        ):
            yield Dask(client, _staff(wanted, started), stop)


def start(cluster: Cluster, execution: Execution, workers: int) -> Any:
    """A cluster of a known kind, running and scaled. It is closed as a context."""
    kind = KNOWN[cluster.name]
    given = cluster.arguments or {}
    _require_private(kind, cluster, execution)
    arguments = {**_defaults(kind, cluster, execution, workers), **given}
    try:
        build = getattr(import_module(kind.module), kind.attribute)
    except ImportError as error:
        raise ParameterError(
            "cluster", f"{cluster.name} needs {kind.package}: pip install {kind.package}"
        ) from error
    try:
        with dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED_FAILURES}):
            started = build(**arguments)
        if cluster.adaptive is not None:
            started.adapt(minimum=cluster.adaptive.minimum, maximum=cluster.adaptive.maximum)
        elif cluster.workers is not None:
            started.scale(cluster.workers)
    except Exception as error:
        # Not chained: what a library says of its arguments may show them.
        said = without_values(f"{type(error).__name__}: {error}", given)
        raise EngineError(
            f"{cluster.name} could not be started: {said}; check execution.cluster.arguments"
        ) from None
    return started


def _staff(cluster: Cluster, started: Any) -> Staff:
    expected = cluster.adaptive.maximum if cluster.adaptive else cluster.workers or 0
    # A queue may take hours to give a first worker, and that is what it is for.
    patience = _START_SECONDS if cluster.name == "LocalCluster" else math.inf
    replaces = isinstance(started, SpecCluster)  # others see to that themselves
    return Staff(expected, patience, Replacing(started) if replaces else lambda: None)


class Replacing:
    """Starts workers for those that ended for good: jobs whose time was up, processes that nobody restarts.

    A nanny starts its worker again when it dies, but gives up on one that dies while it starts.
    """

    def __init__(self, cluster: SpecCluster) -> None:
        self._cluster = cluster
        self._missed: dict[Any, float] = {}

    def __call__(self) -> None:
        """Look after them, once."""
        wanted, now = len(self._cluster.worker_spec), time.monotonic()
        for name, worker in list(self._cluster.workers.items()):
            if not isinstance(worker, Nanny) or worker.is_alive():
                self._missed.pop(name, None)
            elif now - self._missed.setdefault(name, now) > _RESTART_SECONDS:
                del self._missed[name]
                self._cluster.worker_spec.pop(name, None)
        SpecCluster.scale(self._cluster, wanted)


def without_values(text: str, secret: Any) -> str:
    """The text with every word that `secret` holds, however deep, blotted out."""
    if isinstance(secret, dict):
        for value in secret.values():
            text = without_values(text, value)
    elif isinstance(secret, list):
        for value in secret:
            text = without_values(text, value)
    elif isinstance(secret, str) and secret:
        text = text.replace(secret, "***")
    return text


def _defaults(kind: Kind, cluster: Cluster, execution: Execution, workers: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if kind.privacy in ("loopback", "certificates") and execution.tls is not None:
        defaults |= {"security": certificates(execution.tls), "protocol": "tls://"}
    if kind.privacy == "loopback":
        # Nothing of this cluster is reachable from outside the machine, a dashboard included.
        defaults |= {"host": "127.0.0.1", "dashboard_address": None, "threads_per_worker": 1}
        defaults["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}  # its health page, which stays
        defaults["n_workers"] = 0 if cluster.adaptive else cluster.workers or workers
        if execution.memory_limit is not None:
            defaults["memory_limit"] = _CEILING * execution.memory_limit
    return defaults


def _require_private(kind: Kind, cluster: Cluster, execution: Execution) -> None:
    """Refuse to start what others on the network could use, unless that was said to be right."""
    given = cluster.arguments or {}
    encrypted = kind.privacy != "none" and (execution.tls is not None or given.get("security") is True)
    if encrypted or execution.insecure or kind.privacy == "its own":
        return
    if kind.privacy == "loopback":
        host = str(given.get("host", "127.0.0.1")).rpartition("://")[2]
        if "interface" not in given and is_loopback(host):
            return
    raise ParameterError(
        "cluster", f"{cluster.name} would listen on the network without encryption, and {OPEN_TO_OTHERS}"
    )
