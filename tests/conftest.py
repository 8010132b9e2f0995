"""What holds for every test."""

from __future__ import annotations

import pytest

from streamdr.fitting import one_blas_thread


@pytest.fixture(scope="session", autouse=True)
def single_blas_thread():
    """Small products on many BLAS threads spend their time waiting for each other."""
    with one_blas_thread():
        yield
