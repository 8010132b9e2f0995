"""Estimators take sparse matrices, AnnData objects and sparse frames, and keep sparse what stays sparse."""

from __future__ import annotations

from typing import Any

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fits import suited
from sklearn import decomposition

import streamdr
from streamdr import LDA, PCA, PPCA, Clip, Log1p, NormalizeTotal, SelectFScore, Standardise, UnitNorm
from streamdr.data.sparse.source import CsrSource
from streamdr.errors import DataError
from streamdr.estimators.registry import ESTIMATORS
from streamdr.methods import METHODS

N, D = 90, 8


@pytest.fixture(scope="module")
def dense() -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = np.where(rng.random((N, D)) < 0.5, rng.poisson(4.0, (N, D)), 0).astype("f8")
    rows[:, 0] += 1
    return rows


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.random.default_rng(6).integers(0, 3, N)


def unordered(rows: np.ndarray) -> sp.csr_array:
    """The same rows: columns descend, and every value is in two parts."""
    given = sp.csr_array(rows[:, ::-1])
    columns = np.repeat(D - 1 - given.indices, 2)
    return sp.csr_array((np.repeat(given.data / 2, 2), columns, 2 * given.indptr), shape=rows.shape)


HELD: dict[str, Any] = {
    "csr matrix": sp.csr_matrix,
    "csr array": sp.csr_array,
    "csc": sp.csc_array,
    "coo": sp.coo_matrix,
    "bsr": sp.bsr_array,
    "unordered": unordered,
    "sparse frame": lambda rows: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(rows)),
    "AnnData": lambda rows: anndata.AnnData(sp.csr_matrix(rows)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_takes_sparse_rows(name, dense, labels):
    parameters = {"som": {"height": 2, "width": 2}, "nonmetric_mds": {"n_init": 1}}.get(name, {})
    dense = suited(METHODS[name](**parameters), dense)
    expected = ESTIMATORS[name](**parameters).fit(dense, labels).transform(dense)
    found = ESTIMATORS[name](**parameters).fit(sp.csr_array(dense), labels).transform(sp.csr_matrix(dense))
    if sp.issparse(found):
        assert isinstance(found, sp.csr_matrix)
        found = found.toarray()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_pca_of_any_sparse_input_is_that_of_scikit_learn(hold, solver, dense, monkeypatch):
    monkeypatch.setattr(CsrSource, "read", None)  # nothing is made dense in the fit
    monkeypatch.setattr(CsrSource, "read_scratch", None)
    pca = PCA(3, solver=solver, tol=1e-12).fit(hold(dense))
    expected = decomposition.PCA(3, svd_solver="full").fit(dense)
    np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.diag(pca.components_ @ expected.components_.T)), 1.0, atol=1e-9)
    monkeypatch.undo()
    np.testing.assert_allclose(
        np.abs(pca.transform(hold(dense))), np.abs(expected.transform(dense)), atol=1e-8
    )


@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
def test_predictions_and_weights_of_sparse_rows(hold, dense, labels):
    weights = np.arange(N) % 4
    expected = LDA().fit(dense, labels, sample_weight=weights)
    lda = LDA().fit(hold(dense), labels, sample_weight=weights)
    np.testing.assert_allclose(lda.predict_proba(hold(dense)), expected.predict_proba(dense), atol=1e-9)
    assert lda.score(hold(dense), labels) == expected.score(dense, labels)
    halves = LDA().partial_fit(hold(dense)[:40] if hold is sp.csr_array else dense[:40], labels[:40])
    halves.partial_fit(sp.csr_array(dense[40:]), labels[40:])
    np.testing.assert_allclose(halves.means_, LDA().fit(dense, labels).means_, rtol=1e-12)


KEEP = {
    "log1p": (Log1p(), True),
    "total": (NormalizeTotal(), True),
    "clip": (Clip(max=2.0), True),
    "clip above 0": (Clip(min=1.0), False),
    "norm": (UnitNorm(), True),
    "scale": (Standardise(with_mean=False), True),
    "centre": (Standardise(), False),
}


@pytest.mark.parametrize(("step", "keeps"), KEEP.values(), ids=KEEP)
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array, sp.coo_array])
def test_steps_that_keep_zeros_return_sparse_rows(step, keeps, make, dense):
    given = make(dense)
    found = step.fit(given).transform(given)
    assert sp.issparse(found) == keeps
    expected = step.fit(dense).transform(dense)
    np.testing.assert_allclose(found.toarray() if keeps else found, expected, rtol=1e-12, atol=1e-14)
    if keeps:
        assert isinstance(found, sp.spmatrix) == isinstance(given, sp.spmatrix)
    np.testing.assert_array_equal(given.toarray(), dense)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_located(bad, dense):
    rows = sp.csr_array(dense)
    rows.data = rows.data.copy()
    at = int(rows.indptr[41])
    rows.data[at] = bad
    where = rf"row 41, column {rows.indices[at]}"
    for act in (PCA(2).fit, PCA(2).fit(dense).transform, LDA().fit(dense, dense[:, 0] > 2).predict):
        with pytest.raises(DataError, match=where):
            act(rows)
    if np.isnan(bad):
        filled = np.where(np.isnan(rows.toarray()), np.nan, rows.toarray())
        np.testing.assert_allclose(
            PPCA(2).fit(rows).impute(rows), PPCA(2).fit(filled).impute(filled), rtol=1e-6
        )


def test_counts_below_zero_are_located(dense):
    rows = sp.csr_array(dense)
    rows.data[rows.indptr[17]] = -3
    with pytest.raises(DataError, match=r"Negative values .* row 17, column 0 is -3, and it takes counts"):
        Log1p().fit(rows)
    with pytest.raises(DataError, match=r"row 17: log1p: the value -3 in column 0 is negative"):
        Log1p().fit(dense).transform(rows)


def test_names_of_variables_go_through(dense, labels):
    names = [f"g{i}" for i in range(D)]
    adata = anndata.AnnData(sp.csr_matrix(dense), var=pd.DataFrame(index=names))
    chosen = SelectFScore(3).fit(adata, labels)
    assert chosen.feature_names_in_.tolist() == names
    frame = pd.DataFrame(dense, columns=names)
    assert (
        chosen.get_feature_names_out().tolist()
        == SelectFScore(3).fit(frame, labels).get_feature_names_out().tolist()
    )
    with pytest.raises(ValueError, match="feature names"):
        chosen.transform(anndata.AnnData(sp.csr_matrix(dense), var=pd.DataFrame(index=names[::-1])))
    sparse_frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(dense), columns=names)
    assert PCA(2).fit(sparse_frame).feature_names_in_.tolist() == names


def test_a_sparse_frame_that_leaves_out_another_value_is_right(dense):
    frame = pd.DataFrame(dense, columns=list("abcdefgh")).astype(pd.SparseDtype("float64", 1.0))
    np.testing.assert_allclose(PCA(2).fit(frame).mean_, dense.mean(axis=0), rtol=1e-12)
    mixed = pd.DataFrame(dense, columns=list("abcdefgh"))
    mixed["a"] = mixed["a"].astype(pd.SparseDtype("float64", 0.0))
    np.testing.assert_allclose(PCA(2).fit(mixed).mean_, dense.mean(axis=0), rtol=1e-12)


def test_streamed_sparse_rows_stay_lazy(dense, tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(dense))
    chunks = da.from_array(dense, chunks=(40, D)).map_blocks(sp.csr_array)
    adata = anndata.AnnData(da.from_array(dense, chunks=(40, D)).map_blocks(sp.csr_matrix))
    expected = PCA(2, solver="covariance").fit(sp.csr_array(dense))
    for given in (tmp_path / "x.npz", chunks, adata):
        pca = PCA(2, solver="covariance").fit(given)
        np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-12)
        scores = pca.transform(given)
        assert isinstance(scores, da.Array)
        np.testing.assert_allclose(np.abs(scores.compute()), np.abs(expected.transform(dense)), atol=1e-10)


def test_scores_may_be_sparse(dense):
    pca = PCA(D).fit(dense)
    scores = pca.transform(dense)
    np.testing.assert_allclose(pca.inverse_transform(sp.csr_array(scores)), dense, atol=1e-10)


def test_the_plain_estimator_takes_sparse_rows_too(dense):
    chain = streamdr.Chain([NormalizeTotal(), Log1p(), UnitNorm(), Standardise(with_mean=False), PCA(2)])
    chain.fit(sp.csr_array(dense))
    np.testing.assert_allclose(
        chain.to_sklearn()[:-1].transform(sp.csr_array(dense)).toarray(),
        chain.to_sklearn()[:-1].transform(dense),
        rtol=1e-12,
    )
