"""Stepwise EM: minibatches, the transformation of statistics after a step, and streams."""

from __future__ import annotations

import numpy as np
import pytest
from narrowing import checked, present
from plain_ppca import low_rank, posterior, with_missing

from streamdr.core.blocks import Array, Block, MatrixSpec, Part, Span
from streamdr.core.method import in_memory
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca.em import Principal, maximise, transformed_statistics
from streamdr.methods.ppca.latent import Latent, Statistics
from streamdr.methods.ppca.model import PPCAModel
from streamdr.methods.ppca.posterior import Factors
from streamdr.methods.ppca.stepwise import FORGETTING, StepwiseEM


def fitted(method: PPCA, x: Array, weights: Array | None = None) -> PPCAModel:
    return checked(PPCAModel, in_memory(method, x, weights))


def requested_parts(method, x):
    """The parts of the rows that a fit requests, in order; and the model."""
    passes = method.passes(MatrixSpec(x.shape[0], x.shape[1], x.dtype))
    request, parts = next(passes), []
    while True:
        parts.append(request.part)
        bands = [Span(0, len(x))] if request.part is None else request.part.bands(len(x), 1, x[:1].nbytes)
        full = request.empty.empty_like()
        for band in bands:
            full.update(Block(band, x[band.slice]))
        try:
            request = passes.send(full)
        except StopIteration as finished:
            return parts, finished.value


@pytest.mark.parametrize("mask", ["a tenth", "most"])
def test_one_pass_comes_close_to_convergence(mask):
    x = with_missing(low_rank(4000, 10, 3), mask)
    parts, once = requested_parts(PPCA(3, method="minibatch", max_iter=1), x)
    assert parts == [Part(number, 16) for number in range(16)], "every row once"
    best = fitted(PPCA(3, method="em", tol=1e-10, max_iter=300), x)
    assert once.score_samples(x).mean() == pytest.approx(best.score_samples(x).mean(), rel=0.01)
    assert once.solver == "minibatch"
    # Its log-likelihood is an average over minibatches, each before its step: some were far from the end.
    assert once.log_likelihood == pytest.approx(best.log_likelihood, rel=0.1)


def test_minibatches_continue_as_em():
    x = with_missing(low_rank(800, 8, 2), "a tenth")
    parts, model = requested_parts(PPCA(2, method="minibatch", tol=1e-12, max_iter=100), x)
    assert parts[:16] == [Part(number, 16) for number in range(16)]
    assert set(parts[16:]) == {None}
    best = fitted(PPCA(2, method="em", tol=1e-12, max_iter=200), x)
    assert model.converged
    assert model.log_likelihood == pytest.approx(best.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(model.get_covariance(), best.get_covariance(), atol=1e-4)


@pytest.mark.parametrize(("batch_rows", "parts"), [(10, 8), (30, 3), (79, 2)])
def test_batch_rows_is_the_number_of_rows_of_a_minibatch(batch_rows, parts):
    x = with_missing(low_rank(80, 4, 1), "a tenth")
    requested, _ = requested_parts(PPCA(1, method="minibatch", batch_rows=batch_rows, max_iter=1), x)
    assert requested == [Part(number, parts) for number in range(parts)]


@pytest.mark.parametrize("batch_rows", [80, 10**9])
def test_a_minibatch_of_all_rows_is_read_twice(batch_rows):
    """The start uses all rows, and the only minibatch is all rows again."""
    x = with_missing(low_rank(80, 4, 1), "a tenth")
    requested, _ = requested_parts(PPCA(1, method="minibatch", batch_rows=batch_rows, max_iter=1), x)
    assert requested == [None, Part(0, 1)]


def test_a_minibatch_of_one_row_does_no_harm():
    """One row has no variance, so the start uses all rows. The result is finite, if not accurate."""
    x = with_missing(low_rank(80, 4, 1), "a tenth")
    requested, model = requested_parts(PPCA(1, method="minibatch", batch_rows=1, max_iter=1), x)
    assert requested == [Part(0, 80), None, *(Part(number, 80) for number in range(1, 80))]
    assert np.isfinite(model.get_covariance()).all()
    assert np.isfinite(model.score_samples(x)).all()


def test_a_feature_without_values_in_the_first_part_is_looked_up_in_all_rows():
    x = low_rank(800, 5, 2)
    first = np.concatenate([np.arange(span.start, span.stop) for span in Part(0, 16).bands(800, 1, 40)])
    x[first, 3] = np.nan
    parts, model = requested_parts(PPCA(2, method="minibatch", max_iter=1), x)
    assert parts[:2] == [Part(0, 16), None]
    assert np.isfinite(model.mean).all()


# Statistics after a step


def test_transformed_statistics_are_those_of_the_transformed_latent_variables():
    x = with_missing(low_rank(50, 5, 2), "a tenth")
    rng = np.random.default_rng(2)
    before = Factors(np.nanmean(x, axis=0) + 0.2, rng.normal(size=(5, 2)), 0.6)
    full = Latent([before])
    full.update(Block(Span(0, 50), x))
    step = maximise(full.statistics[0], before)
    masked, residual = np.zeros((6, 5)), np.zeros((3, 5))
    latent, squares = np.zeros(6), np.zeros(1)
    for row in x:
        z, spread = posterior(row, before.mean, before.loadings, before.noise)
        z, spread = step.turn @ (z - step.centre), step.turn @ spread @ step.turn.T
        second = spread + np.outer(z, z)
        stacked = np.array([second[0, 0], second[1, 0], second[1, 1], *z, 1.0])
        is_observed = ~np.isnan(row)
        left = np.where(is_observed, row - step.after.mean, 0.0)
        masked += np.outer(stacked, is_observed)
        residual += np.outer(np.append(z, 1.0), left)
        latent += stacked
        squares += left @ left
    wanted = Statistics(masked, residual, latent, squares)
    for name, got, want in zip(
        Statistics._fields, transformed_statistics(full.statistics[0], before, step), wanted, strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-10, err_msg=name)


def test_a_step_from_transformed_statistics_changes_nothing():
    """They belong to the parameters after the step: the regression on z gives these again."""
    x = with_missing(low_rank(50, 5, 2), "a tenth")
    before = Factors(np.nanmean(x, axis=0), np.random.default_rng(2).normal(size=(5, 2)), 0.6)
    full = Latent([before])
    full.update(Block(Span(0, 50), x))
    step = maximise(full.statistics[0], before)
    again = maximise(transformed_statistics(full.statistics[0], before, step), step.after.factors)
    np.testing.assert_allclose(again.after.mean, step.after.mean, atol=1e-10)
    np.testing.assert_allclose(again.after.noise, step.after.noise, rtol=1e-10)
    np.testing.assert_allclose(again.after.loadings, step.after.loadings, atol=1e-9)


def test_later_minibatches_weigh_less():
    """The t-th weighs t^-0.7 of all: after the second, the statistics are those weighted sums."""
    x = with_missing(low_rank(60, 5, 2), "a tenth")
    now = Principal.of(np.nanmean(x, axis=0), np.random.default_rng(2).normal(size=(5, 2)), 0.6)[0]
    steps, halves = StepwiseEM(now, 0.0, 0), []
    for rows in (x[:30], x[30:]):
        halves.append(Latent([steps.now.factors]))
        halves[-1].update(Block(Span(0, 30), rows))
        before, kept = steps.now.factors, steps.statistics
        steps.step(halves[-1])
    weight = 2.0**-FORGETTING
    mixed = Statistics(
        *(
            (1 - weight) * old + weight * new / 30
            for old, new in zip(present(kept), halves[1].statistics[0], strict=True)
        )
    )
    wanted = maximise(mixed, before).after
    np.testing.assert_allclose(steps.now.mean, wanted.mean, rtol=1e-12)
    np.testing.assert_allclose(steps.now.loadings, wanted.loadings, rtol=1e-12)
    likelihoods = [half.log_likelihood / half.rows for half in halves]
    assert steps.log_likelihood == pytest.approx(
        (1 - weight) * likelihoods[0] + weight * likelihoods[1], rel=1e-12
    )
    assert steps.taken == 2


def test_minibatches_without_rows_or_values_are_skipped():
    now = Principal.of(np.zeros(4), np.ones((4, 1)), 0.5)[0]
    steps = StepwiseEM(now, 0.0, 0)
    steps.step(Latent([now.factors]))
    empty = Latent([now.factors])
    empty.update(Block(Span(0, 3), np.full((3, 4), np.nan)))
    steps.step(empty)
    assert steps.taken == 0
    assert steps.now is now
    assert steps.totals[1] == 3, "rows without values are counted"


# Rows that arrive a few at a time


def streamed(ppca, x, sizes, weights=None):
    stream, start = ppca.stream(x.shape[1]), 0
    for size in sizes:
        here = slice(start, start + size)
        stream.update(
            Block(Span(start, start + size), x[here], weights=None if weights is None else weights[here])
        )
        start += size
    assert start == len(x)
    return stream


@pytest.mark.parametrize("method", ["auto", "em", "minibatch"])
def test_until_a_minibatch_is_full_a_stream_is_a_fit_to_all_rows(method):
    x = with_missing(low_rank(60, 6, 2), "a tenth")
    ppca = PPCA(2, method=method)
    model = streamed(ppca, x, [10, 1, 49]).model()
    whole = checked(PPCAModel, in_memory(ppca.routes(MatrixSpec(60, 6, x.dtype))[0].method, x))
    # Up to rounding: the rows of a stream have weights, which are 1.
    np.testing.assert_allclose(model.get_covariance(), whole.get_covariance(), rtol=1e-10)


@pytest.mark.parametrize(
    "sizes",
    [[3000], [1] * 500 + [2500], [500, 7, 1993, 500]],
    ids=["at once", "one by one at first", "ragged"],
)
def test_a_stream_comes_close_to_the_fit_of_all_rows(sizes):
    x = with_missing(low_rank(3000, 6, 2), "a tenth")
    model = streamed(PPCA(2, batch_rows=200), x, sizes).model()
    best = fitted(PPCA(2, method="em"), x)
    assert model.score_samples(x).mean() == pytest.approx(best.score_samples(x).mean(), rel=0.01)
    assert model.n_samples == 3000
    assert model.n_observed == np.count_nonzero(~np.isnan(x))


def test_single_rows_and_minibatches_give_the_same_stream():
    x = with_missing(low_rank(600, 6, 2), "a tenth")
    ppca = PPCA(2, batch_rows=100)
    one, many = (streamed(ppca, x, sizes).model() for sizes in ([1] * 600, [100] * 6))
    np.testing.assert_allclose(one.get_covariance(), many.get_covariance(), rtol=1e-8)


def test_reading_the_model_of_a_stream_does_not_change_the_stream():
    x = with_missing(low_rank(500, 6, 2), "a tenth")
    ppca = PPCA(2, batch_rows=100)
    watched = present(ppca.stream(6))
    for start in range(0, 500, 50):
        watched.update(Block(Span(start, start + 50), x[start : start + 50]))
        watched.model()
    unwatched = streamed(ppca, x, [50] * 10)
    one, other = (checked(PPCAModel, each.model()) for each in (watched, unwatched))
    np.testing.assert_array_equal(one.get_covariance(), other.get_covariance())


def test_weights_of_a_stream_repeat_rows():
    x = with_missing(low_rank(300, 6, 2), "a tenth")
    weights = np.random.default_rng(0).integers(0, 3, size=300).astype(float)
    model = streamed(PPCA(2, batch_rows=100), x, [50] * 6, weights).model()
    assert model.n_samples == weights.sum()
    best = fitted(PPCA(2, method="em"), x, weights)
    ours, theirs = (weights @ one.score_samples(x) / weights.sum() for one in (model, best))
    assert ours == pytest.approx(theirs, rel=0.01)


def test_a_stream_has_one_number_of_components():
    with pytest.raises(ParameterError, match="not a choice"):
        PPCA([1, 2]).stream(5)
    assert PPCA(2, method="closed_form").stream(5) is None, "the statistics of one pass are enough"


def test_values_of_features_missing_at_the_start_of_a_stream_are_reported():
    x = low_rank(300, 5, 2)
    x[:100, 3] = np.nan
    model = streamed(PPCA(2, batch_rows=100), x, [100] * 3).model()
    assert np.isnan(model.mean[3])
    assert model.new_features == 200
    assert any("200 values" in note for note in model.notes())


# Parts of the rows are tested with sources, in tests/data/test_row_subset.py.


def test_infinite_values_in_a_part_are_reported():
    x = low_rank(64, 4, 1)
    x[50, 2] = np.inf
    with pytest.raises(DataError, match="infinite"):
        in_memory(PPCA(1, method="minibatch"), x)
    x[50, 2] = np.nan
    assert fitted(PPCA(1, method="minibatch"), x).n_observed > 0
    with pytest.raises((ParameterError, MissingValuesError), match="missing"):
        in_memory(PPCA(1, method="closed_form").routes(MatrixSpec(64, 4, x.dtype))[0].method, x)
