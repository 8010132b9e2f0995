"""The clusters that can be started by name, and the executors that run on them.

A name stands for one class of one package. A configuration cannot import anything else.
"""

from __future__ import annotations

import copy
import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from threading import Event
from typing import Any, Literal

import dask
from distributed import Client, SpecCluster

from streamdr.core.execution import Cluster, Execution, require_private
from streamdr.engine.executors.connecting import CONNECT_SECONDS, join
from streamdr.engine.executors.dask_cluster import Dask, WorkerPolicy
from streamdr.engine.executors.keys import keys_in_files, keys_in_memory
from streamdr.engine.executors.private_folders import private_folder
from streamdr.engine.executors.replacing import WorkerReplacement, forget_jobs
from streamdr.errors import EngineError, ParameterError

ALLOWED_FAILURES = 2
"""How many workers may die while they run a task before dask blames the task for the next death."""
_START_SECONDS = 120.0
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Settings without web pages about tasks and workers, which all users of a machine could read."""
_CEILING = 2
"""A worker that uses this multiple of the memory limit is killed, to protect the machine."""


@dataclass(frozen=True)
class ClusterKind:
    """The module of a class of clusters, and how its scheduler and workers are protected from other users."""

    module: str
    attribute: str
    package: str
    privacy: Literal["loopback", "certificates", "its own", "none"]


KNOWN: dict[str, ClusterKind] = {
    "LocalCluster": ClusterKind("distributed", "LocalCluster", "distributed", "loopback"),
    **{
        name: ClusterKind("dask_jobqueue", name, "dask-jobqueue", "certificates")
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
    "KubeCluster": ClusterKind("dask_kubernetes.operator", "KubeCluster", "dask-kubernetes", "none"),
    "Coiled": ClusterKind("coiled", "Cluster", "coiled", "its own"),
}


@contextmanager
def dask_executor(execution: Execution, workers: int, stop: Event) -> Iterator[Dask]:
    """Provide the executor of a running cluster, or of a new one that ends with this context."""
    scheduler, cluster = execution.scheduler, execution.cluster
    if isinstance(scheduler, Client):
        yield Dask(scheduler, WorkerPolicy(), stop)
    elif cluster is None and scheduler != "processes":
        with join(scheduler, execution) as client:
            yield Dask(client, WorkerPolicy(), stop)
    else:
        wanted = cluster or Cluster("LocalCluster", workers=workers)
        with (
            start(wanted, execution, workers) as started,
            Client(started, timeout=CONNECT_SECONDS, set_as_default=False) as client,
        ):
            yield Dask(client, _worker_policy(wanted, started), stop)


@contextmanager
def start(cluster: Cluster, execution: Execution, workers: int) -> Iterator[Any]:
    """Start and scale a cluster of a known kind. It ends with this context."""
    kind = KNOWN[cluster.name]
    given = cluster.arguments or {}
    require_private(cluster, execution.insecure)
    try:
        build = getattr(import_module(kind.module), kind.attribute)
    except ImportError as error:
        raise ParameterError(
            "cluster", f"{cluster.name} needs {kind.package}: pip install {kind.package}"
        ) from error
    with ExitStack() as stack:
        arguments = {
            **_defaults(kind, cluster, execution, workers),
            **given,
            **_enforced(kind, given, execution, stack),
        }
        if kind.privacy == "certificates":
            arguments |= _worker_command(build.job_cls.config_name, given)
        try:
            with dask.config.set(_scheduler_settings(kind, given, stack)):
                started = stack.enter_context(build(**arguments))
            stack.callback(forget_jobs, started)
            if cluster.adaptive is not None:
                started.adapt(minimum=cluster.adaptive.minimum, maximum=cluster.adaptive.maximum)
            elif cluster.workers is not None:
                started.scale(cluster.workers)
        except Exception as error:
            # Not chained: the message of a library may contain the arguments.
            message = without_values(f"{type(error).__name__}: {error}", given)
            raise EngineError(
                f"{cluster.name} could not be started: {message}; check execution.cluster.arguments"
            ) from None
        yield started


def _worker_policy(cluster: Cluster, started: Any) -> WorkerPolicy:
    expected = cluster.adaptive.maximum if cluster.adaptive else cluster.workers or 0
    # A job may wait in a queue for hours before the first worker starts.
    patience = _START_SECONDS if cluster.name == "LocalCluster" else math.inf
    replaces = isinstance(started, SpecCluster)  # other clusters replace workers themselves
    hide = partial(without_values, secret=cluster.arguments or {})
    return WorkerPolicy(
        expected, patience, WorkerReplacement(started, cluster.name, hide) if replaces else lambda: None
    )


def without_values(text: str, secret: Any) -> str:
    """Return the text with every string in `secret`, at any depth, replaced by asterisks."""
    if isinstance(secret, dict):
        for value in secret.values():
            text = without_values(text, value)
    elif isinstance(secret, list):
        for value in secret:
            text = without_values(text, value)
    elif isinstance(secret, str) and secret:
        text = text.replace(secret, "***")
    return text


def _defaults(kind: ClusterKind, cluster: Cluster, execution: Execution, workers: int) -> dict[str, Any]:
    """Return the default arguments, which a configuration may override."""
    if kind.privacy != "loopback":
        return {}
    defaults: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    defaults["n_workers"] = 0 if cluster.adaptive else cluster.workers or workers
    if execution.memory_limit is not None:
        defaults["memory_limit"] = _CEILING * execution.memory_limit
    return defaults


def _enforced(
    kind: ClusterKind, given: Mapping[str, Any], execution: Execution, stack: ExitStack
) -> dict[str, Any]:
    """Return the arguments that keep other users out. They override those of a configuration."""
    enforced: dict[str, Any] = {}
    opened = execution.insecure and (kind.privacy == "certificates" or _is_open(given))
    if kind.privacy in ("loopback", "certificates") and (execution.tls is not None or not opened):
        if kind.privacy == "loopback":
            keys = keys_in_memory(execution.tls)
        else:
            keys = keys_in_files(execution.tls, given.get("shared_temp_directory", "~"), stack)
        enforced |= {"security": keys, "protocol": "tls://"}
    if kind.privacy == "loopback":
        folder = private_folder(given.get("local_directory"), stack)
        enforced |= {"local_directory": str(folder), "config": _worker_settings()}
        if not _is_open(given):
            enforced["host"] = "127.0.0.1"
        if "dashboard_address" not in given:
            enforced["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}  # the server without pages
    elif kind.privacy == "certificates":
        # No web pages: every user could read them.
        enforced["scheduler_options"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        enforced["worker_extra_args"] = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    return enforced


def _scheduler_settings(kind: ClusterKind, given: Mapping[str, Any], stack: ExitStack) -> dict[str, Any]:
    """Return the dask settings for starting a scheduler, which imports from its folder like a worker."""
    settings: dict[str, Any] = {"distributed.scheduler.allowed-failures": ALLOWED_FAILURES}
    if "dashboard_address" not in given:
        settings |= _NO_PAGES
    if kind.privacy in ("loopback", "certificates"):
        settings["temporary-directory"] = str(private_folder(None, stack))
    return settings


def _worker_command(config_name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which a job starts a worker that imports only from private folders.

    The folder is created on the machine of the job. `-P` excludes the folder where the job was submitted.
    """
    section = f"jobqueue.{given.get('config_name', config_name)}"
    python = f"{dask.config.get(f'{section}.python', None) or shlex.quote(sys.executable)} -P"
    parent = given.get("local_directory") or dask.config.get(f"{section}.local-directory", None) or ""
    # Not $(...), which is special in HTCondor.
    folder = f'"`{python} -m streamdr.engine.executors.private_folders {parent} || mktemp -d`"'
    return {"python": python, "local_directory": folder}


def _is_open(given: Mapping[str, Any]) -> bool:
    return "host" in given or "interface" in given


def _worker_settings() -> dict[str, Any]:
    """Return all dask settings of this process, but without web pages, for workers."""
    with dask.config.set(_NO_PAGES):
        return copy.deepcopy(dict(dask.config.config))
