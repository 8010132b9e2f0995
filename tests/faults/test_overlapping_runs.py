"""Two concurrent runs that begin at random moments: one or both succeed, the other is refused clearly."""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import succeed, write_config, write_store
from fault_counts import pieces
from killing import Started
from nightly import correlated
from surviving import require_same, undisturbed


def place_for_two(place: Path) -> None:
    """Write two configurations with one input and one ledger, but separate outputs."""
    write_store(place / "x.zarr", correlated(60_000, 32), chunks=(4_000, 32))
    for name in ("one", "two"):
        write_config(
            place,
            input={"path": "x.zarr"},
            method={"n_components": 2 if name == "one" else 3},
            output={"model": f"out/{name}.zarr", "embedding": f"out/{name}-z.zarr"},
            execution={"workers": 1, "checkpoint_seconds": 0.01, "ledger": "out/.streamdr-ledger"},
        )
        shutil.move(place / "config.yaml", place / f"{name}.yaml")


PAIRS = {
    "the same": (["run", "one.yaml"], ["run", "one.yaml"]),
    "one ledger": (["run", "one.yaml"], ["run", "two.yaml"]),
    "halves": (["fit", "one.yaml"], ["run", "one.yaml"]),
    "anew": (["run", "one.yaml", "--fresh"], ["run", "one.yaml"]),
    "killed": (["run", "one.yaml"], ["run", "one.yaml"]),
}


@pieces("overlapping pairs", few=[2], full=70, size=14)
def test_two_overlapping_runs_do_not_harm_each_other(count, seed, tmp_path, tally):
    chance = random.Random(seed)
    whole = undisturbed(["run", "one.yaml"], place_for_two, tmp_path / "undisturbed")
    succeed("run", "two.yaml", cwd=whole.place)
    for number in range(count):
        kind = chance.choice(list(PAIRS))
        first, second = PAIRS[kind]
        place = tmp_path / f"pair {number}"
        shutil.copytree(whole.place, place, ignore=shutil.ignore_patterns("out"))
        with ExitStack() as stack:
            one = stack.enter_context(Started(*first, cwd=place))
            one.ends_within(chance.uniform(0, whole.seconds))
            other = stack.enter_context(Started(*second, cwd=place))
            if kind == "killed" and not other.ends_within(chance.uniform(0, whole.seconds)):
                one.kill(chance.choice(["all", "parent", "worker"]))
            outcomes = [one.outcome(), other.outcome()]
        tally("overlapping pairs")
        if kind == "one ledger":
            assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
        for outcome in outcomes if kind != "killed" else outcomes[1:]:
            if outcome.code != 0:
                (message,) = outcome.errors
                assert "is being written by another run (process " in message
        if kind != "killed":
            assert any(outcome.code == 0 for outcome in outcomes), outcomes
        for words in (["run", "one.yaml"], ["run", "two.yaml"]):
            succeed(*words, cwd=place)
        require_same(place, whole.place, (kind, number))
        shutil.rmtree(place)


@pytest.mark.faults
def test_many_concurrent_runs_do_not_harm_each_other(tmp_path, tally):
    whole = undisturbed(["run", "one.yaml"], place_for_two, tmp_path / "undisturbed")
    place = tmp_path / "many"
    shutil.copytree(whole.place, place, ignore=shutil.ignore_patterns("out"))
    with ExitStack() as stack:
        runs = [stack.enter_context(Started("run", "one.yaml", cwd=place)) for _ in range(6)]
        outcomes = [run.outcome() for run in runs]
    tally("overlapping pairs", 15)
    assert any(outcome.code == 0 for outcome in outcomes)
    succeed("run", "one.yaml", cwd=place)
    require_same(place, whole.place)
