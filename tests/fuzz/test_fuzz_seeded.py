"""Random cases of every method, the same in every run."""

from __future__ import annotations

import pytest
from fuzz_cases import PARAMETERS
from fuzz_chains import check_chain
from fuzz_checks import check_case

from streamdr.methods import METHODS

SEED = 20261117
CASES = 12


def test_every_method_is_tried():
    assert PARAMETERS.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_random_cases(name, tmp_path):
    outcomes = [check_case(name, SEED, number, tmp_path) for number in range(CASES)]
    assert outcomes.count("fitted") >= CASES // 4, "too many cases are refused"


def test_random_chains(tmp_path):
    outcomes = [check_chain(SEED, number, tmp_path) for number in range(2 * CASES)]
    assert outcomes.count("fitted") >= CASES // 2, "too many chains are refused"
