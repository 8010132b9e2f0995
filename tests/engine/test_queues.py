"""Clusters of a queue: how their jobs are started, protected from other users, refused and ended."""

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

from streamdr.core.execution import TLS, Cluster, Execution
from streamdr.engine.executors import clusters, replacing
from streamdr.engine.executors.queues import end_of
from streamdr.errors import EngineError, ParameterError
from streamdr.store.process_identity import Process

SBATCH = """#!{python}
import shutil, subprocess, sys
shutil.copy(sys.argv[1], sys.argv[1].replace(".sh", ".kept"))
job = subprocess.Popen(["bash", sys.argv[1].replace(".sh", ".kept")], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, start_new_session=True)
print("Submitted batch job", job.pid)
"""


@pytest.fixture
def keys(tmp_path):
    """The folder that all nodes can read."""
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def slurm(keys, workers=None, **arguments):
    arguments = {"cores": 1, "memory": "1GB", "shared_temp_directory": str(keys), **arguments}
    return Cluster("SLURMCluster", arguments, workers=workers)


def programs(place, monkeypatch, **scripts):
    """Put scripts into the path in the place of the commands of Slurm."""
    (place / "bin").mkdir()
    for name, script in scripts.items():
        (place / "bin" / name).write_text(script)
        (place / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")


def worker_line(wanted):
    """Return the line of the script of a job that starts a worker. No job is submitted."""
    with clusters.start(wanted, Execution(cluster=wanted), 1) as cluster:
        script = cluster.job_script().splitlines()
    (line,) = (line for line in script if "dask_worker" in line)
    return line


def local_directory(line, **environment):
    """Return the folder of a worker, as the shell expands it."""
    word = line.partition("--local-directory ")[2].partition(" --no-dashboard")[0]
    words = ["sh", "-c", f"printf %s {word}"]
    return Path(
        subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True).stdout
    )


def test_the_worker_of_a_job_imports_only_from_private_folders(keys, tmp_path):
    line = worker_line(slurm(keys))
    assert line.startswith(f"{sys.executable} -P -m distributed.cli.dask_worker"), "-P: not from its folder"
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "dask-scratch-space").mkdir()
    (tmp_path / "tmp" / "dask-scratch-space").chmod(0o777)  # dask would use it
    ours = local_directory(line, TMPDIR=str(tmp_path / "tmp"))
    assert ours == tmp_path / "tmp" / f"streamdr-{os.getuid()}"
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    given = local_directory(worker_line(slurm(keys, local_directory="$SCRATCH/a")), SCRATCH=str(tmp_path))
    assert given == tmp_path / "a" / f"streamdr-{os.getuid()}"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    other = local_directory(line, TMPDIR=str(tmp_path / "open"))
    assert stat.S_IMODE(other.stat().st_mode) == 0o700, "its name cannot be predicted"
    assert other.name != f"streamdr-{os.getuid()}"


def test_a_path_of_a_key_with_shell_syntax_is_refused(keys, tmp_path):
    files = certificates(tmp_path / "a;touch owned;", "ours")
    wanted = slurm(keys)
    with (
        pytest.raises(ParameterError, match="special in the shell of a job") as refused,
        clusters.start(wanted, Execution(cluster=wanted, tls=TLS(**files)), 1),
    ):
        pass
    assert refused.value.parameter == "tls"


def test_the_keys_of_a_killed_run_are_removed_by_the_next_run(keys):
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
        clusters.dask_executor(Execution(cluster=wanted), 2, Event()),
    ):
        pass
    assert not list(keys.iterdir())


def test_jobs_that_end_before_their_workers_start_are_an_error(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(replacing, "_ASK_SECONDS", 0.0)
    programs(
        tmp_path,
        monkeypatch,
        sbatch=f"#!/bin/sh\ncd {tmp_path}; echo x >> jobs; echo Submitted batch job `wc -l < jobs`\n",
        squeue='#!/bin/sh\necho "FAILED,NonZeroExitCode of hidden"\n',
        scancel="#!/bin/sh\n",
    )
    wanted = slurm(keys, workers=1, queue="hidden")
    with (
        pytest.raises(EngineError, match=r"3 jobs ended .*: FAILED,NonZeroExitCode of \*\*\*\. Check their"),
        clusters.dask_executor(Execution(cluster=wanted), 1, Event()),
    ):
        pass
    assert (tmp_path / "jobs").read_text().count("x") == 3
    assert not list(keys.iterdir())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_ended_is_replaced_and_one_that_waits_is_waited_for(
    keys, tmp_path, monkeypatch, processes
):
    """The first job ends at once, the second waits until the queue was asked about it a few times."""
    monkeypatch.setattr(replacing, "_ASK_SECONDS", 0.0)
    queue = f"""#!{sys.executable}
import os, shutil, subprocess, sys
os.chdir({str(tmp_path)!r})
if sys.argv[0].endswith("sbatch"):
    number = len([name for name in os.listdir() if name.startswith("job")])
    shutil.copy(sys.argv[1], f"job{{number}}")
    print("Submitted batch job", number)
elif sys.argv[-1] == "--jobs=0":
    print("FAILED,NonZeroExitCode")
else:
    open("asked", "a").write("x")
    asked = os.path.getsize("asked")
    if asked == 3:
        subprocess.Popen(["bash", "job1"], stdout=-3, stderr=-3, start_new_session=True)
    print("PENDING,Resources" if asked < 3 else "RUNNING,None")
"""
    programs(tmp_path, monkeypatch, sbatch=queue, squeue=queue, scancel="#!/bin/sh\n")
    wanted = slurm(keys, workers=processes, cores=processes, processes=processes)
    with clusters.dask_executor(Execution(cluster=wanted), 1, Event()) as engine:
        assert engine.result(engine.submit(sum, [1, 2])) == 3
    assert {path.name for path in tmp_path.glob("job*")} == {"job0", "job1"}


@pytest.mark.parametrize(
    ("kind", "command", "waits", "ended"),
    [
        ("SLURMCluster", "squeue", "PENDING,Priority", "TIMEOUT,TimeLimit"),
        ("SLURMCluster", "squeue", "RUNNING,None", ""),
        ("SLURMCluster", "squeue", "slurm_load_jobs error: Unable to contact slurm controller",
         "slurm_load_jobs error: Invalid job id specified"),
        ("PBSCluster", "qstat", "17.head  F  ann  0 Q work", "17.head  dask  ann  00:00:00 C work"),
        ("PBSCluster", "qstat", "cannot connect to server", "qstat: Unknown Job Id 17.head"),
        ("PBSCluster", "qstat", "17.head  dask  ann  00:00:01 R work",
         "qstat: 17.head Job has finished, use -x or -H to obtain historical job information"),
        ("MoabCluster", "checkjob", "job 17\n\nState: Idle", "job 17\n\nState: Completed"),
        ("MoabCluster", "checkjob", "job 17\n\nState: Running", "ERROR:  invalid job specified (17)"),
        ("SGECluster", "qstat", "job_number: 17\nowner: ann", "Following jobs do not exist:\n17"),
        ("SGECluster", "qstat", "error: unable to contact qmaster",
         "job_number: 17\nerror reason 1: can't chdir to /scratch/ann"),
        ("LSFCluster", "bjobs", "PEND", "EXIT"),
        ("LSFCluster", "bjobs", "batch daemon not responding", "Job <17> is not found"),
        ("HTCondorCluster", "condor_q", "1 undefined", "5 Failed to send file"),
        ("HTCondorCluster", "condor_q", "-- Failed to fetch ads from schedd", ""),
        ("OARCluster", "oarstat", "17: Waiting", "17: Error"),
    ],
)  # fmt: skip
def test_jobs_that_have_ended_are_recognised_for_every_queue(
    tmp_path, monkeypatch, kind, command, waits, ended
):
    programs(tmp_path, monkeypatch, **{command: f'#!/bin/sh\ncat "{tmp_path}/answer" >&2; exit 1\n'})
    (tmp_path / "answer").write_text(waits)
    assert end_of(kind, "17") is None
    (tmp_path / "answer").write_text(ended)
    assert end_of(kind, "17") == (" ".join(ended.split()) or "the queue does not know the job any more")


def test_a_queue_without_its_command_reports_no_ended_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert end_of("SLURMCluster", "17") is None


@pytest.mark.slow
def test_the_workers_of_a_queue_use_tls_with_temporary_keys(keys, tmp_path, monkeypatch):
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
