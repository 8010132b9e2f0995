"""Rows that arrive a few at a time, for methods that need one pass: statistics now, the solve when asked."""

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
    """The accumulator of a method's one pass, filled as rows come."""

    def __init__(self, method: Method, data: MatrixSpec) -> None:
        self._method = method
        self._data = data
        self._n_rows = 0
        endless = replace(data, n_rows=sys.maxsize)
        self._accumulator = next(_incremental(method, endless).passes(endless)).empty
        self._weighs = False

    def resume(self, statistics: Accumulator, n_rows: int) -> bool:
        """Go on from what a fit to so many rows has summed; False where that was another statistic."""
        mine = self._accumulator
        if statistics.kind != mine.kind or not _equal(statistics.parameters(), mine.parameters()):
            return False
        self._accumulator, self._n_rows, self._weighs = copied(statistics), n_rows, True
        return True

    def update(self, block: Block) -> None:
        """Take more rows, which are numbered as they come."""
        self._weighs = self._weighs or block.weights is None or bool(np.any(block.weights))
        stop = self._n_rows + len(block.values)
        self._accumulator.update(replace(block, rows=np.arange(self._n_rows, stop)))
        self._n_rows = stop

    def model(self) -> Model:
        """What all rows so far come to."""
        if not self._weighs:
            raise no_weight()
        data = replace(self._data, n_rows=self._n_rows)
        passes = _incremental(self._method, data).passes(data)
        next(passes)
        try:
            passes.send(copied(self._accumulator))
        except StopIteration as finished:
            model: Model = finished.value
            return model
        raise AssertionError("a route of one pass asked for another")


def _equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two accumulators of one kind mean the same."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _incremental(method: Method, data: MatrixSpec) -> Method:
    for route in method.routes(data):
        if route.passes == 1 and route.phases[0].axis == "rows":
            return route.method
    raise ParameterError("solver", "partial_fit needs a solver that reads rows once, such as 'covariance'")
