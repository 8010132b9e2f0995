"""Whoever kills a command, at any moment, need only start it again: nothing is lost, left over or different.

Each test disturbs one command until it was killed many times, and compares what it ends with, all files and
all values, with what the same command makes when nobody disturbs it. When exactly a kill strikes depends on
the machine; the delays are drawn by the seed in the name of the test.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import zarr
from command_line import succeed, write_config, write_store
from killing import Started, Survived, chunks, harass, timed, tree
from nightly import correlated

CHUNK_ROWS, COLS, CHUNKS = 16_384, 128, 32
ROW_BYTES = COLS * 4
ALL_BYTES = CHUNK_ROWS * CHUNKS * ROW_BYTES

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 11))]


@dataclass(frozen=True)
class Undisturbed:
    """A place with all that a command makes, and how long it took."""

    place: Path
    seconds: float


Make = Callable[[Path], object]


def undisturbed(words: list[str], make: Make, place: Path) -> Undisturbed:
    place.mkdir()
    make(place)
    return Undisturbed(place, timed(*words, cwd=place))


def survive(words: list[str], make: Make, kills: int, seed: int, root: Path) -> list[Survived]:
    """Disturb a command until it was killed so many times, in as many places as that takes."""
    whole = undisturbed(words, make, root / "undisturbed")
    chance, longest, rounds = random.Random(seed), whole.seconds, list[Survived]()
    while sum(survived.kills for survived in rounds) < kills:
        place = root / f"round {len(rounds)}"
        place.mkdir()
        make(place)
        survived = harass(*words, cwd=place, longest=longest, chance=chance)
        assert tree(place) == tree(whole.place)
        assert chunks(place / "out") == chunks(whole.place / "out")
        shutil.rmtree(place)
        rounds.append(survived)
        if not survived.kills:
            longest = min(longest, survived.seconds)  # the first run of all is often the slowest
    return rounds


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """A quarter of a gigabyte that takes a few megabytes: most of its chunks are links to the first three."""
    path = tmp_path_factory.mktemp("data") / "x.zarr"
    array = zarr.create_array(
        path, shape=(CHUNK_ROWS * CHUNKS, COLS), chunks=(CHUNK_ROWS, COLS), dtype="float32", compressors=None
    )
    array[: 3 * CHUNK_ROWS] = correlated(3 * CHUNK_ROWS, COLS)
    for number in range(3, CHUNKS):
        (path / "c" / str(number)).mkdir()
        os.link(path / "c" / str(number % 3) / "0", path / "c" / str(number) / "0")
    return path


def configure(place: Path, store: Path, **method: object) -> None:
    write_config(
        place,
        input={"path": str(store)},
        method=method,
        output={"embedding": "out/z.zarr"},
        execution={"workers": 1, "checkpoint_seconds": 0.02},
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fit_that_is_killed(seed, store, tmp_path):
    words = ["fit", "config.yaml", "--json"]
    for survived in survive(words, lambda place: configure(place, store), 20, seed, tmp_path):
        noted = "out/.streamdr-ledger/entry.npz" in survived.left
        assert (survived.outcome.report["bytes_read"] < ALL_BYTES) == noted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fit_of_many_passes_that_is_killed(seed, store, tmp_path):
    words = ["fit", "config.yaml", "--json"]
    survive(words, lambda place: configure(place, store, solver="krylov"), 10, seed, tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transform_that_is_killed(seed, store, tmp_path):
    """What was written is not read again, down to the chunk."""
    fitted = tmp_path / "fitted"
    fitted.mkdir()
    configure(fitted, store)
    succeed("fit", "config.yaml", cwd=fitted)

    def make(place: Path) -> None:
        shutil.copytree(fitted, place, dirs_exist_ok=True)

    rounds = survive(["transform", "config.yaml", "--json"], make, 30, seed, tmp_path)
    chunk_rows = zarr.open_array(tmp_path / "undisturbed/out/z.zarr/embedding").chunks[0]
    for survived in rounds:
        written = [path for path in survived.left if Path(path).match("*z.zarr*/embedding/c/*/0")]
        expected = ALL_BYTES - len(written) * chunk_rows * ROW_BYTES
        assert survived.outcome.report["bytes_read"] == expected


def small(place: Path, rows: int = 350) -> None:
    """So little data that a run spends its time on leases, checkpoints and publishing."""
    write_store(place / "x.zarr", correlated(rows, 6), chunks=(100, 6))
    output = {"embedding": "out/z.zarr", "refresh_tolerance": 0.5}
    write_config(place, input={"path": "x.zarr"}, output=output)


def grown(place: Path, rows: int = 500) -> None:
    """Outputs of what the input was, before rows were appended."""
    small(place)
    succeed("run", "config.yaml", cwd=place)
    array = zarr.open_array(place / "x.zarr", mode="r+")
    array.resize((rows, 6))
    array[350:] = correlated(rows, 6, seed=1)[350:]


def changed(place: Path) -> None:
    """Outputs of two configurations, of which both have changed."""
    small(place)
    (place / "configs").mkdir()
    for k in (1, 2):
        output = {name: f"out/{name}-{k}.zarr" for name in ("model", "embedding")}
        write_config(place, input={"path": "x.zarr"}, method={"n_components": k}, output=output)
        shutil.move(place / "config.yaml", place / "configs" / f"{k}.yaml")
    succeed("reprocess", "configs", "--set", "method.whiten=pca", cwd=place)


PUBLISHING = pytest.mark.parametrize(
    ("words", "make"),
    [(["run", "config.yaml"], small), (["run", "config.yaml"], grown), (["reprocess", "configs"], changed)],
    ids=["small", "grown", "changed"],
)


@PUBLISHING
@pytest.mark.parametrize("seed", SEEDS)
def test_publishing_that_is_killed(words, make, seed, tmp_path):
    survive([*words, "--json"], make, 6, seed, tmp_path)


@PUBLISHING
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_between_any_two_changes_to_the_file_system(words, make, every, tmp_path):
    before, whole = tmp_path / "before", undisturbed(words, make, tmp_path / "undisturbed").place
    before.mkdir()
    make(before)
    for last_step in itertools.count(2, every):
        place = tmp_path / f"killed after step {last_step}"
        shutil.copytree(before, place)
        with Started(*words, cwd=place, last_step=last_step) as run:
            code = run.outcome().code
        succeed(*words, cwd=place)
        assert tree(place) == tree(whole), last_step
        assert chunks(place / "out") == chunks(whole / "out"), last_step
        shutil.rmtree(place)
        if code == 0:
            break


def test_one_who_waits_tells_of_work_that_was_killed_and_how_to_go_on(store, tmp_path):
    configure(tmp_path, store)
    with Started("fit", "config.yaml", cwd=tmp_path) as running:
        while not list(tmp_path.glob("out/.streamdr-ledger/*.npz")):
            assert not running.ends_within(0.002), running.outcome()
        running.kill("worker")
        outcome = running.outcome()
    assert outcome.code == 137
    message = outcome.err.splitlines()[-1]
    assert message.startswith("the work was killed by signal 9")
    assert message.endswith("run: streamdr fit config.yaml")
    resumed = succeed("fit", "config.yaml", "--json", cwd=tmp_path)
    assert 0 < resumed.report["bytes_read"] < ALL_BYTES
