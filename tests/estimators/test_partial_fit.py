"""`partial_fit` goes on from `fit`, or says that it cannot: rows are never forgotten in silence."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import streamdr
from streamdr.errors import DataError, ParameterError

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(120, 6)) @ RNG.normal(size=(6, 6)) + 3
CLASSES = RNG.integers(0, 3, 120)
NUMBERS = ROWS[:, 0] + RNG.normal(size=120)
INCREMENTAL = {
    "pca": (streamdr.PCA(2, solver="covariance"), None),
    "pca of whatever solver": (streamdr.PCA(2), None),
    "lda": (streamdr.LDA(), CLASSES),
    "select_f_score": (streamdr.SelectFScore(k=3), CLASSES),
    "select_f_score of numbers": (streamdr.SelectFScore(k=3), NUMBERS),
    "select_correlation": (streamdr.SelectCorrelation(k=3), NUMBERS),
    "select_forward": (streamdr.SelectForward(k=3), CLASSES),
}


def outcome(estimator):
    fields = {name: np.asarray(value) for name, value in vars(estimator.model_).items()}
    return {name: value for name, value in fields.items() if value.ndim and value.dtype.kind == "f"}


@pytest.mark.parametrize("name", INCREMENTAL)
@pytest.mark.parametrize("weighted", [False, True])
def test_partial_fit_goes_on_from_fit(name, weighted):
    estimator, labels = INCREMENTAL[name]
    weights = RNG.uniform(0.5, 2, len(ROWS)) if weighted else None

    def given(rows):
        return {
            "X": ROWS[rows],
            "y": None if labels is None else labels[rows],
            "sample_weight": None if weights is None else weights[rows],
        }

    together = clone(estimator).partial_fit(**given(slice(0, 70))).partial_fit(**given(slice(70, 120)))
    fitted = clone(estimator).fit(**given(slice(0, 70)))
    before = outcome(fitted)
    gone_on = fitted.partial_fit(**given(slice(70, 120)))
    assert gone_on.n_rows_ == 120
    for field, value in outcome(together).items():
        np.testing.assert_allclose(outcome(gone_on)[field], value, rtol=1e-9, atol=1e-9, err_msg=field)
    assert any(not np.array_equal(before[field], outcome(gone_on)[field]) for field in before)
    fitted.fit(**given(slice(0, 70)))
    for field, value in before.items():
        np.testing.assert_array_equal(outcome(fitted)[field], value, err_msg="fit starts over")


@pytest.mark.parametrize(
    "estimator",
    [streamdr.PCA(2, solver="gram"), streamdr.PCA(2, solver="krylov")],
    ids=["gram", "krylov"],
)
def test_a_fit_that_cannot_be_gone_on_from_is_not_forgotten(estimator):
    estimator.fit(ROWS)
    before = outcome(estimator)
    with pytest.raises(ParameterError, match="forget the rows of fit"):
        estimator.partial_fit(ROWS)
    for field, value in before.items():
        np.testing.assert_array_equal(outcome(estimator)[field], value)


def test_a_model_that_was_saved_or_pickled_has_no_statistics_to_go_on_from(tmp_path):
    pca = streamdr.PCA(2, solver="covariance").fit(ROWS)
    pca.save(tmp_path / "model")
    for other in (streamdr.load_model(tmp_path / "model"), pickle.loads(pickle.dumps(pca))):
        with pytest.raises(ParameterError, match="forget the rows of fit"):
            other.partial_fit(ROWS)
        np.testing.assert_array_equal(other.components_, pca.components_)
    wide = streamdr.PCA(2, solver="covariance").fit(RNG.normal(size=(20, 400)))
    assert len(pickle.dumps(wide)) < 100_000, "a pickle holds the model, not the statistics"


def test_statistics_that_are_too_large_are_not_kept():
    pca = streamdr.PCA(2, solver="covariance").fit(RNG.normal(size=(3, 2100)))
    with pytest.raises(ParameterError, match="32 MiB"):
        pca.partial_fit(RNG.normal(size=(3, 2100)))


def test_a_call_that_is_refused_leaves_the_estimator_as_it_was():
    pca, bad = streamdr.PCA(2, solver="covariance"), np.where(ROWS[3, 3] > ROWS, np.nan, ROWS)
    with pytest.raises(ValueError):
        pca.partial_fit(bad)
    assert not hasattr(pca, "components_")
    pca.fit(ROWS)
    with pytest.raises(ValueError):
        pca.partial_fit(bad)
    with pytest.raises(ValueError, match="features"):
        pca.partial_fit(ROWS[:, :3])
    np.testing.assert_array_equal(pca.components_, streamdr.PCA(2, solver="covariance").fit(ROWS).components_)


@pytest.mark.parametrize("estimator", [streamdr.PCA(2), streamdr.PPCA(2)], ids=["pca", "ppca"])
def test_rows_without_weight_are_waited_out(estimator):
    nothing = np.zeros(len(ROWS))
    estimator.partial_fit(ROWS, sample_weight=nothing)
    with pytest.raises(DataError, match="no row has a positive weight"):
        _ = estimator.components_
    assert estimator.partial_fit(ROWS + 1).components_.shape == (2, 6)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "with holes"])
def test_probabilistic_pca_goes_on_from_the_model(missing, tmp_path):
    first, more = sampled_rows(3000, missing), sampled_rows(3001, missing)
    fitted = streamdr.PPCA(2).fit(first)
    fitted.save(tmp_path / "model")
    likely = fitted.score(more)
    gone_on = fitted.partial_fit(more)
    whole = streamdr.PPCA(2).fit(np.concatenate([first, more]))
    assert gone_on.n_rows_ == 6001
    assert gone_on.score(more) > likely - 1e-3
    np.testing.assert_allclose(gone_on.mean_, whole.mean_, atol=0.05)
    np.testing.assert_allclose(gone_on.get_covariance(), whole.get_covariance(), rtol=0.1, atol=0.1)
    again = streamdr.load_model(tmp_path / "model").partial_fit(more)
    np.testing.assert_array_equal(again.components_, gone_on.components_)


@pytest.mark.parametrize("method", ["auto", "em", "closed_form"])
def test_few_rows_hardly_move_a_model_of_many(method):
    first = sampled_rows(5000, False)
    fitted = streamdr.PPCA(2, method=method).fit(first)
    before = fitted.get_covariance()
    np.testing.assert_allclose(fitted.partial_fit(first[:40]).get_covariance(), before, rtol=0.2, atol=0.2)


def sampled_rows(n_rows, missing):
    rng = np.random.default_rng([n_rows, missing])
    rows = rng.normal(size=(n_rows, 2)) @ np.array([[3, 1, 0, 1, 2, 0.0], [0, 2, 1, -1, 0, 1]])
    rows += 0.3 * rng.normal(size=rows.shape) + np.arange(6)
    return np.where(rng.uniform(size=rows.shape) < 0.2, np.nan, rows) if missing else rows
