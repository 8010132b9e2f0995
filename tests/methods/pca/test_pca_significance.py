"""Which components are more than noise, and how accurate their variances are, against simulations."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from fits import bits, fit, stored
from narrowing import checked, present

import streamdr
from streamdr import plots
from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import in_memory
from streamdr.errors import ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.methods.pca.significance import broken_stick, compare, multiplets, noise_shares

EXACT: list[Literal["covariance", "gram"]] = ["covariance", "gram"]


def planted(n: int = 200, d: int = 40, k: int = 3, seed: int = 0) -> np.ndarray:
    """Noise of variance 1 with k strong directions."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(d, k)))[0]
    rows: np.ndarray = rng.normal(size=(n, k)) * np.linspace(8, 5, k) @ directions.T + rng.normal(size=(n, d))
    return rows + 100.0


def fitted(method: PCA, rows: np.ndarray, weights: np.ndarray | None = None) -> PCAModel:
    data = MatrixSpec(len(rows), rows.shape[1], rows.dtype)
    return checked(PCAModel, in_memory(method.routes(data)[0].method, rows, weights))


def simulated(n: int, d: int, number: int, *, scale: bool) -> np.ndarray:
    """The 95th percentile of the leading shares of the variance of noise, from noise itself."""
    rng, found = np.random.default_rng(99), []
    for _ in range(1000):
        rows = rng.normal(size=(n, d))
        rows -= rows.mean(axis=0)
        if scale:
            rows /= rows.std(axis=0)
        squares = np.linalg.svd(rows, compute_uv=False) ** 2
        found.append(squares[:number] / squares.sum())
    quantiles: np.ndarray = np.quantile(found, 0.95, axis=0)
    return quantiles


@pytest.mark.parametrize("shape", [(60, 12), (12, 60), (30, 30), (200, 2), (3, 40)])
def test_noise_has_the_spectrum_of_noise(shape):
    n, d = shape
    number = min(4, n - 1, d)
    got, expected = noise_shares(number, d, n - 1, 0), simulated(n, d, number, scale=False)
    np.testing.assert_allclose(got, expected, rtol=0.03)  # the error of a percentile of 200 draws


@pytest.mark.parametrize("shape", [(60, 12), (200, 20), (20, 60)])
def test_correlations_of_noise_are_close_to_it(shape):
    n, d = shape
    expected = simulated(n, d, 3, scale=True)
    np.testing.assert_allclose(noise_shares(3, d, n - 1, 0), expected, rtol=0.07)


def test_the_pieces_of_a_broken_stick():
    np.testing.assert_allclose(broken_stick(3, 3), [11 / 18, 5 / 18, 2 / 18], rtol=1e-14)
    np.testing.assert_allclose(broken_stick(2, 50), [sum(1 / j for j in range(i, 51)) / 50 for i in (1, 2)])
    sticks = np.diff(
        np.sort(np.random.default_rng(0).uniform(size=(100_000, 3)), axis=1), prepend=0, append=1
    )
    np.testing.assert_allclose(broken_stick(4, 4), np.sort(sticks, axis=1)[:, ::-1].mean(axis=0), rtol=0.01)


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("criterion", ["parallel", "broken_stick"])
@pytest.mark.parametrize("shape", [(200, 40), (60, 300)])
def test_strong_directions_are_found(solver, criterion, shape):
    rows = planted(*shape)
    model = fitted(PCA(criterion, solver=solver), rows)
    assert model.n_components == 3
    shares, noise = present(model.candidate_variance_ratio), present(model.noise_variance_ratio)
    assert (shares[:3] > noise[:3]).all()
    assert shares[3] <= noise[3]
    spectrum = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(shares, spectrum[: len(shares)] / spectrum.sum(), rtol=1e-9)
    (table,) = (table for table in model.tables() if table.title == "components and noise")
    assert [row[3] for row in table.rows] == [True] * 3 + [False] * (len(shares) - 3)
    facts = {fact.name: fact.value for fact in model.facts()}
    assert (
        facts["chosen by"] == {"parallel": "parallel analysis", "broken_stick": "the broken stick"}[criterion]
    )


def test_of_noise_parallel_analysis_keeps_the_first_component_and_says_so():
    kept = []
    for seed in range(10):
        model = fitted(PCA("parallel"), np.random.default_rng(seed).normal(size=(100, 20)))
        kept.append(model.n_components)
        above = int((present(model.candidate_variance_ratio) > present(model.noise_variance_ratio))[0])
        said = any(
            fact.value == "no component explains more than noise; the first one is kept"
            for fact in model.facts()
        )
        assert said is (above == 0)
    assert sum(k > 1 for k in kept) <= 2


def test_as_many_candidates_are_compared_as_are_needed():
    shares = np.full(100, 1 / 100)
    shares[:40] = 0.02
    found = compare("broken_stick", shares / shares.sum(), 100, 1e6, 0)
    assert found.n_above == 0
    assert len(found.shares) == 5
    steep = 0.999 * 0.95 ** np.arange(60)
    found = compare("parallel", steep / steep.sum(), 60, 1e6, 0)
    assert found.n_above < len(found.shares) == min(found.n_above + 5, 60)
    np.testing.assert_array_equal(found.noise, noise_shares(32, 60, 1e6, 0)[: len(found.noise)])


def test_a_row_of_weight_two_counts_like_two_rows():
    rows = planted()
    weights = np.random.default_rng(1).integers(1, 4, len(rows)).astype(float)
    weighted = fitted(PCA("parallel"), rows, weights)
    repeated = fitted(PCA("parallel"), np.repeat(rows, weights.astype(int), axis=0))
    assert weighted.n_components == repeated.n_components
    np.testing.assert_allclose(
        present(weighted.noise_variance_ratio), present(repeated.noise_variance_ratio), rtol=1e-12
    )
    np.testing.assert_allclose(
        present(weighted.explained_variance_error), present(repeated.explained_variance_error), rtol=1e-9
    )


@pytest.mark.parametrize(
    "rows", [np.ones((5, 1)) * np.arange(5)[:, None], np.arange(12.0).reshape(2, 6) ** 2]
)
@pytest.mark.parametrize("criterion", ["parallel", "broken_stick"])
def test_a_single_direction_is_kept(rows, criterion):
    assert fitted(PCA(criterion), rows).n_components == 1


def test_fewer_independent_rows_raise_the_level_of_noise():
    rows = planted()
    model = fitted(PCA("parallel"), rows)
    fewer = fitted(PCA("parallel", n_effective=50), rows)
    assert present(fewer.noise_variance_ratio)[0] > present(model.noise_variance_ratio)[0]
    errors, more = present(model.explained_variance_error), present(fewer.explained_variance_error)
    k = min(len(errors), len(more))
    np.testing.assert_allclose(more[:k], errors[:k] * 2, rtol=1e-12)


def test_errors_of_variances_are_those_of_repeated_samples():
    rng, spectrum, samples = np.random.default_rng(5), np.array([9.0, 4.0, 1.0]), []
    for _ in range(400):
        rows = rng.normal(size=(300, 3)) * np.sqrt(spectrum)
        samples.append(fitted(PCA(3), rows).explained_variance)
    spread = np.std(samples, axis=0)
    errors = present(fitted(PCA(3), rng.normal(size=(300, 3)) * np.sqrt(spectrum)).explained_variance_error)
    np.testing.assert_allclose(errors, spread, rtol=0.25)


def test_components_with_overlapping_error_bars_are_named():
    variances, errors = (
        np.array([10.0, 6, 5.5, 3, 2.9, 2.8, 0, 0]),
        np.array([1.0, 0.6, 0.6, 0.1, 0.1, 0.1, 0, 0]),
    )
    assert multiplets(variances, errors) == [range(1, 3), range(3, 6)]
    rng = np.random.default_rng(0)
    model = fitted(PCA(3, n_effective=200), rng.normal(size=(500, 6)) * np.sqrt([16.0, 4, 4, 1, 1, 1]))
    assert model.multiplets == [range(1, 3)]
    assert {fact.name: fact.value for fact in model.facts()}["not separated"] == "2-3"
    (table,) = (table for table in model.tables() if table.title == "errors of the variances")
    assert [row[3] for row in table.rows] == ["", "2-3", "2-3"]


def test_rotated_components_have_no_error_of_an_eigenvalue():
    model = fitted(PCA(3, rotation="varimax"), planted())
    assert model.explained_variance_error is None
    assert "errors of the variances" not in [table.title for table in model.tables()]


def test_the_picture_has_error_bars():
    model = fitted(PCA(3), planted())
    (axes,) = plots.explained_variance(model).axes
    errors = 100 * present(model.explained_variance_error) / model.total_variance
    bars: Any = next(each for each in axes.containers if each.get_label() == "error")
    segments = bars.lines[2][0].get_segments()
    np.testing.assert_allclose([high - low for (_, low), (_, high) in segments], 2 * errors, rtol=1e-9)
    (plain,) = plots.explained_variance(fitted(PCA(3, rotation="varimax"), planted())).axes
    assert "error" not in [each.get_label() for each in plain.containers]


@pytest.mark.parametrize("solver", EXACT)
def test_another_criterion_reads_nothing_that_is_remembered(tmp_path, solver):
    path, ledger = stored(tmp_path / "x.zarr", planted()), tmp_path / "ledger"
    first = fit(PCA("parallel", solver=solver), path, ledger=ledger)
    assert first.bytes_read > 0
    again = fit(PCA("broken_stick", solver=solver, n_effective=80), path, ledger=ledger)
    assert again.bytes_read == 0
    assert bits(first.model) == bits(fit(PCA("parallel", solver=solver), path).model)


def test_a_model_keeps_what_was_compared(tmp_path):
    estimator = streamdr.PCA("parallel", n_effective=120.5).fit(planted())
    estimator.save(tmp_path / "model.zarr")
    assert bits(streamdr.load_model(tmp_path / "model.zarr").model_) == bits(estimator.model_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": "kaiser"}, "'kaiser' is not 'mle', 'parallel' or 'broken_stick'"),
        (
            {"n_components": "parallel", "solver": "krylov"},
            "finds a given number of components, not 'parallel'",
        ),
        ({"n_components": 2, "n_effective": 1.0}, "1.0 is not more than 1"),
        ({"n_components": 2, "n_effective": "many"}, "'many' is not"),
    ],
)
def test_impossible_criteria(parameters, message):
    with pytest.raises(ParameterError, match=message):
        streamdr.PCA(**parameters).fit(planted())
