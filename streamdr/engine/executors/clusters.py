"""The clusters that can be started by name, and every way to an engine on one.

A name stands for one class of one package. Nothing else is ever imported on a configuration's word.
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
"""How many workers a task may take with it before dask holds it to be the cause. The next one is the last."""
_START_SECONDS = 120.0
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Pages about tasks and workers, that everybody on a machine could read."""
_CEILING = 2
"""A worker is ended when it takes twice what it promised to keep to: the machine comes first."""


@dataclass(frozen=True)
class ClusterKind:
    """Where a class of clusters comes from, and how its scheduler and workers are kept from others."""

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
    """The engine of a cluster that runs already, or of one that lasts as long as this context."""
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
            yield Dask(client, _staff(wanted, started), stop)


@contextmanager
def start(cluster: Cluster, execution: Execution, workers: int) -> Iterator[Any]:
    """A cluster of a known kind, running and scaled, that ends with this context."""
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
            # Not chained: what a library says of its arguments may show them.
            said = without_values(f"{type(error).__name__}: {error}", given)
            raise EngineError(
                f"{cluster.name} could not be started: {said}; check execution.cluster.arguments"
            ) from None
        yield started


def _staff(cluster: Cluster, started: Any) -> WorkerPolicy:
    expected = cluster.adaptive.maximum if cluster.adaptive else cluster.workers or 0
    # A queue may take hours to give a first worker, and that is what it is for.
    patience = _START_SECONDS if cluster.name == "LocalCluster" else math.inf
    replaces = isinstance(started, SpecCluster)  # others see to that themselves
    hide = partial(without_values, secret=cluster.arguments or {})
    return WorkerPolicy(
        expected, patience, WorkerReplacement(started, cluster.name, hide) if replaces else lambda: None
    )


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


def _defaults(kind: ClusterKind, cluster: Cluster, execution: Execution, workers: int) -> dict[str, Any]:
    """What a configuration may say otherwise."""
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
    """What keeps others out, whatever a configuration says: keys, loopback, folders of our own."""
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
            enforced["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}  # an empty page, which stays
    elif kind.privacy == "certificates":
        # No pages: anybody could read them.
        enforced["scheduler_options"] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        enforced["worker_extra_args"] = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    return enforced


def _scheduler_settings(kind: ClusterKind, given: Mapping[str, Any], stack: ExitStack) -> dict[str, Any]:
    """dask's settings while a scheduler is started, which imports from its folder as workers do."""
    settings: dict[str, Any] = {"distributed.scheduler.allowed-failures": ALLOWED_FAILURES}
    if "dashboard_address" not in given:
        settings |= _NO_PAGES
    if kind.privacy in ("loopback", "certificates"):
        settings["temporary-directory"] = str(private_folder(None, stack))
    return settings


def _worker_command(config_name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """How the shell of a queue's job starts a worker: it imports from no folder that others can write to.

    The folder is chosen where the job runs, and `-P` leaves out the one in which it was submitted.
    """
    own = f"jobqueue.{given.get('config_name', config_name)}"
    python = f"{dask.config.get(f'{own}.python', None) or shlex.quote(sys.executable)} -P"
    above = given.get("local_directory") or dask.config.get(f"{own}.local-directory", None) or ""
    # Not $(...), which HTCondor would take for a word of its own.
    folder = f'"`{python} -m streamdr.engine.executors.private_folders {above} || mktemp -d`"'
    return {"python": python, "local_directory": folder}


def _is_open(given: Mapping[str, Any]) -> bool:
    return "host" in given or "interface" in given


def _worker_settings() -> dict[str, Any]:
    """All of dask's settings here, for workers that are started at any time, without pages of their own."""
    with dask.config.set(_NO_PAGES):
        return copy.deepcopy(dict(dask.config.config))
