"""Methods fit sparse rows as they fit dense ones, and as scikit-learn does; only some make them dense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
import sklearn.discriminant_analysis
import sklearn.feature_selection
from fits import StopAfter, bits
from sparse_rows import SparseArray, counts

from streamdr.core.execution import Execution
from streamdr.core.method import Method
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.vectors import HeldVector
from streamdr.engine import fitting
from streamdr.engine.planner import plan, resident
from streamdr.errors import DataError, Interrupted
from streamdr.methods.kernel_pca import KernelPCA
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.selection import (
    SelectCorrelation,
    SelectForward,
    SelectFScore,
    SelectMutualInfo,
)

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D = 420, 22
NYSTROM: dict[str, Any] = {"approximation": "nystrom", "n_landmarks": 15}
METHODS: dict[str, Method] = {
    "pca": PCA(4, solver="covariance"),
    "pca, about zero": PCA(4, solver="covariance", center=False),
    "ppca": PPCA(3, solver="covariance"),
    "lda": LDA(),
    "lda, two passes": LDA(shrinkage="auto"),
    "f score": SelectFScore(k=6, task="classification"),
    "f score of numbers": SelectFScore(k=6, task="regression"),
    "correlation": SelectCorrelation(k=6),
    "forward": SelectForward(k=3, task="classification"),
    "forward, numbers": SelectForward(k=3, task="regression"),
    "mutual information": SelectMutualInfo(k=6, task="classification"),
    "mutual information, folds": SelectMutualInfo(k="cv", task="classification"),
    "rbf": KernelPCA(3, kernel="rbf", **NYSTROM),
    "linear": KernelPCA(3, kernel="linear", **NYSTROM),
    "poly": KernelPCA(3, kernel="poly", gamma=0.01, **NYSTROM),
    "cosine": KernelPCA(3, kernel="cosine", **NYSTROM),
    "laplacian": KernelPCA(3, kernel="laplacian", **NYSTROM),
}


class SparseOnly(SparseArray):
    """A source that refuses to make rows dense."""

    def read(self, rows, cols):
        raise AssertionError("rows are made dense")


class DenseArray(SparseArray):
    """The same rows as a dense source."""

    def __init__(self, rows, **companions):
        super().__init__(rows, **companions)
        self.spec = replace(self.spec, density=None)


def labelled(seed, n=N):
    """Labels that the first columns of the rows predict in part."""
    return np.random.default_rng(seed).integers(0, 3, n).astype(float)


def telling(rng, n=N, d=D, dtype=np.float64):
    """Counts of which some columns differ between the labels of `labelled(5)`."""
    rows = counts(rng, n, d, 0.2).toarray()
    rows[:, :5] *= 1.0 + labelled(5, n)[:, None]
    return scipy.sparse.csr_array(rows.astype(dtype))


def fit(method, source, **settings):
    return fitting.fit(method, source, Execution(**settings)).model


def values_of(model):
    return {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and not name.startswith("_")
    }


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_models_of_sparse_rows_are_those_of_dense_rows(name, weighted):
    rng = np.random.default_rng(0)
    rows, labels = telling(rng), labelled(5)
    weights = rng.integers(0, 4, N).astype(float) if weighted else None
    want, got = (
        values_of(fit(METHODS[name], kind(rows, labels=labels, weights=weights)))
        for kind in (DenseArray, SparseOnly)
    )
    assert want.keys() == got.keys()
    for field, value in want.items():
        if value.dtype.kind in "iub":
            np.testing.assert_array_equal(got[field], value, err_msg=field)
        else:
            scale = np.abs(value[np.isfinite(value)]).max(initial=1e-300)
            np.testing.assert_allclose(got[field], value, rtol=0, atol=1e-8 * scale + 1e-14, err_msg=field)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_bits_on_any_number_of_threads_and_resumed(name, tmp_path):
    n = 2000
    rows, labels = telling(np.random.default_rng(1), n), labelled(5, n)
    source = SparseOnly(rows, labels=labels)
    model = bits(fit(METHODS[name], source, workers=1))
    for workers in (2, 8):
        assert bits(fit(METHODS[name], source, workers=workers)) == model
    stopper = StopAfter(n / 2)
    ledger = Execution(workers=2, ledger=tmp_path, checkpoint_seconds=0.0)
    with pytest.raises(Interrupted):
        fitting.fit(METHODS[name], source, ledger, progress=stopper, stop=stopper.stop)
    assert bits(fitting.fit(METHODS[name], source, ledger).model) == model


def as_csr_source(rows):
    """The same rows as a store of sparse rows holds them, stored zeros included."""
    rows = scipy.sparse.csr_array(rows)
    parts = {"pointers": rows.indptr, "columns": rows.indices, "values": rows.data}
    vectors: dict[str, Any] = {name: HeldVector(part, name) for name, part in parts.items()}
    return CsrSource("held", rows.shape[1], **vectors)


def varying(rows):
    """The columns that are not constant."""
    return scipy.sparse.csr_array(rows[:, np.flatnonzero(rows.toarray().var(axis=0) > 0)])


def test_lda_is_that_of_scikit_learn():
    rows, labels = varying(telling(np.random.default_rng(2))), labelled(5)
    model = fit(LDA(), SparseOnly(rows, labels=labels))
    other = sklearn.discriminant_analysis.LinearDiscriminantAnalysis(solver="svd").fit(rows.toarray(), labels)
    np.testing.assert_allclose(model.explained_variance_ratio, other.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_array_equal(model.predict(rows), other.predict(rows.toarray()))
    np.testing.assert_allclose(model.predict_proba(rows), other.predict_proba(rows.toarray()), atol=1e-10)


def test_scores_of_columns_are_those_of_scikit_learn():
    rows, labels = varying(telling(np.random.default_rng(3))), labelled(5)
    source = SparseOnly(rows, labels=labels)
    expected = sklearn.feature_selection.f_classif(rows, labels)[0]
    np.testing.assert_allclose(
        fit(SelectFScore(k=3, task="classification"), source).scores, expected, rtol=1e-10
    )
    expected = sklearn.feature_selection.f_regression(rows.toarray(), labels)[0]
    found = fit(SelectFScore(k=3, task="regression"), source).scores
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    expected = sklearn.feature_selection.r_regression(rows.toarray(), labels)
    found = fit(SelectCorrelation(k=3), source).scores
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-12)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_pca_is_that_of_scikit_learn(solver, center):
    rows = counts(np.random.default_rng(4), 500, 40)
    model = fit(PCA(5, solver=solver, center=center, max_passes=9, tol=1e-13), SparseOnly(rows))
    if center:
        other = sklearn.decomposition.PCA(5, svd_solver="covariance_eigh").fit(rows.toarray())
    else:
        other = sklearn.decomposition.TruncatedSVD(5, algorithm="arpack", tol=1e-14).fit(rows)
    np.testing.assert_allclose(model.singular_values, other.singular_values_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.diag(model.components @ other.components_.T)), 1.0, atol=1e-10)


HOSTILE_ROWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "empty rows": lambda rows: np.where(np.arange(len(rows))[:, None] % 3 == 0, rows, 0.0),
    "empty columns": lambda rows: np.where(np.arange(rows.shape[1]) % 2 == 0, rows, 0.0),
    "one row": lambda rows: rows[:1],
    "zeros": np.zeros_like,
    "repeated rows": lambda rows: np.repeat(rows[:7], 60, axis=0),
    "well filled columns": lambda rows: np.where(np.arange(rows.shape[1]) < 4, rows + 1.0, rows),
    "a large offset": lambda rows: np.where(np.arange(rows.shape[1]) == 1, rows + 1e6, rows),
    "mostly filled": lambda rows: rows + 2.0,
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
@pytest.mark.parametrize("kind", HOSTILE_ROWS)
def test_moments_and_scores_of_hostile_rows(kind, dtype):
    if kind == "a large offset" and np.dtype(dtype).itemsize < 4:
        dtype = "i4"
    dense = np.round(counts(np.random.default_rng(5), N, D, 0.2).toarray())
    dense = HOSTILE_ROWS[kind](dense).astype(dtype)
    wide = dense.astype(float)
    centred = wide - wide.mean(axis=0)
    method, source = PCA(3, solver="covariance", precision="double"), as_csr_source(dense)
    if not (centred**2).sum():
        with pytest.raises(DataError):
            fit(method, source)
        return
    model = fit(method, source)
    values = np.linalg.eigvalsh(centred.T @ centred)[::-1][:3] / (len(wide) - 1)
    np.testing.assert_allclose(model.explained_variance, values, rtol=1e-9, atol=1e-12 * values[0])
    scores = model.transform_sparse(scipy.sparse.csr_array(wide))
    np.testing.assert_allclose(scores, model.transform(wide), rtol=0, atol=1e-9 * np.abs(centred).max())


def test_stored_zeros_count_as_zeros():
    stored, labels = telling(np.random.default_rng(6)), labelled(5)
    stored.data[::3] = 0.0
    pruned = stored.copy()
    pruned.eliminate_zeros()
    for name in ("pca", "lda", "f score", "mutual information", "rbf"):
        with_zeros, without = (
            values_of(fit(METHODS[name], SparseOnly(each, labels=labels))) for each in (stored, pruned)
        )
        for field, value in without.items():
            np.testing.assert_allclose(with_zeros[field], value, atol=1e-9, err_msg=f"{name}: {field}")


def test_a_plan_says_which_methods_make_rows_dense():
    source = SparseArray(counts(np.random.default_rng(7), 200, 12), labels=labelled(5, 200))

    def reason(method):
        limit = resident() + (1 << 30)  # other tests may have made this process large
        return plan(method, source, Execution(memory_limit=limit)).reason

    for name, method in METHODS.items():
        if name != "ppca":
            assert "dense" not in reason(method), name
    dense = "rows are made dense, block by block: ppca (em) takes dense rows"
    assert reason(METHODS["ppca"]).endswith(f"; where values are missing, {dense}")
    assert reason(PPCA(3, method="em")).endswith(f"; {dense}")
    assert reason(PCA(3, solver="gram")).endswith("block by block: pca (gram) takes dense rows")
    assert "dense" not in plan(PCA(3, solver="gram"), DenseArray(source.rows), Execution()).reason


def test_missing_values_among_sparse_rows_are_found_by_em():
    rows = counts(np.random.default_rng(8), 300, 12, 0.4)
    rows.data[5::40] = np.nan
    want, got = (fit(PPCA(2), kind(rows)) for kind in (DenseArray, SparseArray))
    np.testing.assert_allclose(got.explained_variance, want.explained_variance, rtol=1e-12)
    sparse, dense = got.transform_sparse(rows), got.transform(rows.toarray())
    np.testing.assert_allclose(sparse, dense, atol=1e-10)
