"""The choice of the number of components, by BIC or by held-out values, with fits that share passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from narrowing import checked, present
from plain_ppca import conditional, log_likelihoods, low_rank, with_missing
from scipy.stats import norm

from streamdr.core.blocks import Array, Block, MatrixSpec, Part, Span
from streamdr.core.method import Pass, in_memory
from streamdr.errors import ParameterError
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.model import PPCAModel
from streamdr.statistics.composite import Composite
from streamdr.statistics.concurrent import with_shared_passes
from streamdr.statistics.moments import Moments


def fitted(method: PPCA, x: Array, weights: Array | None = None) -> PPCAModel:
    return checked(PPCAModel, in_memory(method, x, weights))


def count_passes(method, x):
    """The number of passes, and the model."""
    passes = method.passes(MatrixSpec(x.shape[0], x.shape[1], x.dtype))
    request, count = next(passes), 0
    while True:
        full = request.empty.empty_like()
        full.update(Block(Span(0, len(x)), x))
        count += 1
        try:
            request = passes.send(full)
        except StopIteration as finished:
            return count, finished.value


def same_bits(one, other, *except_for):
    for name, value in vars(one).items():
        if name not in except_for:
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


@pytest.mark.parametrize("method", ["em", "minibatch"])
@pytest.mark.parametrize("holdout", [0.0, 0.2])
def test_concurrent_fits_have_the_bits_of_separate_fits(method, holdout):
    x = with_missing(low_rank(120, 7, 3), "a tenth")
    settings: dict[str, Any] = {"method": method, "holdout": holdout, "max_iter": 30}
    alone = {k: fitted(PPCA(k, **settings), x) for k in (1, 2, 3, 5)}
    together = fitted(PPCA([5, 3, 1, 2], **settings), x)
    np.testing.assert_array_equal(together.candidates, [1, 2, 3, 5])
    candidates, criteria = present(together.candidates), present(together.criteria)
    for k, criterion in zip(candidates, criteria, strict=True):
        model = alone[int(k)]
        assert criterion == (-present(model.held_out)[1] if holdout else model.bic), k
    best = alone[together.n_components]
    same_bits(best, together, "candidates", "criteria", "principal")
    assert any(note.startswith("n_components by") for note in together.notes())
    assert best.candidates is None


def test_concurrent_fits_take_no_more_passes_than_the_longest_one():
    x = with_missing(low_rank(100, 7, 3), "most")
    counts = [count_passes(PPCA(k, method="em"), x)[0] for k in (1, 2, 3)]
    assert len(set(counts)) > 1, "some fits must end before others"
    assert count_passes(PPCA([1, 2, 3], method="em"), x)[0] == max(counts)


def test_runs_that_request_different_rows_get_separate_passes():
    def run(parts):
        counts = []
        for part in parts:
            full = yield Pass(Moments(2), part=part)
            counts.append(full.count)
        return counts

    first, second = Part(0, 3), Part(1, 3)
    passes = with_shared_passes([run([first, None]), run([None, second]), run([first])])
    requested, request = [], next(passes)
    while True:
        requested.append(
            (request.part, len(request.empty.parts) if isinstance(request.empty, Composite) else 1)
        )
        rows = len(requested)  # a different number for each pass, to recognise it
        full = request.empty.empty_like()
        full.update(Block(Span(0, rows), np.ones((rows, 2))))
        try:
            request = passes.send(full)
        except StopIteration as finished:
            results = finished.value
            break
    assert requested == [(first, 2), (None, 2), (second, 1)]
    assert results == [[1, 2], [2, 3], [1]], "each run receives its results in order"


@pytest.mark.parametrize("holdout", [0.0, 0.1])
@pytest.mark.parametrize("true", [1, 3])
def test_the_right_number_of_components_is_chosen_where_it_is_clear(true, holdout):
    x = with_missing(low_rank(800, 10, true, noise=0.4), "a tenth")
    model = fitted(PPCA([1, 2, 3, 4, 6], method="em", holdout=holdout), x)
    assert model.n_components == true
    assert present(model.criteria).argmin() == list(present(model.candidates)).index(true)
    word = "held-out loss" if holdout else "BIC"
    assert any(f"n_components by {word}: 1: " in note for note in model.notes())


def test_bic_counts_parameters_of_observed_features_and_rows_with_values():
    x = with_missing(low_rank(100, 6, 2), "a tenth")
    x[:, 3] = np.nan
    x[:5] = np.nan
    model = fitted(PPCA(2, method="em", tol=1e-12, max_iter=200), x)
    nats = log_likelihoods(x, np.nan_to_num(model.mean), model.loadings, model.noise_variance).sum()
    free = 5 + (5 * 2 - 1) + 1  # means, loadings but for their rotation, noise
    assert model.bic == pytest.approx(free * np.log(95) - 2 * nats, rel=1e-10)


# Held-out values


def test_the_given_fraction_of_values_is_held_out_evenly():
    chosen = Holdout(0.3, 1).chosen(np.arange(10_000), np.zeros((10_000, 20)))
    assert chosen.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 200_000))
    np.testing.assert_allclose(chosen.mean(axis=0), 0.3, atol=5 * np.sqrt(0.21 / 10_000))
    pairs = np.corrcoef(chosen.T) - np.eye(20)
    assert np.abs(pairs).max() < 5 / np.sqrt(10_000), "columns are independent"
    assert abs(np.corrcoef(chosen[1:].ravel(), chosen[:-1].ravel())[0, 1]) < 5 / np.sqrt(200_000)
    other = Holdout(0.3, 2).chosen(np.arange(10_000), np.zeros((10_000, 20)))
    assert (chosen & other).mean() == pytest.approx(0.09, abs=0.01), "another seed holds out other values"


@pytest.mark.parametrize("fraction", [1e-12, 0.5, 1 - 1e-12])
def test_extreme_fractions_are_held_out(fraction):
    held = Holdout(fraction, 0).chosen(np.arange(1000), np.zeros((1000, 50)))
    assert held.mean() == pytest.approx(fraction, abs=0.05)


def test_the_same_values_are_held_out_however_rows_are_read():
    values = with_missing(np.random.default_rng(1).normal(size=(1000, 7)), "most")
    whole = Holdout(0.2, 3).chosen(np.arange(1000), values)
    rows = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(Holdout(0.2, 3).chosen(rows, values[rows]), whole[rows])
    far = np.arange(2**40, 2**40 + 3)  # row numbers beyond any memory
    np.testing.assert_array_equal(
        Holdout(0.2, 3).chosen(far[1:], values[1:3]), Holdout(0.2, 3).chosen(far, values[:3])[1:]
    )


@pytest.mark.parametrize("method", ["em", "minibatch"])
@pytest.mark.parametrize("fraction", [0.2, 0.9])
def test_no_column_and_no_row_loses_its_last_value_to_the_holdout(method, fraction):
    rng = np.random.default_rng(4)
    for seed in range(4):
        x = with_missing(low_rank(60, 6, 2), "most")
        x[:, 2:4] = np.nan  # two columns of one value each, and rows of one value
        x[seed, 2], x[seed + 7, 3] = 1.0, 2.0
        x[30:40, 1:] = np.nan
        x[30:40, 0] = rng.normal(size=10)
        holdout = Holdout(fraction, seed)
        held = holdout.chosen(np.arange(60), x)
        some = ~np.isnan(x).all(axis=1)
        assert (~np.isnan(x) & ~held).any(axis=1)[some].all()
        model = fitted(PPCA(1, method=method, holdout=fraction, random_state=seed, max_iter=3), x)
        assert np.isfinite(model.mean).all()
        assert np.isfinite(model.impute(x)).all()


@pytest.mark.parametrize("mask", ["a tenth", "most"])
@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_density_is_that_of_values_given_the_others_of_their_rows(mask, weighted):
    x = with_missing(low_rank(80, 6, 2), mask)
    x[:, 5] = np.nan  # never observed
    weights = np.random.default_rng(0).integers(0, 3, size=80).astype(float) if weighted else None
    model = fitted(PPCA(2, method="em", holdout=0.25, random_state=4), x, weights)
    assert model.converged, "the evaluated parameters must be those of the model"
    hidden = Holdout(0.25, 4).chosen(np.arange(80), x) & ~np.isnan(x)
    mean, whole = np.nan_to_num(model.mean), model.get_covariance()
    share, count, nats, squares = 0.0, 0.0, 0.0, 0.0
    for i in range(80):
        filled, variance = conditional(np.where(hidden[i], np.nan, x[i]), mean, whole)
        share = 1.0 if weights is None else weights[i]
        for j in np.flatnonzero(hidden[i]):
            count += share
            nats += share * norm(filled[j], np.sqrt(variance[j])).logpdf(x[i, j])
            squares += share * (filled[j] - x[i, j]) ** 2
    np.testing.assert_allclose(
        present(model.held_out), [count, nats / count, np.sqrt(squares / count)], rtol=1e-9
    )
    assert any(f"{count:,.0f} values were held out" in note for note in model.notes())


def test_a_feature_whose_only_value_would_be_held_out_keeps_it():
    x = with_missing(low_rank(80, 6, 2), "a tenth")
    hidden = Holdout(0.2, 0).chosen(np.arange(80), x)
    x[:, 2] = np.nan
    x[np.flatnonzero(hidden[:, 2])[0], 2] = 1.0
    model = fitted(PPCA(2, method="em", holdout=0.2), x)
    assert model.mean[2] == pytest.approx(1.0, abs=1e-6)
    assert model.converged
    assert model.new_features == 0


def test_a_holdout_without_values_is_an_error():
    with pytest.raises(ParameterError, match="holds out no value: set a larger one") as refused:
        fitted(PPCA(2, method="em", holdout=1e-9), low_rank(30, 5, 2))
    assert refused.value.parameter == "holdout"


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3), 3])
def test_seeds_may_be_integers_of_any_type(seed):
    x = low_rank(40, 5, 2)
    model = fitted(PPCA(2, method="em", holdout=0.2, random_state=seed), x)
    np.testing.assert_array_equal(
        model.held_out, fitted(PPCA(2, method="em", holdout=0.2, random_state=3), x).held_out
    )
