"""Stages in a process of their own: reports and errors come back, and nothing outlives its owner."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import write_config, write_store
from dask_processes import gone

from streamdr.cli.supervisor import StageError
from streamdr.cli.worker import StageRequest, WorkerProcess
from streamdr.config import load, read
from streamdr.core.progress import Silent
from streamdr.errors import BusyError, DataError, EngineError, StoreError, can_pass
from streamdr.workflow import pipeline
from streamdr.workflow.reports import StagesReport
from streamdr.workflow.run_context import RunContext


class Diary:
    """Progress that is recorded."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.passes: list[str] = []
        self.messages: list[str] = []

    def start(self, begun):
        self.passes.append(begun.label)

    def advance(self, rows):
        self.rows.append(rows)

    def finish(self):
        pass

    def message(self, text):
        self.messages.append(text)


def configuration(place: Path, store: Path, **execution) -> dict:
    output = {"model": str(place / "model.zarr"), "embedding": str(place / "z.zarr")}
    file = write_config(place, input={"path": str(store)}, output=output, execution=execution)
    return load(file).to_dict()


@pytest.fixture(scope="module")
def worker():
    with WorkerProcess() as worker:
        yield worker


@pytest.fixture
def small(tmp_path) -> dict:
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(200, 5)) * [9, 7, 5, 3, 1])
    return configuration(tmp_path, tmp_path / "x.zarr")


def test_stages_run_one_after_the_other(worker, small, tmp_path):
    diary = Diary()
    plan = worker.run(StageRequest("plan", [small]), diary)
    fit = worker.run(StageRequest("fit", [small]), diary)
    transform = worker.run(StageRequest("transform", [small]), diary)
    verified = worker.run(StageRequest("verify", [small]), diary)
    page = worker.run(StageRequest("summarise", [small], reports=StagesReport(fit=fit)), diary)
    assert plan.fit.solver == fit.summary["solver"]
    assert transform.n_rows == verified.n_rows == 200
    assert diary.passes == ["moments", "transform", "verify"]
    assert sum(diary.rows) == 600
    assert [len(table.rows) for table in page.tables] == [2, 2]


def test_a_report_is_the_same_on_both_sides(worker, small):
    """All but time and memory, to the type: facts and tables of the model are included."""
    there = worker.run(StageRequest("fit", [small]), Silent())
    here = pipeline.fit(RunContext(read(small), Silent(), threading.Event()))
    again = worker.run(StageRequest("fit", [small]), Silent())
    assert there.facts == here.facts
    assert there.tables == here.tables
    assert [type(row[0]) for table in there.tables for row in table.rows] == [int] * 4
    assert replace(again, seconds=0.0, peak_rss=0) == replace(here, seconds=0.0, peak_rss=0)
    assert list(there.to_json()) == [*here.to_json(), "workers", "planned_peak", "memory_limit", "reason"]


def test_the_bits_are_those_of_a_run_in_this_process(worker, small, tmp_path):
    worker.run(StageRequest("fit", [small]), Silent())
    write_config(
        tmp_path, input={"path": str(tmp_path / "x.zarr")}, output={"model": str(tmp_path / "here.zarr")}
    )
    pipeline.fit(RunContext(load(tmp_path / "config.yaml"), Silent(), threading.Event()))
    for name in ("mean", "components", "explained_variance"):
        here, there = (zarr.open_array(tmp_path / store / name)[:] for store in ("here.zarr", "model.zarr"))
        assert np.array_equal(here, there)


@pytest.mark.parametrize(
    ("section", "kind", "code", "words"),
    [
        ({"method": {"name": "pca", "n_components": 0}}, "ConfigError", 2, "n_components: 0 is not"),
        ({"method": {"name": "pca", "n_components": 50}}, "ParameterError", 2, "method.n_components"),
        ({"input": {"path": "nowhere.zarr"}}, "InputError", 2, "nowhere.zarr"),
    ],
)
def test_errors_come_back_in_the_words_of_a_command(worker, small, section, kind, code, words):
    with pytest.raises(StageError, match=words) as caught:
        worker.run(StageRequest("fit", [{**small, **section}]), Silent())
    assert (caught.value.kind, caught.value.exit_code, caught.value.can_pass) == (kind, code, False)


def test_secrets_are_not_shown(worker, small):
    address = "s3://me:hush@bucket/x.zarr?token=hush"
    options = {"endpoint": "http://127.0.0.1:9", "retry_seconds": 0}
    with pytest.raises(StageError) as caught:
        worker.run(StageRequest("fit", [{**small, "input": {"path": address}}], storage=options), Silent())
    assert "hush" not in str(caught.value)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (TimeoutError("timed out"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (EngineError("the scheduler is not there"), True),
        (caused(DataError("x.zarr: chunk 3"), OSError(errno.EIO, "Input/output error")), True),
        (caused(StoreError("z.zarr"), OSError(errno.ESTALE, "Stale file handle")), True),
        (caused(DataError("rows 3-5 killed every worker"), EngineError("workers died")), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (caused(StoreError("z.zarr"), PermissionError(errno.EACCES, "denied")), False),
        (FileNotFoundError("gone"), False),
        (DataError("NaN at row 3"), False),
        (BusyError("another run"), False),
        (ValueError("a mistake of ours"), False),
    ],
    ids=repr,
)
def test_what_can_pass(error, passes):
    assert can_pass(error) is passes


# Work that takes a while, in the memory of a few chunks: most of them are links to the first.
CHUNK_ROWS, COLS, CHUNKS = 16_384, 128, 64


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    shape = (CHUNK_ROWS * CHUNKS, COLS)
    array = zarr.create_array(path, shape=shape, chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None)
    array[:CHUNK_ROWS] = np.random.default_rng(0).normal(size=(CHUNK_ROWS, COLS))
    for number in range(1, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / "0" / "0", path / "c" / str(number) / "0")
    return path


class Interrupting(Diary):
    """Progress at whose first step something happens."""

    def __init__(self, act) -> None:
        super().__init__()
        self._act = act

    def advance(self, rows):
        super().advance(rows)
        if len(self.rows) == 1:
            self._act()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_wait_stops_the_work_after_a_checkpoint(tmp_path, large):
    request = StageRequest("fit", [configuration(tmp_path, large, workers=1, checkpoint_seconds=0.001)])
    with WorkerProcess() as worker:
        with pytest.raises(KeyboardInterrupt):
            worker.run(request, Interrupting(interrupt))
        assert not (tmp_path / "model.zarr").exists()
        diary = Diary()
        report = worker.run(request, diary)  # in a new process
    assert 0 < report.bytes_read < CHUNK_ROWS * CHUNKS * COLS * 4
    assert any(message.startswith("resuming moments at row ") for message in diary.messages)


def test_a_killed_process_is_an_error_that_can_pass_and_another_takes_its_place(tmp_path, large):
    request = StageRequest("fit", [configuration(tmp_path, large, workers=1, checkpoint_seconds=0.001)])
    with WorkerProcess() as worker:
        with pytest.raises(
            StageError, match="was killed by signal 9, perhaps because memory ran out"
        ) as caught:
            worker.run(request, Interrupting(lambda: os.kill(worker.pid, signal.SIGKILL)))
        assert caught.value.can_pass
        assert worker.run(request, Silent()).n_rows == CHUNK_ROWS * CHUNKS


ORPHAN = """
import os, signal, sys
from streamdr.core.progress import Silent
from streamdr.workflow.run_context import RunContext
from streamdr.cli.worker import WorkerProcess
with WorkerProcess() as worker:
    print(worker.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_process_dies_with_its_owner():
    owner = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True)
    assert owner.returncode == -signal.SIGKILL
    orphan = int(owner.stdout)
    assert gone({orphan}), "the process outlived its owner"


def test_closing_ends_the_process():
    with WorkerProcess() as worker:
        process = worker.pid
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
