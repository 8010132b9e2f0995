"""As many random cases as there is time for, each time others: `pytest -m fuzz tests/fuzz`.

STREAMDR_FUZZ_SECONDS says how long (an hour if unset), STREAMDR_FUZZ_SEED which cases, and STREAMDR_FUZZ_CASE
(method:seed:number, as a failure gives it) brings one case back.
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
MOST_TOLD = 20


@pytest.mark.fuzz
@pytest.mark.parametrize("name", METHODS)
def test_fresh_cases_until_the_time_is_over(name, tmp_path, capsys):
    if ONE:
        method, seed, case = ONE.split(":")
        if method == name:
            check_case(name, int(seed), int(case), tmp_path)
        return
    deadline = time.monotonic() + SECONDS / len(METHODS)
    told: dict[str, int] = {}
    broken: list[str] = []
    for number in count():
        if time.monotonic() > deadline or len(broken) >= MOST_TOLD:
            break
        try:
            outcome = check_case(name, SEED, number, tmp_path)
        except BrokenError as error:
            outcome = "broken"
            broken.append(str(error))
        told[outcome] = told.get(outcome, 0) + 1
    with capsys.disabled():
        sys.stderr.write(f"\n{name}, seed {SEED}: {sum(told.values())} cases, {told}\n")
    assert not broken, "\n\n".join(broken)
