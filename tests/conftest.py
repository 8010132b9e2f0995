"""Settings and fixtures for all tests."""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from collections.abc import Callable

import fault_counts
import pytest
from hypothesis import HealthCheck, settings

from streamdr.core import blocks
from streamdr.engine import calibration
from streamdr.engine.fitting import one_blas_thread

# Tests check results, never the time that they took: other programs may be using the machine.
settings.register_profile("streamdr", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamdr")


def pytest_configure() -> None:
    """Handle SIGINT as in a terminal, even if this process was started with SIGINT ignored.

    Background jobs of a shell, nohup and some CI runners ignore it, and child processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with most tests first, after those of flows, which wait for a server most of the time."""
    lengths = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.parent.name != "flows", -lengths[item.path]))


@pytest.fixture(scope="session", autouse=True)
def single_blas_thread():
    """Use one BLAS thread: small products on many threads mostly wait for each other."""
    with one_blas_thread():
        yield


@pytest.fixture(scope="session", autouse=True)
def nominal_speeds(tmp_path_factory):
    """Keep nominal speeds in a cache of the tests, so that commands neither measure nor write to the home."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        calibration.keep(calibration.nominal())
        yield


@pytest.fixture
def blocks_of(monkeypatch) -> Callable[[int], None]:
    """Return a function that sets the size of blocks, with two blocks per segment."""

    def set_sizes(block_bytes: int) -> None:
        monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(blocks, "LARGEST_BLOCK_BYTES", block_bytes)
        monkeypatch.setattr(blocks, "SEGMENT_BYTES", 2 * block_bytes)

    return set_sizes


@pytest.fixture
def small_blocks(blocks_of) -> None:
    """Partition small data like large data: many blocks, many segments, several levels."""
    blocks_of(1 << 12)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """One S3 server for all tests that need a bucket."""
    from s3_server import serve

    with serve(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """A new bucket for each test, and the environment variables to reach it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket(f"test-{uuid.uuid4().hex}")


@pytest.fixture
def tally(record_property) -> fault_counts.Tally:
    """Counts injected faults for the summary at the end: `tally("worker kills", 3)`."""
    return fault_counts.Tally(record_property)


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the number of injected faults."""
    if line := fault_counts.summary(terminalreporter.stats):
        terminalreporter.write_line(line)
