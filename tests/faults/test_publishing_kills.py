"""Kills during publishing, at random moments and between any two changes to the file system."""

from __future__ import annotations

import itertools
import shutil

import pytest
from command_line import succeed
from fault_counts import pieces
from killing import Started
from surviving import PUBLISHING, require_same, survive, undisturbed

STRIDE = 10
"""With -m faults each parametrization kills at every tenth step, and all of them together at every step."""


@pytest.mark.parametrize("command", PUBLISHING)
@pieces("publishing kills", few=[], full=40, size=10)
def test_publishing_that_is_killed_at_random_is_completed_by_the_next_run(
    command, count, seed, tmp_path, tally
):
    words, make = PUBLISHING[command]
    rounds = survive([*words, "--json"], make, count, seed, tmp_path)
    tally("publishing kills", sum(survived.kills for survived in rounds))


@pytest.mark.parametrize("command", PUBLISHING)
@pytest.mark.parametrize(
    ("first", "every"),
    [(9, 47), *(pytest.param(2 + i, STRIDE, marks=pytest.mark.faults) for i in range(STRIDE))],
)
def test_a_kill_between_any_two_changes_to_the_file_system_does_no_harm(
    command, first, every, tmp_path, tally
):
    words, make = PUBLISHING[command]
    before, whole = tmp_path / "before", undisturbed(words, make, tmp_path / "undisturbed").place
    before.mkdir()
    make(before)
    for last_step in itertools.count(first, every):
        place = tmp_path / f"killed after step {last_step}"
        shutil.copytree(before, place)
        with Started(*words, cwd=place, last_step=last_step) as run:
            code = run.outcome().code
        succeed(*words, cwd=place)
        require_same(place, whole, last_step)
        shutil.rmtree(place)
        if code == 0:
            break
        tally("publishing kills")
