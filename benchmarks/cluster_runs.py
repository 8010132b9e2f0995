"""Fits on dask clusters of one or two hosts, and what they move and spend besides reading."""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.contender import Fit, Solution
from benchmarks.namespaces import Host, two_hosts
from benchmarks.ours import warm_up

BETWEEN, TO_CLIENT, ON_LINK = "MB between workers", "MB to the client", "MB on the link"
TASKS, MERGES, MERGE_MS, MERGING = "tasks", "merges", "ms of a merge", "% of the time merging"
FOLDING = "s of folding, all workers"
PER_TASK, PER_TASK_CPU = "ms per task", "cpu ms per task"

_PORT = 8786
_START_SECONDS = 60.0


def local(store: str, workers: int, **parameters: Any) -> Fit:
    """PCA on processes of this machine, which run when the clock starts."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return _fit(store, client, workers, {"scheduler": client}, parameters)


def hosts(store: str, rate: str, **parameters: Any) -> Fit:
    """PCA on two hosts with a worker each, encrypted. Scheduler and client are on the first one."""
    from distributed import Client, Security

    stack = ExitStack()
    atexit.register(stack.close)
    first, second = stack.enter_context(two_hosts(rate))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-tls-")))
    tls = _certificates(folder)
    keys = ("--tls-ca-file", tls["ca"], "--tls-cert", tls["cert"], "--tls-key", tls["key"])
    address = f"tls://{first.address}:{_PORT}"

    def start(host: Host, module: str, *words: str) -> None:
        command = (*host.prefix, sys.executable, "-m", module, *words, *keys, "--no-dashboard")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    listen = ("--host", first.address, "--port", str(_PORT), "--protocol", "tls")
    start(first, "distributed.cli.dask_scheduler", *listen)
    for host in (first, second):
        words = (address, "--host", host.address, "--nthreads", "1", "--protocol", "tls")
        start(host, "distributed.cli.dask_worker", *words, "--local-directory", str(folder))
    first.enter()
    security = Security(
        require_encryption=True,
        tls_ca_file=tls["ca"],
        tls_client_cert=tls["cert"],
        tls_client_key=tls["key"],
    )
    client = Client(address, security=security, timeout=_START_SECONDS, set_as_default=False)
    client.wait_for_workers(2, timeout=_START_SECONDS)
    fit = _fit(store, client, 2, {"scheduler": address, "tls": tls}, parameters)

    def counted() -> Solution:
        before = first.sent_bytes() + second.sent_bytes()
        found = fit()
        moved = first.sent_bytes() + second.sent_bytes() - before
        return Solution(found.variances, found.components, {**found.notes, ON_LINK: moved / 1e6})

    return counted


def no_ops(store: str, workers: int, number: int, *, processes: bool) -> Fit:
    """Tasks that compute nothing, with the arguments of a long run of segments, through the engine."""
    import os
    from threading import Event

    from distributed import Client, LocalCluster

    from streamdr.core.blocks import Span
    from streamdr.core.progress import Silent
    from streamdr.engine.executors import Recovery
    from streamdr.engine.executors.dask_cluster import Dask, WorkerPolicy
    from streamdr.engine.merge_tree import LONG_RUN
    from streamdr.engine.runner import in_order

    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        memory_limit=0,  # a hundred workers in one process would each count all of its memory
        host="127.0.0.1" if processes else None,
        dashboard_address=None,
    )
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    engine = Dask(client, WorkerPolicy(workers), Event())
    shared = engine.keep(store)
    blocks = [[Span(n, n + 1), Span(n + 1, n + 2)] for n in range(LONG_RUN)]
    recovery = Recovery(engine, Silent(), store, engine.width(workers))
    nothing: Callable[..., None] = _nothing

    def fit() -> Solution:
        used, began = sum(os.times()[:2]), time.perf_counter()
        tasks = ((nothing, shared, blocks) for _ in range(number))
        for handle in in_order(recovery, tasks, Event(), lambda: None):
            engine.check(handle)
        seconds, cpu = time.perf_counter() - began, sum(os.times()[:2]) - used
        return Solution.nothing(**{PER_TASK: 1e3 * seconds / number, PER_TASK_CPU: 1e3 * cpu / number})

    return fit


def _nothing(shared: object, blocks: object) -> None:
    """Do nothing with the arguments of a task."""


def _fit(
    store: str, client: Any, workers: int, where: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Fit:
    """Return a fit with notes about the traffic and the tasks of the cluster."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA
    client.run(warm_up)

    def fit() -> Solution:
        moved, spent = _moved(client), client.run_on_scheduler(_spent)
        began = time.perf_counter()
        with execution(workers=workers, **where):
            model = PCA(**parameters).fit(store)
        ended = time.perf_counter()
        notes = _notes(
            moved, _moved(client), spent, client.run_on_scheduler(_spent), (ended - began) * workers
        )
        aside = time.perf_counter() - ended
        return Solution(model.explained_variance_, model.components_, notes, aside=aside)

    return fit


def _notes(
    moved: tuple[int, int],
    moved_after: tuple[int, int],
    spent: Mapping[str, tuple[float, int]],
    spent_after: Mapping[str, tuple[float, int]],
    worker_seconds: float,
) -> dict[str, float]:
    """Return the traffic and the tasks between two looks at a cluster."""
    received, sent = (after - before for after, before in zip(moved_after, moved, strict=True))

    def of(word: str) -> tuple[float, int]:
        now, before = spent_after.get(word, (0.0, 0)), spent.get(word, (0.0, 0))
        return now[0] - before[0], now[1] - before[1]

    merging, merges = of("merge")
    folding, _ = of("fold")
    return {
        TASKS: float(sum(of(word)[1] for word in spent_after)),
        MERGES: float(merges),
        MERGE_MS: 1e3 * merging / max(merges, 1),
        MERGING: 100 * merging / worker_seconds,
        FOLDING: folding,
        BETWEEN: received / 1e6,
        TO_CLIENT: (sent - received) / 1e6,
    }


def _moved(client: Any) -> tuple[int, int]:
    """Return the bytes of results that all workers have received from workers, and those they have sent."""
    both = client.run(_transferred).values()
    return sum(received for received, _ in both), sum(sent for _, sent in both)


def _transferred(dask_worker: Any) -> tuple[int, int]:
    logs = dask_worker.transfer_incoming_log, dask_worker.transfer_outgoing_log
    received, sent = (
        sum(size for each in log for key, size in each["keys"].items() if key.startswith(("fold", "merge")))
        for log in logs
    )
    return received, sent


def _spent(dask_scheduler: Any) -> dict[str, tuple[float, int]]:
    """Return the seconds and the number of the tasks of each kind, with those of moving their arguments."""
    return {
        name: (
            sum(prefix.all_durations.get(what, 0.0) for what in ("compute", "transfer")),
            prefix.state_counts.get("memory", 0),
        )
        for name, prefix in dask_scheduler.task_prefixes.items()
    }


def _certificates(folder: Path) -> dict[str, str]:
    """Write new keys of a cluster into a folder."""
    from distributed import Security

    fresh: Any = Security.temporary()
    texts = {"ca": fresh.tls_ca_file, "cert": fresh.tls_worker_cert, "key": fresh.tls_worker_key}
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text, encoding="utf-8")
    return {name: str(folder / f"{name}.pem") for name in texts}
