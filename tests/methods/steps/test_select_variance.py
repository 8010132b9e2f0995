"""The columns that vary most are those of scanpy, however the rows arrive."""

from __future__ import annotations

import warnings
from typing import Any

import anndata
import numpy as np
import pytest
import scanpy
import scipy.sparse
from counts import counts, logged
from fits import bits, fit, grown, stored
from narrowing import present
from sklearn.feature_selection import VarianceThreshold
from sparse_rows import SparseArray

import streamdr
from streamdr import plots
from streamdr.data import open_source
from streamdr.errors import DataError, ParameterError
from streamdr.methods.chain import chain_of
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.steps import Log1p, NormalizeTotal, SelectVariance

FLAVORS = ("seurat", "cell_ranger")


def of_scanpy(rows, flavor, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more genes are requested than have a dispersion
        return scanpy.pp.highly_variable_genes(
            anndata.AnnData(rows), flavor=flavor, inplace=False, **settings
        )


def assert_agrees(model, table, rtol=1e-6):
    np.testing.assert_array_equal(model.support, table.highly_variable.to_numpy())
    for name in ("means", "dispersions", "dispersions_norm"):
        atol = rtol * np.nanmax(np.abs(table[name]))
        np.testing.assert_allclose(getattr(model, name), table[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("shape", [(240, 300), (90, 101), (60, 900)])
@pytest.mark.parametrize("n_top", [None, 7, 50, 100, 1000])
@pytest.mark.parametrize("flavor", FLAVORS)
def test_genes_are_those_of_scanpy(flavor, n_top, shape):
    rows = logged(shape[0], shape[1], shape[0])
    table = of_scanpy(rows.copy(), flavor, n_top_genes=n_top)
    found = streamdr.SelectVariance(n_top, flavor=flavor).fit(rows)
    assert_agrees(found.model_, table)
    np.testing.assert_array_equal(found.transform(rows), rows[:, table.highly_variable.to_numpy()])


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("flavor", FLAVORS)
def test_genes_in_single_precision_and_in_sparse_rows(flavor, is_sparse):
    rows = logged(dtype=np.float32)
    given = scipy.sparse.csr_matrix(rows) if is_sparse else rows.copy()
    table = of_scanpy(given, flavor, n_top_genes=40)
    source = SparseArray(rows, piece_rows=17) if is_sparse else open_source(rows)
    # The squares of scanpy are rounded to single precision.
    assert_agrees(fit(SelectVariance(40, flavor=flavor), source, workers=2).model, table, rtol=1e-5)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_limits_are_those_of_scanpy(flavor):
    rows = logged()
    limits: dict[str, Any] = {"min_mean": 0.1, "max_mean": 1.5, "min_disp": 0.2, "max_disp": 2.0}
    found = streamdr.SelectVariance(flavor=flavor, **limits).fit(rows)
    assert_agrees(found.model_, of_scanpy(rows.copy(), flavor, **limits))


@pytest.mark.parametrize("n_bins", [3, 50])
def test_bins_are_those_of_scanpy(n_bins):
    rows = logged()
    found = streamdr.SelectVariance(60, flavor="seurat", n_bins=n_bins).fit(rows)
    assert_agrees(found.model_, of_scanpy(rows.copy(), "seurat", n_top_genes=60, n_bins=n_bins))


def test_a_bin_whose_dispersions_are_mostly_equal_does_not_overflow():
    """The others are infinitely far from the middle: scanpy says inf, and models hold the largest number."""
    rows = logged(60, 900)
    rows[:, 100:400] = 0.0
    rows[0, 100:160] = np.linspace(0.1, 0.2, 60)
    table = of_scanpy(rows.copy() + 0.0, "seurat", n_top_genes=30)
    assert_agrees(streamdr.SelectVariance(30, flavor="seurat").fit(rows).model_, table)
    found = streamdr.SelectVariance(30, flavor="cell_ranger").fit(rows)
    assert not np.isinf(present(found.dispersions_norm_)).any()
    assert 30 <= found.get_support().sum() <= 50


def tied(kind):
    """Counts of columns of which many have equal means and variances."""
    rng = np.random.default_rng(3)
    rare = rng.poisson(rng.uniform(0, 0.05, 150), (50, 150))
    flags = np.where(rng.random((40, 60)) < 0.3, 1.0, 0.0)
    return np.log1p({"rare": rare, "few": rng.poisson(1.0, (30, 12)), "flags": flags}[kind])


@pytest.mark.parametrize("kind", ["rare", "few", "flags"])
@pytest.mark.parametrize("flavor", ["variance", *FLAVORS])
def test_rounding_decides_nothing(flavor, kind):
    """Sums of sparse rows, and of rows in another order, are rounded differently."""
    rows = tied(kind)
    orders = [np.random.default_rng(seed).permutation(len(rows)) for seed in range(4)]
    for n_features in (None, 1, 5, rows.shape[1] // 2):
        least = float(np.var(rows[:, 1], ddof=1))
        step = SelectVariance(n_features, flavor=flavor, min_disp=0.5, min_variance=least)
        expected: Any = fit(step, open_source(rows), workers=1).model
        for order in orders:
            for source in (open_source(rows[order]), SparseArray(rows[order], piece_rows=7)):
                found: Any = fit(step, source, workers=1).model
                np.testing.assert_array_equal(found.support, expected.support)
                np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)


def test_equal_dispersions_have_no_spread():
    """Where scanpy divides zero by zero, nothing is defined; the only column of a bin has the value 1."""
    rows = np.zeros((10, 7))
    rows[np.arange(6), np.arange(6)] = 1.0  # one count in each of six columns
    rows[:, 6] = np.arange(10)
    found = streamdr.SelectVariance(flavor="seurat", max_mean=9.0).fit(rows)
    np.testing.assert_array_equal(present(found.dispersions_norm_), [np.nan] * 6 + [1.0])
    with pytest.raises(DataError, match="none of the 6 columns has a dispersion unlike those"):
        streamdr.SelectVariance(2, flavor="seurat").fit(rows[:, :6])


def test_a_weight_counts_rows():
    rows, weights = logged(), np.random.default_rng(1).integers(0, 3, 240)
    for flavor in ("variance", *FLAVORS):
        found = streamdr.SelectVariance(20, flavor=flavor).fit(rows, sample_weight=weights.astype(float))
        expected = streamdr.SelectVariance(20, flavor=flavor).fit(np.repeat(rows, weights, axis=0))
        np.testing.assert_array_equal(found.get_support(), expected.get_support())
        np.testing.assert_allclose(found.variances_, expected.variances_, rtol=1e-10, atol=1e-14)


def test_variances_are_those_of_numpy_and_the_threshold_is_that_of_scikit_learn():
    rows = logged()
    rows[:, 11] = 7.3
    rows[::5, 3] = np.nan
    found = streamdr.SelectVariance(min_variance=0.2).fit(rows)
    np.testing.assert_allclose(found.variances_, np.nanvar(rows, axis=0, ddof=1), rtol=1e-12, atol=1e-26)
    same = np.delete(rows, 3, axis=1)
    plain = VarianceThreshold(0.2 * (len(rows) - 1) / len(rows)).fit(same)
    np.testing.assert_array_equal(np.delete(found.get_support(), 3), plain.get_support())
    few = streamdr.SelectVariance(5).fit(rows)
    assert set(few.get_support(indices=True)) == set(np.argsort(-np.nanvar(rows, axis=0))[:5])
    assert not streamdr.SelectVariance().fit(rows).get_support()[[5, 11]].any()


def test_of_equal_variances_the_first_columns_are_kept():
    rows = np.tile(np.arange(6.0)[:, None], 5)
    assert streamdr.SelectVariance(2).fit(rows).get_support(indices=True).tolist() == [0, 1]


@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_bits_do_not_depend_on_workers_and_an_append_reads_new_rows(flavor, tmp_path):
    rows = logged(300, 60, dtype=np.float32)
    place = stored(tmp_path / "x.zarr", rows[:240], (20, 7))
    step = SelectVariance(20, flavor=flavor)
    settings = {"workers": 2, "ledger": tmp_path / "ledger"}
    assert bits(fit(step, place, workers=1).model) == bits(fit(step, place, **settings).model)
    grown(place, rows)
    more = fit(step, place, **settings)
    assert more.bytes_read < rows.nbytes
    assert bits(more.model) == bits(fit(step, place, workers=1).model)
    assert_agrees(more.model, of_scanpy(rows.copy(), flavor, n_top_genes=20), rtol=1e-5)


def test_a_chain_of_counts_is_that_of_scanpy():
    cells = counts()
    expected = anndata.AnnData(cells.copy())
    scanpy.pp.normalize_total(expected)
    scanpy.pp.log1p(expected)
    table = scanpy.pp.highly_variable_genes(expected, n_top_genes=50, inplace=False)
    steps = chain_of([NormalizeTotal(), Log1p(), SelectVariance(50, flavor="seurat"), PCA(4)])
    for source in (open_source(cells), SparseArray(cells, piece_rows=31)):
        model: Any = fit(steps, source, workers=2).model
        assert_agrees(model.models[2], table)
        chosen = expected.X[:, table.highly_variable.to_numpy()]
        scores = streamdr.PCA(4).fit_transform(chosen)
        np.testing.assert_allclose(np.abs(model.transform(cells)), np.abs(scores), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("parameters", "rows", "message"),
    [
        ({"flavor": "seurat"}, counts() * 1e3, "exponentials of the values overflow.*put log1p before it"),
        ({"min_variance": 1e9}, logged(), "none of the 300 columns has a variance above min_variance"),
        ({"flavor": "seurat", "min_disp": 99.0}, logged(), "none of the 300 columns has a dispersion"),
        ({}, logged()[:1], "at least 2 rows"),
        ({}, np.full((9, 3), np.nan), "every value is missing"),
    ],
)
def test_data_that_leaves_no_columns_is_refused(parameters, rows, message):
    with pytest.raises(DataError, match=message):
        streamdr.SelectVariance(**parameters).fit(rows)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features": 0}, "n_features: 0 is not above 0"),
        ({"flavor": "seurat_v3"}, "flavor: 'seurat_v3' is not one of variance, seurat, cell_ranger"),
        ({"min_mean": 4.0}, "min_mean: 4 is not below max_mean, 3"),
        ({"min_disp": 4.0, "max_disp": 1.0}, "min_disp: 4 is not below max_disp, 1"),
        ({"min_variance": -1.0}, "min_variance: -1 is below 0"),
        ({"n_bins": 0}, "n_bins: 0 is not above 0"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(ParameterError, match=message):
        SelectVariance(**parameters).check()


@pytest.mark.parametrize("flavor", ["variance", *FLAVORS])
def test_the_picture_has_a_point_for_every_column_that_varies(flavor):
    found = streamdr.SelectVariance(30, flavor=flavor).fit(logged())
    (axes,) = plots.selected_variance(found.model_).axes
    drawn = {line.get_label(): len(line.get_xdata()) for line in axes.lines}
    assert drawn["selected"] == found.get_support().sum()
    varying = np.count_nonzero(found.variances_ > 0)
    assert varying <= sum(drawn.values()) <= 300


@pytest.mark.parametrize("flavor", FLAVORS)
def test_values_that_are_no_logged_counts_are_refused_without_a_warning(flavor):
    rows = np.full((4, 3), -1000.0)
    rows[:, 1:] = [[-900.0, -800.0]]
    with warnings.catch_warnings(), pytest.raises(DataError, match=r"log1p|none of the 3 columns"):
        warnings.simplefilter("error")
        streamdr.SelectVariance(2, flavor=flavor).fit(rows)


def test_more_components_than_the_columns_that_are_left_are_refused():
    """How many are left is known only after the pass of the step."""
    rows = np.random.default_rng(5).normal(size=(20, 6)) * [3, 3, 3, 1e-3, 1e-3, 1e-3]
    steps = chain_of([SelectVariance(min_variance=1.0), PPCA(3, method="closed_form")])
    with pytest.raises(ParameterError, match=r"ppca\.n_components"):
        fit(steps, open_source(rows))
