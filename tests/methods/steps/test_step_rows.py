"""Steps on rows of every type: sparse rows as dense ones, and errors that name the step and the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from counts import odd_rows, sparse
from fits import stored
from sparse_rows import SparseArray, dense_block, sparse_block

import streamdr
from streamdr.core.blocks import MatrixSpec, Span, widen
from streamdr.core.execution import Execution
from streamdr.core.linalg import ignore_overflow
from streamdr.core.mapping import mapped_spec
from streamdr.core.method import MapsSparse, in_memory
from streamdr.data import open_source
from streamdr.data.transformed import TransformedSource
from streamdr.engine.fitting import fit
from streamdr.errors import DataError, RowError
from streamdr.methods.steps import (
    Clip,
    Log1p,
    NormalizeTotal,
    ScaleGenotypes,
    SelectColumns,
    SelectVariance,
    Standardise,
    UnitNorm,
)
from streamdr.methods.steps.allele_counts import AlleleCounts
from streamdr.methods.steps.dispersions import Exponentials
from streamdr.statistics.row_totals import RowTotals, row_totals

ODD = odd_rows()
STEPS: dict[str, Any] = {
    "normalize_total": NormalizeTotal(empty_rows="keep"),
    "log1p": Log1p(),
    "clip": Clip(0.0, 3.0),
    "clip above zero": Clip(1.0),
    "unit_norm l1": UnitNorm("l1"),
    "unit_norm l2": UnitNorm("l2"),
    "unit_norm max": UnitNorm("max"),
    "standardise": Standardise(),
    "standardise without mean": Standardise(with_mean=False, max_value=2.0),
    "select_columns": SelectColumns(["1:4", -1]),
    "select_variance": SelectVariance(3),
}


def model_of(step, rows):
    return in_memory(step, widen(np.asarray(rows)))


def tolerance(mapped):
    return 32 * np.finfo(mapped.dtype).eps * float(np.nanmax(np.abs(mapped), initial=1e-300))


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", STEPS)
def test_every_step_maps_every_type_as_double_precision(name, kind):
    if (name, kind) in REFUSED:
        with pytest.raises(DataError, match=REFUSED[name, kind]), np.errstate(all="ignore"):
            model_of(STEPS[name], ODD[kind])
        return
    rows = ODD[kind]
    model = model_of(STEPS[name], rows)
    before = rows.copy()
    mapped = model.transform(rows)
    np.testing.assert_array_equal(rows, before)
    assert mapped.dtype == widen(rows).dtype
    assert np.isfinite(mapped).all()
    expected = model.transform(rows.astype(np.float64))
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=tolerance(mapped))


REFUSED = {
    **{(name, "large"): "overflow" for name in ("standardise", "standardise without mean")},
    ("select_variance", "large"): "overflow",
    ("select_variance", "one row"): "has a variance above",
    ("select_variance", "small"): "has a variance above",
}


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind not in ("f2", ">f8")])
@pytest.mark.parametrize("name", STEPS)
def test_sparse_rows_are_mapped_as_dense_ones(name, kind):
    if (name, kind) in REFUSED:
        return
    rows = ODD[kind]
    model = model_of(STEPS[name], rows)
    given = sparse(rows)
    before = given.copy()
    mapped = model.transform_sparse(given)
    assert scipy.sparse.issparse(mapped) == model.keeps_zeros
    assert (given != before).nnz == 0
    found = mapped.toarray() if model.keeps_zeros else mapped
    expected = model.transform(rows)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(expected))
    if model.keeps_zeros:
        assert mapped.has_canonical_format
        for line in np.split(mapped.indices, mapped.indptr[1:-1]):
            assert (np.diff(line) > 0).all()
        empty = model.transform_sparse(sparse(rows)[:0])
        assert empty.shape == (0, model.n_outputs)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_statistics_of_sparse_rows_are_those_of_dense_ones(dtype, weighted):
    rng = np.random.default_rng(3)
    rows = np.where(rng.random((90, 6)) < 0.7, 0, rng.integers(0, 3, (90, 6))).astype(dtype)
    rows[:, 0], rows[:, 1], rows[7] = 2.0, rng.integers(1, 3, 90), 0.0
    rows[rng.random(rows.shape) < 0.05] = np.nan
    rows[:, 4] = np.nan
    weights = rng.integers(0, 4, 90).astype(float) if weighted else None
    for empty in (AlleleCounts(6), Exponentials(6)):
        dense, stored_only = empty.empty_like(), empty.empty_like()
        dense.update(dense_block(sparse(rows), weights))
        stored_only.update_sparse(sparse_block(rows, weights))
        for key, value in dense.value().items():
            np.testing.assert_allclose(stored_only.value()[key], value, rtol=1e-6, atol=1e-12, err_msg=key)


def test_a_map_of_sparse_rows_stays_sparse_as_the_plan_says():
    rows = SparseArray(np.abs(ODD["f8"]))
    for name, step in STEPS.items():
        model = fit(step, rows, Execution(workers=1)).model
        outline = step.outlines(rows.spec)[0]
        assert isinstance(model, MapsSparse)
        assert model.keeps_zeros == outline.keeps_zeros, name
        assert (mapped_spec(rows.spec, model).density is not None) == model.keeps_zeros
        np.testing.assert_allclose(
            TransformedSource(rows, model).read_sparse(rows_span(rows)).toarray(),
            model.transform(np.abs(ODD["f8"])),
            rtol=1e-12,
        )


def rows_span(source):
    return Span(0, source.spec.n_rows)


@pytest.mark.parametrize("step", [Standardise(), NormalizeTotal(empty_rows="keep"), SelectVariance(3)])
def test_a_fit_to_sparse_rows_is_that_to_dense_rows(step):
    rows = ODD["f8"]
    weights = np.arange(len(rows)) % 3.0
    dense = fit(step, open_source(rows, weights=weights), Execution(workers=1)).model
    found = fit(step, SparseArray(rows, weights=weights), Execution(workers=2)).model
    np.testing.assert_allclose(found.transform(rows), dense.transform(rows), rtol=1e-12, atol=1e-12)


def test_the_median_of_totals_is_exact_for_weights_ties_and_equal_totals():
    rng = np.random.default_rng(4)
    totals = rng.integers(1, 9, 41).astype(float)
    weights = rng.integers(0, 4, 41).astype(float)
    rows = np.column_stack([totals - 0.5, np.full(41, 0.5)])
    found = streamdr.NormalizeTotal().fit(rows, sample_weight=weights)
    assert found.target_sum_ == np.median(np.repeat(totals, weights.astype(int)))
    equal = streamdr.NormalizeTotal().fit(np.full((7, 3), 0.1))
    assert equal.target_sum_ == 0.1 + 0.1 + 0.1
    np.testing.assert_array_equal(equal.transform(np.full((7, 3), 0.1)), 0.1)


def test_the_median_is_exact_however_few_totals_are_counted():
    """More different totals than are counted one by one: further passes narrow the range."""
    totals = np.random.default_rng(5).lognormal(8, 1, 500)
    low, high, exact = 0.0, float(np.finfo(float).max), False
    for _ in range(20):
        found = RowTotals(low, high, most=16)
        found.update(dense_block(sparse(totals[:, None])))
        low, high = found.median_range()
        exact = found.exact
        if exact:
            break
    assert exact
    assert low / 2 + high / 2 == np.median(totals)


@pytest.mark.filterwarnings("ignore:overflow")
def test_totals_that_overflow_and_rows_without_totals_are_refused():
    with pytest.raises(DataError, match="normalize_total: the totals of rows overflow"):
        streamdr.NormalizeTotal().fit(np.full((5, 3), 1e308))
    with pytest.raises(DataError, match="no row of positive weight has a positive total"):
        streamdr.NormalizeTotal().fit(np.zeros((5, 3)))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("target", [1e-30, 1e4, 1e30])
def test_totals_of_any_size_are_scaled_to_any_target(target, dtype):
    """The ratio of a total to the target may be no number of full precision, and their quotients are."""
    kind = np.finfo(dtype)
    rows = np.array([[1.0, 3], [2, 2], [0, 4]]) * np.array([[kind.tiny], [1.0], [kind.max / 8]])
    rows = rows.astype(dtype)
    shares = np.array([[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]])
    model = model_of(NormalizeTotal(target), rows)
    for found in (model.transform(rows), model.transform_sparse(sparse(rows)).toarray()):
        np.testing.assert_allclose(found, shares * target, rtol=4 * kind.eps)


def test_totals_of_sparse_rows_are_summed_in_double_precision():
    rows = np.full((3, 5000), np.float32(0.1))
    rows[1] = 0
    expected = rows.astype(float).sum(axis=1)
    np.testing.assert_allclose(row_totals(sparse(rows)), expected, rtol=1e-14)
    np.testing.assert_array_equal(row_totals(scipy.sparse.csr_array((4, 3))), 0.0)


NEGATIVE = np.array([[1.0, 2.0], [3.0, -2.0]])
BAD = [
    (Log1p(), NEGATIVE, 1, "log1p: the value -2 in column 1 is negative"),
    (NormalizeTotal(10.0), NEGATIVE * 2 - 4, 0, "normalize_total: the total is -2; it takes counts"),
    (NormalizeTotal(10.0), np.diag([1.0, 0.0]), 1, "normalize_total: the total is 0; leave out rows"),
    (NormalizeTotal(10.0), np.array([[1.0, 1], [1e308, 1e308]]), 1, "normalize_total: the total is inf"),
]


@pytest.mark.parametrize(("step", "rows", "row", "message"), BAD)
def test_an_error_names_the_step_and_the_row(step, rows, row, message, tmp_path):
    model = step.fitted(MatrixSpec(2, 2, rows.dtype)) if isinstance(step, Log1p) else model_of(step, rows)
    for mapped in (lambda: model.transform(rows), lambda: model.transform_sparse(sparse(rows))):
        with pytest.raises(RowError, match=message) as raised, ignore_overflow():
            mapped()
        assert raised.value.row == row
    many = np.concatenate([np.ones((40, 2)), rows])
    place = stored(tmp_path / "x.zarr", many, (7, 2))
    source = TransformedSource(open_source(place), model)
    with pytest.raises(DataError, match=rf"x\.zarr: row {40 + row}: {message}"):
        source.read(rows_span(source), Span(0, source.spec.n_cols))


def test_a_value_that_no_genotype_has_is_located_while_it_is_read(tmp_path):
    rows = np.random.default_rng(6).integers(0, 3, (60, 4)).astype(np.int8)
    rows[47, 2] = 9
    place = stored(tmp_path / "x.zarr", rows, (10, 2))
    with pytest.raises(DataError, match=r"x\.zarr: row 47: scale_genotypes: the value 9 in column 2 is not"):
        fit(ScaleGenotypes(), open_source(place), Execution(workers=2))
    with pytest.raises(DataError, match="sparse: row 47: scale_genotypes: the value 9 in column 2"):
        fit(ScaleGenotypes(), SparseArray(rows), Execution(workers=1))
