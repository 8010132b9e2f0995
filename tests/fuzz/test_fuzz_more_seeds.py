"""More of the random cases, in a file of its own so that two processes share them."""

from __future__ import annotations

import pytest
from fuzz_checks import check_case

from streamdr.methods import METHODS

SEED = 12
CASES = 12


@pytest.mark.parametrize("name", METHODS)
def test_random_cases_of_another_seed(name, tmp_path):
    for number in range(CASES):
        check_case(name, SEED, number, tmp_path)
