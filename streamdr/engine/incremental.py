"""Incremental fits for methods with one pass: rows are accumulated as they arrive, and solved on request."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamdr.core.accumulator import Accumulator, copied
from streamdr.core.blocks import Block, MatrixSpec
from streamdr.core.method import Method, Model
from streamdr.errors import ParameterError
from streamdr.statistics.validation import no_weight


class OnePass:
    """The accumulator of the only pass of a method, filled as rows arrive."""

    def __init__(self, method: Method, data: MatrixSpec) -> None:
        self._method = method
        self._data = data
        self._n_rows = 0
        endless = replace(data, n_rows=sys.maxsize)
        self._accumulator = next(_incremental(method, endless).passes(endless)).empty
        self._has_weight = False

    def resume(self, statistics: Accumulator, n_rows: int) -> bool:
        """Continue from the statistics of a fit to `n_rows` rows. Return False if they do not match."""
        mine = self._accumulator
        if statistics.kind != mine.kind or not _equal(statistics.parameters(), mine.parameters()):
            return False
        self._accumulator, self._n_rows, self._has_weight = copied(statistics), n_rows, True
        return True

    def update(self, block: Block) -> None:
        """Add rows, which are numbered in the order of their arrival."""
        self._has_weight = self._has_weight or block.weights is None or bool(np.any(block.weights))
        stop = self._n_rows + len(block.values)
        self._accumulator.update(replace(block, rows=np.arange(self._n_rows, stop)))
        self._n_rows = stop

    def model(self) -> Model:
        """Return the model of all rows so far."""
        if not self._has_weight:
            raise no_weight()
        data = replace(self._data, n_rows=self._n_rows)
        passes = _incremental(self._method, data).passes(data)
        next(passes)
        try:
            passes.send(copied(self._accumulator))
        except StopIteration as finished:
            model: Model = finished.value
            return model
        raise AssertionError("a route of one pass requested another")


def _equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the parameters of two accumulators of one kind are equal."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _incremental(method: Method, data: MatrixSpec) -> Method:
    for route in method.routes(data):
        if route.passes == 1 and route.phases[0].axis == "rows":
            return route.method
    raise ParameterError(
        "solver",
        "partial_fit needs a fit that reads rows once, such as by solver 'covariance' without a bootstrap",
    )
