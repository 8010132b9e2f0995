"""A configuration cannot pass arguments to a cluster that run code, open a port or let other users in."""

from __future__ import annotations

import os
import re
import socket
import ssl
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from dask_processes import certificates
from distributed import Client, Security
from narrowing import present

from streamdr.config import parse
from streamdr.core.cluster_arguments import (
    ALLOWED,
    EXPOSING,
    MOST_LOCAL_WORKERS,
    MOST_WORKERS,
    argument_schema,
)
from streamdr.core.execution import Adaptive, Cluster, ClusterName, Execution, execution
from streamdr.engine.executors import clusters
from streamdr.engine.executors.private_folders import private_folder
from streamdr.errors import ConfigError, ParameterError

SAMPLES = {
    "integer": 2,
    "boolean": True,
    "array": [],
}
TEXTS = {
    "memory_limit": "1GB",
    "memory": "32 GB",
    "dashboard_address": "127.0.0.1:0",
    "local_directory": "/scratch/me",
    "log_directory": "logs/dask",
    "shared_temp_directory": "~/tmp",
    "queue": "batch@pbs01",
    "project": "astro-7",
    "account": "u_1",
    "walltime": "04:00:00",
    "job_name": "streamdr",
    "interface": "ib0",
    "death_timeout": "10 min",
    "config_name": "slurm",
    "resource_spec": "select=1:ncpus=8:mem=32gb",
    "job_mem": "32G",
    "lsf_units": "mb",
    "disk": "1GB",
    "memory_per_core_property_name": "memcore",
    "name": "mine",
    "namespace": "default",
    "image": "ghcr.io/dask/dask:2026.8.0-py3.11@sha256:" + "0" * 64,
    "software": "mine/env",
    "container": "ghcr.io/dask/dask:latest",
    "worker_memory": "8 GiB",
    "worker_disk_size": "100GB",
    "scheduler_memory": "8 GiB",
    "region": "eu-central-1",
    "workspace": "mine",
    "spot_policy": "on-demand",
    "idle_timeout": "20 minutes",
    "host": "0.0.0.0",
    "job_extra_directives": ["--qos=high", "--exclusive", "--gres=gpu:1", "--constraint=[a|b]&c"],
    "job_directives_skip": ["--mem"],
    "worker_vm_types": ["m6i.large"],
    "scheduler_vm_types": ["m6i.large"],
    "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"cpu": 2}},
}
EVERY = [(kind, name) for kind, known in ALLOWED.items() for name in known]
HOSTILE = [
    "a\nrm -rf ~",
    "a; touch /tmp/owned",
    "$(touch /tmp/owned)",
    "`id`",
    "a && id",
    "a | id",
    "a > /etc/passwd",
    "--preload=evil.py",
    "-S /bin/evil",
    "a b",
    "a'b",
    'a"b',
    "a\x1b[31m",
    "a\\",
    "",
    "\u202etxt",
    "a\n",
    "$IFS$(id)",
    "${IFS:-$(id)}",
]
REFUSED = {
    # runs code
    "preload": ["evil.py"],
    "preload_argv": ["x"],
    "preload_nanny": ["evil.py"],
    "env": {"LD_PRELOAD": "/tmp/evil.so"},
    "environ": {"PYTHONPATH": "/tmp"},
    "python": "/tmp/evil",
    "plugins": ["evil"],
    "config": {"distributed": {"worker": {"preload": ["evil.py"]}}},
    "extensions": {"x": "evil"},
    "job_script_prologue": ["rm -rf ~"],
    "job_script_epilogue": ["rm -rf ~"],
    "env_extra": ["rm -rf ~"],
    "worker_command": "evil",
    "worker_extra_args": ["--preload", "evil.py"],
    "extra": ["--preload", "evil.py"],
    "shebang": "#!/tmp/evil",
    "submit_command_extra": ["-x"],
    "worker_class": "evil.Worker",
    "scheduler_cls": "evil.Scheduler",
    "custom_cluster_spec": {"spec": {}},
    "host_setup_script": "evil.sh",
    "job_extra": ["--wrap=id"],
    "jupyter": True,
    # opens ports
    "ip": "0.0.0.0",
    "protocol": "ws://",
    "scheduler_kwargs": {"host": "0.0.0.0"},
    "scheduler_options": {"host": "0.0.0.0"},
    "worker_dashboard_address": ":0",
    "services": {},
    "worker_services": {},
    "service_kwargs": {},
    "contact_address": "tcp://1.2.3.4:1",
    "listen_address": "tcp://0.0.0.0:0",
    "port": 8786,
    "worker_port": 8786,
    "scheduler_service_type": "LoadBalancer",
    "allow_ingress_from": "everyone",
    "scheduler_forward_port": 1,
    "processes": False,
    "security": None,
    "blocked_handlers": [],
    "asynchronous": True,
    "loop": None,
}


def sample(schema, name):
    return TEXTS.get(name, SAMPLES.get(schema.get("type")))


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_allowed_arguments_accept_usual_values_and_refuse_shell_syntax(kind, name):
    schema = ALLOWED[kind][name]
    value = sample(schema, name)
    if name == "idle_timeout" and kind == "KubeCluster":
        value = 60
    assert Cluster(kind, {name: value}).arguments == {name: value}
    free = kind == "LocalCluster" and name == "local_directory"  # a path that no shell sees
    for hostile in HOSTILE:
        if free and hostile and min(hostile) >= " ":
            continue
        for wrapped in (hostile, [hostile], {"requests": {"cpu": hostile}}, {hostile: 1}):
            if wrapped == ["--preload=evil.py"] and name == "job_directives_skip":
                continue  # lines that contain it are left out
            with pytest.raises(ParameterError) as refused:
                Cluster(kind, {name: wrapped})
            assert str(refused.value).isprintable()


@pytest.mark.parametrize("kind", sorted(ALLOWED))
def test_arguments_that_run_code_or_open_ports_are_refused(kind):
    for name, value in REFUSED.items():
        if name == "processes" and kind not in ("LocalCluster", "KubeCluster", "Coiled"):
            continue  # for queues it is a number
        with pytest.raises(
            ParameterError, match=f"'{name}' is not an argument that a configuration may pass"
        ):
            Cluster(kind, {name: value})
    with pytest.raises(ParameterError, match="expected a section"):
        Cluster(kind, cast(Any, ["--preload"]))


@pytest.mark.parametrize(
    "directive",
    [
        "--export=ALL,LD_PRELOAD=/tmp/evil.so",
        "--wrap=id",
        "--chdir=/tmp",
        "--output=/etc/x",
        "--prolog=/tmp/evil",
        "--task-prolog=/tmp/evil",
        "--qos=a\nid",
        "--get-user-env",
        "--uid=0",
        "exclusive",
    ],
)
def test_slurm_directives_that_run_code_or_write_files_are_refused(directive):
    with pytest.raises(ParameterError, match="has an invalid value"):
        Cluster("SLURMCluster", {"job_extra_directives": [directive]})


def test_the_error_of_a_configuration_shows_the_line_but_not_the_value():
    text = (
        "input: {path: x}\nmethod: {name: pca}\noutput: {model: m}\nexecution:\n  cluster:\n"
        "    name: LocalCluster\n    arguments: {scheduler_kwargs: {preload: [hunter2.py]}}\n"
    )
    with pytest.raises(
        ConfigError, match=r"<text>:7:.* execution\.cluster\.arguments: 'scheduler_kwargs'"
    ) as no:
        parse(text)
    assert "hunter2" not in str(no.value)
    opened = text.replace("{scheduler_kwargs: {preload: [hunter2.py]}}", "{host: 0.0.0.0}")
    with pytest.raises(
        ConfigError, match=r"execution\.cluster: with the argument 'host' .* can run code there"
    ):
        parse(opened)
    cluster = parse(opened + "  insecure: true\n").execution.cluster
    assert present(cluster).arguments == {"host": "0.0.0.0"}


def test_the_schema_has_every_argument_and_no_other():
    schema = argument_schema()
    known = {name for kinds in (ALLOWED, EXPOSING) for names in kinds.values() for name in names}
    assert set(schema["properties"]) == known
    assert schema["additionalProperties"] is False


def test_the_reference_lists_every_argument():
    page = (Path(__file__).parents[2] / "docs" / "CONFIG.md").read_text()
    table = page.partition("### Arguments of clusters")[2].partition("## Comparisons")[0]
    rows = dict(re.findall(r"^\| (\w[^|]*) \| (`[^|]*) \|$", table, re.MULTILINE))
    shown = {kind.removesuffix(", also"): set(re.findall(r"`(\w+)`", row)) for kind, row in rows.items()}
    for kind, known in ALLOWED.items():
        queue = shown["every queue"] if "cores" in known else set()
        assert shown[kind] | queue == {*known, *EXPOSING.get(kind, {})}, kind


def test_excessive_numbers_of_workers_are_refused():
    text = "input: {path: x}\nmethod: {name: pca}\noutput: {model: m}\nexecution: {workers: 1000000}\n"
    with pytest.raises(ConfigError, match=r"execution\.workers: .*of at most 1024 or null, not 1000000"):
        parse(text)
    with pytest.raises(ParameterError, match="more than 1024"), execution(workers=10**6):
        pass
    most_of: dict[ClusterName, int] = {"LocalCluster": MOST_LOCAL_WORKERS, "SLURMCluster": MOST_WORKERS}
    for kind, most in most_of.items():
        Cluster(kind, workers=most)
        settings: list[dict[str, Any]] = [
            {"workers": most + 1},
            {"adaptive": Adaptive(most)},
            {"arguments": {"n_workers": most + 1}},
        ]
        for beyond in settings:
            if beyond == {"adaptive": Adaptive(most)}:
                Cluster(kind, **beyond)
                continue
            with pytest.raises(ParameterError):
                Cluster(kind, **beyond)
    with pytest.raises(ParameterError, match="more than 10000"):
        Adaptive(10**6)


# Clusters that are really started


def listening(family=None):
    """Return the addresses at which this process and its descendants, or a given family, listen."""
    members = family or [psutil.Process(), *psutil.Process().children(recursive=True)]
    return {each.laddr for m in members for each in m.net_connections("inet") if each.status == "LISTEN"}


def answers(address, context):
    """Return whether a server sends data to a client with this TLS context."""
    with socket.create_connection(tuple(address), timeout=5) as plain:
        try:
            with context.wrap_socket(plain) as wrapped:
                wrapped.settimeout(5)
                return bool(wrapped.recv(1))  # a dask server sends first
        except (ssl.SSLError, OSError):
            return False


def in_the_clear(address):
    """Return whether a server sends data to a client without TLS."""
    with socket.create_connection(tuple(address), timeout=5) as plain:
        plain.settimeout(1)
        try:
            return bool(plain.recv(1))
        except OSError:
            return False


def strangers(tmp_path):
    """Return TLS contexts of clients that check nothing: one without a key, and one with a foreign key."""
    foreign = certificates(tmp_path / "foreign", "foreign")
    without_key, with_key = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    for context in (without_key, with_key):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with_key.load_cert_chain(foreign["cert"], foreign["key"])
    return without_key, with_key


def started(arguments=None, **settings):
    return clusters.start(Cluster("LocalCluster", arguments, workers=1), Execution(**settings), 1)


def test_a_local_cluster_lets_no_stranger_in_whatever_its_arguments(tmp_path):
    before = listening()
    arguments = {
        "threads_per_worker": 1,
        "memory_limit": "1GB",
        "local_directory": str(tmp_path),
        "dashboard_address": "localhost:0",
    }
    with started(arguments) as cluster, ExitStack() as stack:
        (at,) = cluster.scheduler_info["workers"]
        opened = listening() - before
        assert {address.ip for address in opened} == {"127.0.0.1"}
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        assert at.startswith("tls://127.0.0.1:")
        pages = cluster.scheduler.http_server.port
        secured = {address for address in opened if address.port != pages}
        assert len(secured) >= 4, "a scheduler, a nanny and a worker with its page, which is empty"
        for address in secured:
            assert not in_the_clear(address)
            assert not any(answers(address, stranger) for stranger in strangers_of(tmp_path))
        with pytest.raises(OSError):
            Client(cluster.scheduler_address, security=Security.temporary(), timeout=2)
        with Client(cluster, set_as_default=False) as ours:
            folder = Path(ours.submit(os.getcwd).result() and ours.run(_folder)[at])
        assert folder.is_relative_to(tmp_path)
        assert private_folder(None, stack) in Path(cluster.scheduler.local_directory).parents, (
            "the scheduler imports from its folder, too"
        )
        assert stat.S_IMODE((tmp_path / f"streamdr-{os.getuid()}").stat().st_mode) == 0o700
    assert not listening() - before


_strangers: dict[Path, list[Any]] = {}


def strangers_of(tmp_path):
    if tmp_path not in _strangers:
        _strangers[tmp_path] = strangers(tmp_path)
    return _strangers[tmp_path]


def _folder(dask_worker):
    return dask_worker.local_directory


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALLOWED["LocalCluster"]))
def test_with_any_argument_everything_listens_on_loopback_only(tmp_path, name):
    value = str(tmp_path) if name == "local_directory" else sample(ALLOWED["LocalCluster"][name], name)
    with started({name: value}) as cluster:
        assert {address.ip for address in listening()} == {"127.0.0.1"}
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")


def test_a_folder_that_others_could_replace_is_not_used(tmp_path, monkeypatch):
    with ExitStack() as stack:
        ours = private_folder(str(tmp_path), stack)
        assert stat.S_IMODE(ours.stat().st_mode) == 0o700
        assert private_folder(str(tmp_path), stack) == ours, "dask removes the files of killed workers there"
        ours.chmod(0o777)
        other = private_folder(str(tmp_path), stack)
        assert other != ours
        assert stat.S_IMODE(other.stat().st_mode) == 0o700
        ours.rmdir()
        ours.symlink_to("/")
        assert not private_folder(str(tmp_path), stack).is_symlink()
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        with pytest.raises(ParameterError, match="other users can write there"):
            private_folder(str(tmp_path / "open"), stack)
        with pytest.raises(ParameterError, match="is not a folder"):
            private_folder(str(tmp_path / "none"), stack)
    assert not other.exists()
