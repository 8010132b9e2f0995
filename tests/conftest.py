"""What holds for every test."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable

import fault_counts
import pytest
from hypothesis import HealthCheck, settings

from streamdr.core import blocks
from streamdr.engine.fitting import one_blas_thread

# Tests check what comes out, never how long it took: other programs may be using the machine.
settings.register_profile("streamdr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamdr")


def pytest_configure() -> None:
    """Start children as a terminal does, even where this process was started with SIGINT ignored.

    Jobs in the background of a shell, nohup and some runners of CI ignore it, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def single_blas_thread():
    """Small products on many BLAS threads spend their time waiting for each other."""
    with one_blas_thread():
        yield


@pytest.fixture
def blocks_of(monkeypatch) -> Callable[[int], None]:
    """Cuts data into blocks of so many bytes, and segments of two: few rows are cut as if they were many."""

    def cut(block_bytes: int) -> None:
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(blocks, "LARGEST_BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(blocks, "SEGMENT_BYTES", 2 * block_bytes)

    return cut


@pytest.fixture
def small_blocks(blocks_of) -> None:
    """Cut small data as if it were large: many blocks, many segments, several levels."""
    blocks_of(1 << 12)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """One S3 server for all tests that ask for a bucket."""
    from s3_server import serve

    with serve(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """A bucket of the test's own, and an environment that leads to it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket(f"test-{uuid.uuid4().hex}")


@pytest.fixture
def tally(record_property) -> fault_counts.Tally:
    """Counts what was done to the program, for the summary at the end: `tally("worker kills", 3)`."""
    return fault_counts.Tally(record_property)


def pytest_terminal_summary(terminalreporter) -> None:
    """Say how many faults were tried."""
    if line := fault_counts.summary(terminalreporter.stats):
        terminalreporter.write_line(line)
