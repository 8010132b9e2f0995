"""Rows of weight zero are ignored by every method that takes weights, in every type."""

import warnings

import numpy as np
import pytest
from narrowing import present

import streamdr
from streamdr.core.blocks import Block, Span
from streamdr.errors import StreamdrError
from streamdr.statistics.moments import Moments

SOLVERS = ("covariance", "gram", "krylov")
DTYPES = ("float64", "float32", "uint8")


def weighted_rows(dtype, n=60, d=8, seed=0):
    """Rows of which a third has the weight zero. Column 2 is constant among the others."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 250, (n, d)).astype(dtype)
    weights = rng.uniform(0.1, 3, n)
    weights[::3] = 0.0
    rows[weights > 0, 2] = 7.123
    rows[weights == 0, 2] = 249
    return rows, weights


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_column_that_is_constant_among_rows_of_positive_weight_is_constant(solver, dtype):
    rows, weights = weighted_rows(dtype)
    with pytest.raises(streamdr.errors.ParameterError, match="column 2 is constant"):
        streamdr.PCA(2, scale=True, solver=solver).fit(rows, sample_weight=weights)
    fitted = streamdr.PCA(3, solver=solver).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(fitted.components_[:, 2], 0.0, atol=1e-12)
    assert present(fitted.var_)[2] <= 1e-25
    without = streamdr.PCA(3, solver=solver).fit(rows[weights > 0], sample_weight=weights[weights > 0])
    np.testing.assert_allclose(fitted.explained_variance_, without.explained_variance_, rtol=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 25])
@pytest.mark.parametrize("dtype", DTYPES)
def test_such_a_column_is_constant_in_any_blocks(chunk, dtype):
    # Blocks with a few rows of positive weight, with one, or with none.
    rows, weights = weighted_rows(dtype)
    weights[10:18] = 0.0
    moments = Moments(rows.shape[1])
    for span in Span(0, len(rows)).split(chunk):
        moments.update(Block(span, rows[span.slice], weights=weights[span.slice]))
    assert moments.count == np.count_nonzero(weights)
    assert moments.scatter[2, 2] <= 1e-25
    np.testing.assert_allclose(moments.scatter[2], 0.0, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weight", [1.0, 3.0, 1e-3, 1e6])
def test_a_single_row_of_positive_weight_is_refused(solver, dtype, weight):
    rows, weights = weighted_rows(dtype)
    weights[:] = 0.0
    weights[5] = weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for parameters in ({}, {"scale": True}, {"ddof": 0}):
            with pytest.raises(streamdr.errors.DataError, match="only 1 row has a positive weight"):
                streamdr.PCA(2, solver=solver, **parameters).fit(rows, sample_weight=weights)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_rank_is_that_of_the_rows_of_positive_weight(solver):
    rows, weights = weighted_rows("float32", n=40, d=30)
    weights[5:] = 0.0
    fitted = streamdr.PCA(6, solver=solver).fit(rows, sample_weight=weights)
    assert fitted.rank_ == np.count_nonzero(weights) - 1
    with pytest.raises(streamdr.errors.ParameterError, match="rank"):
        streamdr.PCA(6, solver=solver, whiten=True).fit(rows, sample_weight=weights)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_equal_rows_have_no_variance(solver, dtype, weighted):
    # The computed mean of equal numbers may differ from the number: the rounding is not a component.
    rng = np.random.default_rng(3)
    for n_rows in (2, 3, 7, 21, 60, 130):
        rows = np.tile(rng.normal(size=5), (n_rows, 1)).astype(dtype)
        weights = rng.uniform(0.1, 3, n_rows) if weighted else None
        with pytest.raises(streamdr.errors.DataError, match="every column is constant"):
            streamdr.PCA(1, solver=solver).fit(rows, sample_weight=weights)


LABELLED = {
    "lda": lambda: streamdr.LDA(),
    "lda shrunk": lambda: streamdr.LDA(shrinkage="auto"),
    "f score": lambda: streamdr.SelectFScore(3),
    "correlation": lambda: streamdr.SelectCorrelation(3),
    "mutual information": lambda: streamdr.SelectMutualInfo(3),
    "forward": lambda: streamdr.SelectForward(3),
}
UNLABELLED = {
    "pca": lambda: streamdr.PCA(3),
    "correlations": lambda: streamdr.PCA(3, scale=True),
    "ppca": lambda: streamdr.PPCA(2),
    "ppca by em": lambda: streamdr.PPCA(2, method="em"),
}


def outcome(estimator, *given, **weights):
    """The result of a fit: its arrays, or the class of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.filterwarnings("ignore", category=UserWarning)
        try:
            fitted = estimator.fit(*given, **weights)
        except StreamdrError as refused:
            return type(refused)
    model = fitted.model_
    names = ("explained_variance", "loadings", "eigenvalues", "scores", "selected", "p_values")
    return {name: getattr(model, name) for name in names if getattr(model, name, None) is not None}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("varies", [True, False])
@pytest.mark.parametrize("name", [*LABELLED, *UNLABELLED])
def test_rows_without_weight_change_nothing(name, dtype, varies):
    rows, weights = weighted_rows(dtype, n=90)
    if varies:
        rows[:, 2] = rows[::-1, 1]
    kept = weights > 0
    labels = (np.arange(90) // 3 % 3).astype(np.int64)
    rows[:, 0] += (10 * labels).astype(dtype)
    labels[~kept] = 7  # a class of weight zero
    given = ([rows, labels], [rows[kept], labels[kept]]) if name in LABELLED else ([rows], [rows[kept]])
    make = (LABELLED | UNLABELLED)[name]
    if name in ("mutual information", "forward"):
        # Folds and bin edges depend on row numbers, which change when rows are left out.
        assert outcome(make(), *given[0], sample_weight=weights)
        return
    with_zeros = outcome(make(), *given[0], sample_weight=weights)
    without = outcome(make(), *given[1], sample_weight=weights[kept])
    assert with_zeros.keys() == without.keys() if isinstance(without, dict) else with_zeros is without
    if isinstance(without, dict):
        for field, values in without.items():
            np.testing.assert_allclose(
                with_zeros[field], values, rtol=1e-5, atol=1e-5 * np.abs(values).max(), err_msg=field
            )
