"""Online probabilistic PCA, for `partial_fit`."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from streamdr.core.blocks import Array, Block, MatrixSpec, Span
from streamdr.core.method import Model, in_memory
from streamdr.methods.ppca.latent import Latent
from streamdr.methods.ppca.model import PPCAModel
from streamdr.methods.ppca.stepwise import StepwiseEM
from streamdr.statistics.validation import no_weight

if TYPE_CHECKING:
    from streamdr.methods.ppca.ppca import PPCA

_FEWEST_ROWS, _STREAM_ROWS, _STREAM_BYTES = 64, 4096, 32 << 20


class PPCAStream:
    """An online fit: the first rows are kept and fitted; then each minibatch is one step of EM."""

    def __init__(self, ppca: PPCA, n_cols: int) -> None:
        self._ppca = ppca
        self._batch = ppca.batch_rows or max(_FEWEST_ROWS, min(_STREAM_ROWS, _STREAM_BYTES // (8 * n_cols)))
        self._first: list[Array] = []
        self._weights: list[Array] = []
        self._steps: StepwiseEM | None = None
        self._pending: Latent | None = None

    @classmethod
    def after(cls, ppca: PPCA, model: PPCAModel, n_rows: int) -> PPCAStream:
        """An online fit that continues from a model of `n_rows` rows."""
        stream = cls(ppca, model.n_features)
        stream._steps = StepwiseEM.after(model, ppca.ridge, max(1, n_rows // stream._batch))
        stream._pending = Latent([stream._steps.now.factors])
        return stream

    def update(self, block: Block) -> None:
        """Add more rows."""
        weights = np.ones(len(block.values)) if block.weights is None else block.weights
        for start in range(0, len(weights), self._batch):
            here = slice(start, start + self._batch)
            self._take_batch(
                replace(block, values=block.values[here], weights=weights[here], rows=block.numbers[here])
            )

    def model(self) -> Model:
        """The model of all rows so far. An incomplete minibatch counts as a small one."""
        if self._steps is None or self._pending is None:
            rows, weights = np.concatenate(self._first), np.concatenate(self._weights)
            if not weights.any():
                raise no_weight()
            spec = MatrixSpec(len(rows), rows.shape[1], rows.dtype)
            return in_memory(self._ppca.routes(spec)[0].method, rows, weights)
        steps = copy(self._steps)
        steps.step(self._pending)
        return steps.model(self._ppca.tol)

    def _take_batch(self, rows: Block) -> None:
        """Keep the rows for the first fit, or add them to the pending minibatch."""
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
        """Start stepwise EM from the model of the first rows, which are the first minibatch."""
        steps = StepwiseEM(first.principal, self._ppca.ridge, first.constant_features)
        full = Latent([steps.now.factors])
        for values, weights in zip(self._first, self._weights, strict=True):
            full.update(Block(Span(0, len(values)), values, weights=weights))
        steps.step(full)
        self._steps, self._pending = steps, Latent([steps.now.factors])
        self._first, self._weights = [], []
