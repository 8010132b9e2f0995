"""Commands lease their outputs: one runs at a time, and each removes what killed runs left."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import streamdr, succeed, write_config, write_store

from streamdr.store import leased
from streamdr.store.lease import Claim
from streamdr.store.process_identity import Process

OUTPUTS = ("model.zarr", "z.zarr")
WHOLE = {".streamdr-ledger", *OUTPUTS}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_store(tmp_path / "x.zarr", np.random.default_rng(8).normal(size=(50, 4)))
    write_config(
        tmp_path, input={"path": "x.zarr"}, output={"model": "out/model.zarr", "embedding": "out/z.zarr"}
    )
    return tmp_path


def names(place: Path) -> set[str]:
    return {path.name for path in (place / "out").iterdir()}


def leave(place: Path, holder: Process) -> None:
    """Create the files of a run that was killed, or is active elsewhere, before it released its leases."""
    for name in OUTPUTS:
        (place / "out" / f".{name}.lease").write_bytes(replace(Claim.after(0, 1000), holder=holder).encode())
        (place / "out" / f".{name}.0123456789abcdef.partial").mkdir()


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_run_whose_output_another_run_writes_is_refused_and_reads_nothing(place: Path, output: str) -> None:
    with leased([place / "out" / output]):
        refused = streamdr("run", "config.yaml", cwd=place)
        assert names(place) == {f".{output}.lease"}
    assert refused.code == 1
    assert f"{output}: is being written by another run (process {os.getpid()} on " in refused.errors[0]
    succeed("run", "config.yaml", cwd=place)
    assert names(place) == WHOLE


def test_runs_that_change_nothing_remove_what_killed_runs_left(place: Path) -> None:
    succeed("run", "config.yaml", cwd=place)
    ended = replace(Process.here(), started=1)
    leave(place, ended)
    assert succeed("run", "config.yaml", "--json", cwd=place).report["reused"]
    assert names(place) == WHOLE
    leave(place, ended)
    succeed("fit", "config.yaml", cwd=place)
    succeed("transform", "config.yaml", cwd=place)
    assert names(place) == WHOLE


def test_runs_that_change_nothing_keep_what_may_be_in_use_and_do_not_wait_for_it(place: Path) -> None:
    succeed("run", "config.yaml", cwd=place)
    leave(place, replace(Process.here(), host="elsewhere", realm="another boot"))
    before = names(place)
    assert succeed("run", "config.yaml", "--json", cwd=place).report["reused"]
    assert names(place) == before
