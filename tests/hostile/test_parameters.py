"""Every parameter of every method with invalid values: either a StreamdrError or a fit."""

from __future__ import annotations

import json
import math
import warnings
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from streamdr import config
from streamdr.core.execution import Execution
from streamdr.core.method import Supervised
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import StreamdrError
from streamdr.methods import METHODS

HOSTILE: list[Any] = [
    *(-1, 0, 1, math.nan, math.inf, -math.inf, 1e308, 1e-308, -1e308, 2**31, 2**63, 10**30),
    *("", "no such value", [], [1], ["x"], {}, {"a": 1}, True, False, None, b"", 1j, object()),
]
ROWS = np.random.default_rng(0).normal(size=(40, 6)) ** 2
CLASSES = np.arange(40) % 3
CASES = [(name, field.name) for name, kind in sorted(METHODS.items()) for field in fields(kind)]


def attempt(method: Any) -> None:
    """Fit within little memory. Only a StreamdrError is acceptable."""
    method.check()
    labels = CLASSES if isinstance(method, Supervised) else None
    source = open_source(
        np.abs(np.subtract.outer(ROWS[:, 0], ROWS[:, 0])) if _takes_distances(method) else ROWS, labels=labels
    )
    fitting.fit(method, source, Execution(workers=1, memory_limit=300 << 20))


def _takes_distances(method: Any) -> bool:
    return (
        getattr(method, "metric", None) == "precomputed" or getattr(method, "kernel", None) == "precomputed"
    )


@pytest.mark.parametrize(("method", "parameter"), CASES)
def test_invalid_parameters_in_python_are_refused(method: str, parameter: str) -> None:
    quick = {"max_iter": 5, "n_init": 1, "max_passes": 2, "n_epochs": 2}
    kind = METHODS[method]
    given = {field.name: quick[field.name] for field in fields(kind) if field.name in quick}
    for value in HOSTILE:
        if parameter in quick and isinstance(value, int) and value > 100:
            continue  # a valid request for too many steps
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                attempt(kind(**{**given, parameter: value}))
            except StreamdrError:
                continue
            except Exception as error:
                pytest.fail(f"{method}({parameter}={value!r}): {error!r}")


@pytest.mark.parametrize(("method", "parameter"), CASES)
def test_invalid_parameters_in_a_configuration_are_refused(method: str, parameter: str) -> None:
    for value in HOSTILE:
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            continue
        document = f"""
            input: {{path: x.zarr, labels: y.zarr}}
            method: {{name: {method}, {parameter}: {text}}}
            output: {{model: m.zarr}}
        """
        with suppress(StreamdrError):
            config.parse(document)
