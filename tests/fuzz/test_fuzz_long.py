"""New random cases until a time limit: `pytest -m fuzz tests/fuzz`.

STREAMDR_FUZZ_SECONDS is the time limit (an hour by default), STREAMDR_FUZZ_SEED chooses the cases, and
STREAMDR_FUZZ_CASE (method:seed:number, as in the message of a failure) repeats one case.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from fuzz_chains import check_chain
from fuzz_checks import BrokenError, check_case

from streamdr.methods import METHODS

SECONDS = float(os.environ.get("STREAMDR_FUZZ_SECONDS", "3600"))
SEED = int(os.environ.get("STREAMDR_FUZZ_SEED", np.random.SeedSequence().generate_state(1)[0]))
ONE = os.environ.get("STREAMDR_FUZZ_CASE", "")
MOST_FAILURES = 20
CHAIN = "chain"
NAMES = (*METHODS, CHAIN)


def check(name: str, seed: int, number: int, folder: Path) -> str:
    """Run one case of a method, or of random chains."""
    if name == CHAIN:
        return check_chain(seed, number, folder)
    return check_case(name, seed, number, folder)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_new_cases_until_the_time_limit(name, tmp_path, capsys):
    if ONE:
        method, seed, case = ONE.split(":")
        if method == name:
            check(name, int(seed), int(case), tmp_path)
        return
    deadline = time.monotonic() + SECONDS / len(NAMES)
    outcomes: dict[str, int] = {}
    broken: list[str] = []
    for number in count():
        if time.monotonic() > deadline or len(broken) >= MOST_FAILURES:
            break
        try:
            outcome = check(name, SEED, number, tmp_path)
        except BrokenError as error:
            outcome = "broken"
            broken.append(str(error))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    with capsys.disabled():
        sys.stderr.write(f"\n{name}, seed {SEED}: {sum(outcomes.values())} cases, {outcomes}\n")
    assert not broken, "\n\n".join(broken)
