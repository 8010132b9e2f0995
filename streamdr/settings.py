"""Where and within what bounds work runs: set once, for a block of code or from a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from streamdr.addresses import Address, Place, parse_place
from streamdr.cluster_arguments import MOST_LOCAL_WORKERS, MOST_WORKERS, check_arguments, opening
from streamdr.errors import ParameterError
from streamdr.sizes import parse_bytes

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
    """The files by which a cluster and its clients know each other, and encrypt what they say.

    Parameters
    ----------
    ca : str
        The certificate (PEM) of the authority that signed all others.
    cert : str
        The certificate (PEM) to show.
    key : str
        The key (PEM) of that certificate.
    """

    ca: str
    cert: str
    key: str


@dataclass(frozen=True)
class Adaptive:
    """How far a cluster may grow and shrink with the work that there is.

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
    """A dask cluster that is started for a run, and ended with it.

    Parameters
    ----------
    name : str
        The kind of cluster: LocalCluster, a queue's (SLURMCluster, PBSCluster, SGECluster, LSFCluster,
        HTCondorCluster, OARCluster or MoabCluster, of dask-jobqueue), KubeCluster (of dask-kubernetes) or
        Coiled (of coiled).
    arguments : mapping or None
        What its class takes, as its own documentation says: cores, memory, queue, walltime, image and the
        like. What would run code or open ports is refused. Values are never shown.
    workers : int or None
        How many workers to ask for; null for what the arguments say.
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
            raise ParameterError("adaptive", _beyond(self.adaptive.maximum, most))
        check_arguments(self.name, self.arguments or {})
        if self.workers is not None and self.adaptive is not None:
            raise ParameterError(
                "adaptive", "stands beside workers, which is a fixed number: give one of them"
            )


@dataclass(frozen=True)
class Execution:
    """How a fit or a transform runs. It never changes what comes out, only when and where."""

    workers: int | None = None
    """Threads, or processes; None for one a core."""
    memory_limit: int | None = None
    """Bytes that the process may take at its peak; None for most of what is free."""
    scheduler: Any = None
    """None or "threads", "processes", a dask scheduler's address or file, or a `distributed.Client`."""
    ledger: Place | None = None
    """Where finished and interrupted passes are remembered; None to remember nothing."""
    checkpoint_seconds: float = 5.0
    cluster: Cluster | None = None
    """A dask cluster to start, instead of a scheduler to join."""
    tls: TLS | None = None
    """How to prove and encrypt, where the scheduler or the cluster speaks TLS."""
    insecure: bool = False
    """Whether a cluster may be reached over a network without TLS."""

    def __post_init__(self) -> None:
        require_one_place(self.scheduler, self.cluster, self.tls)
        require_private(self.cluster, self.insecure)
        if self.workers is not None:
            require_count("workers", self.workers, MOST_LOCAL_WORKERS)

    @property
    def in_process(self) -> bool:
        """Whether all work is done by this process, in the one memory that it has."""
        return self.cluster is None and self.scheduler in (None, "threads")


def require_one_place(scheduler: Any, cluster: Cluster | None, tls: TLS | None) -> None:
    """Refuse settings of where work runs that contradict each other."""
    if scheduler is not None and cluster is not None:
        raise ParameterError(
            "cluster", "stands beside scheduler: start a cluster or join the scheduler of one, not both"
        )
    encrypted = isinstance(scheduler, str) and scheduler.startswith(("tls://", "wss://"))
    by_file = isinstance(scheduler, str) and scheduler.endswith(".json")
    if tls is not None and not (cluster or encrypted or by_file):
        raise ParameterError(
            "tls",
            "is for a cluster, or for a scheduler whose address begins with tls://; nothing here uses it",
        )


def require_private(cluster: Cluster | None, insecure: bool) -> None:
    """Refuse a cluster that would listen to other machines in the clear, unless that was said to be right."""
    if cluster is None or insecure:
        return
    if cluster.name == "KubeCluster":
        what = "KubeCluster would listen on the network without encryption"
    elif (name := opening(cluster.name, cluster.arguments or {})) is not None:
        what = f"with the argument {name!r} {cluster.name} would listen to other machines"
    else:
        return
    raise ParameterError("cluster", f"{what}, and {OPEN_TO_OTHERS}")


def require_count(parameter: str, number: int, most: int) -> None:
    """Refuse numbers of workers that nobody has: below 1, or beyond what was ever started."""
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise ParameterError(parameter, f"{number!r} is not a whole number")
    if number < 1:
        raise ParameterError(parameter, f"{number} is not at least 1")
    if number > most:
        raise ParameterError(parameter, _beyond(number, most))


def _beyond(number: int, most: int) -> str:
    return f"{number} is more than {most}, the most that are ever started; give as many as there are cores"


_current: ContextVar[Execution] = ContextVar("streamdr_execution")


def current() -> Execution:
    """The execution in force here."""
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

    >>> import numpy as np, streamdr
    >>> with streamdr.execution(workers=2, memory_limit="2GiB"):
    ...     pca = streamdr.PCA(n_components=2).fit(np.random.default_rng(0).normal(size=(100, 5)))
    >>> pca.components_.shape
    (2, 5)
    """
    _require_kind("ledger", ledger, str | os.PathLike | Address, "a path or an address")
    _require_kind("cluster", cluster, Cluster | Mapping, "a mapping with the name of a cluster")
    _require_kind("tls", tls, TLS | Mapping, "a mapping with the paths ca, cert and key")
    _require_kind("checkpoint_seconds", checkpoint_seconds, int | float, "a number of seconds")
    if checkpoint_seconds is not None and not checkpoint_seconds >= 0:
        raise ParameterError("checkpoint_seconds", f"{checkpoint_seconds} is not a number of at least 0")
    given: dict[str, Any] = {
        "workers": workers,
        "memory_limit": None if memory_limit is None else parse_bytes(memory_limit),
        "ledger": None if ledger is None else parse_place(ledger),
        "checkpoint_seconds": checkpoint_seconds,
        "insecure": insecure,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if scheduler is not None or cluster is not None:
        # Another place than that of the block around this one, with the certificates of that place.
        chosen |= {"scheduler": scheduler, "cluster": _cluster(cluster), "tls": _tls(tls)}
    elif tls is not None:
        chosen["tls"] = _tls(tls)
    setting = replace(current(), **chosen)
    token = _current.set(setting)
    try:
        yield setting
    finally:
        _current.reset(token)


def _require_kind(name: str, value: Any, kind: Any, words: str) -> None:
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
