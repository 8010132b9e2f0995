"""Products of sparse rows are those of dense rows, however columns are divided into panels."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from streamdr.core.blocks import Span, SparseBlock, SparseRows
from streamdr.core.sparse_maps import SparseAffine
from streamdr.statistics import sparse_products
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.joint import JointMoments
from streamdr.statistics.moments import Moments
from streamdr.statistics.sparse_products import Division, divided, product_scratch, products_of


def uneven(rng, n, d, dtype=np.float64):
    """Rows whose columns store from all to hardly any of their values, in no order."""
    shares = rng.permutation(np.geomspace(0.7, 2e-4, d))
    values = np.where(rng.random((n, d)) < shares, 1.0 + rng.poisson(2, (n, d)), 0.0)
    return values.astype(dtype)


def as_dense(product):
    return product if isinstance(product, np.ndarray) else product.toarray()


@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-13), ("f4", 1e-5)])
@pytest.mark.parametrize("shape", [(4000, 300), (500, 700), (3, 90), (1, 40), (2000, 33)])
def test_products_are_those_of_dense_rows(shape, dtype, tolerance):
    n, d = shape
    rows = uneven(np.random.default_rng(0), n, d, dtype)
    found = as_dense(products_of(SparseRows(rows)))
    wide = rows.astype(float)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wide.T @ wide, rtol=0, atol=tolerance * (wide**2).sum(axis=0).max())
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize(
    "division",
    [
        Division((Span(0, 40), Span(40, 64)), (True, True)),
        Division((Span(0, 40), Span(40, 96)), (True, False)),
        Division((Span(0, 32), Span(32, 130)), (False, False)),
        Division((Span(0, 130),), (True,)),
        Division((Span(0, 130),), (False,)),
        Division((), ()),
    ],
)
@pytest.mark.parametrize("panel", [1 << 30, 5000])
def test_every_division_gives_the_same_products(division, panel, monkeypatch):
    monkeypatch.setattr(sparse_products, "divided", lambda counts, n_rows: division)
    monkeypatch.setattr(sparse_products, "panel_bytes", lambda n_cols: panel)
    rows = uneven(np.random.default_rng(1), 500, 130)
    found = as_dense(products_of(SparseRows(rows)))
    np.testing.assert_allclose(found, rows.T @ rows, rtol=1e-13)


def test_the_rows_are_left_alone():
    rows = SparseRows(uneven(np.random.default_rng(2), 2000, 200))
    before = rows.copy()
    products_of(rows)
    assert (rows != before).nnz == 0
    np.testing.assert_array_equal(rows.indices, before.indices)


def test_columns_are_divided_by_what_they_store():
    n, d = 10_000, 2000
    few = divided(np.full(d, 2), n)
    even = divided(np.full(d, n // 20), n)
    full = divided(np.full(d, n // 2), n)
    uneven_counts = np.sort(n * np.geomspace(0.9, 1e-4, d))[::-1].astype(int)
    mixed = divided(uneven_counts, n)
    assert few.panels == ()
    assert len(even.panels) > 1
    assert full == Division((Span(0, d),), (True,))
    assert mixed.by_blas[0]
    assert mixed.panels[0].start == 0
    assert mixed.panels[-1].stop < d, "columns with hardly any values stay sparse"
    assert divided(np.zeros(5, int), 0) == Division((), ())


def test_moments_of_many_columns_are_those_of_dense_rows():
    rng = np.random.default_rng(3)
    rows = uneven(rng, 3000, 400)
    rows[:, 7] += 1e7
    weights = rng.integers(0, 3, len(rows)).astype(float)
    found = Moments(400)
    for piece in Span(0, len(rows)).split(1100):
        some = SparseRows(rows[piece.slice])
        found.update_sparse(SparseBlock(piece, some, None, weights[piece.slice]))
    centred = rows - weights @ rows / weights.sum()
    scatter = (centred.T * weights) @ centred
    np.testing.assert_allclose(found.scatter, scatter, rtol=0, atol=1e-11 * np.diag(scatter).max())
    np.testing.assert_allclose(found.mean, weights @ rows / weights.sum(), rtol=1e-12)


def test_products_take_no_more_memory_than_is_planned():
    rows = SparseRows(uneven(np.random.default_rng(4), 4000, 600))
    tracemalloc.start()
    products_of(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < product_scratch(600, rows.dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-12), ("f4", 1e-4)])
def test_an_affine_map_loses_no_digits_to_large_means(dtype, tolerance):
    rng = np.random.default_rng(5)
    rows = uneven(rng, 400, 30)
    rows[:, 3] = 1e4 + rng.normal(size=len(rows))
    rows = rows.astype(dtype).astype(float)
    mean, matrix = rows.mean(axis=0), rng.normal(size=(30, 4))
    want = (rows - mean) @ matrix
    sparse = scipy.sparse.csr_array(rows.astype(dtype))
    for variance in (rows.var(axis=0), None):
        mapped = SparseAffine.of(mean, matrix, variance, np.dtype(dtype))(sparse)
        np.testing.assert_allclose(mapped, want, rtol=0, atol=tolerance * np.abs(want).max())
    apart = SparseAffine.of(mean, matrix, rows.var(axis=0), np.dtype(dtype))
    np.testing.assert_array_equal(apart(sparse)[:7], apart(sparse[:7]))


def scatters(rows, labels):
    """Scatters of rows, by every accumulator that multiplies sparse rows."""
    block = SparseBlock(Span(0, rows.shape[0]), rows, labels)
    kinds: list[Any] = [Moments(12), JointMoments(13), ClassMoments(12, pooled=False)]
    for kind in kinds:
        kind.update_sparse(block)
    yield kinds[0].scatter
    yield kinds[1].scatter[:-1, :-1]
    (scatter,) = kinds[2].scatters
    yield scatter


def test_long_sums_of_single_precision_keep_seven_digits():
    """One by one, 40,000 rows of a twentieth would be added up to within 6e-6 only."""
    rng = np.random.default_rng(0)
    rows = scipy.sparse.random_array((40_000, 12), density=0.05, format="csr", rng=rng)
    rows.data = np.log1p(rng.poisson(30, rows.nnz))
    rows = SparseRows(rows.astype("f4"))
    wide = rows.toarray().astype(float)
    centred = wide - wide.mean(axis=0)
    expected = centred.T @ centred
    for scatter in scatters(rows, np.zeros(len(wide))):
        np.testing.assert_allclose(scatter, expected, rtol=0, atol=3e-7 * expected.max())
