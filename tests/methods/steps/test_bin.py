"""Bins are those of scikit-learn's KBinsDiscretizer, of a sample that does not depend on blocks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fits import bits, fit, stored
from narrowing import checked
from sklearn.preprocessing import KBinsDiscretizer

import streamdr
from streamdr.errors import DataError, ParameterError
from streamdr.methods.steps import Bin, bin

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(301, 5)) * np.logspace(-2, 3, 5)


def of_scikit_learn(rows, n_bins, strategy, weights=None):
    settings = {"quantile_method": "inverted_cdf"} if strategy == "quantile" else {}
    binner = KBinsDiscretizer(n_bins, encode="ordinal", strategy=strategy, subsample=None, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return binner.fit(rows, sample_weight=weights)


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
@pytest.mark.parametrize("n_bins", [2, 5, 100])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_bins_are_those_of_scikit_learn(dtype, n_bins, strategy):
    rows = ROWS.astype(dtype)
    found = streamdr.Bin(n_bins, strategy=strategy).fit(rows)
    plain = of_scikit_learn(rows.astype(np.float64), n_bins, strategy)
    for column, edges in enumerate(plain.bin_edges_):
        np.testing.assert_allclose(found.edges_[:, column], edges[1:-1], rtol=1e-12, atol=1e-12)
    mapped = found.transform(rows)
    assert mapped.dtype == rows.dtype
    # Edges of equal width are rounded: a value may lie between those of two programs, but none does here.
    np.testing.assert_array_equal(mapped, plain.transform(rows.astype(np.float64)))


def test_weights_move_the_edges():
    weights = RNG.integers(0, 4, len(ROWS)).astype(float)
    found = streamdr.Bin(4).fit(ROWS, sample_weight=weights).transform(ROWS)
    repeated = streamdr.Bin(4).fit(np.repeat(ROWS, weights.astype(int), axis=0)).transform(ROWS)
    np.testing.assert_array_equal(found, repeated)


def test_frequent_values_and_constant_columns_have_fewer_bins():
    rows = np.column_stack([np.repeat([0.0, 1.0], [90, 10]), np.full(100, 3.0), np.arange(100.0)])
    found = streamdr.Bin(4).fit(rows)
    assert found.n_bins_per_column_.tolist() == [1, 1, 4]
    np.testing.assert_array_equal(found.transform(rows)[:, 1], 0.0)
    assert streamdr.Bin(4, strategy="uniform").fit(rows).n_bins_per_column_.tolist() == [4, 1, 4]


def test_missing_values_stay_missing_and_do_not_move_edges():
    rows = ROWS.copy()
    gone = RNG.random(rows.shape) < 0.2
    rows[gone] = np.nan
    rows[:, 4] = np.nan
    found = streamdr.Bin(4).fit(rows)
    mapped = found.transform(rows)
    np.testing.assert_array_equal(np.isnan(mapped), np.isnan(rows))
    whole = of_scikit_learn(rows[~np.isnan(rows[:, 1]), 1:2], 4, "quantile")
    np.testing.assert_allclose(found.edges_[:, 1], whole.bin_edges_[0][1:-1])
    with pytest.raises(DataError, match="every value is missing"):
        streamdr.Bin().fit(np.full((4, 2), np.nan))


def test_the_sample_depends_on_the_seed_and_not_on_chunks(monkeypatch, tmp_path):
    monkeypatch.setattr(bin, "_SAMPLE_ROWS", 60)
    monkeypatch.setattr(bin, "_FEWEST_ROWS", 10)
    places = [stored(tmp_path / f"{n}.zarr", ROWS, chunks) for n, chunks in enumerate([(40, 5), (7, 2)])]
    one, other = (checked(bin.BinModel, fit(Bin(4), place, workers=2).model) for place in places)
    assert bits(one) == bits(other)
    again = checked(bin.BinModel, fit(Bin(4, random_state=1), places[0], workers=1).model)
    assert not np.array_equal(again.edges, one.edges)
    shares = np.array([(one.transform(ROWS) == number).mean(axis=0) for number in range(4)])
    np.testing.assert_allclose(shares, 0.25, atol=0.15)


def test_values_outside_the_sample_are_in_the_outer_bins():
    found = streamdr.Bin(3, strategy="uniform").fit([[0.0], [3.0]])
    assert found.transform([[-9.0], [1.0], [9.0]]).ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"n_bins": 1}, "n_bins: 1"), ({"n_bins": 257}, "n_bins: 257"), ({"strategy": "k"}, "strategy: 'k'")],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(ParameterError, match=message):
        Bin(**parameters).check()
