"""Clusters are started and joined as configured, protected from other users, and ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import psutil
import pytest
from command_line import SCRIPT, write_config, write_store
from dask_processes import address, certificates, descendants, gone, scheduler, worker
from distributed import Client, LocalCluster, Security
from fits import bits

import streamdr
from streamdr.core.execution import TLS, Adaptive, Cluster, ClusterName, Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.executors import clusters, connecting
from streamdr.engine.executors.dask_cluster import WorkerPolicy
from streamdr.engine.executors.identity import difference, identity_now
from streamdr.errors import DataError, EngineError, ParameterError
from streamdr.methods.pca import PCA

pytestmark = pytest.mark.usefixtures("small_blocks")

METHOD = PCA(4, solver="covariance")
ELSEWHERE = "192.0.2.1"  # an address that is reserved for documentation


@pytest.fixture
def quick(monkeypatch):
    """Give up on a missing scheduler after one second instead of ten."""
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 1.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(3000, 24)) * rng.uniform(1, 9, size=24) + 30).astype("f4")
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    write_store(path, values, chunks=(40, 5))
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A store that needs many tasks."""
    values = np.random.default_rng(1).normal(size=(40_000, 24)).astype("f4")
    return write_store(tmp_path_factory.mktemp("data") / "x.zarr", values, chunks=(400, 24))


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls") / "ours", "ours")


def fit(path, progress=None, **settings):
    return bits(fitting.fit(METHOD, open_source(path), Execution(**settings), progress=progress).model)


class Census(Silent):
    """Collects the worker processes while a pass runs."""

    def __init__(self):
        self.pids = set()

    def advance(self, rows):
        self.pids |= descendants()


# Starting


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits_and_they_end_with_the_run(path, workers):
    census = Census()
    there = fit(path, census, cluster=Cluster("LocalCluster", workers=workers))
    assert there == fit(path, workers=2)
    assert len(census.pids) == workers
    assert gone(census.pids)


def test_processes_are_a_local_cluster(path):
    census = Census()
    assert fit(path, census, scheduler="processes", workers=2) == fit(path)
    assert len(census.pids) == 2
    assert gone(census.pids)


def test_an_adaptive_cluster_grows_from_no_workers(path):
    census = Census()
    adaptive = Cluster("LocalCluster", adaptive=Adaptive(minimum=0, maximum=2))
    assert fit(path, census, cluster=adaptive) == fit(path)
    assert 1 <= len(census.pids) <= 2
    assert gone(census.pids)


def test_settings_in_python_have_the_same_keys(path):
    words = {"name": "LocalCluster", "arguments": {"n_workers": 1}, "adaptive": {"maximum": 1}}
    with streamdr.execution(cluster=words, insecure=True) as setting:
        assert setting.cluster == Cluster("LocalCluster", {"n_workers": 1}, adaptive=Adaptive(1))
        assert not setting.in_process
        with streamdr.execution(scheduler="threads") as inner:
            assert inner.in_process, "the last setting is used"
    with (
        pytest.raises(ParameterError, match="cannot be combined with scheduler"),
        streamdr.execution(cluster=words, scheduler="threads"),
    ):
        pass


def test_a_local_cluster_listens_on_loopback_only_and_has_a_memory_limit():
    execution = Execution(memory_limit=500_000_000)
    with clusters.start(Cluster("LocalCluster", workers=1), execution, 1) as cluster:
        (known,) = cluster.scheduler_info["workers"].values()
        assert known["memory_limit"] == 1_000_000_000, "dask acts only when the limit is clearly exceeded"
        assert known["nthreads"] == 1
        assert cluster.scheduler.allowed_failures == clusters.ALLOWED_FAILURES
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = [socket for member in family for socket in member.net_connections("tcp")]
        assert {socket.laddr.ip for socket in sockets if socket.status == "LISTEN"} == {"127.0.0.1"}


def test_workers_end_when_the_run_fails(path, tmp_path):
    write_store(tmp_path / "bad.zarr", np.full((300, 24), np.nan, "f4"), chunks=(40, 24))

    class CountAtOnce(Census):
        def start(self, begun):
            self.pids |= descendants()

    census = CountAtOnce()
    with pytest.raises(DataError, match="row 0"):
        fit(tmp_path / "bad.zarr", census, scheduler="processes", workers=1)
    assert census.pids
    assert gone(census.pids)


def test_nothing_is_left_open_by_many_runs(path):
    def run() -> tuple[int, int]:
        fit(path, scheduler="processes", workers=1)
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    run()
    handles, threads = zip(*(run() for _ in range(4)), strict=True)
    # A leak grows in every run. The pools of dask start a thread when they first need it.
    assert handles[-1] - handles[0] < 3
    assert threads[-1] - threads[0] < 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_a_command_that_is_stopped_or_killed(number, tmp_path):
    config = write_config(
        tmp_path,
        input={"path": "x.zarr", "synthetic": {"n_rows": 200_000, "n_cols": 64}},
        execution={"cluster": {"name": "LocalCluster", "workers": 2}, "memory_limit": "600MB"},
    )
    words = [SCRIPT, "fit", config.name, "--json"]
    command = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found: set[int] = set()
    while len(found) < 2 and command.poll() is None:
        found = descendants(command.pid)
    assert len(found) == 2
    command.send_signal(number)
    out, _ = command.communicate()
    assert command.returncode == (143 if number == signal.SIGTERM else -9)
    assert number != signal.SIGTERM or json.loads(out)["error"]["kind"] == "Interrupted"
    assert gone(found)


# Clusters of other packages


def test_every_name_in_the_settings_is_a_known_class():
    assert set(clusters.KNOWN) == set(get_args(ClusterName))


@pytest.mark.parametrize(
    ("name", "package"),
    [("KubeCluster", "dask-kubernetes"), ("Coiled", "coiled")],
)
def test_the_error_of_a_missing_package_says_what_to_install(path, name, package):
    with pytest.raises(ParameterError, match=f"{name} needs {package}: pip install {package}"):
        fit(path, cluster=Cluster(name), insecure=True)


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster("KubeCluster"),
        Cluster("LocalCluster", {"host": "0.0.0.0"}),
        Cluster("LocalCluster", {"host": "127.0.0.1", "scheduler_port": 0}),
        Cluster("LocalCluster", {"interface": "lo"}),
        Cluster("LocalCluster", {"dashboard_address": ":8787"}),
        Cluster("LocalCluster", {"dashboard_address": "0.0.0.0:0"}),
    ],
)
def test_a_cluster_that_others_could_use_is_not_started(path, cluster):
    with pytest.raises(ParameterError, match="anyone who reaches that port can run code") as refused:
        fit(path, cluster=cluster)
    assert refused.value.parameter == "cluster"


def test_values_of_arguments_are_never_shown():
    secret = {"token": "hunter2-hunter2", "env": {"PASSWORD": "swordfish"}, "scheduler_kwargs": ["sesame"]}
    for name, value in [*secret.items(), ("memory_limit", "swordfish"), ("n_workers", "sesame")]:
        with pytest.raises(ParameterError) as refused:
            Cluster("LocalCluster", {name: value})
        assert refused.value.parameter == "arguments"
        assert name in str(refused.value)
        for word in ("hunter2", "swordfish", "sesame"):
            assert word not in str(refused.value)
    cluster = Cluster("SLURMCluster", {"account": "swordfish"})
    assert "swordfish" not in repr(cluster)
    assert clusters.without_values("a sesame, a swordfish and a token", secret) == "a ***, a *** and a token"


# Joining


def test_a_scheduler_is_joined_by_its_file_or_its_address_and_left_unchanged(path, tmp_path):
    with scheduler(tmp_path / "scheduler.json"), worker(tmp_path / "scheduler.json"):
        here = fit(path)
        assert fit(path, scheduler=str(tmp_path / "scheduler.json")) == here
        address = json.loads((tmp_path / "scheduler.json").read_text())["address"]
        assert fit(path, scheduler=address) == here
        with Client(address) as client:
            assert len(client.nthreads()) == 1
            assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0


def test_the_error_of_a_missing_scheduler_names_its_address(path, tmp_path, quick):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EngineError, match=rf"tcp://127.0.0.1:{port}: no dask scheduler answers there"):
        fit(path, scheduler=f"tcp://127.0.0.1:{port}", ledger=tmp_path / "ledger")
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"address": 3}', "address"])
def test_the_error_of_an_invalid_scheduler_file_names_the_file(path, tmp_path, content):
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(EngineError, match=r"scheduler\.json: (cannot be read|is not the file)"):
        fit(path, scheduler=str(file))


@pytest.mark.parametrize("there", ["", "127.0.0.1:x", "127.0.0.1:9/a", "me:hunter2@127.0.0.1:9", "::1:9"])
def test_the_error_of_an_invalid_address_does_not_show_its_password(path, there):
    with pytest.raises(ParameterError, match="is not an address; an example is") as refused:
        fit(path, scheduler=f"tcp://{there}")
    assert refused.value.parameter == "scheduler"
    assert "hunter2" not in str(refused.value)


def test_the_wait_for_a_scheduler_without_workers_is_bounded(path, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "WorkerPolicy", partial(WorkerPolicy, patience=0.5))
    with (
        scheduler(tmp_path / "scheduler.json"),
        pytest.raises(EngineError, match=r"has had no workers for 0\.5"),
    ):
        fit(path, scheduler=str(tmp_path / "scheduler.json"))


def test_a_worker_of_another_version_is_refused(path, tmp_path):
    other = tmp_path / "other" / "streamdr-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: streamdr\nVersion: 9.9.9\n")
    file = tmp_path / "scheduler.json"
    with (
        scheduler(file),
        worker(file, directory=other.parent),
        pytest.raises(EngineError, match=rf"has streamdr 9.9.9 \(here {streamdr.__version__}\)"),
    ):
        fit(path, scheduler=str(file))


def test_a_worker_whose_streamdr_has_no_identity_is_refused(path, tmp_path):
    (tmp_path / "other" / "streamdr").mkdir(parents=True)
    (tmp_path / "other" / "streamdr" / "__init__.py").touch()
    file = tmp_path / "scheduler.json"
    with (
        scheduler(file),
        worker(file, directory=tmp_path / "other"),
        pytest.raises(EngineError, match=r"this worker has other code of streamdr .* \(unknown, here"),
    ):
        fit(path, scheduler=str(file))


def test_the_error_of_a_scheduler_without_streamdr_names_the_cause(path, tmp_path):
    (tmp_path / "other" / "streamdr").mkdir(parents=True)
    # An empty package is not enough: an editable installation would still find the modules.
    (tmp_path / "other" / "streamdr" / "__init__.py").write_text("raise ImportError('none')")
    file = tmp_path / "scheduler.json"
    with (
        scheduler(file, directory=tmp_path / "other"),
        worker(file, directory=tmp_path),
        pytest.raises(EngineError, match="this dask scheduler has no streamdr, or another version"),
    ):
        fit(path, scheduler=str(file))


def test_the_identity_of_code_that_changed_after_its_import_equals_no_other(monkeypatch):
    before = identity_now()
    assert before == identity_now()
    monkeypatch.setattr(streamdr, "IMPORTED_AT", 0.0)
    assert identity_now() != identity_now()
    assert "start this process again" in difference("tcp://there", before, identity_now())
    assert "changed after it was imported there" in difference("tcp://there", identity_now(), before)


def altered(place, module, text, instead):
    """Create a copy of streamdr with a changed module, in a folder from which it is imported."""
    copy = shutil.copytree(
        Path(streamdr.__file__).parent, place / "streamdr", ignore=shutil.ignore_patterns("__pycache__")
    )
    source = (copy / module).read_text()
    assert text in source
    (copy / module).write_text(source.replace(text, instead))
    return place


class Joins(Silent):
    """Starts a worker when the first rows were read, waits for it, and then kills the first worker."""

    def __init__(self, file, directory, stack, first):
        self.file, self.directory, self.stack, self.first = file, directory, stack, first
        self.joined = None

    def advance(self, rows):
        if self.joined is None:
            with Client(address(self.file), set_as_default=False) as client:
                already = set(client.nthreads())
                self.stack.enter_context(worker(self.file, directory=self.directory))
                client.wait_for_workers(2, timeout=60)
                (self.joined,) = set(client.nthreads()) - already
            for member in [*psutil.Process(self.first.pid).children(recursive=True), self.first]:
                member.kill()


@pytest.mark.parametrize(
    ("module", "text", "instead"),
    [
        ("engine/executors/base.py", "both.merge(later)", "both.merge(both)"),
        pytest.param("engine/runner.py", "def fold", "def other", marks=pytest.mark.slow),
        pytest.param("statistics/moments.py", '"""', '"""Twice as long. ', marks=pytest.mark.slow),
    ],
    ids=["wrong sums", "without the check", "another comment"],
)
def test_a_worker_with_other_code_that_joins_late_is_refused(long, tmp_path, module, text, instead):
    other = altered(tmp_path / "other", module, text, instead)
    file = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        stack.enter_context(scheduler(file))
        late = Joins(file, other, stack, stack.enter_context(worker(file)))
        with pytest.raises(EngineError, match="has other code of streamdr under the same ver") as refused:
            fit(long, late, scheduler=str(file))
        assert late.joined is not None
        assert str(refused.value).startswith(late.joined)


@pytest.mark.slow
def test_a_worker_with_the_same_code_may_join_late(long, tmp_path):
    file = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        stack.enter_context(scheduler(file))
        late = Joins(file, tmp_path, stack, stack.enter_context(worker(file)))
        assert fit(long, late, scheduler=str(file)) == fit(long)
        assert late.joined is not None


# Keeping others out


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_an_unencrypted_connection_to_another_machine_is_refused(path, tmp_path, scheme):
    address = f"{scheme}://{ELSEWHERE}:8786"
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": address}))
    for given in (address, str(file)):
        with pytest.raises(ParameterError, match="anyone who reaches that port can run code") as refused:
            fit(path, scheduler=given)
        assert refused.value.parameter == "scheduler"
        assert address in str(refused.value)


def test_an_unencrypted_connection_is_allowed_with_insecure(path, quick):
    with pytest.raises(EngineError, match="no dask scheduler answers there"):
        fit(path, scheduler=f"tcp://{ELSEWHERE}:8786", insecure=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.9.10", "::1"])
def test_addresses_of_this_machine_are_loopback(host):
    assert connecting.is_loopback(host)


@pytest.mark.parametrize("host", [ELSEWHERE, "0.0.0.0", "::", "10.0.0.1"])
def test_addresses_of_other_machines_are_not_loopback(host):
    assert not connecting.is_loopback(host)


def test_an_unknown_host_name_is_an_error(path):
    with pytest.raises(EngineError, match="there is no machine with this name"):
        fit(path, scheduler="tcp://no-such-machine.invalid:8786")


def test_a_cluster_with_certificates_uses_tls(path, tls):
    wanted = Cluster("LocalCluster", workers=1)
    with clusters.start(wanted, Execution(cluster=wanted, tls=TLS(**tls)), 1) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
    assert fit(path, cluster=Cluster("LocalCluster", workers=1), tls=TLS(**tls)) == fit(path)


def test_a_tls_scheduler_is_joined_with_certificates_and_not_without(path, tls, tmp_path, monkeypatch):
    security = Security(
        require_encryption=True,
        tls_ca_file=tls["ca"],
        tls_scheduler_cert=tls["cert"],
        tls_scheduler_key=tls["key"],
        tls_worker_cert=tls["cert"],
        tls_worker_key=tls["key"],
        tls_client_cert=tls["cert"],
        tls_client_key=tls["key"],
    )
    with LocalCluster(n_workers=1, security=security, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        assert fit(path, scheduler=address, tls=TLS(**tls)) == fit(path)
        with pytest.raises(ParameterError, match="TLS needs certificates"):
            fit(path, scheduler=address)
        foreign = certificates(tmp_path / "foreign", "foreign")
        monkeypatch.setattr(connecting, "CONNECT_SECONDS", 1.0)
        with pytest.raises(EngineError, match="no dask scheduler answers there"):
            fit(path, scheduler=address, tls=TLS(**foreign))
        with pytest.raises(ParameterError, match=r"missing\.pem: there is no such file"):
            fit(path, scheduler=address, tls=TLS(**{**tls, "ca": str(Path("missing.pem"))}))
