"""Steps give the numbers of scanpy and of scikit-learn."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pytest
import scanpy
import sklearn.preprocessing
from counts import counts
from fits import fit

import streamdr
from streamdr.data import open_source
from streamdr.errors import DataError
from streamdr.methods.chain import chain_of
from streamdr.methods.ppca import PPCA
from streamdr.methods.steps import Log1p, Standardise

RNG = np.random.default_rng(2)
ROWS = (RNG.normal(size=(50, 7)) + 2.0) * np.logspace(-3, 3, 7)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.fixture
def cells():
    return anndata.AnnData(counts())


@pytest.mark.parametrize("target_sum", [None, 1e4])
def test_normalize_total_is_that_of_scanpy(cells, target_sum):
    found = streamdr.NormalizeTotal(target_sum).fit_transform(cells.X)
    scanpy.pp.normalize_total(cells, target_sum=target_sum)
    assert_close(found, cells.X)


def test_empty_cells_are_left_out_of_the_median_and_stay_as_they_are(cells):
    cells.X[::7] = 0.0
    found = streamdr.NormalizeTotal(empty_rows="keep").fit(cells.X)
    totals = cells.X.sum(axis=1)
    assert found.target_sum_ == np.median(totals[totals > 0])
    mapped = found.transform(cells.X)
    np.testing.assert_array_equal(mapped[::7], 0.0)
    with pytest.warns(UserWarning, match="zero counts"):
        scanpy.pp.normalize_total(cells)
    assert_close(mapped, cells.X)


def test_log1p_is_that_of_scanpy(cells):
    found = streamdr.Log1p().fit_transform(cells.X)
    scanpy.pp.log1p(cells)
    assert_close(found, cells.X)


@pytest.mark.parametrize("zero_center", [True, False])
@pytest.mark.parametrize("max_value", [None, 2.0])
def test_standardise_is_scale_of_scanpy(cells, zero_center, max_value):
    step = streamdr.Standardise(with_mean=zero_center, max_value=max_value, ddof=1)
    found = step.fit_transform(cells.X)
    scanpy.pp.scale(cells, zero_center=zero_center, max_value=max_value)
    assert_close(found, cells.X)


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_standardise_is_the_scaler_of_scikit_learn(with_mean, with_std, weighted):
    rows = np.column_stack([ROWS, np.full(50, 0.1)])
    weights = RNG.integers(0, 4, 50).astype(float) if weighted else None
    expected = sklearn.preprocessing.StandardScaler(with_mean=with_mean, with_std=with_std)
    found = streamdr.Standardise(with_mean, with_std).fit(rows, sample_weight=weights)
    wanted = expected.fit(rows, sample_weight=weights).transform(rows)
    np.testing.assert_allclose(found.transform(rows), wanted, rtol=1e-12, atol=1e-12)


def test_standardise_leaves_missing_values_out_as_scikit_learn_does():
    rows = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
    rows[:, 3] = np.nan
    found = streamdr.Standardise().fit_transform(rows)
    expected = sklearn.preprocessing.StandardScaler().fit_transform(rows[:, [0, 1, 2, 4, 5, 6]])
    assert_close(np.delete(found, 3, axis=1), expected)
    assert np.isnan(found[:, 3]).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_unit_norm_is_normalize_of_scikit_learn(norm):
    rows = ROWS.copy()
    rows[4] = 0.0
    expected = sklearn.preprocessing.normalize(rows, norm)
    assert_close(streamdr.UnitNorm(norm).fit_transform(rows), expected)


def test_clip_is_that_of_numpy():
    rows = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
    found = streamdr.Clip(-1.0, 6.5).fit_transform(rows)
    np.testing.assert_array_equal(found, np.clip(rows, -1.0, 6.5))


def test_a_chain_imputes_in_the_units_of_its_input():
    rows = np.abs(ROWS)
    gone = RNG.random(rows.shape) < 0.1
    rows[gone] = np.nan
    steps = chain_of([Log1p(), Standardise(), PPCA(2)])
    chain: Any = fit(steps, open_source(rows), workers=1).model
    log, standard, last = chain.models
    scaled = standard.transform(log.transform(rows))
    expected = np.expm1(last.impute(scaled) * standard.scale + standard.mean)
    found = chain.impute(rows)
    np.testing.assert_array_equal(found[~gone], rows[~gone])
    np.testing.assert_allclose(found[gone], expected[gone], rtol=1e-10)


def test_steps_go_back():
    standard = streamdr.Standardise().fit(ROWS)
    assert_close(standard.inverse_transform(standard.transform(ROWS)), ROWS)
    log = streamdr.Log1p().fit(np.abs(ROWS))
    assert_close(log.inverse_transform(log.transform(np.abs(ROWS))), np.abs(ROWS))
    assert not hasattr(streamdr.UnitNorm(), "inverse_transform")


@pytest.mark.parametrize("method", [streamdr.Standardise(), streamdr.PCA(2), streamdr.SelectFScore(2)])
def test_rows_of_another_width_do_not_go_back(method):
    fitted = method.fit(ROWS, np.arange(50) % 2)
    with pytest.raises(ValueError, match=r"X has 5 columns, and transform of this \w+ returns [27]"):
        fitted.inverse_transform(ROWS[:, :5])


def test_negative_counts_may_stand_for_missing_values():
    alleles = np.array([[0, -1, 1], [1, 2, 1], [2, 0, 0]], np.int8)
    with pytest.raises(DataError, match=r"row 0, column 1 is -1.*open_source\(X, missing_value=-1\)"):
        streamdr.ScaleGenotypes().fit(alleles)
    source = open_source(alleles, missing_value=-1)
    found = streamdr.ScaleGenotypes().fit(source).transform(source)
    expected = streamdr.ScaleGenotypes().fit_transform(np.where(alleles < 0, np.nan, alleles))
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)
