"""Two hosts, and a network cable between them that is unplugged during a run.

The hosts are network namespaces of this machine, which only root can create.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zarr
from command_line import succeed, write_config
from dask_processes import process
from killing import chunks
from nightly import correlated

pytestmark = pytest.mark.faults

PATIENCE_SECONDS = 600
CHUNK_ROWS, COLS, CHUNKS = 8_192, 128, 64
SCHEDULER, PORT = "10.203.77.1", 8786


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Host:
    """A network namespace, with one end of the cable."""

    name: str
    cable: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """The beginning of a command line that runs on this host."""
        return ["ip", "netns", "exec", self.name]


@dataclass(frozen=True)
class Hosts:
    near: Host
    far: Host

    def pull(self) -> None:
        """Unplug the cable at the far host. The near host keeps its route, as with a remote failure."""
        ip("-n", self.far.name, "link", "set", self.far.cable, "down")

    def plug(self) -> None:
        ip("-n", self.far.name, "link", "set", self.far.cable, "up")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0:
        pytest.fail("only root can create network namespaces: run this test as root")
    number = os.getpid()
    near = Host(f"streamdr-near-{number}", f"sdn{number}", SCHEDULER)
    far = Host(f"streamdr-far-{number}", f"sdf{number}", "10.203.77.2")
    made = []
    try:
        for host in (near, far):
            ip("netns", "add", host.name)
            made.append(host)
        ip("-n", near.name, "link", "add", near.cable, "type", "veth", "peer", "name", far.cable)
        ip("-n", near.name, "link", "set", far.cable, "netns", far.name)
        for host in (near, far):
            ip("-n", host.name, "addr", "add", f"{host.address}/30", "dev", host.cable)
            ip("-n", host.name, "link", "set", host.cable, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield Hosts(near, far)
    finally:
        for host in made:
            ip("netns", "del", host.name)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """A quarter of a gigabyte in a few megabytes: most of its chunks are links to the first three."""
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    array = zarr.create_array(
        path, shape=(CHUNK_ROWS * CHUNKS, COLS), chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None
    )
    array[: 3 * CHUNK_ROWS] = correlated(3 * CHUNK_ROWS, COLS)
    for number in range(3, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / str(number % 3) / "0", path / "c" / str(number) / "0")
    return path


def configure(place: Path, store: Path, **execution: object) -> None:
    write_config(
        place,
        input={"path": str(store)},
        method={"n_components": 4, "solver": "krylov", "tol": 0.0, "max_passes": 6},
        execution={"checkpoint_seconds": 0.05, **execution},
    )


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory) -> dict[str, bytes]:
    place = tmp_path_factory.mktemp("undisturbed")
    configure(place, store, workers=2)
    succeed("fit", "config.yaml", cwd=place)
    return chunks(place / "out")


@contextmanager
def cluster(hosts: Hosts, workers: list[Host]) -> Iterator[None]:
    """Run a scheduler on the near host, and workers on some hosts."""
    at = ("--port", str(PORT), "--no-dashboard")
    with ExitStack() as stack:
        words = ("distributed.cli.dask_scheduler", "--host", SCHEDULER, *at)
        stack.enter_context(process(*words, prefix=hosts.near.prefix))
        for host in workers:
            there = ("distributed.cli.dask_worker", f"tcp://{SCHEDULER}:{PORT}", "--host", host.address)
            stack.enter_context(process(*there, "--no-dashboard", "--nthreads", "1", prefix=host.prefix))
        yield


@contextmanager
def started(host: Host, place: Path) -> Iterator[subprocess.Popen[str]]:
    words = [*host.prefix, sys.executable, "-m", "streamdr", "fit", "config.yaml", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=place, stdout=pipe, stderr=pipe, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


CASES = {
    # the host of the driver, the hosts of the workers, and for how many seconds the cable is unplugged
    "a moment": ("near", ["near", "far"], 2.0),
    "half the workers": ("near", ["near", "far"], 60.0),
    "all workers": ("near", ["far"], 60.0),
    "the driver": ("far", ["near"], 60.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_network_cut_between_two_hosts_does_no_harm(case, store, undisturbed, tmp_path, tally):
    driver, workers, seconds = CASES[case]
    configure(tmp_path, store, scheduler=f"tcp://{SCHEDULER}:{PORT}", insecure=True)
    with two_hosts() as hosts, ExitStack() as stack:
        at = {"near": hosts.near, "far": hosts.far}
        with cluster(hosts, [at[name] for name in workers]):
            run = stack.enter_context(started(at[driver], tmp_path))
            while not list(tmp_path.glob("out/.streamdr-ledger/*.npz")):
                assert run.poll() is None, run.communicate()
                time.sleep(0.02)
            hosts.pull()
            tally("network cuts")
            time.sleep(seconds)
            hosts.plug()
            out, err = run.communicate(timeout=PATIENCE_SECONDS)
            if run.returncode != 0:
                assert run.returncode == 1, err
                error = json.loads(out)["error"]
                assert error["kind"] == "EngineError", error
                assert "Traceback" not in err
        # Whatever the outcome, the next run with a new cluster succeeds.
        with cluster(hosts, [hosts.near, hosts.far]):
            again = stack.enter_context(started(at[driver], tmp_path))
            out, err = again.communicate(timeout=PATIENCE_SECONDS)
        assert again.returncode == 0, err
    assert chunks(tmp_path / "out") == undisturbed
    if case in ("a moment", "half the workers"):
        assert run.returncode == 0, "a lost worker must not fail the run"
