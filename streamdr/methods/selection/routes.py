"""The memory and arithmetic of selection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Phase, Route
from streamdr.core.work import Work
from streamdr.methods.selection.parameters import product_dtype
from streamdr.statistics.by_class.sparse_grouping import grouped_bytes
from streamdr.statistics.sampling import sample_phases
from streamdr.statistics.sparse_products import product_scratch, product_work, square_work
from streamdr.statistics.sparse_rows import shift_scratch

_BATCHES = 16 << 20
"""Bytes of a batch of small matrices of candidates."""
_FOLD_PRODUCTS = 1.4
"""The time of products of the few rows of a fold in a block, relative to those of all rows at once."""


def by_sums(method: Any, data: MatrixSpec, n_classes: int) -> Route:
    """One pass that keeps a few numbers per column, and the means of classes."""
    d = data.n_cols
    means = n_classes * (16 * d + 1024)
    return Route(
        method=method,
        name="sums",
        exact=True,
        passes=1,
        flops=6.0 * data.n_rows * d,
        phases=(
            Phase(
                means + 64 * d,
                scratch_bytes=5 * means + 64 * d,
                scratch_per_block=_copies(method, data, 1),
                solve_bytes=4 * means + 256 * d,
                takes_sparse=True,
                sparse_scratch_bytes=shift_scratch(d) + grouped_bytes(d, n_classes),
                work=Work(moved=8.0 * data.n_rows * data.line_bytes("rows") * (data.density or 1.0)),
            ),
        ),
    )


def by_moments(method: Any, data: MatrixSpec, n_classes: int, steps: int, *, whole: bool) -> Route:
    """One pass that keeps the moments of each fold, and a search in memory; from all columns if `whole`."""
    d, folds = data.n_cols + 1, method.n_folds
    square, means = 8 * d * d, n_classes * (16 * d + 1024)
    forms = 8 * folds * (n_classes + folds) * d * (folds + 2)
    searching = folds * 8 * d * steps * (5 if n_classes else 3) + 4 * square * (folds if whole else 1)
    product = 2.0 * folds * steps * d * (steps + 2 * n_classes**2 + 8)
    removing = 6.0 * folds * d * float(d) ** 3 if whole else 0.0
    return Route(
        method=method,
        name="fold moments",
        exact=True,
        passes=1,
        flops=float(data.n_rows) * d * d * product_work(data) + product + removing,
        phases=(
            Phase(
                folds * (square + means),
                scratch_bytes=2 * square + 5 * means,
                scratch_per_block=_copies(method, data, 2),
                solve_bytes=forms + searching + 8 * means + (_BATCHES if n_classes else 0),
                takes_sparse=True,
                sparse_scratch_bytes=product_scratch(d, product_dtype(method, data))
                + 2 * square
                + grouped_bytes(d, n_classes),
                work=square_work(replace(data, n_cols=d), product_dtype(method, data)) * _FOLD_PRODUCTS
                + Work(moved=4.0 * data.n_rows * data.line_bytes("rows") * (data.density or 1.0)),
                solve_work=Work(
                    moved=2.0 * 8 * folds * steps * float(d) * (steps / 2 + 2 * n_classes**2 + 8),
                    product64=removing,
                    calls=100.0 * folds * steps,
                ),
            ),
        ),
        advice="or reduce the columns first: select_f_score with a number k",
    )


def by_histograms(
    method: Any, data: MatrixSpec, sample: int, parts: int, cells: int, n_classes: int
) -> Route:
    """A pass for a sample, and one for the tables, with moments by fold for cross-validation."""
    tables, drawn = 8 * cells, 8 * sample * (data.n_cols + 1)
    # The sample is sorted column by column, and freed after the bin edges are computed.
    sampling = sample_phases(data, sample, parts, labelled=True, solve_bytes=2 * drawn + 2 * tables)
    counting = Phase(
        tables,
        scratch_bytes=tables // max(data.n_cols, 1) + (1 << 16),
        scratch_per_block=_copies(method, data, 2),
        held_bytes=2 * drawn,
        solve_bytes=2 * tables,
        takes_sparse=True,
        sparse_scratch_bytes=shift_scratch(data.n_cols) + tables // max(data.n_cols, 1),
        work=Work(
            scattered=4.0 * data.n_rows * data.n_cols, moved=8.0 * data.n_rows * data.line_bytes("rows")
        ),
    )
    work = 40.0 * data.n_rows * data.n_cols
    if method.k != "cv":
        return Route(
            method=method,
            name="histograms",
            exact=True,
            passes=2,
            sampling_passes=1,
            flops=work,
            phases=(*sampling, counting),
        )
    folds = by_moments(method, data, n_classes, data.n_cols, whole=False)
    (moments,) = folds.phases
    both = replace(
        moments,
        accumulator_bytes=moments.accumulator_bytes + tables,
        scratch_bytes=moments.scratch_bytes + counting.scratch_bytes,
        scratch_per_block=moments.scratch_per_block + counting.scratch_per_block,
        sparse_scratch_bytes=moments.sparse_scratch_bytes + counting.sparse_scratch_bytes,
        held_bytes=2 * drawn,
        solve_bytes=moments.solve_bytes + 2 * tables,
        work=moments.work + counting.work,
    )
    return replace(
        folds,
        name="histograms and fold moments",
        passes=2,
        sampling_passes=1,
        flops=folds.flops + work,
        phases=(*sampling, both),
    )


def _copies(method: Any, data: MatrixSpec, times: int) -> float:
    """Copies of a block during an update, with label, fold and position of each row."""
    double = product_dtype(method, data) != data.working
    return times * (3.0 if double else 1.0) + 96.0 / data.line_bytes("rows")
