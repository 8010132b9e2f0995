"""Clusters of a queue: how their jobs are started, kept from others, refused and ended."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

import psutil
import pytest
from dask_processes import certificates
from distributed import Client
from test_cluster_arguments import answers, in_the_clear, listening, strangers_of

from streamdr.engines import clusters, replacing
from streamdr.errors import EngineError, ParameterError
from streamdr.processes import Process
from streamdr.settings import TLS, Cluster, Execution

SBATCH = """#!{python}
import shutil, subprocess, sys
shutil.copy(sys.argv[1], sys.argv[1].replace(".sh", ".kept"))
job = subprocess.Popen(["bash", sys.argv[1].replace(".sh", ".kept")], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, start_new_session=True)
print("Submitted batch job", job.pid)
"""


@pytest.fixture
def keys(tmp_path):
    """The folder that all nodes see."""
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def slurm(keys, workers=None, **told):
    told = {"cores": 1, "memory": "1GB", "shared_temp_directory": str(keys), **told}
    return Cluster("SLURMCluster", told, workers=workers)


def programs(place, monkeypatch, **scripts):
    """Commands in the place of Slurm's."""
    (place / "bin").mkdir()
    for name, script in scripts.items():
        (place / "bin" / name).write_text(script)
        (place / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")


def worker_line(wanted):
    """The line of a job's script that starts a worker. No job is submitted."""
    with clusters.start(wanted, Execution(cluster=wanted), 1) as cluster:
        script = cluster.job_script().splitlines()
    (line,) = (line for line in script if "dask_worker" in line)
    return line


def local_directory(line, **environment):
    """What the shell makes of the folder that a worker is given."""
    word = line.partition("--local-directory ")[2].partition(" --no-dashboard")[0]
    words = ["sh", "-c", f"printf %s {word}"]
    return Path(
        subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True).stdout
    )


def test_a_job_s_worker_imports_from_no_folder_that_others_can_write_to(keys, tmp_path):
    line = worker_line(slurm(keys))
    assert line.startswith(f"{sys.executable} -P -m distributed.cli.dask_worker"), "-P: not from where it is"
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "dask-scratch-space").mkdir()
    (tmp_path / "tmp" / "dask-scratch-space").chmod(0o777)  # dask would take it
    ours = local_directory(line, TMPDIR=str(tmp_path / "tmp"))
    assert ours == tmp_path / "tmp" / f"streamdr-{os.getuid()}"
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    given = local_directory(worker_line(slurm(keys, local_directory="$SCRATCH/a")), SCRATCH=str(tmp_path))
    assert given == tmp_path / "a" / f"streamdr-{os.getuid()}"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    other = local_directory(line, TMPDIR=str(tmp_path / "open"))
    assert stat.S_IMODE(other.stat().st_mode) == 0o700, "nobody can foresee its name"
    assert other.name != f"streamdr-{os.getuid()}"


def test_the_path_of_a_key_is_no_command_in_a_job(keys, tmp_path):
    files = certificates(tmp_path / "a;touch owned;", "ours")
    wanted = slurm(keys)
    with (
        pytest.raises(ParameterError, match="mean something to the shell of a job") as refused,
        clusters.start(wanted, Execution(cluster=wanted, tls=TLS(**files)), 1),
    ):
        pass
    assert refused.value.parameter == "tls"


def test_keys_of_a_run_that_was_killed_are_removed_by_the_next(keys):
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = Process.here()
    status = Path(f"/proc/{killed.pid}/stat").read_text().rpartition(")")[2].split()
    owners = {"killed": replace(here, pid=killed.pid, started=int(status[19])), "lives": here}
    owners["elsewhere"] = replace(owners["killed"], realm="another machine")
    for name, owner in owners.items():
        folder = keys / f".streamdr-keys-{name}"
        folder.mkdir()
        (folder / "key.pem").write_text("secret")
        (folder / "owner.json").write_text(json.dumps(asdict(owner)))
    (keys / ".streamdr-keys-of-a-user").mkdir()
    (keys / ".streamdr-keys-of-a-user" / "notes").touch()
    killed.communicate()
    worker_line(slurm(keys))
    left = {path.name.removeprefix(".streamdr-keys-") for path in keys.iterdir()}
    assert left == {"lives", "elsewhere", "of-a-user"}


def test_a_queue_that_refuses_all_jobs_is_an_error(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(replacing, "_AGAIN_SECONDS", 0.0)
    programs(
        tmp_path, monkeypatch, sbatch='#!/bin/sh\necho "error: no queue of that name: hidden" >&2; exit 1\n'
    )
    wanted = slurm(keys, workers=2, queue="hidden")
    with (
        pytest.raises(
            EngineError, match=r"SLURMCluster: the queue refuses .*: no queue of that name: \*\*\*;"
        ),
        clusters.dask_engine(Execution(cluster=wanted), 2, Event()),
    ):
        pass
    assert not list(keys.iterdir())


@pytest.mark.slow
def test_a_queue_s_workers_speak_tls_by_throw_away_keys(keys, tmp_path, monkeypatch):
    text = SBATCH.format(python=sys.executable)
    programs(tmp_path, monkeypatch, sbatch=text, scancel='#!/bin/sh\nkill -TERM -- "-$1"\n')
    wanted = slurm(keys, workers=1, local_directory=str(tmp_path))
    with clusters.start(wanted, Execution(cluster=wanted), 1) as cluster:
        with Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=120)
            assert client.submit(sum, [1, 2]).result() == 3
            (at,) = client.nthreads()
        assert at.startswith("tls://")
        assert cluster.scheduler_address.startswith("tls://")
        (held,) = keys.iterdir()
        assert stat.S_IMODE(held.stat().st_mode) == 0o700
        jobs = [process for process in psutil.process_iter(["cmdline"]) if _mentions(process, held)]
        workers = [child for job in jobs for child in job.children(recursive=True)]
        assert workers
        for address in listening([psutil.Process(), *jobs, *workers]):
            assert address.ip == "127.0.0.1" or not any(
                [in_the_clear(address), *(answers(address, one) for one in strangers_of(tmp_path))]
            )
    assert not list(keys.iterdir())


def _mentions(process, path):
    return any(str(path) in word for word in process.info["cmdline"] or ())
