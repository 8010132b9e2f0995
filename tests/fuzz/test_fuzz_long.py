"""New random cases until a time limit: `pytest -m fuzz tests/fuzz`.

STREAMDR_FUZZ_SECONDS is the time limit (an hour by default), STREAMDR_FUZZ_SEED chooses the cases, and
STREAMDR_FUZZ_CASE (method:seed:number, as in the message of a failure) repeats one case.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count

import numpy as np
import pytest
from fuzz_checks import BrokenError, check_case

from streamdr.methods import METHODS

SECONDS = float(os.environ.get("STREAMDR_FUZZ_SECONDS", "3600"))
SEED = int(os.environ.get("STREAMDR_FUZZ_SEED", np.random.SeedSequence().generate_state(1)[0]))
ONE = os.environ.get("STREAMDR_FUZZ_CASE", "")
MOST_FAILURES = 20


@pytest.mark.fuzz
@pytest.mark.parametrize("name", METHODS)
def test_new_cases_until_the_time_limit(name, tmp_path, capsys):
    if ONE:
        method, seed, case = ONE.split(":")
        if method == name:
            check_case(name, int(seed), int(case), tmp_path)
        return
    deadline = time.monotonic() + SECONDS / len(METHODS)
    outcomes: dict[str, int] = {}
    broken: list[str] = []
    for number in count():
        if time.monotonic() > deadline or len(broken) >= MOST_FAILURES:
            break
        try:
            outcome = check_case(name, SEED, number, tmp_path)
        except BrokenError as error:
            outcome = "broken"
            broken.append(str(error))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    with capsys.disabled():
        sys.stderr.write(f"\n{name}, seed {SEED}: {sum(outcomes.values())} cases, {outcomes}\n")
    assert not broken, "\n\n".join(broken)
