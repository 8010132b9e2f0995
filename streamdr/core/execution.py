"""Settings of how fits and transforms run: workers, memory limit, scheduler, ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from streamdr.core.addresses import Address, Location, parse_location
from streamdr.core.byte_sizes import parse_bytes
from streamdr.core.cluster_arguments import (
    MOST_LOCAL_WORKERS,
    MOST_WORKERS,
    check_arguments,
    exposing_argument,
)
from streamdr.errors import ParameterError

ClusterName = Literal[
    "LocalCluster",
    "SLURMCluster",
    "PBSCluster",
    "SGECluster",
    "LSFCluster",
    "HTCondorCluster",
    "OARCluster",
    "MoabCluster",
    "KubeCluster",
    "Coiled",
]


OPEN_TO_OTHERS = (
    "anyone who reaches that port can run code there. Use TLS (execution.tls: ca, cert and key), or set "
    "execution.insecure: true where the network itself keeps others out"
)


@dataclass(frozen=True)
class TLS:
    """The certificates that authenticate and encrypt the connections of a cluster.

    Parameters
    ----------
    ca : str
        The certificate (PEM) of the authority that signed all others.
    cert : str
        The certificate (PEM) of this client.
    key : str
        The key (PEM) of that certificate.
    """

    ca: str
    cert: str
    key: str


@dataclass(frozen=True)
class Adaptive:
    """The bounds within which the number of workers follows the work.

    Parameters
    ----------
    maximum : int
        The most workers.
    minimum : int
        The fewest workers.
    """

    maximum: int
    minimum: int = 0

    def __post_init__(self) -> None:
        require_count("maximum", self.maximum, MOST_WORKERS)
        if not 0 <= self.minimum <= self.maximum:
            raise ParameterError(
                "minimum", f"{self.minimum} is not between 0 and {self.maximum}, the maximum"
            )


@dataclass(frozen=True)
class Cluster:
    """A dask cluster that is started for a run, and stopped at its end.

    Parameters
    ----------
    name : str
        The kind of cluster: LocalCluster, a queue's (SLURMCluster, PBSCluster, SGECluster, LSFCluster,
        HTCondorCluster, OARCluster or MoabCluster, of dask-jobqueue), KubeCluster (of dask-kubernetes) or
        Coiled (of coiled).
    arguments : mapping or None
        The arguments of its class, as that class documents them: cores, memory, queue, walltime, image and
        the like. Arguments that run code or open ports are refused. Values are never shown.
    workers : int or None
        How many workers to request; null for the number in the arguments.
    adaptive : mapping or None
        Let the number of workers follow the work instead.
    """

    name: ClusterName
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    workers: int | None = None
    adaptive: Adaptive | None = None

    def __post_init__(self) -> None:
        local = self.name == "LocalCluster"
        most = MOST_LOCAL_WORKERS if local else MOST_WORKERS
        if self.workers is not None:
            require_count("workers", self.workers, most)
        if self.adaptive is not None and self.adaptive.maximum > most:
            raise ParameterError("adaptive", _too_many(self.adaptive.maximum, most))
        check_arguments(self.name, self.arguments or {})
        if self.workers is not None and self.adaptive is not None:
            raise ParameterError(
                "adaptive", "cannot be combined with workers, a fixed number; set one of them"
            )


@dataclass(frozen=True)
class Execution:
    """How a fit or a transform runs. It never changes the result."""

    workers: int | None = None
    """The number of threads or processes; None for one per core."""
    memory_limit: int | None = None
    """The peak memory of the process, in bytes; None for most of the free memory."""
    scheduler: Any = None
    """None or "threads", "processes", a dask scheduler's address or file, or a `distributed.Client`."""
    ledger: Location | None = None
    """Where finished and interrupted passes are stored; None to store none."""
    checkpoint_seconds: float = 5.0
    cluster: Cluster | None = None
    """A dask cluster to start, instead of a scheduler to join."""
    tls: TLS | None = None
    """The certificates, where the scheduler or the cluster uses TLS."""
    insecure: bool = False
    """Whether a cluster may be reached over a network without TLS."""

    def __post_init__(self) -> None:
        require_consistent_scheduler(self.scheduler, self.cluster, self.tls)
        require_private(self.cluster, self.insecure)
        if self.workers is not None:
            require_count("workers", self.workers, MOST_LOCAL_WORKERS)

    @property
    def in_process(self) -> bool:
        """Whether all work is done by threads of this process."""
        return self.cluster is None and self.scheduler in (None, "threads")


def require_consistent_scheduler(scheduler: Any, cluster: Cluster | None, tls: TLS | None) -> None:
    """Refuse settings of scheduler, cluster and TLS that contradict each other."""
    if scheduler is not None and cluster is not None:
        raise ParameterError(
            "cluster",
            "cannot be combined with scheduler; start a cluster, or connect to the scheduler of one",
        )
    encrypted = isinstance(scheduler, str) and scheduler.startswith(("tls://", "wss://"))
    by_file = isinstance(scheduler, str) and scheduler.endswith(".json")
    if tls is not None and not (cluster or encrypted or by_file):
        raise ParameterError(
            "tls",
            "is for a cluster, or for a scheduler whose address begins with tls://; leave it out",
        )


def require_private(cluster: Cluster | None, insecure: bool) -> None:
    """Refuse a cluster that other machines can reach without TLS, unless `insecure` allows it."""
    if cluster is None or insecure:
        return
    if cluster.name == "KubeCluster":
        what = "KubeCluster would listen on the network without encryption"
    elif (name := exposing_argument(cluster.name, cluster.arguments or {})) is not None:
        what = f"with the argument {name!r} {cluster.name} would listen to other machines"
    else:
        return
    raise ParameterError("cluster", f"{what}, and {OPEN_TO_OTHERS}")


def require_count(parameter: str, number: int, most: int) -> None:
    """Refuse numbers of workers that are not whole numbers from 1 to `most`."""
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise ParameterError(parameter, f"{number!r} is not a whole number")
    if number < 1:
        raise ParameterError(parameter, f"{number} is not at least 1")
    if number > most:
        raise ParameterError(parameter, _too_many(number, most))


def _too_many(number: int, most: int) -> str:
    return f"{number} is more than {most}, the largest number allowed; set it to the number of cores"


_current: ContextVar[Execution] = ContextVar("streamdr_execution")


def current() -> Execution:
    """The settings that are in force here."""
    return _current.get(Execution())


@contextmanager
def execution(
    *,
    workers: int | None = None,
    memory_limit: int | str | None = None,
    scheduler: Any = None,
    ledger: str | Path | None = None,
    checkpoint_seconds: float | None = None,
    cluster: Cluster | Mapping[str, Any] | None = None,
    tls: TLS | Mapping[str, str] | None = None,
    insecure: bool | None = None,
) -> Iterator[Execution]:
    """Set how fits and transforms in this block run.

    Parameters
    ----------
    workers : int or None
        How many threads, or tasks at once on a cluster; None for as many as there are cores.
    memory_limit : int, str or None
        The memory that a fit may take, in bytes or as text (`"2GiB"`); None for the free memory.
    scheduler : str, dask client or None
        The address of a running dask scheduler, or a client of it; None for threads of this process.
    ledger : str, Path, Address or None
        Where passes are stored, to resume and to append; None to store none.
    checkpoint_seconds : float or None
        How often an unfinished pass is saved to the ledger.
    cluster : Cluster, mapping or None
        A dask cluster to start for the block.
    tls : TLS, mapping or None
        The paths `ca`, `cert` and `key` of the certificates for a scheduler.
    insecure : bool or None
        Allow a scheduler without TLS on another machine.

    Yields
    ------
    setting : Execution
        The settings of this block. A parameter that is None keeps the value of the enclosing block.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> with streamdr.execution(workers=2, memory_limit="2GiB"):
    ...     pca = streamdr.PCA(n_components=2).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> pca.components_.shape
    (2, 5)
    """
    _require_type("ledger", ledger, str | os.PathLike | Address, "a path or an address")
    _require_type("cluster", cluster, Cluster | Mapping, "a mapping with the name of a cluster")
    _require_type("tls", tls, TLS | Mapping, "a mapping with the paths ca, cert and key")
    _require_type("checkpoint_seconds", checkpoint_seconds, int | float, "a number of seconds")
    if checkpoint_seconds is not None and not checkpoint_seconds >= 0:
        raise ParameterError("checkpoint_seconds", f"{checkpoint_seconds} is not a number of at least 0")
    given: dict[str, Any] = {
        "workers": workers,
        "memory_limit": None if memory_limit is None else parse_bytes(memory_limit),
        "ledger": None if ledger is None else parse_location(ledger),
        "checkpoint_seconds": checkpoint_seconds,
        "insecure": insecure,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if scheduler is not None or cluster is not None:
        # The scheduler differs from that of the enclosing block, and so do its certificates.
        chosen |= {"scheduler": scheduler, "cluster": _cluster(cluster), "tls": _tls(tls)}
    elif tls is not None:
        chosen["tls"] = _tls(tls)
    setting = replace(current(), **chosen)
    token = _current.set(setting)
    try:
        yield setting
    finally:
        _current.reset(token)


def _require_type(name: str, value: Any, kind: Any, words: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise ParameterError(name, f"{value!r} is not {words}")


def _cluster(given: Cluster | Mapping[str, Any] | None) -> Cluster | None:
    if not isinstance(given, Mapping):
        return given
    adaptive = given.get("adaptive")
    return Cluster(
        **{**given, "adaptive": Adaptive(**adaptive) if isinstance(adaptive, Mapping) else adaptive}
    )


def _tls(given: TLS | Mapping[str, str] | None) -> TLS | None:
    return TLS(**given) if isinstance(given, Mapping) else given
