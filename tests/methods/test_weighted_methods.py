"""Methods other than PCA: features left out and weights equal a fit of the columns that are left, weighted.

These methods see values times their weights, in double precision. The fit of the same numbers is the same up
to rounding, so what remains to check is the way back to the units of the data.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
from fits import fit
from labelled import Grid, labelled
from sklearn import decomposition, discriminant_analysis

import streamdr
from streamdr.core.blocks import Span
from streamdr.core.method import Method
from streamdr.core.row_outputs import ROW_OUTPUTS, RowOutput
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.engine import fitting
from streamdr.engine.planner import view_and_source
from streamdr.methods.kernel_pca import KernelPCA, SparseKernelPCA
from streamdr.methods.lda import LDA
from streamdr.methods.ppca import PPCA, PPCAMixture
from streamdr.methods.som import SOM

OUTPUTS = {kind.name: kind for kind in ROW_OUTPUTS}
METHODS: dict[str, Method] = {
    "ppca": PPCA(2),
    "ppca em": PPCA(2, method="em", max_iter=30),
    "mixture": PPCAMixture(1, n_mixtures=2),
    "lda": LDA(2),
    "nystrom": KernelPCA(2, gamma=0.01, approximation="nystrom", n_landmarks=20),
    "exact": KernelPCA(2, gamma=0.01, approximation="exact", n_landmarks=20),
    "random features": KernelPCA(2, gamma=0.01, approximation="random_features", n_landmarks=20),
    "sparse": SparseKernelPCA(2, gamma=0.01),
    "som": SOM(4, 3, n_epochs=3),
}


def sources(grid: Grid, *, labels: bool) -> tuple[Source, Source]:
    """The labelled source, and the columns that are left times their weights, as a plain matrix."""
    y = np.arange(len(grid.values)) % 3 if labels else None
    one = labelled(open_source(grid.values, labels=y), (3, 4), grid.weights)
    return one, open_source(grid.sea * grid.sea_weights, labels=y)


def rows_of(found: fitting.Fitted, grid: Grid, kind: RowOutput) -> np.ndarray:
    """An output of the rows of a grid."""
    view, source = view_and_source(found.model, open_source(grid.values), kind, found.axes)
    return view.transform(source.block(Span(0, source.spec.n_rows), allow_nan=True).values)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_model_is_that_of_a_fit_to_weighted_columns(name, dtype):
    """The values lie elsewhere in memory, which BLAS rounds otherwise: by value, to 1e-9 of the largest."""
    grid, method = Grid.made(dtype=dtype), METHODS[name]
    one, other = sources(grid, labels=name == "lda")
    found, expected = (fit(method, source, workers=1) for source in (one, other))
    for field in dataclasses.fields(cast(Any, found.model)):
        value, other = (getattr(model, field.name) for model in (found.model, expected.model))
        if isinstance(value, np.ndarray | float) and not isinstance(value, str):
            largest = float(np.nanmax(np.abs(other), initial=1.0))
            np.testing.assert_allclose(value, other, rtol=0, atol=1e-9 * largest, err_msg=field.name)
        else:
            assert value == other, field.name
    assert found.axes is not None
    assert found.axes.weighted
    assert found.axes.n_left_out == 4


@pytest.mark.parametrize("name", [name for name in METHODS if name != "exact"])
def test_outputs_along_features_are_in_units_of_the_data(name):
    grid = Grid.made()
    one, other = sources(grid, labels=name == "lda")
    found, expected = (fit(METHODS[name], source, workers=1) for source in (one, other))
    weighted = grid.sea * grid.sea_weights
    for kind in ROW_OUTPUTS:
        if not kind.supported_by(type(found.model)) or (kind.name == "denoised" and "nys" not in name):
            continue
        rows = rows_of(found, grid, kind)
        plain = np.asarray(kind.of(expected.model).transform(weighted))
        if kind.columns != "feature":
            np.testing.assert_allclose(rows, plain, rtol=1e-9, atol=1e-9)
            continue
        assert rows.shape == grid.values.shape
        assert np.isnan(rows[:, grid.land]).all()
        np.testing.assert_allclose(rows[:, ~grid.land], plain / grid.sea_weights**kind.power, rtol=1e-9)


def test_lda_with_weights_is_that_of_scikit_learn():
    """Discriminants do not depend on the scale of features, so neither do classes."""
    grid, labels = Grid.made(), np.arange(83) % 3
    grid.values[:, ~grid.land] += labels[:, None] * np.linspace(0, 1, 8)
    lda = streamdr.LDA(2)
    lda.fit(labelled(grid.values, (3, 4), grid.weights), labels)
    expected = discriminant_analysis.LinearDiscriminantAnalysis().fit(grid.sea * grid.sea_weights, labels)
    np.testing.assert_array_equal(lda.predict(grid.values), expected.predict(grid.sea * grid.sea_weights))
    np.testing.assert_allclose(lda.means_[:, ~grid.land], expected.means_ / grid.sea_weights, rtol=1e-10)
    assert np.isnan(lda.means_[:, grid.land]).all()


def test_ppca_fills_missing_values_in_units_of_the_data():
    rng = np.random.default_rng(3)
    grid = Grid.made(300)
    hidden = (rng.random(grid.values.shape) < 0.1) & ~grid.land
    values = np.where(hidden, np.nan, grid.values)
    one = streamdr.PPCA(4).fit(labelled(values, (3, 4), grid.weights))
    filled = one.impute(values)
    assert np.isnan(filled[:, grid.land]).all()
    seen = ~hidden & ~grid.land
    np.testing.assert_allclose(filled[seen], values[seen], rtol=1e-14)
    spread = grid.values[:, ~grid.land].std()
    assert np.sqrt(np.mean((filled - grid.values)[hidden] ** 2)) < 0.1 * spread
    plain = streamdr.PPCA(4).fit(values[:, ~grid.land] * grid.sea_weights)
    variance = one.impute_variance(values)[:, ~grid.land] * grid.sea_weights**2
    np.testing.assert_allclose(
        variance, plain.impute_variance(values[:, ~grid.land] * grid.sea_weights), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(one.mean_[~grid.land] * grid.sea_weights, plain.mean_, rtol=1e-10)
    np.testing.assert_allclose(
        one.score_samples(values), plain.score_samples(values[:, ~grid.land] * grid.sea_weights), rtol=1e-8
    )


def test_offsets_of_a_hundred_million_deviations_keep_the_digits_of_the_data():
    """A product with a weight rounds like the data itself, to 1.5e-8 of a deviation."""
    grid = Grid.made(offset=0.0)
    shifted = grid.values + 1e8
    one = streamdr.PPCA(3).fit(labelled(shifted, (3, 4), grid.weights))
    rows = (grid.sea - grid.sea.mean(axis=0)) * grid.sea_weights
    expected = decomposition.PCA(3).fit(rows)
    likeliest = expected.explained_variance_ * 82 / 83
    np.testing.assert_allclose(one.explained_variance_, likeliest, rtol=1e-6)
