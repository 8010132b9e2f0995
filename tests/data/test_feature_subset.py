"""Features that are never observed are left out; the others are read as they are, or times their weights."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from fits import fit, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import Grid, axes, labelled

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.feature_subset import FeatureSubset
from streamdr.data.features import axes_of, features_for
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.methods.lda import LDA
from streamdr.methods.mds import ClassicalMDS
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA

EVERY = "all 12 features are missing in the first rows; check the variable and its fill value"


def subset(source, kept, weights=None, *, weighted=False, **given) -> FeatureSubset:
    chosen = axes((source.spec.n_cols,), weights).keeping(np.asarray(kept, bool))
    return FeatureSubset(source, type(chosen)(**{**vars(chosen), "weighted": weighted}), **given)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_region_has_the_kept_columns(data):
    n_cols = data.draw(st.integers(1, 12))
    kept = data.draw(st.lists(st.booleans(), min_size=n_cols, max_size=n_cols).filter(any))
    weighted = data.draw(st.booleans())
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.uint8, np.int64, ">f4"]))
    values = np.arange(7 * n_cols).reshape(7, n_cols).astype(dtype)
    weights = np.linspace(0.5, 2.0, n_cols) if weighted else None
    part = subset(open_source(values), kept, weights, weighted=weighted)
    expected = values[:, kept] if weights is None else values[:, kept] * weights[kept]
    start = data.draw(st.integers(0, part.spec.n_cols - 1))
    cols = Span(start, data.draw(st.integers(start + 1, part.spec.n_cols)))
    rows = Span(data.draw(st.integers(0, 3)), data.draw(st.integers(4, 7)))
    for read in (part.read, part.read_scratch):
        found = read(rows, cols)
        assert found.dtype == part.spec.dtype
        np.testing.assert_array_equal(found, expected[rows.slice, cols.slice])


def test_values_are_weighted_in_double_precision():
    values = np.array([[1 + 2**-20, 3.0]], np.float32)
    part = subset(open_source(values), [True, False], np.array([0.1, 1.0]), weighted=True)
    assert part.read(Span(0, 1), Span(0, 1))[0, 0] == (1 + 2**-20) * 0.1


def test_consecutive_columns_read_every_stored_column_once():
    part = subset(open_source(np.zeros((3, 9))), [0, 0, 1, 1, 0, 1, 0, 1, 0])
    around = [part._around(cols) for cols in Span(0, 4).split(2)]
    assert around == [Span(0, 5), Span(5, 9)]


def test_its_pickle_reads_the_same(tmp_path):
    grid = Grid.made()
    part = features_for(PCA(2), labelled(grid.store(tmp_path), (3, 4), grid.weights))
    again = pickle.loads(pickle.dumps(part))
    region = Span(3, 40), Span(1, 7)
    np.testing.assert_array_equal(again.read(*region), part.read(*region))
    assert again.identity == part.identity


def test_its_name_in_the_ledger_depends_on_what_it_reads():
    source = open_source(np.zeros((3, 4)))
    weights = np.array([1.0, 2, 3, 4])
    names = {
        subset(source, [1, 1, 1, 1]).identity,
        subset(source, [1, 1, 1, 1], weights).identity,  # the method applies them
        subset(source, [1, 1, 1, 0]).identity,
        subset(source, [1, 1, 1, 0], unobserved=np.array([0, 0, 0, 1], bool)).identity,
        subset(source, [1, 1, 1, 0], weights, weighted=True).identity,
        subset(source, [1, 1, 1, 0], weights + 1, weighted=True).identity,
    }
    assert len(names) == 5
    assert source.identity in names


def test_land_is_left_out_and_positions_are_those_of_the_whole(tmp_path):
    grid = Grid.made()
    part = features_for(PCA(2), labelled(grid.store(tmp_path), (3, 4)))
    assert part.axes is not None
    np.testing.assert_array_equal(part.axes.kept, ~grid.land)
    assert (part.axes.n_kept, part.axes.n_left_out) == (8, 4)
    assert part.described_column(0) == "column 1 (lat=-80.0, lon=-26.666666666666664)"


def test_data_that_is_all_observed_is_read_as_it_is():
    source = labelled(np.ones((4, 6)))
    assert features_for(PCA(2), source) is source
    assert features_for(PCA(2), labelled(np.ones((4, 6), np.uint8))).name == source.name


def test_a_plain_matrix_keeps_all_columns():
    """A column of a table without values is more likely a mistake."""
    grid = Grid.made()
    with pytest.raises(MissingValuesError, match=r"nan at row 0, column 0 .*set min_observed to leave out"):
        fit(PCA(2), open_source(grid.values))


def test_axes_of_a_plain_matrix_leave_out_what_is_observed_too_rarely():
    grid = Grid.made()
    source = open_source(grid.values)
    source.axes = type(axes((12,)))(**{**vars(axes_of(source)), "min_observed": 0.5})
    found = fit(PCA(2), source, workers=1)
    assert found.axes is not None
    assert found.axes.dims == ("feature",)
    np.testing.assert_array_equal(found.axes.kept, ~grid.land)


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_a_feature_that_is_observed_later_is_refused(tmp_path, solver):
    grid = Grid.made(200)
    grid.values[150, 4] = grid.values[170, [3]] = 1.0
    message = (
        r"x\.zarr: column 4 \(lat=0\.0, lon=-80\.0\) has a value in row 150, but none in the first rows "
        r"\(2 such features in rows .*\): it is missing in some rows only; use the method ppca, .*"
        r"min_observed"
    )
    with pytest.raises(MissingValuesError, match=message):
        fit(PCA(2, solver=solver), labelled(grid.store(tmp_path, (100, 12)), (3, 4)), workers=1)


def test_a_feature_that_is_missing_in_some_rows_is_refused(tmp_path):
    grid = Grid.made()
    grid.values[[7, 9], 5] = np.nan
    message = (
        r"x\.zarr: nan at row 7, column 5 \(lat=0\.0, lon=-26\.6\d*\) \(2 such values in rows 0-82\); .*"
        r"method ppca.*min_observed"
    )
    with pytest.raises(MissingValuesError, match=message):
        fit(PCA(2), labelled(grid.store(tmp_path, (83, 12)), (3, 4)), workers=1)


def test_a_day_without_values_is_refused_with_its_row():
    grid = Grid.made()
    grid.values[0] = np.nan
    with pytest.raises(MissingValuesError, match=r"nan at row 0, column 1 \(lat=-80.0, .*\) \(8 such values"):
        fit(PCA(2), labelled(grid.values, (3, 4)), workers=1)


@pytest.mark.parametrize("observed_later", [False, True])
def test_first_rows_without_any_value_are_refused(observed_later):
    values = np.full((100, 12), np.nan)
    if observed_later:
        values[80:] = 1.0
    with pytest.raises(DataError, match=EVERY + ", leave out these rows, or use the method ppca"):
        fit(PCA(2), labelled(values, (3, 4)), workers=1)


def test_a_feature_of_weight_zero_is_left_out_whatever_it_holds():
    grid = Grid.made()
    weights = np.where(np.arange(12) == 5, 0.0, grid.weights)
    grid.values[3, 5] = np.nan
    found = fit(PCA(2), labelled(grid.values, (3, 4), weights), workers=1)
    assert found.axes is not None
    np.testing.assert_array_equal(found.axes.kept, ~grid.land & (np.arange(12) != 5))


def test_land_may_have_no_weight():
    grid = Grid.made()
    weights = np.where(grid.land, np.nan, grid.weights)
    assert fit(PCA(2), labelled(grid.values, (3, 4), weights), workers=1).model.n_features == 8


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_impossible_weights(bad):
    weights = np.array([1.0, bad, 2.0, bad])
    message = rf"feature_weights: station=-26.* has weight {bad} \(2 such features\); weights must be finite"
    with pytest.raises(ParameterError, match=message):
        fit(PCA(2), labelled(np.eye(4), weights=weights))


def test_no_feature_with_a_weight():
    with pytest.raises(DataError, match="no observed feature has a positive weight"):
        fit(PCA(2), labelled(np.eye(4), weights=np.zeros(4)))


@pytest.mark.parametrize(
    ("wish", "given"),
    [
        ("feature_weights", {"weights": np.ones(4)}),
        ("min_observed", {"min_observed": 0.5}),
        ("balance_variables", {"balanced": True}),
    ],
)
def test_a_method_without_weights_of_features_refuses_them(wish, given):
    with pytest.raises(ParameterError, match=rf"{wish}: classical_mds cannot leave out or weigh features"):
        fit(ClassicalMDS(2), labelled(np.eye(4), **given))


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan])
def test_min_observed_is_a_share(share):
    with pytest.raises(ParameterError, match=r"min_observed: .* is not a share of the rows, from 0 to 1"):
        fit(PCA(2), labelled(np.eye(4), min_observed=share))


def test_rows_have_their_weights_and_labels(tmp_path):
    grid = Grid.made()
    source = labelled(grid.store(tmp_path), (3, 4))
    source.weights = open_source(np.arange(83.0)[:, None])
    source.labels = open_source((np.arange(83) % 2)[:, None])
    block = features_for(LDA(1), source).block(Span(5, 9))
    np.testing.assert_array_equal(block.values, grid.sea[5:9])
    assert block.weights is not None
    assert block.labels is not None
    assert (block.weights.tolist(), block.labels.tolist()) == ([5, 6, 7, 8], [1, 0, 1, 0])


def test_the_overhead_covers_the_columns_that_are_read():
    part = subset(open_source(np.zeros((3, 1000))), np.arange(1000) % 500 == 499)
    stored_bytes = 50 * 1000 * 8
    assert part.overhead(50, 2) >= stored_bytes
    assert part.overhead(50, 1) >= stored_bytes / 2


def test_probabilistic_pca_leaves_out_land_only_if_no_row_has_it(tmp_path):
    grid = Grid.made(200)
    complete = fit(PPCA(2), labelled(stored(tmp_path / "a.zarr", grid.values), (3, 4)), workers=1)
    assert complete.axes is not None
    np.testing.assert_array_equal(complete.axes.kept, ~grid.land)
    grid.values[190, 4] = 7.0
    later = fit(PPCA(2), labelled(stored(tmp_path / "b.zarr", grid.values), (3, 4)), workers=1)
    assert later.axes is not None
    np.testing.assert_array_equal(later.axes.kept, ~grid.land | (np.arange(12) == 4))
