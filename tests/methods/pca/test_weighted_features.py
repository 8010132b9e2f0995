"""PCA with features left out and weights equals PCA of the columns that are left, times their weights.

Weights apply to centred values. The tolerances are those of PCA itself: 1e-10 in double precision, 1e-4 of
the largest value for products of single precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fits import bits, fit
from labelled import Grid, labelled
from sklearn import decomposition

from streamdr.data.source import Source
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel

SOLVERS = ("covariance", "gram", "krylov")


def model_of(source: Source, k: Any = 3, **parameters: Any) -> PCAModel:
    """Fit PCA with so many Krylov steps that all solvers agree."""
    found = fit(PCA(k, max_passes=12, tol=1e-13, **parameters), source, workers=1).model
    assert isinstance(found, PCAModel)
    return found


def close(one: np.ndarray, other: np.ndarray, tolerance: float) -> None:
    """Compare relative to the largest value."""
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(np.abs(other).max(), 1e-300))


def same_axes(one: np.ndarray, other: np.ndarray, tolerance: float) -> None:
    """Compare axes up to their signs."""
    close(np.abs(np.sum(one * other, axis=1)), np.ones(len(one)), tolerance)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_it_is_pca_of_weighted_centred_columns(solver, scale, dtype, tolerance):
    grid = Grid.made(dtype=dtype)
    model = model_of(labelled(grid.values, (3, 4), grid.weights), solver=solver, scale=scale)
    centred = grid.sea - grid.sea.mean(axis=0)
    deviations = centred.std(axis=0, ddof=1) if scale else 1.0
    expected = decomposition.PCA(3, svd_solver="full").fit(centred / deviations * grid.sea_weights)
    close(model.explained_variance, expected.explained_variance_, tolerance)
    close(model.explained_variance_ratio, expected.explained_variance_ratio_, tolerance)
    same_axes(model.components, expected.components_, tolerance)
    close(model.mean, grid.sea.mean(axis=0), 1e-6 if dtype == np.float32 else 1e-12)
    close(np.asarray(model.scale), deviations / grid.sea_weights, tolerance)
    close(np.asarray(model.var), centred.var(axis=0), tolerance)
    scores = expected.transform(centred / deviations * grid.sea_weights)
    close(np.abs(model.transform(grid.sea)), np.abs(scores), tolerance)
    back = expected.inverse_transform(scores) * deviations / grid.sea_weights + grid.sea.mean(axis=0)
    close(model.denoise(grid.sea), back, tolerance)
    np.testing.assert_allclose(
        model.reconstruction_error,
        model.total_variance - expected.explained_variance_.sum(),
        atol=tolerance * model.total_variance,
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_land_alone_gives_the_model_of_the_other_columns(solver, tmp_path):
    grid = Grid.made()
    model = model_of(labelled(grid.store(tmp_path), (3, 4)), solver=solver)
    expected = decomposition.PCA(3, svd_solver="full").fit(grid.sea)
    close(model.explained_variance, expected.explained_variance_, 1e-10)
    same_axes(model.components, expected.components_, 1e-10)
    assert model.scale is None, "no weights, no scale"


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_without_centring(solver):
    grid = Grid.made()
    model = model_of(labelled(grid.values, (3, 4), grid.weights), solver=solver, center=False, ddof=0)
    _, values, axes = np.linalg.svd(grid.sea * grid.sea_weights, full_matrices=False)
    close(model.singular_values, values[:3], 1e-10)
    same_axes(model.components, axes[:3], 1e-10)
    assert not model.mean.any()


@pytest.mark.parametrize("solver", SOLVERS)
def test_row_weights_and_feature_weights_together(solver):
    """Rows of weight 0 do not count, and a row of weight 2 counts twice."""
    grid = Grid.made()
    repeats = np.arange(len(grid.values)) % 3
    source = labelled(grid.values, (3, 4), grid.weights)
    source.weights = labelled(repeats.astype(float)[:, None])
    model = model_of(source, solver=solver)
    rows = np.repeat(grid.sea, repeats, axis=0)
    expected = decomposition.PCA(3, svd_solver="full").fit((rows - rows.mean(axis=0)) * grid.sea_weights)
    close(model.explained_variance, expected.explained_variance_, 1e-10)
    same_axes(model.components, expected.components_, 1e-10)


@pytest.mark.parametrize("whiten", ["pca", "zca"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_whitened_scores(solver, whiten):
    grid = Grid.made()
    model = model_of(labelled(grid.values, (3, 4), grid.weights), solver=solver, whiten=whiten)
    scores = model.transform(grid.sea)
    if whiten == "zca":
        scores = scores @ model.components.T
    close(np.cov(scores.T), np.eye(3), 1e-9)


@pytest.mark.parametrize("solver", ["covariance", "gram"])
@pytest.mark.parametrize("wanted", [0.9, None])
def test_the_number_of_components_is_that_of_the_weighted_columns(solver, wanted):
    grid = Grid.made()
    model = model_of(labelled(grid.values, (3, 4), grid.weights), wanted, solver=solver)
    weighted = (grid.sea - grid.sea.mean(axis=0)) * grid.sea_weights
    assert model.n_components == decomposition.PCA(wanted, svd_solver="full").fit(weighted).n_components_


def test_mle_sees_the_weighted_columns():
    grid = Grid.made(400)
    weighted = (grid.sea - grid.sea.mean(axis=0)) * grid.sea_weights
    model = model_of(labelled(grid.values, (3, 4), grid.weights), "mle")
    assert model.n_components == decomposition.PCA("mle").fit(weighted).n_components_


def test_the_likelihood_is_that_of_the_data():
    """The density of weighted values, times the volume that the weights take up."""
    grid = Grid.made()
    model = model_of(labelled(grid.values, (3, 4), grid.weights))
    weighted = (grid.sea - grid.sea.mean(axis=0)) * grid.sea_weights
    expected = decomposition.PCA(3).fit(weighted).score_samples(weighted) + np.log(grid.sea_weights).sum()
    np.testing.assert_allclose(model.score_samples(grid.sea), expected, rtol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [False, True])
def test_offsets_of_a_hundred_million_deviations(solver, scale):
    """Weights apply after centring: as many digits are kept as without weights."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 8)) * [5, 4, 3, 2, 1, 1, 1, 1]
    shifted = np.insert(rows + 1e8, [0, 8], np.nan, axis=1)
    weights = 0.2 + rng.random(10)
    rows = shifted[:, 1:-1] - 1e8  # what is left of the digits
    inverse = (rows.std(axis=0, ddof=1) if scale else 1.0) / weights[1:-1]
    weighted = (rows - rows.mean(axis=0)) / inverse
    expected = decomposition.PCA(3, svd_solver="full").fit(weighted)
    model = model_of(labelled(shifted, (2, 5), weights), solver=solver, scale=scale)
    close(model.explained_variance, expected.explained_variance_, 1e-9)
    back = expected.inverse_transform(expected.transform(weighted)) * inverse + rows.mean(axis=0)
    # Values near 1e8 are multiples of 1.5e-8.
    close(model.denoise(shifted[:, 1:-1]) - 1e8, back, 1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("factor", [1e-12, 1e12])
@pytest.mark.parametrize("solver", SOLVERS)
def test_tiny_and_huge_weights_only_rescale(solver, factor, dtype):
    grid = Grid.made(dtype=dtype)
    one = model_of(labelled(grid.values, (3, 4), grid.weights), solver=solver)
    other = model_of(labelled(grid.values, (3, 4), grid.weights * factor), solver=solver)
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    close(other.explained_variance / factor**2, one.explained_variance, tolerance)
    same_axes(other.components, one.components, tolerance)
    close(other.denoise(grid.sea), one.denoise(grid.sea), tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_near_zero_beside_others_of_one(solver):
    """The cosine of the latitude of a pole is 6e-17, and the weight its root."""
    grid = Grid.made(n_cols=20)
    weights = np.where(np.arange(20) % 4 == 1, 7.8e-9, 1.0)
    model = model_of(labelled(grid.values, (4, 5), weights), solver=solver)
    weighted = (grid.sea - grid.sea.mean(axis=0)) * weights[~grid.land]
    expected = decomposition.PCA(3, svd_solver="full").fit(weighted)
    close(model.explained_variance, expected.explained_variance_, 1e-10)
    same_axes(model.components, expected.components_, 1e-10)
    assert np.isfinite(model.denoise(grid.sea)).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_bytes_have_weights_and_no_missing_values(solver):
    values = np.random.default_rng(2).integers(0, 255, (60, 12)).astype(np.uint8)
    weights = np.linspace(0.0, 1.1, 12)  # the first feature has no weight
    model = model_of(labelled(values, (3, 4), weights), solver=solver)
    centred = values[:, 1:] - values[:, 1:].mean(axis=0)
    expected = decomposition.PCA(3, svd_solver="full").fit(centred * weights[1:])
    close(model.explained_variance, expected.explained_variance_, 1e-4)
    assert model.n_features == 11


@pytest.mark.parametrize("solver", ["covariance", "gram"])
def test_one_column_that_is_left(solver):
    grid = Grid.made()
    values = np.full((len(grid.values), 6), np.nan)
    values[:, 4] = grid.sea[:, 0]
    model = model_of(labelled(values, (2, 3), np.full(6, 0.5)), 1, solver=solver)
    close(model.explained_variance, np.array([grid.sea[:, 0].var(ddof=1) / 4]), 1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_ragged_chunks_and_threads_give_the_same_bits(solver, tmp_path):
    grid = Grid.made(n_rows=517, n_cols=35, dtype=np.float32)
    path = grid.store(tmp_path, (19, 9))
    found = [
        fit(PCA(3, solver=solver), labelled(path, (5, 7), grid.weights), workers=workers).model
        for workers in (1, 2, 8)
    ]
    assert bits(found[0]) == bits(found[1]) == bits(found[2])


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_row_and_constant_columns_are_refused_as_without_land(solver):
    grid = Grid.made()
    with pytest.raises(DataError, match="at least 2 rows"):
        model_of(labelled(grid.values[:1], (3, 4), grid.weights), 1, solver=solver)
    with pytest.raises(DataError, match="every column is constant"):
        model_of(labelled(np.repeat(grid.values[:1], 9, axis=0), (3, 4), grid.weights), 1, solver=solver)


def test_more_components_than_columns_that_are_left():
    grid = Grid.made()
    with pytest.raises(ParameterError, match="the data is 83 x 8: set it to 8 or fewer"):
        model_of(labelled(grid.values, (3, 4)), 9)


def test_a_constant_column_cannot_be_scaled_and_is_numbered_in_the_whole_matrix():
    grid = Grid.made()
    grid.values[:, 5] = 2.0
    for solver in SOLVERS:
        with pytest.raises(ParameterError, match="column 5 is constant"):
            model_of(labelled(grid.values, (3, 4)), scale=True, solver=solver)
