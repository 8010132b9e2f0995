"""The checks of a step: its reference, reasons for refusals, sparse rows, and the columns that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz_step_references import STEP_REFERENCES, MustBeRefusedError, precision, require_close, shares_of

from streamdr.core.blocks import Span, SparseRows, widen
from streamdr.core.execution import Execution
from streamdr.core.mapping import columns_read
from streamdr.core.method import MapsSparse, SelectsColumns
from streamdr.data import Source, open_source
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.transformed import TransformedSource
from streamdr.engine.fitting import arithmetic, fit
from streamdr.errors import ParameterError, StreamdrError

FEW = 0.4
"""The share of values that are not zero up to which rows are also stored as sparse ones."""


def check_step(name: str, method: Any, data: Any, weights: Any) -> tuple[Any, np.ndarray] | None:
    """Fit a step, map the rows, and compare both with the reference. None if the step refuses the rows."""
    found = _fitted(name, method, data, data.rows, weights)
    zeros = data.rows == 0
    if zeros.mean() >= 1 - FEW and data.rows.dtype != np.float16:
        stored = SparseRows(data.rows)
        sparse = _fitted(name, method, data, stored, weights)
        if (sparse is None) != (found is None):
            raise AssertionError(
                f"{'sparse' if sparse is None else 'dense'} rows are refused, others are not"
            )
        if found is not None and sparse is not None:
            if not outweighed(weights):
                _require_same_columns(found[0], sparse[0])
            _check_sparse_map(found[0], found[1], stored, data)
    if found is not None:
        _check_narrowed(*found, data)
    return found


def _fitted(name: str, method: Any, data: Any, rows: Any, weights: Any) -> tuple[Any, np.ndarray] | None:
    """Fit a step, and map dense or sparse rows. None if both the step and the reference refuse them."""
    reference, shares = STEP_REFERENCES[name], shares_of(data, weights)
    model, mapped, refused = None, np.zeros(0), None
    try:
        source = open_source(rows, weights=weights)
        model = fit(method, source, Execution(workers=1)).model
        mapped = mapped_rows(source, model)
    except StreamdrError as error:
        refused = error
    try:
        if refused is None:
            reference(method, model, data, shares, mapped)
    except MustBeRefusedError as reason:
        raise AssertionError(f"not refused: {reason}") from None
    if refused is not None:
        _require_reason(refused, name, method, data, shares)
        return None
    return model, mapped


def mapped_rows(source: Source, model: Any) -> np.ndarray:
    """Map all rows as a run does: missing values are errors unless the model accepts them."""
    every = Span(0, source.spec.n_rows)
    with arithmetic():
        reads = columns_read(model)
        used = source if reads is None else ColumnSubset(source, reads)
        used.check(every, allow_nan=model.allow_nan)
        return TransformedSource(source, model).read(every, Span(0, model.n_outputs))


def _require_reason(refused: StreamdrError, name: str, method: Any, data: Any, shares: np.ndarray) -> None:
    """Raise unless the reference refuses the rows too, or cannot say."""
    if not str(refused).strip():
        raise AssertionError("an error without a message")
    if isinstance(refused, ParameterError) and name != "select_columns":
        raise AssertionError(f"parameters are refused: {refused}")
    if not (shares > 0).any() or "overflow" in str(refused):
        return
    try:
        STEP_REFERENCES[name](method, None, data, shares, np.zeros(0))
    except MustBeRefusedError:
        return
    raise AssertionError(f"refused without a reason: {refused}")


def outweighed(weights: Any) -> bool:
    """Whether one row has so much weight that the variance of the others is rounding."""
    return weights is not None and weights.max() > 1e6 * weights[weights > 0].min(initial=np.inf)


def _require_same_columns(dense: Any, sparse: Any) -> None:
    support = getattr(dense, "support", None)
    if support is not None and not np.array_equal(support, sparse.support):
        raise AssertionError(
            f"dense rows keep {np.flatnonzero(support)}, sparse ones {np.flatnonzero(sparse.support)}"
        )


def _check_sparse_map(model: Any, mapped: np.ndarray, stored: SparseRows, data: Any) -> None:
    """Map sparse rows through the model of dense ones: zeros are kept, and values differ by rounding only."""
    if not isinstance(model, MapsSparse):
        return
    before = stored.toarray()
    with arithmetic():
        found = model.transform_sparse(widened(stored))
    if not np.array_equal(before, stored.toarray(), equal_nan=True):
        raise AssertionError("sparse rows are modified")
    if model.keeps_zeros == isinstance(found, np.ndarray):
        raise AssertionError("sparse rows become dense although zeros are kept, or stay sparse")
    if not isinstance(found, np.ndarray):
        if found.nnz > stored.nnz:
            raise AssertionError("more values are stored than before")
        found = found.toarray()
    # Totals and norms are sums in another order. Those that cancel are compared with the reference only.
    size = np.abs(mapped.astype(np.float64))
    same = np.isfinite(size) & ~(data.rows.astype(np.float64) < 0).any(axis=1)[:, None]
    require_close(
        np.where(same, found, 0),
        np.where(same, mapped, 0).astype(np.float64),
        8 * precision(data) * (1e-30 + size),
    )


def widened(rows: SparseRows) -> SparseRows:
    """Return sparse rows in the type in which they are read."""
    return SparseRows((widen(rows.data), rows.indices, rows.indptr), shape=rows.shape)


def _check_narrowed(model: Any, mapped: np.ndarray, data: Any) -> None:
    """Check that rows of the columns that a model reads are mapped to the same bits."""
    if not isinstance(model, SelectsColumns) or model.reads is None:
        return
    with arithmetic():
        narrow = model.narrowed().transform(widen(np.ascontiguousarray(data.rows[:, model.reads])))
    if not np.array_equal(narrow, mapped, equal_nan=True):
        raise AssertionError("rows of the columns that are read are mapped differently")
