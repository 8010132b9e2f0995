"""Chains of estimators: fitted, applied, taken apart, saved, and given to scikit-learn."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr
from sklearn import decomposition
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import check_estimator

import streamdr
from streamdr import LDA, PCA, Chain, Log1p, NormalizeTotal, SelectFScore, Standardise, UnitNorm
from streamdr.errors import DataError, ParameterError

N, D = 240, 12


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    rng = np.random.default_rng(7)
    rows = rng.poisson(rng.gamma(1.0, 2.0, D), (N, D)).astype("f8")
    rows[:, 0] += 1  # no row is empty
    return rows


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.random.default_rng(8).integers(0, 3, N)


def counting() -> Chain:
    return Chain([NormalizeTotal(), ("log", Log1p()), PCA(3)])


def logged(rows: np.ndarray) -> np.ndarray:
    totals = rows.sum(axis=1, keepdims=True)
    return np.log1p(rows / totals * np.median(totals))


def test_a_chain_is_its_members_one_after_another(counts):
    chain = counting().fit(counts)
    expected = decomposition.PCA(3, svd_solver="full").fit(logged(counts))
    np.testing.assert_allclose(chain.explained_variance_, expected.explained_variance_, rtol=1e-12)
    scores = chain.transform(counts)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected.transform(logged(counts))), atol=1e-12)
    np.testing.assert_array_equal(counting().fit_transform(counts), scores)
    assert chain["normalize_total"].target_sum_ == np.median(counts.sum(axis=1))
    assert (chain.n_features_in_, chain.n_samples_seen_, len(chain)) == (D, N, 3)


@pytest.mark.parametrize(
    "hold",
    [
        pd.DataFrame,
        scipy.sparse.csr_matrix,
        zarr.array,
        lambda rows: da.from_array(rows, chunks=(50, 5)),
        lambda rows: xr.DataArray(rows, dims=("cell", "gene")).chunk({"cell": 70}),
    ],
    ids=["pandas", "scipy", "zarr", "dask", "xarray"],
)
def test_any_input_gives_the_same_chain(counts, hold):
    expected, found = counting().fit(counts), counting().fit(hold(counts))
    np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-11)
    scores = np.asarray(found.transform(hold(counts)))
    np.testing.assert_allclose(np.abs(scores), np.abs(expected.transform(counts)), atol=1e-10)


def test_members_are_estimators(counts):
    chain = counting()
    assert chain["pca"] is chain.steps[2]
    assert not hasattr(chain, "components_")
    frame = pd.DataFrame(counts, columns=[f"g{i}" for i in range(D)])
    chain.fit(frame)
    assert isinstance(chain[-1], PCA)
    assert chain["pca"].feature_names_in_.tolist() == chain.feature_names_in_.tolist() == list(frame)
    np.testing.assert_array_equal(chain["pca"].components_, chain.components_)
    scaled = pd.DataFrame(chain[0].transform(frame), columns=list(frame))
    again = pd.DataFrame(chain["log"].transform(scaled), columns=list(frame))
    np.testing.assert_array_equal(chain["pca"].transform(again), chain.transform(frame))
    assert "components_" in dir(chain)
    with pytest.raises(KeyError, match="'lda' is no member of this chain, which has normalize_total, log"):
        chain["lda"]


def test_a_slice_is_a_chain_of_fitted_members(counts):
    frame = pd.DataFrame(counts, columns=[f"g{i}" for i in range(D)])
    steps = NormalizeTotal(), ("log", Log1p()), streamdr.SelectVariance(5), Standardise(), PCA(3), PCA(2)
    chain = Chain(steps)
    assert repr(chain[1:3]) == repr(
        Chain([("log", Log1p()), ("select_variance", streamdr.SelectVariance(5))])
    )
    chain.fit(frame)
    first = chain[:2]
    np.testing.assert_allclose(first.transform(frame), logged(counts), rtol=1e-14)
    assert first.get_feature_names_out().tolist() == list(frame)
    lazy = first.transform(da.from_array(counts, chunks=(50, 5)))
    np.testing.assert_array_equal(lazy.compute(), first.transform(frame))
    kept = chain[:3].get_feature_names_out()
    between = chain[2:5]
    assert between.feature_names_in_.tolist() == list(frame)
    assert list(between.named_steps) == ["select_variance", "standardise", "pca_1"]
    rows = pd.DataFrame(first.transform(frame), columns=list(frame))
    np.testing.assert_array_equal(chain[3:].transform(rows[kept]), chain.transform(frame))
    np.testing.assert_array_equal(chain[5:].transform(between.transform(rows)), chain.transform(frame))
    np.testing.assert_array_equal(chain.named_steps.pca_2.components_, chain.components_)
    named = chain.set_output(transform="pandas")[:3].transform(frame)
    assert named.columns.tolist() == kept.tolist()
    with pytest.raises(ValueError, match="step of 1"):
        chain[::2]
    with pytest.raises(IndexError, match="none of the 6 members"):
        chain[6:]


def test_a_slice_is_saved_as_a_chain(counts, tmp_path):
    first = counting().fit(counts)[:-1]
    loaded = streamdr.load_model(first.save(tmp_path / "first.zarr"))
    np.testing.assert_array_equal(loaded.transform(counts), first.transform(counts))
    with pytest.raises(ParameterError, match="log prepares rows for the method after it"):
        clone(loaded).fit(counts)


def test_parameters_are_those_of_members(counts):
    chain = counting()
    assert chain.get_params()["pca__n_components"] == 3
    chain.set_params(pca__n_components=2, normalize_total__target_sum=1e4)
    assert chain.fit(counts).n_components_ == 2
    assert chain[0].target_sum_ == 1e4
    chain.set_params(log=UnitNorm())
    assert not hasattr(chain, "model_")
    assert chain.fit(counts).model_.names == ("normalize_total", "log", "pca")
    twin = clone(chain)
    assert twin.steps is not chain.steps
    assert str(twin) == str(chain)
    with pytest.raises(ParameterError, match="pca_n: is none of this chain, whose members are"):
        chain.set_params(pca_n=2)
    assert "NormalizeTotal" in chain._repr_html_()


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([], "a list of estimators"),
        (PCA(2), "a list of estimators"),
        ([Log1p(), decomposition.PCA(2)], r"PCA\(n_components=2\) is no single estimator of streamdr"),
        ([counting(), PCA(2)], "is no single estimator"),
        ([("a", Log1p()), ("a", PCA(2))], "two members have one name; they are called a, a"),
        ([("a__b", Log1p()), PCA(2)], "'a__b' cannot be a name"),
        ([("steps", Log1p()), PCA(2)], "'steps' cannot be a name"),
        ([PCA(2), Log1p()], "log1p prepares rows for the method after it"),
    ],
)
def test_impossible_members_are_refused(steps: Any, problem, counts):
    with pytest.raises(ParameterError, match=f"steps: .*{problem}"):
        Chain(steps).fit(counts)


def test_a_chain_predicts_if_its_last_member_does(counts, labels):
    chain = Chain([Standardise(), PCA(5), LDA()]).fit(counts, labels)
    scaled = (counts - counts.mean(axis=0)) / counts.std(axis=0)
    reduced = PCA(5).fit(scaled).transform(scaled)
    lda = LDA().fit(reduced, labels)
    np.testing.assert_array_equal(chain.predict(counts), lda.predict(reduced))
    np.testing.assert_allclose(chain.predict_proba(counts), lda.predict_proba(reduced), atol=1e-10)
    np.testing.assert_allclose(
        chain.decision_function(counts), lda.decision_function(reduced), rtol=1e-8, atol=1e-8
    )
    assert chain.score(zarr.array(counts), labels) == lda.score(reduced, labels)
    assert chain.classes_.tolist() == [0, 1, 2]
    assert is_classifier(chain)
    assert not is_classifier(counting())
    assert not any(hasattr(counting(), name) for name in ("predict", "inverse_transform", "partial_fit"))
    lazy = chain.predict(da.from_array(counts, chunks=(50, D)))
    np.testing.assert_array_equal(lazy.compute(), chain.predict(counts))


def test_a_chain_goes_back_where_every_member_does(counts):
    chain = Chain([("first", PCA(8)), ("second", PCA(4))]).fit(counts)
    first = decomposition.PCA(4).fit(counts)
    np.testing.assert_allclose(
        chain.inverse_transform(chain.transform(counts)),
        first.inverse_transform(first.transform(counts)),
        atol=1e-10,
    )


@pytest.mark.parametrize("hold", [pd.DataFrame, zarr.array], ids=["pandas", "zarr"])
def test_a_saved_chain_comes_back_to_the_bit(counts, tmp_path, hold):
    chain = counting().fit(hold(counts))
    chain.save(tmp_path / "chain.zarr")
    loaded = streamdr.load_model(tmp_path / "chain.zarr")
    assert isinstance(loaded, Chain)
    np.testing.assert_array_equal(loaded.transform(counts), chain.transform(counts))
    assert loaded.get_params(deep=True).keys() == chain.get_params(deep=True).keys()
    assert loaded["log"].n_samples_seen_ == N
    again = pickle.loads(pickle.dumps(chain))
    np.testing.assert_array_equal(again.transform(counts), chain.transform(counts))
    np.testing.assert_array_equal(clone(loaded).fit(hold(counts)).transform(counts), chain.transform(counts))
    tree = chain.to_xarray()
    np.testing.assert_array_equal(tree["pca/components"], chain.components_)


def test_names_of_columns_go_through_the_chain(counts, labels):
    frame = pd.DataFrame(counts, columns=[f"g{i}" for i in range(D)])
    chain = Chain([Standardise(), SelectFScore(4)]).set_output(transform="pandas").fit(frame, labels)
    kept = SelectFScore(4).fit(frame, labels).get_feature_names_out()
    found = chain.transform(frame)
    assert found.columns.tolist() == chain.get_feature_names_out().tolist() == kept.tolist()
    assert (found.index == frame.index).all()
    further = Chain([*chain.steps, PCA(2)]).fit(frame, labels)
    assert further["pca"].feature_names_in_.tolist() == kept.tolist()
    assert further.get_feature_names_out().tolist() == ["pca0", "pca1"]
    nameless = Chain([Standardise(), SelectFScore(4)]).fit(counts, labels)
    expected = [f"x{name[1:]}" for name in kept]
    assert nameless.get_feature_names_out().tolist() == expected
    assert nameless.get_feature_names_out(list(frame)).tolist() == kept.tolist()


STEPS = {
    "counts": [NormalizeTotal(), Log1p(), PCA(3)],
    "limits": [streamdr.Clip(1.0, 4.0), UnitNorm("l1"), Standardise(max_value=2.0), PCA(3)],
    "only limits": [Standardise(with_mean=False, with_std=False), PCA(3, whiten="pca")],
    "classes": [Standardise(ddof=1), PCA(5), LDA()],
    "columns": [SelectFScore(5), Standardise(with_mean=False), PCA(2)],
    "variances": [Log1p(), streamdr.SelectVariance(4), streamdr.SelectColumns(["0:3"]), PCA(2)],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_pipeline_of_counterparts_gives_the_same_numbers(steps, counts, labels):
    frame = pd.DataFrame(counts, columns=[f"g{i}" for i in range(D)])
    chain = Chain(steps).fit(frame, labels)
    stored = pickle.dumps(chain.to_sklearn())
    assert b"streamdr" not in stored
    plain = pickle.loads(stored)
    np.testing.assert_allclose(plain.transform(frame), chain.transform(frame), rtol=1e-10, atol=1e-10)
    if hasattr(chain, "predict"):
        np.testing.assert_array_equal(plain.predict(frame), chain.predict(frame))
    assert plain.feature_names_in_.tolist() == list(frame)


@pytest.mark.parametrize("before", [streamdr.SelectColumns(["g0", "g2"]), streamdr.SelectVariance(2)])
def test_a_column_that_an_earlier_step_left_out_is_an_error(counts, before):
    scaled = counts * np.where(np.arange(D) % 2, 1.0, 100.0)[None]  # odd columns vary less
    frame = pd.DataFrame(scaled, columns=[f"g{i}" for i in range(D)])
    chain = Chain([before, streamdr.SelectColumns(["g1"]), PCA(1)])
    with pytest.raises(ParameterError, match=r"columns: no column is called 'g1'.* a step before this one"):
        chain.fit(frame)


def test_a_member_without_counterpart_is_named(counts):
    chain = Chain([Standardise(), streamdr.PPCA(2)]).fit(counts)
    with pytest.raises(ParameterError, match="gives the numbers of ppca"):
        chain.to_sklearn()


@pytest.mark.parametrize("hold", [np.asarray, zarr.array, scipy.sparse.csr_array])
def test_errors_name_the_row_and_the_step(counts, hold):
    chain = Chain([NormalizeTotal(), Standardise(), PCA(2)]).fit(counts)
    bad = counts.copy()
    bad[201] = 0
    with pytest.raises(DataError, match=r"row 201: normalize_total: the total is 0"):
        np.asarray(chain.transform(hold(bad)))
    with pytest.raises(DataError, match=r"row 201: normalize_total: the total is 0"):
        chain.fit(hold(bad))


def test_weights_count_rows(counts):
    weights = np.arange(N) % 3
    chain = Chain([Standardise(), PCA(2)]).fit(counts, sample_weight=weights)
    repeated = Chain([Standardise(), PCA(2)]).fit(np.repeat(counts, weights, axis=0))
    np.testing.assert_allclose(chain.explained_variance_, repeated.explained_variance_, rtol=1e-10)
    with pytest.raises(ParameterError, match=r"sample_weight: metric_mds has no weights of rows"):
        Chain([Standardise(), streamdr.MetricMDS(2)]).fit(counts, sample_weight=weights)


def test_check_estimator():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(Chain([Standardise(), PCA(1)]), on_fail=None)
    failed = {check["check_name"]: check["exception"] for check in checks if check["status"] == "failed"}
    assert not failed
