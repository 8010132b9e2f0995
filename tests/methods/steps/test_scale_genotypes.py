"""Genotypes are scaled by the frequencies of their alleles, and missing ones become the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from counts import sparse
from fits import bits, fit, stored

import streamdr
from streamdr.core.blocks import Block, Span
from streamdr.core.plain_maps import HasPlainMaps
from streamdr.data import open_source
from streamdr.errors import DataError, ParameterError, RowError
from streamdr.methods.chain import chain_of
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.steps import ScaleGenotypes
from streamdr.methods.steps.allele_counts import AlleleCounts

N, D = 200, 40


def genotypes(seed=0, missing=0.1, ploidy=2):
    """Alleles with missing values; columns 3, 4 are monomorphic, 5 is rare, 6 is all missing."""
    rng = np.random.default_rng(seed)
    rows = rng.binomial(ploidy, rng.uniform(0.05, 0.95, D), (N, D)).astype(float)
    rows[:, 3], rows[:, 4], rows[:, 5] = 0, ploidy, 0
    rows[7, 5] = 1
    rows[rng.random(rows.shape) < missing] = np.nan
    rows[:, 6] = np.nan
    rows[7, 5] = 1
    return rows


def expected(rows, min_maf=0.0, ploidy=2, patterson=False, weights=None):
    weights = np.ones(len(rows)) if weights is None else weights
    observed = weights[:, None] * ~np.isnan(rows)
    with np.errstate(invalid="ignore"):
        p = (weights[:, None] * np.nan_to_num(rows)).sum(axis=0) / observed.sum(axis=0) / ploidy
    kept = (p > 0) & (p < 1) & (np.minimum(p, 1 - p) >= min_maf)
    scale = np.sqrt((1 if patterson else ploidy) * p * (1 - p))
    scaled = (rows - ploidy * p)[:, kept] / scale[kept]
    return np.where(np.isnan(scaled), 0.0, scaled), kept


@pytest.mark.parametrize("ploidy", [1, 2, 4])
@pytest.mark.parametrize("patterson", [False, True])
@pytest.mark.parametrize("min_maf", [0.0, 0.1])
def test_the_formula(min_maf, patterson, ploidy):
    rows = genotypes(ploidy=ploidy)
    scaling = "patterson" if patterson else "binomial"
    found = streamdr.ScaleGenotypes(min_maf, ploidy=ploidy, scaling=scaling).fit(rows)
    wanted, kept = expected(rows, min_maf, ploidy, patterson)
    np.testing.assert_array_equal(found.get_support(), kept)
    np.testing.assert_allclose(found.transform(rows), wanted, rtol=1e-12, atol=1e-12)
    assert found.n_monomorphic_ == 3
    (table,) = found.model_.tables()
    np.testing.assert_array_equal([row[0] for row in table.rows], np.flatnonzero(kept))
    assert not isinstance(found.model_, HasPlainMaps), "no elementary map fills missing values"
    assert {fact.name for fact in found.model_.facts()} == {"kept", "monomorphic", "rare alleles"}


def test_a_weight_counts_rows():
    rows, weights = genotypes(), np.random.default_rng(1).integers(0, 3, N).astype(float)
    found = streamdr.ScaleGenotypes().fit(rows, sample_weight=weights)
    wanted, kept = expected(rows, weights=weights)
    np.testing.assert_array_equal(found.get_support(), kept)
    np.testing.assert_allclose(found.transform(rows), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
def test_either_allele_may_have_the_least_frequency(dtype):
    """1 - 0.9 is a bit less than 0.1 in floating point."""
    counts = (1, 2, 4, 16, 18, 19)  # of 20 alleles
    rows = np.stack([np.r_[np.full(n // 2, 2), np.full(n % 2, 1), np.zeros(10)][:10] for n in counts], axis=1)
    found = streamdr.ScaleGenotypes(0.1).fit(rows.astype(dtype))
    assert found.get_support(indices=True).tolist() == [1, 2, 3, 4]
    third = np.array([[0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    assert streamdr.ScaleGenotypes(1 / 3).fit(third).get_support().all()


def test_uneven_weights_leave_monomorphic_columns_out():
    rows = genotypes(missing=0.0)
    weights = np.random.default_rng(2).uniform(1e-3, 1e3, N)
    assert not streamdr.ScaleGenotypes().fit(rows, sample_weight=weights).get_support()[[3, 4, 6]].any()


@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "f8", "u1"])
def test_stored_genotypes_with_a_number_for_missing_ones(dtype, tmp_path):
    rows = genotypes()
    gone = 9 if dtype == "u1" else -1
    whole = np.where(np.isnan(rows), gone, rows).astype(dtype)
    place = stored(tmp_path / "x.zarr", whole, (30, 16))
    source = open_source(place, missing_value=gone)
    model: Any = fit(ScaleGenotypes(0.05), source, workers=2).model
    assert bits(model) == bits(fit(ScaleGenotypes(0.05), source, workers=1).model)
    wanted, kept = expected(rows, 0.05)
    np.testing.assert_array_equal(model.support, kept)
    found = model.transform(rows.astype("f8" if dtype == "f8" else "f4"))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 if dtype == "f8" else 2e-6)


def test_sums_do_not_depend_on_how_many_values_are_missing_in_a_block():
    rows = genotypes()
    rows[:60] = np.nan_to_num(rows[:60], nan=1.0)
    whole, parts = AlleleCounts(D), AlleleCounts(D)
    whole.update(Block(Span(0, N), rows.astype(np.float32)))
    for span in Span(0, N).split(60):
        parts.update(Block(span, rows[span.slice].astype(np.float32)))
    for key, value in whole.arrays().items():
        np.testing.assert_array_equal(parts.arrays()[key], value)
    assert whole.weights.tolist() == (~np.isnan(rows)).sum(axis=0).tolist()


def test_a_chain_fills_missing_genotypes_for_pca_and_goes_back():
    rows = genotypes()
    model: Any = fit(chain_of([ScaleGenotypes(0.05), PCA(3)]), open_source(rows), workers=1).model
    scaled, kept = expected(rows, 0.05)
    plain = sklearn.decomposition.PCA(3).fit(scaled)
    scores = model.transform(rows)
    np.testing.assert_allclose(np.abs(scores), np.abs(plain.transform(scaled)), rtol=1e-8, atol=1e-9)
    back = model.inverse_transform(scores)
    assert back.shape == rows.shape
    p = np.nanmean(rows[:, kept], axis=0) / 2
    wanted = 2 * p + plain.inverse_transform(plain.transform(scaled)) * np.sqrt(2 * p * (1 - p))
    np.testing.assert_allclose(back[:, kept], wanted, rtol=1e-8, atol=1e-9)
    assert (back[:, 3] == 0).all()
    assert (back[:, 4] == 2).all()
    filled = fit(chain_of([ScaleGenotypes(0.05), PPCA(3)]), open_source(rows), workers=1).model
    assert np.isfinite(filled.transform(rows)).all()


def test_it_is_the_inverse_of_itself():
    rows = genotypes(missing=0.0)
    rows[:, 6] = 1.0
    found = streamdr.ScaleGenotypes().fit(rows)
    np.testing.assert_allclose(found.inverse_transform(found.transform(rows)), rows, atol=1e-12)


BAD = [(-1.0, "the value -1 in column 2"), (2.5, r"the value 2\.5 in column 2"), (3.0, "the value 3 in")]


@pytest.mark.parametrize(("value", "message"), BAD)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_value_that_no_genotype_has_is_an_error_with_its_row(value, message, is_sparse):
    rows = genotypes()
    rows[9, 8] = np.nan
    model: Any = fit(ScaleGenotypes(), open_source(rows), workers=1).model
    rows[9, 2] = value
    given = sparse(rows) if is_sparse else rows
    with pytest.raises(RowError, match=f"row 9: scale_genotypes: {message}"):
        (model.transform_sparse if is_sparse else model.transform)(given)
    with pytest.raises(DataError, match=rf"row 9: scale_genotypes: {message}.*input\.missing_value"):
        fit(ScaleGenotypes(), open_source(rows), workers=1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_maf": 0.6}, "min_maf: 0.6"),
        ({"ploidy": 0}, "ploidy: 0"),
        ({"scaling": "none"}, "scaling: 'none'"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(ParameterError, match=message):
        ScaleGenotypes(**parameters).check()


def test_data_without_variants_is_refused():
    with pytest.raises(DataError, match="none of the 4 columns has two alleles"):
        streamdr.ScaleGenotypes().fit(np.full((9, 4), 2.0))
    with pytest.raises(DataError, match="every value is missing"):
        streamdr.ScaleGenotypes().fit(np.full((9, 4), np.nan))
