"""Fits to sparse rows give the models of the dense rows, not made dense, and the same bits anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.decomposition
from fits import StopAfter, bits
from sparse_rows import SparseArray, counts, hostile

from streamdr.core.execution import Execution
from streamdr.data.in_memory import ArraySource
from streamdr.engine import fitting
from streamdr.engine.planner import block_bytes, plan
from streamdr.errors import Interrupted
from streamdr.methods.pca import PCA

pytestmark = pytest.mark.usefixtures("small_blocks")

METHODS = [PCA(4, solver="covariance"), PCA(4, solver="krylov", max_passes=8, tol=1e-12)]


class SparseOnly(SparseArray):
    """A source that refuses to make rows dense."""

    def read(self, rows, cols):
        raise AssertionError("rows are made dense")


def fit(method, source, **settings):
    return fitting.fit(method, source, Execution(**settings)).model


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [counts, hostile])
@pytest.mark.parametrize("weighted", [False, True])
def test_pca_of_sparse_rows_is_that_of_dense_rows(method, make, weighted):
    rng = np.random.default_rng(0)
    rows = make(rng, 900, 40)
    weights = rng.integers(0, 4, 900).astype(float) if weighted else None
    dense = ArraySource(rows.toarray())
    if weights is not None:
        dense.weights = ArraySource(weights[:, None])
    want, got = fit(method, dense), fit(method, SparseOnly(rows, weights=weights))
    largest = want.explained_variance[0]  # an eigenvalue is exact to the rounding of the largest one
    np.testing.assert_allclose(got.explained_variance, want.explained_variance, 1e-10, 2e-16 * largest)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.abs(np.diag(got.components @ want.components.T)), 1.0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_pca_of_sparse_rows_is_that_of_scikit_learn(method):
    rows = counts(np.random.default_rng(1), 700, 30)
    other = sklearn.decomposition.PCA(4, svd_solver="arpack", tol=1e-12, random_state=0).fit(rows)
    model = fit(method, SparseOnly(rows))
    np.testing.assert_allclose(model.explained_variance, other.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.diag(model.components @ other.components_.T)), 1.0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_on_any_number_of_threads_and_resumed(method, tmp_path):
    source = SparseOnly(counts(np.random.default_rng(2), 3000, 24))
    model = bits(fit(method, source, workers=1))
    assert bits(fit(method, source, workers=2)) == model
    stopper = StopAfter(1800)
    ledger = Execution(workers=2, ledger=tmp_path, checkpoint_seconds=0.0)
    with pytest.raises(Interrupted):
        fitting.fit(method, source, ledger, progress=stopper, stop=stopper.stop)
    assert bits(fitting.fit(method, source, ledger).model) == model


def test_the_density_does_not_change_bits():
    source = SparseOnly(counts(np.random.default_rng(3), 2000, 24))
    before = bits(fit(METHODS[0], source))
    source.spec.__dict__["density"] = 1e-6
    assert bits(fit(METHODS[0], source)) == before


def test_wide_sparse_rows_are_iterated_where_dense_rows_are_not():
    def chosen(density):
        source = SparseArray(counts(np.random.default_rng(4), 50, 20))
        spec = source.spec.__class__(10**6, 4000, np.dtype("f4"), density=density)
        source.spec = spec
        return plan(PCA(10), source, Execution(workers=2, memory_limit=1 << 35)).route.name

    assert (chosen(0.05), chosen(None)) == ("krylov", "covariance")


def test_the_block_of_a_plan_has_the_bytes_of_stored_values():
    source = SparseArray(counts(np.random.default_rng(5), 300, 20))
    dense, sparse = (plan(PCA(2, solver=name), source, Execution()) for name in ("gram", "covariance"))
    rows, columns = sparse.blocks.block, dense.blocks.block
    assert block_bytes(sparse, source.spec) == pytest.approx(source.rows.nnz * rows / 300 * 12, abs=12)
    assert block_bytes(dense, source.spec) == 300 * columns * 8
