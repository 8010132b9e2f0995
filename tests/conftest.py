"""What holds for every test."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import settings

from streamdr.fitting import one_blas_thread

# Tests check what comes out, never how long it took: other programs may be using the machine.
settings.register_profile("streamdr", deadline=None)
settings.load_profile("streamdr")


@pytest.fixture(scope="session", autouse=True)
def single_blas_thread():
    """Small products on many BLAS threads spend their time waiting for each other."""
    with one_blas_thread():
        yield


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
