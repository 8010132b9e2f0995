"""Reads or writes that fail with EIO, once or from then on, give the same bits or one clear error."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator

import pytest
from command_line import succeed
from fault_counts import pieces
from killing import Started
from preloading import Shim
from surviving import PUBLISHING, require_same, undisturbed


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Iterator[Shim]:
    with Shim(tmp_path_factory.mktemp("shim")) as shim:
        yield shim


def require_one_clear_error(outcome, about: object) -> None:
    assert outcome.code in (1, 2), (about, outcome)
    assert len(outcome.errors) == 1, (about, outcome)
    assert "unexpected" not in outcome.err, (about, outcome)
    assert "Traceback" not in outcome.err, (about, outcome)


@pieces("io errors in steps", few=[1], full=20, size=10)
def test_failing_changes_to_the_file_system_give_one_clear_error(count, seed, tmp_path, tally):
    chance = random.Random(seed)
    words, make = PUBLISHING[chance.choice(list(PUBLISHING))]
    whole = undisturbed(words, make, tmp_path / "undisturbed").place
    for step in chance.sample(range(80), count):
        place = tmp_path / f"failing from step {step}"
        place.mkdir()
        make(place)
        with Started(*words, cwd=place, last_step=step, failing=errno.EIO) as run:
            outcome = run.outcome()
        if outcome.code != 0:
            require_one_clear_error(outcome, step)
            tally("I/O errors")
        succeed(*words, cwd=place)
        require_same(place, whole, step)
        shutil.rmtree(place)


@pytest.mark.parametrize("calls", ["read", "write"])
@pytest.mark.parametrize("command", PUBLISHING)
@pieces("io errors", few=[], full=20, size=5)
def test_failing_reads_or_writes_give_one_clear_error(command, calls, count, seed, shim, tmp_path, tally):
    words, make = PUBLISHING[command]
    whole = undisturbed(words, make, tmp_path / "undisturbed").place
    counted, chance = tmp_path / "counted", random.Random(seed)
    counted.mkdir()
    make(counted)
    _, total = shim.run(*words, cwd=counted, calls=calls, error=errno.EIO)
    for at in chance.sample(range(1, total + 1), count):
        place, once = tmp_path / f"failing at {at}", chance.random() < 0.5
        place.mkdir()
        make(place)
        outcome, _ = shim.run(*words, cwd=place, calls=calls, error=errno.EIO, at=at, once=once)
        if outcome.code != 0:
            require_one_clear_error(outcome, (at, once))
        tally("I/O errors")
        succeed(*words, cwd=place)
        require_same(place, whole, (at, once))
        shutil.rmtree(place)
