"""Probabilistic PCA of rows that arrive a few at a time: what `partial_fit` feeds."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.accumulators import Latent
from streamdr.blocks import Array, Block, MatrixSpec, Span
from streamdr.methods.base import Model, in_memory
from streamdr.methods.checks import no_weight
from streamdr.methods.ppca_model import PPCAModel
from streamdr.methods.stepwise import Steps

if TYPE_CHECKING:
    from streamdr.methods.ppca import PPCA

_FEWEST_ROWS, _STREAM_ROWS, _STREAM_BYTES = 64, 4096, 32 << 20


class PPCAStream:
    """Rows that arrive a few at a time: the first are kept and fitted, then a step after each minibatch."""

    def __init__(self, ppca: PPCA, n_cols: int) -> None:
        self._ppca = ppca
        self._batch = ppca.batch_rows or max(_FEWEST_ROWS, min(_STREAM_ROWS, _STREAM_BYTES // (8 * n_cols)))
        self._first: list[Array] = []
        self._weights: list[Array] = []
        self._steps: Steps | None = None
        self._pending: Latent | None = None

    @classmethod
    def after(cls, ppca: PPCA, model: PPCAModel, n_rows: int) -> PPCAStream:
        """A stream that goes on from a model of so many rows."""
        stream = cls(ppca, model.n_features)
        stream._steps = Steps.after(model, ppca.ridge, max(1, n_rows // stream._batch))
        stream._pending = Latent([stream._steps.now.factors])
        return stream

    def update(self, block: Block) -> None:
        """Take more rows."""
        weights = np.ones(len(block.values)) if block.weights is None else block.weights
        for start in range(0, len(weights), self._batch):
            here = slice(start, start + self._batch)
            self._take(
                replace(block, values=block.values[here], weights=weights[here], rows=block.numbers[here])
            )

    def model(self) -> Model:
        """What all rows so far come to. Those that do not make a minibatch yet count as a small one."""
        if self._steps is None or self._pending is None:
            rows, weights = np.concatenate(self._first), np.concatenate(self._weights)
            if not weights.any():
                raise no_weight()
            spec = MatrixSpec(len(rows), rows.shape[1], rows.dtype)
            return in_memory(self._ppca.routes(spec)[0].method, rows, weights)
        steps = copy(self._steps)
        steps.step(self._pending)
        return steps.model(self._ppca.tol)

    def _take(self, rows: Block) -> None:
        if self._steps is None or self._pending is None:
            self._first.append(rows.values.astype(np.float64))
            self._weights.append(cast(Array, rows.weights))
            if sum(map(len, self._first)) >= self._batch:
                self._begin(cast(PPCAModel, self.model()))
            return
        self._pending.update(rows)
        if self._pending.count >= self._batch:
            self._steps.step(self._pending)
            self._pending = Latent([self._steps.now.factors])

    def _begin(self, first: PPCAModel) -> None:
        steps = Steps(first.principal, self._ppca.ridge, first.constant_features)
        full = Latent([steps.now.factors])
        for values, weights in zip(self._first, self._weights, strict=True):
            full.update(Block(Span(0, len(values)), values, weights=weights))
        steps.step(full)
        self._steps, self._pending = steps, Latent([steps.now.factors])
        self._first, self._weights = [], []
