"""The block bootstrap against a direct one in memory, with the same draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from fits import bits, fit, stored
from narrowing import checked, present

import streamdr
from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.method import in_memory
from streamdr.errors import MemoryLimitError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.bootstrap import block_rows, draws
from streamdr.methods.pca.model import PCAModel
from streamdr.testing import HOSTILE, check_method, check_passes, hostile_data

SOLVERS: list[Literal["covariance", "gram", "krylov"]] = ["covariance", "gram", "krylov"]


class Bootstrapped(NamedTuple):
    error: np.ndarray
    interval: np.ndarray
    congruence: np.ndarray
    sign: np.ndarray


def sample(n: int = 300, d: int = 12, seed: int = 0) -> np.ndarray:
    """Rows with a few leading directions, of which two have nearly the same variance."""
    rng = np.random.default_rng(seed)
    spectrum = np.append([4.0, 3.5, 2.0, 1.9], np.linspace(1, 0.2, d - 4))
    directions = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows: np.ndarray = (rng.normal(size=(n, d)) * spectrum) @ directions + 50.0
    return rows


def bootstrap(k: int = 4, **parameters: Any) -> PCA:
    """PCA with a bootstrap, by krylov to convergence."""
    return replace(PCA(k, n_bootstrap=60, max_passes=20, tol=0.0), **parameters)


def fitted(method: PCA, rows: np.ndarray, weights: np.ndarray | None = None) -> PCAModel:
    data = MatrixSpec(len(rows), rows.shape[1], rows.dtype)
    return checked(PCAModel, in_memory(method.routes(data)[0].method, rows, weights))


def found(model: PCAModel) -> Bootstrapped:
    return Bootstrapped(
        present(model.bootstrap_error),
        present(model.bootstrap_interval),
        present(model.bootstrap_congruence),
        present(model.bootstrap_sign),
    )


def direct(method: PCA, model: PCAModel, rows: np.ndarray, weights: np.ndarray | None = None) -> Bootstrapped:
    """The same bootstrap by an SVD of all rows of each draw."""
    n = len(rows)
    weights = np.ones(n) if weights is None else weights
    owners = np.arange(n) // block_rows(method, n)
    per_block = np.bincount(owners, weights)
    counts = np.zeros((method.n_bootstrap, len(per_block)))
    counts[:, per_block > 0] = draws(per_block[per_block > 0], method)
    share = (model.n_samples - model.ddof) / model.n_samples
    k = model.n_components
    leading = np.abs(model.components).argmax(axis=1)
    variances, congruences, signs = [], [], []
    for count in counts:
        often = count[owners] * weights
        mean = often @ rows / often.sum() if model.center else 0.0
        drawn = (rows - mean) * np.sqrt(often)[:, None] / (1.0 if model.scale is None else model.scale)
        _, singular, axes = np.linalg.svd(drawn, full_matrices=False)
        own = np.einsum("ij,ij->i", axes[:k], model.components)
        within = axes[:k] @ model.components.T @ model.components
        variances.append(singular[:k] ** 2 / (share * often.sum()))
        congruences.append(np.abs(own))
        signs.append(np.sign(own) * within[np.arange(k), leading] > 0)
    return Bootstrapped(
        np.std(variances, axis=0, ddof=1),
        np.percentile(variances, [2.5, 97.5], axis=0),
        np.mean(congruences, axis=0),
        np.mean(signs, axis=0),
    )


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_where_all_directions_are_followed_it_is_the_direct_bootstrap(solver, scale, center, weighted):
    rows = sample()
    weights = np.random.default_rng(1).integers(0, 3, len(rows)).astype(float) if weighted else None
    method = bootstrap(solver=solver, scale=scale, center=center, bootstrap_rows=7)
    model = fitted(method, rows, weights)
    for got, expected in zip(found(model), direct(method, model, rows, weights), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_where_some_are_followed_it_is_close_to_the_direct_bootstrap(solver):
    rows = sample(400, 150)
    method = bootstrap(solver=solver, n_bootstrap=100)
    model = fitted(method, rows)
    got, expected = found(model), direct(method, model, rows)
    np.testing.assert_allclose(got.error, expected.error, rtol=0.03)
    np.testing.assert_allclose(got.interval, expected.interval, rtol=0.02)
    np.testing.assert_allclose(got.congruence, expected.congruence, atol=0.02)
    np.testing.assert_allclose(got.sign, expected.sign, atol=0.03)
    wider = fitted(replace(method, n_oversamples=60), rows)
    assert (
        np.abs(found(wider).error / expected.error - 1).max() < np.abs(got.error / expected.error - 1).max()
    )


def test_solvers_agree_on_the_same_draws():
    rows = sample(100, 60)
    first, *others = (found(fitted(bootstrap(solver=solver), rows)) for solver in SOLVERS)
    for other in others:
        for got, expected in zip(other, first, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_errors_are_those_of_repeated_samples_of_independent_rows():
    spectrum = np.array([9.0, 4.0, 1.0, 0.5])
    rng = np.random.default_rng(3)
    variances = [
        fitted(PCA(2), rng.normal(size=(800, 4)) * np.sqrt(spectrum)).explained_variance for _ in range(300)
    ]
    model = fitted(
        bootstrap(2, n_bootstrap=400, bootstrap_rows=4), rng.normal(size=(800, 4)) * np.sqrt(spectrum)
    )
    np.testing.assert_allclose(found(model).error, np.std(variances, axis=0), rtol=0.25)
    np.testing.assert_allclose(found(model).error, present(model.explained_variance_error), rtol=0.25)


def test_blocks_longer_than_the_memory_of_a_series_show_its_larger_errors():
    rng = np.random.default_rng(4)
    series = np.empty((4000, 3))
    series[0] = 0
    for day in range(1, 4000):
        series[day] = 0.95 * series[day - 1] + rng.normal(size=3) * [2.0, 1.0, 0.5]
    long, short = (found(fitted(bootstrap(1, bootstrap_rows=n, n_bootstrap=300), series)) for n in (100, 1))
    independent = 4000 * (1 - 0.95**2) / (1 + 0.95**2)
    expected = present(fitted(PCA(1, n_effective=independent), series).explained_variance_error)
    assert long.error > 2.5 * short.error
    np.testing.assert_allclose(long.error, expected, rtol=0.5)


def test_components_that_are_not_separated_are_not_stable():
    rows = np.random.default_rng(5).normal(size=(300, 6)) * np.sqrt([30.0, 8, 8, 1, 1, 1])
    stable = found(fitted(bootstrap(3, n_bootstrap=300, bootstrap_rows=1), rows))
    assert stable.congruence[0] > 0.99
    assert stable.sign[0] == 1
    assert (stable.congruence[1:] < 0.98).all()


def test_repeated_blocks_have_no_spread():
    rows = np.tile(sample(10, 6), (20, 1))
    model = fitted(bootstrap(3, bootstrap_rows=10), rows)
    np.testing.assert_allclose(found(model).error, 0.0, atol=1e-9 * model.explained_variance[0])
    np.testing.assert_allclose(found(model).interval, np.tile(model.explained_variance, (2, 1)), rtol=1e-9)
    np.testing.assert_allclose(found(model).congruence, 1.0, rtol=1e-9)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("solver", SOLVERS)
def test_on_hostile_data(kind, solver):
    rows = hostile_data(kind, 60, 8)
    method = bootstrap(3, solver=solver, bootstrap_rows=7, n_bootstrap=20)
    model = fitted(method, rows)
    expected = direct(method, model, rows.astype(np.float64))
    single = rows.dtype.itemsize <= 2 or rows.dtype == np.float32
    tolerance = (1e-5 if single else 1e-9) * model.explained_variance[0]
    np.testing.assert_allclose(found(model).error, expected.error, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found(model).interval, expected.interval, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["kind", "float32", "bytes", "big offset"])
def test_laws(kind):
    check_method(bootstrap(3, n_bootstrap=20), hostile_data(kind, 60, 8))


def test_laws_of_the_accumulators():
    assert "block_products" in check_passes(bootstrap(3, n_bootstrap=20), hostile_data("kind", 30, 8))


def test_a_constant_row_block_and_fewer_rows_than_components():
    rows = sample(6, 8)
    model = fitted(bootstrap(5, solver="covariance", bootstrap_rows=1), rows)
    assert np.isfinite(np.concatenate([array.ravel() for array in found(model)])).all()
    for got, expected in zip(
        found(model)[:2], direct(bootstrap(5, bootstrap_rows=1), model, rows)[:2], strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9 * model.explained_variance[0])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(300, 12), (40, 90)])
def test_the_model_is_that_without_a_bootstrap(solver, shape):
    rows = sample(*shape)
    plain = fitted(replace(bootstrap(solver=solver), n_bootstrap=0), rows)
    model = fitted(bootstrap(solver=solver), rows)
    own = {"n_bootstrap", "n_bootstrap_blocks"}
    same = {name: value for name, value in bits(model).items() if not name.startswith("bootstrap")}
    assert {**same, **dict.fromkeys(own)} == {
        name: value for name, value in bits(plain).items() if not name.startswith("bootstrap")
    }


def test_of_many_components_the_leading_fifty_are_followed():
    rows = np.random.default_rng(0).normal(size=(200, 70))
    model = fitted(PCA(n_bootstrap=10, solver="covariance"), rows)
    assert model.n_components == 70
    assert found(model).error.shape == (50,)
    assert found(model).interval.shape == (2, 50)


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_takes_one_more_pass_and_other_draws_read_nothing(tmp_path, solver):
    rows = sample(400, 20)
    path, ledger = stored(tmp_path / "x.zarr", rows), tmp_path / "ledger"
    method = bootstrap(solver=solver)
    fit(replace(method, n_bootstrap=0), path, ledger=ledger)
    first = fit(method, path, ledger=ledger)
    assert first.bytes_read == (0 if solver == "gram" else rows.nbytes)
    again = fit(replace(method, n_bootstrap=100), path, ledger=ledger)
    assert again.bytes_read == 0
    assert checked(PCAModel, again.model).n_bootstrap == 100
    assert bits(first.model) == bits(fit(method, path).model)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_bits_do_not_depend_on_the_number_of_workers(tmp_path, solver):
    path = stored(tmp_path / "x.zarr", sample(400, 20))
    one, three = (fit(bootstrap(solver=solver, bootstrap_rows=33), path, workers=n) for n in (1, 3))
    assert bits(one.model) == bits(three.model)


def test_blocks_of_the_reading_need_not_be_blocks_of_the_bootstrap():
    rows = sample(50, 12)
    method = bootstrap(solver="covariance", bootstrap_rows=7)
    whole = fitted(method, rows)
    passes = method.passes(MatrixSpec(len(rows), rows.shape[1], rows.dtype))
    request = next(passes)
    while True:
        full = request.empty.empty_like()
        for start in (0, 11, 14, 40):
            stop = {0: 11, 11: 14, 14: 40, 40: 50}[start]
            full.update(Block(Span(start, stop), rows[start:stop]))
        try:
            request = passes.send(full)
        except StopIteration as finished:
            model = checked(PCAModel, finished.value)
            break
    for got, expected in zip(found(model), found(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_a_model_and_its_report_keep_the_bootstrap(tmp_path):
    estimator = streamdr.PCA(3, n_bootstrap=30).fit(sample())
    estimator.save(tmp_path / "model.zarr")
    model = streamdr.load_model(tmp_path / "model.zarr").model_
    assert bits(model) == bits(estimator.model_)
    assert {fact.name: fact.value for fact in model.facts()}["bootstrap"] == "30 draws of 60 blocks"
    (table,) = (table for table in model.tables() if table.title == "bootstrap")
    columns = np.array(table.rows).T
    np.testing.assert_array_equal(columns[2], model.bootstrap_error)
    np.testing.assert_array_equal(columns[3:5], model.bootstrap_interval)
    np.testing.assert_array_equal(columns[5:], [model.bootstrap_congruence, model.bootstrap_sign])


def test_blocks_that_do_not_fit_into_memory_are_refused_with_advice(tmp_path):
    path = stored(tmp_path / "x.zarr", np.ones((4000, 2000), np.float32), (500, 2000))
    with pytest.raises(MemoryLimitError, match="set bootstrap_rows to longer blocks"):
        fit(bootstrap(10, solver="covariance", bootstrap_rows=2), path, memory_limit=600_000_000)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bootstrap": -1}, "-1 is negative"),
        ({"n_bootstrap": 1}, "one draw has no spread"),
        ({"bootstrap_rows": 10}, "there is no bootstrap"),
        ({"n_bootstrap": 20, "bootstrap_rows": 0}, "0 is not at least 1"),
        (
            {"n_bootstrap": 20, "bootstrap_rows": 300},
            "a block of 300 rows holds all 300.*set it to 15 or fewer",
        ),
        ({"n_bootstrap": 20, "rotation": "varimax"}, "of principal components, not of rotated ones"),
    ],
)
def test_impossible_bootstraps(parameters, message):
    with pytest.raises(ParameterError, match=message):
        streamdr.PCA(3, **parameters).fit(sample())


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_single_block_of_positive_weight_is_refused(solver):
    weights = np.zeros(300)
    weights[:4] = 1
    with pytest.raises(streamdr.errors.DataError, match="only one block of rows has a positive weight"):
        fitted(bootstrap(2, solver=solver, bootstrap_rows=10), sample(), weights)


def test_rows_that_arrive_one_by_one_cannot_be_read_again():
    with pytest.raises(ParameterError, match="reads rows once"):
        streamdr.PCA(2, n_bootstrap=20).partial_fit(sample())
