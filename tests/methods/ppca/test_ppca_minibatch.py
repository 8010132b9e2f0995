"""Stepwise EM: minibatches that are like all of the data, statistics that turn along, and streams."""

from __future__ import annotations

import numpy as np
import pytest
from narrowing import checked, present
from plain_ppca import low_rank, posterior, with_holes

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


def parts_asked_for(method, x):
    """The parts of the rows that a fit asks for, in order; and the model."""
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
def test_one_reading_comes_close_to_the_end(mask):
    x = with_holes(low_rank(4000, 10, 3), mask)
    parts, once = parts_asked_for(PPCA(3, method="minibatch", max_iter=1), x)
    assert parts == [Part(number, 16) for number in range(16)], "every row once"
    best = fitted(PPCA(3, method="em", tol=1e-10, max_iter=300), x)
    assert once.score_samples(x).mean() == pytest.approx(best.score_samples(x).mean(), rel=0.01)
    assert once.solver == "minibatch"
    # What it says itself is an average over minibatches, each before its step: a few were far from the end.
    assert once.log_likelihood == pytest.approx(best.log_likelihood, rel=0.1)


def test_minibatches_go_on_like_em():
    x = with_holes(low_rank(800, 8, 2), "a tenth")
    parts, model = parts_asked_for(PPCA(2, method="minibatch", tol=1e-12, max_iter=100), x)
    assert parts[:16] == [Part(number, 16) for number in range(16)]
    assert set(parts[16:]) == {None}
    best = fitted(PPCA(2, method="em", tol=1e-12, max_iter=200), x)
    assert model.converged
    assert model.log_likelihood == pytest.approx(best.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(model.get_covariance(), best.get_covariance(), atol=1e-4)


@pytest.mark.parametrize(("batch_rows", "parts"), [(10, 8), (30, 3), (79, 2)])
def test_batch_rows_says_how_many_rows_make_a_minibatch(batch_rows, parts):
    x = with_holes(low_rank(80, 4, 1), "a tenth")
    asked, _ = parts_asked_for(PPCA(1, method="minibatch", batch_rows=batch_rows, max_iter=1), x)
    assert asked == [Part(number, parts) for number in range(parts)]


@pytest.mark.parametrize("batch_rows", [80, 10**9])
def test_a_minibatch_of_all_rows_is_read_twice(batch_rows):
    """What it begins with is all there is: to learn from it, it is read again."""
    x = with_holes(low_rank(80, 4, 1), "a tenth")
    asked, _ = parts_asked_for(PPCA(1, method="minibatch", batch_rows=batch_rows, max_iter=1), x)
    assert asked == [None, Part(0, 1)]


def test_a_minibatch_of_one_row_does_no_harm():
    """One row shows no variance: it begins with all of them, and ends with numbers, if not with good ones."""
    x = with_holes(low_rank(80, 4, 1), "a tenth")
    asked, model = parts_asked_for(PPCA(1, method="minibatch", batch_rows=1, max_iter=1), x)
    assert asked == [Part(0, 80), None, *(Part(number, 80) for number in range(1, 80))]
    assert np.isfinite(model.get_covariance()).all()
    assert np.isfinite(model.score_samples(x)).all()


def test_what_the_first_part_lacks_is_looked_for_in_all_rows():
    x = low_rank(800, 5, 2)
    first = np.concatenate([np.arange(span.start, span.stop) for span in Part(0, 16).bands(800, 1, 40)])
    x[first, 3] = np.nan
    parts, model = parts_asked_for(PPCA(2, method="minibatch", max_iter=1), x)
    assert parts[:2] == [Part(0, 16), None]
    assert np.isfinite(model.mean).all()


# A step, and what becomes of the statistics


def test_carried_statistics_are_those_of_the_turned_latent_variables():
    x = with_holes(low_rank(50, 5, 2), "a tenth")
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
        there = ~np.isnan(row)
        left = np.where(there, row - step.after.mean, 0.0)
        masked += np.outer(stacked, there)
        residual += np.outer(np.append(z, 1.0), left)
        latent += stacked
        squares += left @ left
    wanted = Statistics(masked, residual, latent, squares)
    for name, got, want in zip(
        Statistics._fields, transformed_statistics(full.statistics[0], before, step), wanted, strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-10, err_msg=name)


def test_a_step_from_carried_statistics_leads_nowhere_new():
    """They are of the parameters that the step led to: the regression on z is already what it says."""
    x = with_holes(low_rank(50, 5, 2), "a tenth")
    before = Factors(np.nanmean(x, axis=0), np.random.default_rng(2).normal(size=(5, 2)), 0.6)
    full = Latent([before])
    full.update(Block(Span(0, 50), x))
    step = maximise(full.statistics[0], before)
    again = maximise(transformed_statistics(full.statistics[0], before, step), step.after.factors)
    np.testing.assert_allclose(again.after.mean, step.after.mean, atol=1e-10)
    np.testing.assert_allclose(again.after.noise, step.after.noise, rtol=1e-10)
    np.testing.assert_allclose(again.after.loadings, step.after.loadings, atol=1e-9)


def test_a_minibatch_weighs_less_the_more_there_were():
    """The t-th weighs t^-0.7 of all: after the second, the statistics are those weighted sums."""
    x = with_holes(low_rank(60, 5, 2), "a tenth")
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


def test_minibatches_without_rows_or_values_are_passed_over():
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
    x = with_holes(low_rank(60, 6, 2), "a tenth")
    ppca = PPCA(2, method=method)
    model = streamed(ppca, x, [10, 1, 49]).model()
    whole = checked(PPCAModel, in_memory(ppca.routes(MatrixSpec(60, 6, x.dtype))[0].method, x))
    # But for rounding: its rows have weights, which are 1.
    np.testing.assert_allclose(model.get_covariance(), whole.get_covariance(), rtol=1e-10)


@pytest.mark.parametrize(
    "sizes",
    [[3000], [1] * 500 + [2500], [500, 7, 1993, 500]],
    ids=["at once", "one by one at first", "ragged"],
)
def test_a_stream_comes_close_to_the_fit_of_all_rows(sizes):
    x = with_holes(low_rank(3000, 6, 2), "a tenth")
    model = streamed(PPCA(2, batch_rows=200), x, sizes).model()
    best = fitted(PPCA(2, method="em"), x)
    assert model.score_samples(x).mean() == pytest.approx(best.score_samples(x).mean(), rel=0.01)
    assert model.n_samples == 3000
    assert model.n_observed == np.count_nonzero(~np.isnan(x))


def test_rows_one_by_one_or_by_minibatches_are_the_same_stream():
    x = with_holes(low_rank(600, 6, 2), "a tenth")
    ppca = PPCA(2, batch_rows=100)
    one, many = (streamed(ppca, x, sizes).model() for sizes in ([1] * 600, [100] * 6))
    np.testing.assert_allclose(one.get_covariance(), many.get_covariance(), rtol=1e-8)


def test_looking_at_a_stream_does_not_disturb_it():
    x = with_holes(low_rank(500, 6, 2), "a tenth")
    ppca = PPCA(2, batch_rows=100)
    watched = present(ppca.stream(6))
    for start in range(0, 500, 50):
        watched.update(Block(Span(start, start + 50), x[start : start + 50]))
        watched.model()
    unwatched = streamed(ppca, x, [50] * 10)
    one, other = (checked(PPCAModel, each.model()) for each in (watched, unwatched))
    np.testing.assert_array_equal(one.get_covariance(), other.get_covariance())


def test_weights_of_a_stream_repeat_rows():
    x = with_holes(low_rank(300, 6, 2), "a tenth")
    weights = np.random.default_rng(0).integers(0, 3, size=300).astype(float)
    model = streamed(PPCA(2, batch_rows=100), x, [50] * 6, weights).model()
    assert model.n_samples == weights.sum()
    best = fitted(PPCA(2, method="em"), x, weights)
    ours, theirs = (weights @ one.score_samples(x) / weights.sum() for one in (model, best))
    assert ours == pytest.approx(theirs, rel=0.01)


def test_a_stream_has_one_number_of_components():
    with pytest.raises(ParameterError, match="not a choice"):
        PPCA([1, 2]).stream(5)
    assert PPCA(2, method="closed_form").stream(5) is None, "the statistics of one pass will do"


def test_values_of_features_that_a_stream_began_without_are_told_of():
    x = low_rank(300, 5, 2)
    x[:100, 3] = np.nan
    model = streamed(PPCA(2, batch_rows=100), x, [100] * 3).model()
    assert np.isnan(model.mean[3])
    assert model.new_features == 200
    assert any("200 values" in note for note in model.notes())


# Parts of the rows are tested with sources, in tests/data/test_row_subset.py.


def test_values_that_are_infinite_are_told_of_by_a_part():
    x = low_rank(64, 4, 1)
    x[50, 2] = np.inf
    with pytest.raises(DataError, match="infinite"):
        in_memory(PPCA(1, method="minibatch"), x)
    x[50, 2] = np.nan
    assert fitted(PPCA(1, method="minibatch"), x).n_observed > 0
    with pytest.raises((ParameterError, MissingValuesError), match="missing"):
        in_memory(PPCA(1, method="closed_form").routes(MatrixSpec(64, 4, x.dtype))[0].method, x)
