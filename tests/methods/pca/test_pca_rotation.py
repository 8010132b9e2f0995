"""Rotated components against a direct computation, and against identities of factor analysis."""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal

import numpy as np
import pytest
from fits import bits, fit, stored
from narrowing import checked, present

import streamdr
from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import in_memory
from streamdr.errors import ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.testing import check_method, hostile_data

SOLVERS: list[Literal["covariance", "gram", "krylov"]] = ["covariance", "gram", "krylov"]
ROTATIONS: list[dict[str, Any]] = [
    {"rotation": "varimax"},
    {"rotation": "promax"},
    {"rotation": "promax", "rotation_power": 2},
]


def factors(n: int = 200, d: int = 32, k: int = 4, noise: float = 0.2, seed: int = 0) -> np.ndarray:
    """Rows of k factors, each of which loads on features of its own."""
    rng = np.random.default_rng(seed)
    loadings = np.zeros((k, d))
    for number in range(k):
        loadings[number, number * d // k : (number + 1) * d // k] = rng.uniform(1, 2, d // k)
    scores = rng.normal(size=(n, k)) * np.linspace(2, 1, k)
    rows: np.ndarray = scores @ loadings + noise * rng.normal(size=(n, d)) + 5
    return rows


def fitted(method: PCA, rows: np.ndarray, weights: np.ndarray | None = None) -> PCAModel:
    """The model of a method's first route, for features with weights if there are any."""
    data = MatrixSpec(len(rows), rows.shape[1], rows.dtype, feature_weights=weights)
    method = checked(PCA, method.routes(data)[0].method)
    if weights is None:
        return checked(PCAModel, in_memory(method, rows))
    passes = method.passes(data)
    request = next(passes)
    while True:
        full = request.empty.empty_like()
        full.update(Block(Span(0, rows.shape[request.axis == "columns"]), rows))
        try:
            request = passes.send(full)
        except StopIteration as finished:
            return checked(PCAModel, finished.value)


def loadings_of(model: PCAModel) -> np.ndarray:
    """Components times the roots of their variances, one column per component."""
    found: np.ndarray = model.components.T * np.sqrt(model.explained_variance)
    return found


def normalised(loadings: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = loadings / np.linalg.norm(loadings, axis=1, keepdims=True)
    return scaled


def varimax_criterion(loadings: np.ndarray) -> float:
    return float((normalised(loadings) ** 2).var(axis=0).sum())


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_rotation_of_two_components_raises_the_varimax_criterion(solver):
    rows = np.random.default_rng(1).gamma(1.0, size=(80, 40)) * np.linspace(1, 3, 40)
    loadings = loadings_of(fitted(PCA(6, solver=solver, rotation="varimax"), rows))
    reached = varimax_criterion(loadings)
    assert reached > varimax_criterion(loadings_of(fitted(PCA(6, solver=solver), rows)))
    for pair in combinations(range(6), 2):
        for angle in np.concatenate([np.linspace(-np.pi / 4, np.pi / 4, 91), [-1e-3, 1e-3]]):
            turned = loadings.copy()
            cos, sin = np.cos(angle), np.sin(angle)
            turned[:, pair] = turned[:, pair] @ np.array([[cos, -sin], [sin, cos]])
            assert varimax_criterion(turned) <= reached * (1 + 1e-6)


def test_varimax_finds_factors_that_load_on_features_of_their_own():
    rows = factors(2000, noise=0.05)
    model = fitted(PCA(4, rotation="varimax"), rows)
    inside = (model.components.reshape(4, 4, 8) ** 2).sum(axis=2)  # of each component, by factor
    assert sorted(inside.argmax(axis=1)) == [0, 1, 2, 3]
    assert inside.max(axis=1).min() > 0.98


@pytest.mark.parametrize("power", [2.0, 4.0])
def test_promax_is_the_least_squares_fit_to_powers_of_varimax(power):
    rows = factors()
    upright = loadings_of(fitted(PCA(4, rotation="varimax"), rows))
    model = fitted(PCA(4, rotation="promax", rotation_power=power), rows)
    scaled = normalised(upright)
    target = scaled / np.abs(scaled).max(axis=0)
    target = np.sign(target) * np.abs(target) ** power
    matrix = np.linalg.lstsq(scaled, target, rcond=None)[0]
    matrix = matrix * np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
    expected = upright @ matrix
    expected = expected[:, np.argsort(-(expected**2).sum(axis=0))]
    got = loadings_of(model)
    expected *= np.sign((expected * got).sum(axis=0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("parameters", ROTATIONS)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_and_loadings_describe_the_same_rows_and_the_same_covariance(
    parameters, solver, scale, weighted
):
    rows = factors()
    weights = np.linspace(0.5, 1.5, rows.shape[1]) if weighted else None
    same: dict[str, Any] = {"scale": scale, "solver": solver, "tol": 0.0, "max_passes": 20}
    plain = fitted(PCA(4, **same), rows, weights)
    model = fitted(PCA(4, **same, **parameters), rows, weights)
    scores = model.transform(rows)
    # Reconstructions and likelihoods do not depend on the rotation.
    np.testing.assert_allclose(model.inverse_transform(scores), plain.denoise(rows), rtol=0, atol=1e-11)
    np.testing.assert_array_equal(model.denoise(rows), plain.denoise(rows))
    np.testing.assert_array_equal(model.get_covariance(), plain.get_covariance())
    np.testing.assert_array_equal(model.get_precision(), plain.get_precision())
    np.testing.assert_array_equal(model.score_samples(rows), plain.score_samples(rows))
    np.testing.assert_array_equal(model.squared_errors(rows), plain.squared_errors(rows))
    # Rotated scores have the variances and the correlation that the model states.
    correlation = present(model.score_correlation)
    np.testing.assert_allclose(np.diag(correlation), 1.0, rtol=1e-12)
    deviations = np.sqrt(model.explained_variance)
    np.testing.assert_allclose(
        np.cov(scores.T),
        correlation * np.outer(deviations, deviations),
        rtol=0,
        atol=1e-9 * deviations[0] ** 2,
    )
    # A Phi A' is the covariance of the principal axes: the fundamental theorem of factor analysis.
    loadings, before = loadings_of(model), loadings_of(plain)
    np.testing.assert_allclose(
        loadings @ correlation @ loadings.T, before @ before.T, rtol=0, atol=1e-11 * (before**2).max()
    )
    np.testing.assert_allclose(np.linalg.norm(model.components, axis=1), 1.0, rtol=1e-12)
    assert (np.diff(model.explained_variance) <= 0).all()
    leading = np.abs(model.components).argmax(axis=1)
    assert (model.components[np.arange(4), leading] > 0).all()
    if parameters["rotation"] == "varimax":
        np.testing.assert_allclose(correlation, np.eye(4), rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.explained_variance.sum(), plain.explained_variance.sum(), rtol=1e-12)


@pytest.mark.parametrize("parameters", ROTATIONS)
def test_components_after_the_rotated_ones_stay_principal_axes(parameters):
    rows = factors()
    plain = fitted(PCA(6), rows)
    model = fitted(PCA(6, n_rotated=4, **parameters), rows)
    leading = fitted(PCA(4, **parameters), rows)
    np.testing.assert_array_equal(model.components[4:], plain.components[4:])
    np.testing.assert_allclose(model.components[:4], leading.components, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.transform(rows)[:, 4:], plain.transform(rows)[:, 4:], rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(rows)), plain.denoise(rows), rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("seed", range(3))
def test_solvers_agree(seed):
    rows = factors(60, 48, seed=seed)
    models = [
        fitted(PCA(4, solver=solver, rotation="promax", tol=0, max_passes=20), rows) for solver in SOLVERS
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.components, models[0].components, rtol=0, atol=1e-9)
        np.testing.assert_allclose(model.explained_variance, models[0].explained_variance, rtol=1e-9)


def test_whitened_scores_of_varimax_are_uncorrelated_with_unit_variance():
    rows = factors()
    model = fitted(PCA(4, rotation="varimax", whiten="pca"), rows)
    scores = model.transform(rows)
    np.testing.assert_allclose(np.cov(scores.T), np.eye(4), rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        model.inverse_transform(scores), fitted(PCA(4), rows).denoise(rows), rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_another_rotation_reads_nothing(tmp_path, solver):
    path, ledger = stored(tmp_path / "x.zarr", factors()), tmp_path / "ledger"
    assert fit(PCA(4, solver=solver), path, ledger=ledger).bytes_read > 0
    for parameters in (*ROTATIONS, {"rotation": "varimax", "n_rotated": 2}):
        again = fit(PCA(4, solver=solver, **parameters), path, ledger=ledger)
        assert again.bytes_read == 0
        assert bits(again.model) == bits(fit(PCA(4, solver=solver, **parameters), path).model)


@pytest.mark.parametrize("parameters", ROTATIONS)
def test_a_rotated_model_is_saved_and_loaded(tmp_path, parameters):
    estimator = streamdr.PCA(5, n_rotated=4, **parameters).fit(factors())
    estimator.save(tmp_path / "model.zarr")
    loaded = streamdr.load_model(tmp_path / "model.zarr")
    assert bits(loaded.model_) == bits(estimator.model_)
    np.testing.assert_array_equal(loaded.transform(factors()), estimator.transform(factors()))


@pytest.mark.parametrize("parameters", ROTATIONS)
@pytest.mark.parametrize("kind", ["kind", "float32", "bytes", "big offset", "float32 offset"])
def test_laws_of_rotation(parameters, kind):
    check_method(PCA(3, **parameters), hostile_data(kind, 60, 8))


@pytest.mark.parametrize("parameters", ROTATIONS)
def test_features_without_loadings_do_not_count(parameters):
    rows = factors()
    wide = np.hstack([rows, np.full((len(rows), 3), 7.0), 1e-30 * rows[:, :2]])
    alone, model = (fitted(PCA(4, **parameters), values) for values in (rows, wide))
    found = model.components[:, : rows.shape[1]]
    # The criterion is a variance over features: those without loadings change it, but they do not turn it.
    assert np.isfinite(model.components).all()
    np.testing.assert_allclose(np.abs(np.einsum("ij,ij->i", found, alone.components)), 1.0, atol=1e-2)
    np.testing.assert_allclose(model.components[:, rows.shape[1] :], 0.0, atol=1e-12)


def test_units_of_the_data_do_not_matter():
    rows = factors()
    model = fitted(PCA(4, rotation="promax"), rows)
    for unit in (1e-12, 1e9):
        other = fitted(PCA(4, rotation="promax"), rows * unit)
        np.testing.assert_allclose(other.components, model.components, rtol=0, atol=1e-9)
        np.testing.assert_allclose(other.explained_variance, model.explained_variance * unit**2, rtol=1e-9)


def test_a_single_component_is_not_turned():
    rows = factors()
    assert bits(fitted(PCA(1, rotation="varimax"), rows)) == bits(fitted(PCA(1), rows))


def test_correlated_components_are_reported_without_a_sum_of_their_shares():
    model = fitted(PCA(4, rotation="promax"), factors())
    facts = {fact.name: fact.value for fact in model.facts()}
    assert facts["rotation"] == "promax of 4 components"
    assert facts["explained together"] == pytest.approx(1 - model.reconstruction_error / model.total_variance)
    assert "explained" not in facts
    (table,) = (table for table in model.tables() if table.title == "explained variance")
    assert [column.name for column in table.columns] == ["component", "variance", "ratio"]
    assert "share" in table.about
    assert model.summary()["rotation"] == "promax"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rotation": "quartimax"}, "'quartimax' is not 'varimax', 'promax' or None"),
        (
            {"rotation": "varimax", "n_rotated": 4},
            "4 components cannot be rotated where there are 3: set it to 3",
        ),
        ({"rotation": "varimax", "n_rotated": 1}, "1 is not at least 2"),
        ({"n_rotated": 2}, "rotation is not set"),
        ({"rotation": "promax", "rotation_power": 1.0}, "1.0 is not more than 1"),
        ({"rotation": "promax", "whiten": "pca"}, "scores of promax are correlated"),
        ({"rotation": "varimax", "whiten": "zca"}, "zca whitening is the same for rotated components"),
    ],
)
def test_impossible_rotations(parameters, message):
    with pytest.raises(ParameterError, match=message):
        streamdr.PCA(3, **parameters).fit(factors())


def test_more_rotated_components_than_a_fraction_of_the_variance_needs():
    with pytest.raises(ParameterError, match="9 components cannot be rotated where there are 4"):
        streamdr.PCA(0.99, rotation="varimax", n_rotated=9).fit(factors(noise=1e-3))


def test_components_without_variance_cannot_be_rotated():
    rows = factors(noise=0.0)
    with pytest.raises(ParameterError, match="the data has rank 4"):
        streamdr.PCA(6, rotation="varimax").fit(rows)
    assert streamdr.PCA(6, rotation="varimax", n_rotated=4).fit(rows).rank_ == 4
