"""The stores of the contract tests, written once for all cases with the same data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract_cases import Case


@pytest.fixture(scope="session")
def store_of(tmp_path_factory) -> Callable[..., Path]:
    """Return the directory with the data of a case, which tests must not modify."""
    root = tmp_path_factory.mktemp("stores")
    written: dict[tuple[Any, ...], Path] = {}

    def find(case: Case, **layout: Any) -> Path:
        kind = (case.labels, case.missing, case.precomputed, case.rows(2).tobytes(), *layout.items())
        if kind not in written:
            written[kind] = case.write(root / str(len(written)), **layout)
        return written[kind]

    return find


@pytest.fixture
def own_store_of(store_of, tmp_path) -> Callable[[Case], Path]:
    """Copy the data of a case to the directory of the test, so that rows can be appended to it."""

    def copy(case: Case) -> Path:
        return Path(shutil.copytree(store_of(case), tmp_path, dirs_exist_ok=True))

    return copy
