"""Files of others, at and beside every path that can be an output, are never changed.

Every command is tested with and without `overwrite`. It may succeed or end in one clear error. Where one of
the two is required, a test says so.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from damage import PRECIOUS, census, copy_world, is_kept, make_precious, watchdog
from narrowing import values_of
from nightly import Heard, correlated

from streamdr.config import parse, read_comparison
from streamdr.core.progress import Silent
from streamdr.data.ingest import ingest
from streamdr.errors import StreamdrError
from streamdr.workflow import comparison, pipeline, plotting, verification
from streamdr.workflow.run_context import RunContext

ROWS = correlated(120, 5)
MODEL, SCORES, DENOISED = "out/model.zarr", "out/scores.zarr", "out/denoised.zarr"


def context_in(world: Path, *, overwrite: bool, ledger: str = "ledger", **changes: Any) -> RunContext:
    config = {
        "input": {"path": str(world / "x.npy")},
        "method": {"name": "pca", "n_components": 2},
        "output": {
            "model": str(world / MODEL),
            "embedding": str(world / SCORES),
            "denoised": str(world / DENOISED),
            "overwrite": overwrite,
        },
        "execution": {"workers": 1, "ledger": str(world / ledger)},
    }
    return replace(RunContext(parse(json.dumps(config)), Heard(), threading.Event()), **changes)


def compared(world: Path, overwrite: bool) -> None:
    config = {
        "input": {"path": str(world / "x.npy")},
        "methods": [{"name": "pca", "n_components": 2, "as": "model"}],
        "output": {
            "folder": str(world / "out"),
            "table": [str(world / "out/table.md"), str(world / "out/table.csv")],
            "overwrite": overwrite,
        },
        "execution": {"workers": 1, "ledger": str(world / "ledger")},
    }
    comparison.compare(read_comparison(config), Heard(), threading.Event())


def ingested(world: Path, overwrite: bool, dest: str = MODEL) -> None:
    ingest(world / "x.npy", world / dest, overwrite=overwrite, progress=Silent())


def drawn(world: Path, overwrite: bool) -> None:
    plotting.draw(
        plotting.PlotRequest(world / "there" / MODEL, world / "out/picture.png", "explained_variance")
    )


COMMANDS: dict[str, Callable[[Path, bool], object]] = {
    "fit": lambda world, overwrite: pipeline.fit(context_in(world, overwrite=overwrite)),
    "fit --fresh": lambda world, overwrite: pipeline.fit(context_in(world, overwrite=overwrite, fresh=True)),
    "transform": lambda world, overwrite: pipeline.transform(context_in(world, overwrite=overwrite)),
    "run": lambda world, overwrite: pipeline.run_all(context_in(world, overwrite=overwrite)),
    "reprocess": lambda world, overwrite: pipeline.reprocess([context_in(world, overwrite=overwrite)]),
    "plan": lambda world, overwrite: pipeline.plan(context_in(world, overwrite=overwrite)),
    "verify": lambda world, overwrite: verification.verify(context_in(world, overwrite=overwrite)),
    "compare": compared,
    "ingest": ingested,
    "plot": drawn,
}


def put_file(path: Path, world: Path) -> None:
    path.write_bytes(PRECIOUS)


def put_folder(path: Path, world: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_bytes(PRECIOUS)


def put_empty_folder(path: Path, world: Path) -> None:
    path.mkdir()


def put_zarr(path: Path, world: Path) -> None:
    zarr.create_group(path).create_array("X", data=ROWS)


def put_ingested(path: Path, world: Path) -> None:
    ingest(world / "x.npy", path, progress=Silent())


def put_arrays(path: Path, world: Path) -> None:
    path.mkdir()
    np.savez(path / "mine.npz", x=np.zeros(1000))
    np.savez(path / f"{'a' * 40}.npz", x=np.zeros(1000))


def put_pipe(path: Path, world: Path) -> None:
    os.mkfifo(path)


def put_device(path: Path, world: Path) -> None:
    path.symlink_to("/dev/zero")


def put_loop(path: Path, world: Path) -> None:
    path.symlink_to(path)


def put_link(path: Path, world: Path) -> None:
    path.symlink_to(world / "out/precious")


def put_link_to_file(path: Path, world: Path) -> None:
    path.symlink_to(world / "out/precious/notes.txt")


FOREIGN = (
    put_file,
    put_folder,
    put_empty_folder,
    put_zarr,
    put_ingested,
    put_arrays,
    put_pipe,
    put_device,
    put_loop,
    put_link,
    put_link_to_file,
)
PATHS = (
    MODEL,
    SCORES,
    DENOISED,
    "ledger",
    "out/table.md",
    "out/table.csv",
    "out/.comparison.json",
    "out/model-embedding.zarr",
    "out/picture.png",
    "out/.model.zarr.lease",
    "out/.model.zarr.lease.new",
    "out/.model.zarr.0123456789abcdef.partial",
    "out/.scores.zarr.0123456789abcdef.partial.old",
)
NEIGHBOURS = (
    "out/model.zarr.bak",
    "out/model.zarr.partial",
    "out/.model.zarr",
    "out/.model.zarr.partial",
    "out/.model.zarr.old",
    "out/.model.zarr.backup.old",
    "out/.other.zarr.0123456789abcdef.partial",
    "out/.streamdr-ledger",
    "out/table.md.bak",
    "ledger.npz",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An input, outputs of an earlier run in another directory, and files of others."""
    world = tmp_path_factory.mktemp("foreign") / "world"
    world.mkdir()
    np.save(world / "x.npy", ROWS)
    pipeline.run_all(context_in(world, overwrite=False))
    (world / "there").mkdir()
    (world / "out").rename(world / "there/out")
    (world / "ledger").rename(world / "there/ledger")
    (world / "out").mkdir()
    make_precious(world / "out")
    for name in NEIGHBOURS:
        put_folder(world / name, world)
    return world


def attempted(command: str, world: Path, overwrite: bool) -> StreamdrError | None:
    """Return the error of a command, if it failed."""
    with watchdog():
        try:
            COMMANDS[command](world, overwrite)
        except StreamdrError as error:
            return error
    return None


def _is_left_by_a_killed_run(command: str, path: str, put: Callable[[Path, Path], None]) -> bool:
    """Whether it looks exactly like the leftovers of a killed run, which are removed."""
    if command == "ingest" and put is put_ingested:
        return ".partial" in path or path == MODEL  # it may be replaced
    return put is put_empty_folder and ".partial" in path


def cases() -> list[tuple[str, str, Callable[[Path, Path], None], bool]]:
    return [
        (command, path, put, overwrite)
        for command in COMMANDS
        for path in PATHS
        for put in FOREIGN
        for overwrite in (False, True)
        if not _is_left_by_a_killed_run(command, path, put)
    ]


def changed_cases(
    world: Path, scratch: Path, chosen: list[tuple[str, str, Callable[[Path, Path], None], bool]]
) -> list:
    """Return the cases in which files of others were changed, or another exception was raised."""
    found = []
    for number, (command, path, put, overwrite) in enumerate(chosen):
        here = copy_world(world, scratch / str(number))
        put(here / path, here)
        if command in ("transform", "verify") and path not in (MODEL, "ledger"):
            copy_world(here / "there" / MODEL, here / MODEL)
        before = census(here)
        try:
            attempted(command, here, overwrite)
        except Exception as error:
            found.append((command, path, put.__name__, overwrite, repr(error)))
        if not is_kept({name: value for name, value in before.items() if name != "out"}, here):
            found.append((command, path, put.__name__, overwrite, "something was changed"))
    return found


# Every 41st case: every command, path and kind of file is among them.
def test_files_of_others_are_not_changed_in_a_selection_of_cases(world: Path, tmp_path: Path) -> None:
    chosen = cases()[::41]
    assert {case[0] for case in chosen} == COMMANDS.keys()
    assert {case[1] for case in chosen} == set(PATHS)
    assert {case[2] for case in chosen} == set(FOREIGN)
    assert changed_cases(world, tmp_path, chosen) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_others_are_not_changed(world: Path, tmp_path: Path, command: str) -> None:
    assert changed_cases(world, tmp_path, [case for case in cases() if case[0] == command]) == []


@pytest.mark.parametrize("command", ["fit", "run", "reprocess"])
def test_ingested_data_is_never_replaced_by_a_model(world: Path, tmp_path: Path, command: str) -> None:
    here = copy_world(world, tmp_path / "world")
    put_ingested(here / MODEL, here)
    before = census(here / MODEL)
    error = attempted(command, here, overwrite=True)
    assert "it is data that was ingested, and this would be a model" in str(error)
    assert census(here / MODEL) == before


def test_a_ledger_in_a_directory_with_other_arrays_works_and_keeps_them(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdr.engine.ledger._KEPT_BYTES", 0)
    here = copy_world(world, tmp_path / "world")
    put_arrays(here / "ledger", here)
    before = census(here / "ledger")
    assert attempted("run", here, overwrite=False) is None
    assert attempted("fit --fresh", here, overwrite=True) is None
    assert is_kept(before, here / "ledger")
    assert len(census(here / "ledger")) > len(before)


def test_every_command_works_beside_files_of_others(world: Path, tmp_path: Path) -> None:
    here = copy_world(world, tmp_path / "world")
    before = census(here)
    for command in ("fit", "transform", "verify", "run", "reprocess", "fit --fresh", "compare", "plot"):
        assert attempted(command, here, overwrite=True) is None, command
    ingested(here, overwrite=True, dest="out/x.zarr")
    ingested(here, overwrite=True, dest="out/x.zarr")
    assert is_kept(before, here)


@pytest.mark.parametrize("where", ["", "components"])
@pytest.mark.parametrize("command", ["fit", "run", "reprocess"])
def test_attributes_of_others_are_not_replaced(world: Path, tmp_path: Path, command: str, where: str) -> None:
    here = copy_world(world, tmp_path / "world")
    copy_world(here / "there" / MODEL, here / MODEL)
    group = zarr.open_group(here / MODEL)
    (group[where] if where else group).attrs["note"] = "mine"
    before = census(here / MODEL)
    assert "the attribute" in str(attempted(command, here, overwrite=True))
    assert census(here / MODEL) == before


def test_appending_keeps_files_of_others_among_the_chunks(world: Path, tmp_path: Path) -> None:
    here = copy_world(world, tmp_path / "world")
    ingested(here, overwrite=False)
    chunks = here / MODEL / "X/c"
    for number in (7, 8):  # leftovers of a killed run
        (chunks / f"{number}").mkdir()
        (chunks / f"{number}/0").write_bytes(b"left")
    (chunks / "8/notes.txt").write_bytes(PRECIOUS)
    (chunks / "9").symlink_to(here / "out/precious")
    (here / MODEL / "X/zarr.mine.partial").write_bytes(PRECIOUS)
    before = census(here / "out/precious")
    ingest(here / "x.npy", here / MODEL, append=True, progress=Silent())
    assert not (chunks / "7").exists()
    assert not (chunks / "8/0").exists()
    assert (chunks / "8/notes.txt").read_bytes() == PRECIOUS
    assert (chunks / "9").is_symlink()
    assert (here / MODEL / "X/zarr.mine.partial").read_bytes() == PRECIOUS
    assert is_kept(before, here / "out/precious")
    assert np.array_equal(values_of(zarr.open_array(here / MODEL / "X")), np.concatenate([ROWS, ROWS]))
