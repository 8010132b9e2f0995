"""More of the random cases, in a separate file so that two processes can share them."""

from __future__ import annotations

import pytest
from fuzz_chains import check_chain
from fuzz_checks import check_case

from streamdr.methods import METHODS

SEED = 12
CASES = 12


@pytest.mark.parametrize("name", METHODS)
def test_random_cases_of_another_seed(name, tmp_path):
    for number in range(CASES):
        check_case(name, SEED, number, tmp_path)


def test_random_chains_of_another_seed(tmp_path):
    for number in range(2 * CASES):
        check_chain(SEED, number, tmp_path)


@pytest.mark.parametrize(
    ("name", "number"),
    [("kernel_pca", 24), ("kernel_pca", 627), ("lda", 586), ("lda", 675), ("lda", 1145)],
)
def test_cases_that_failed_before(name, number, tmp_path):
    check_case(name, 118020, number, tmp_path)
