"""One server for all tests of flows, and data for them to work on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import write_config, write_store
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from prefect_server import Server, running_server

from streamdr.flows import prefect_setup  # before anything else imports Prefect

assert prefect_setup


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.fixture
def reporting(server) -> Iterator[Server]:
    """The server, to which flows that are called in this process report."""
    with temporary_settings({PREFECT_API_URL: server.url, PREFECT_HOME: str(server.home)}):
        yield server


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A directory to work in, with a small store and a configuration for it."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(200, 5)) * [9, 7, 5, 3, 1]
    write_store(tmp_path / "x.zarr", values)
    write_config(tmp_path, input={"path": "x.zarr"}, output={"embedding": "out/z.zarr"})
    return tmp_path


CHUNK_ROWS, COLS, CHUNKS = 16_384, 128, 64


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Path:
    """Half a gigabyte of data that takes a few megabytes: most of its chunks are links to the first."""
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    shape = (CHUNK_ROWS * CHUNKS, COLS)
    array = zarr.create_array(path, shape=shape, chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None)
    array[:CHUNK_ROWS] = np.random.default_rng(0).normal(size=(CHUNK_ROWS, COLS))
    for number in range(1, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / "0" / "0", path / "c" / str(number) / "0")
    return path
