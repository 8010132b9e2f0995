"""Faults are reported clearly, nothing incomplete is published, and the next run gives the right result."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zarr
from command_line import streamdr, succeed, write_config, write_store
from killing import Started, chunks, tree
from narrowing import present
from nightly import Nights, correlated

from streamdr.core.progress import PassStart, Silent
from streamdr.errors import DataError, Interrupted
from streamdr.store.lease import LEASE_SECONDS, Claim
from streamdr.workflow import pipeline
from streamdr.workflow.reports import RunReport

ROWS, COLS = 2000, 20
ROW_BYTES = COLS * 4
OUTPUTS = {"out/.streamdr-ledger", "out/model.zarr", "out/z.zarr"}


@pytest.fixture
def nights(tmp_path, monkeypatch) -> Nights:
    """An input of many segments, and a run with a checkpoint after each of them."""
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 100 * ROW_BYTES)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 200 * ROW_BYTES)
    monkeypatch.setattr("streamdr.engine.planner._OUTPUT_CHUNK", 200 * 3 * 4)
    (tmp_path / "night").mkdir()
    nights = Nights(tmp_path / "night", correlated(ROWS + 500, COLS))
    nights.config["output"] = {"embedding": str(nights.root / "out/z.zarr"), "refresh_tolerance": 0.0}
    nights.config["execution"] = {"workers": 1, "checkpoint_seconds": 1e-9}
    nights.write(ROWS)
    return nights


class At(Silent):
    """Calls a function once, when `rows` rows of a pass are done."""

    def __init__(self, label: str, rows: int, happens: Callable[[], object]) -> None:
        self.label, self.rows, self.happens = label, rows, happens
        self.now, self.left = "", 0

    def start(self, begun: PassStart) -> None:
        self.now, self.left = begun.label, self.rows
        self.advance(0)

    def advance(self, rows: int) -> None:
        self.left -= rows
        if self.now == self.label and self.left <= 0:
            self.label = "nothing else"
            self.happens()


def run(nights: Nights, progress: Silent, stop: threading.Event | None = None) -> RunReport:
    return pipeline.run_all(replace(nights.stage(), progress=progress, stop=stop or threading.Event()))


def outputs(nights: Nights) -> set[str]:
    return {str(path.relative_to(nights.root)) for path in nights.root.glob("out/*")}


def require_result_of_a_new_run(nights: Nights) -> None:
    """Check that the values equal those of a run without earlier state, and that no file is left over."""
    elsewhere = {"model": str(nights.root / "new/model.zarr"), "embedding": str(nights.root / "new/z.zarr")}
    nights.run(output=elsewhere)
    assert chunks(nights.root / "out") == chunks(nights.root / "new")
    assert outputs(nights) == OUTPUTS


@pytest.mark.parametrize("label", ["moments", "transform"])
def test_a_run_resumes_after_its_store_was_lost_and_restored(nights, label):
    store, away = nights.root / "x.zarr/c", nights.root / "away"
    with pytest.raises(DataError, match=r"x\.zarr: chunk c/\d+/0 is missing, rows \d+-\d+"):
        run(nights, At(label, 800, lambda: store.rename(away)))
    kept = OUTPUTS - ({"out/z.zarr"} if label == "transform" else {"out/z.zarr", "out/model.zarr"})
    assert {name for name in outputs(nights) if not name.endswith(".partial")} == kept
    away.rename(store)
    report = nights.run()
    assert (report.transform if label == "transform" else report.fit).bytes_read <= (ROWS - 800) * ROW_BYTES
    require_result_of_a_new_run(nights)


class Labels(Silent):
    """Records the labels of the passes of a run."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def start(self, begun: PassStart) -> None:
        self.labels.append(begun.label)


def change(nights: Nights) -> None:
    zarr.open_array(nights.root / "x.zarr", mode="r+")[150:160] = 1.0


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_an_input_that_changes_between_two_passes_is_an_error(nights, solver):
    nights.config["method"] = {"solver": solver}
    zarr.open_array(nights.root / "x.zarr", mode="r+").resize((400, COLS))
    passes = Labels()
    pipeline.fit(replace(nights.stage(output={"model": str(nights.root / "first/m.zarr")}), progress=passes))
    with pytest.raises(DataError, match="changed while it was being read; nothing was kept of this pass"):
        run(nights, At(passes.labels[1], 0, lambda: change(nights)))
    assert outputs(nights) == {"out/.streamdr-ledger"}
    nights.run()
    require_result_of_a_new_run(nights)


def test_an_input_that_changes_during_a_transform_is_an_error(nights):
    with pytest.raises(DataError, match="changed while it was being read; run again"):
        run(nights, At("transform", 800, lambda: change(nights)))
    assert not (nights.root / "out/z.zarr").exists()
    nights.run()
    require_result_of_a_new_run(nights)


@pytest.mark.parametrize("label", ["moments", "transform"])
@pytest.mark.parametrize("rows", [ROWS + 1, ROWS + 500])
def test_rows_appended_during_a_run_are_used_by_the_next_run(nights, label, rows):
    """The run uses the rows that existed when it began."""
    report = run(nights, At(label, 800, lambda: nights.grow(rows)))
    assert report.fit.n_rows == ROWS
    report = nights.run()
    assert report.fit.n_rows == report.transform.n_rows == rows
    assert report.fit.bytes_read < rows * ROW_BYTES / 2
    require_result_of_a_new_run(nights)


def test_an_input_whose_last_chunk_is_filled_during_a_run_is_an_error(nights):
    """Zarr rewrites the whole chunk, so it is unknown whether it was read before or after."""
    zarr.open_array(nights.root / "x.zarr", mode="r+").resize((ROWS - 50, COLS))
    with pytest.raises(DataError, match="changed while it was being read"):
        run(nights, At("moments", 800, lambda: nights.grow(ROWS)))
    assert outputs(nights) == {"out/.streamdr-ledger"}
    nights.run()
    require_result_of_a_new_run(nights)


def stopped(nights: Nights, label: str) -> None:
    """Run until the middle of a pass, and stop there."""
    stop = threading.Event()
    with pytest.raises(Interrupted):
        run(nights, At(label, 800, stop.set), stop)


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_in_the_checkpoint_of_a_fit_does_no_harm(nights, seed):
    stopped(nights, "moments")
    (entry,) = nights.root.glob("out/.streamdr-ledger/*.npz")
    flip(entry, random.Random(seed))
    nights.run()
    require_result_of_a_new_run(nights)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["embedding/c/1/0", "embedding/zarr.json", "zarr.json"])
def test_a_flipped_bit_in_the_staged_work_of_a_transform_does_no_harm(nights, what, seed):
    stopped(nights, "transform")
    (file,) = nights.root.glob(f"out/.z.zarr.*.partial/{what}")
    flip(file, random.Random(seed))
    nights.run()
    require_result_of_a_new_run(nights)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to run commands in, whose input takes a second or two."""
    write_store(tmp_path / "x.zarr", correlated(300_000, 64), chunks=(10_000, 64))
    write_config(
        tmp_path,
        input={"path": "x.zarr"},
        method={"solver": "krylov"},
        output={"embedding": "out/z.zarr"},
        execution={"workers": 1},
    )
    return tmp_path


def the_lease(place: Path, run: Started) -> Path:
    """Wait for the lease of the model, and return its path."""
    while not (lease := place / "out/.model.zarr.lease").exists():
        assert not run.ends_within(0.002), run.outcome()
    return lease


def test_one_of_two_concurrent_runs_is_refused_with_the_name_of_the_other(place):
    with Started("run", "config.yaml", cwd=place) as one, Started("run", "config.yaml", cwd=place) as other:
        holder = present(Claim.parse(the_lease(place, one).read_bytes())).holder
        works, refused = sorted((one.outcome(), other.outcome()), key=lambda outcome: outcome.code)
    assert (works.code, refused.code) == (0, 1)
    (message,) = refused.errors
    assert f"is being written by another run (process {holder.pid} on " in message
    assert {path.name for path in (place / "out").iterdir()} == {".streamdr-ledger", "model.zarr", "z.zarr"}


@pytest.mark.slow
def test_a_damaged_lease_of_a_killed_run_is_watched_before_it_is_taken_over(place):
    """Its holder is unknown, so it is watched for as long as a run may be silent."""
    with Started("run", "config.yaml", cwd=place) as run:
        lease = the_lease(place, run)
        run.kill("all")
    flip(lease, random.Random(0))
    after = succeed("run", "config.yaml", cwd=place)
    assert f"watching for {LEASE_SECONDS:g} seconds" in after.err
    assert {path.name for path in (place / "out").iterdir()} == {".streamdr-ledger", "model.zarr", "z.zarr"}


@pytest.mark.parametrize("key", ["model", "embedding"])
@pytest.mark.parametrize("where", ["/proc", "/sys/kernel", "file"])
def test_an_output_where_nothing_can_be_written_is_refused_before_anything_is_read(where, key, tmp_path):
    write_store(tmp_path / "x.zarr", correlated(50, 4), chunks=(10, 4))
    (tmp_path / "file").touch()
    output = {"embedding": "out/z.zarr", key: f"{where}/o.zarr"}
    write_config(tmp_path, input={"path": "x.zarr"}, output=output)
    before = tree(tmp_path)
    refused = streamdr("run", "config.yaml", cwd=tmp_path)
    assert refused.code == 1
    (message,) = refused.errors
    assert message.startswith(output[key])
    assert "cannot be written" in message
    assert "choose another path" in message
    assert tree(tmp_path) == before
