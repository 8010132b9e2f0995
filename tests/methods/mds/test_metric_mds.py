"""Metric scaling with each stress and algorithm, against plain formulas over pairs and scikit-learn."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import plain_mds as plain
import pytest
import sklearn.manifold
from narrowing import checked
from sklearn.datasets import load_iris

import streamdr
from streamdr import MDS, MetricMDS
from streamdr.core.blocks import Block, MatrixSpec, Span
from streamdr.core.execution import Execution
from streamdr.core.method import in_memory
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.planner import plan
from streamdr.errors import DataError, ParameterError
from streamdr.methods import mds
from streamdr.methods.mds.distances import PointDistances, StoredDistances
from streamdr.methods.mds.stress import PairWeights, Stress
from streamdr.methods.mds.stress_model import StressModel

Algorithm = Literal["smacof", "gradient", "stochastic"]
STRESSES = ["normalized", "relative", "sammon"]
EXACT: list[Algorithm] = ["smacof", "gradient"]
ALGORITHMS: list[Algorithm] = [*EXACT, "stochastic"]
N = 40
TIGHT: dict[str, Any] = {"tol": 1e-12, "max_iter": 3000}


def points_2d(n=N, seed=0):
    """Points in the plane."""
    return np.random.default_rng(seed).normal(size=(n, 2)) * [3.0, 2.0]


def points_5d(n=N, d=5, seed=1):
    """Points in more than two dimensions."""
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(3, 0.5, d)


def incomplete(n, share, seed=0):
    """A symmetric random mask of missing pairs."""
    rng = np.random.default_rng(seed)
    some = np.triu(rng.random((n, n)) < share, 1)
    return some | some.T


def fit_source(values, weights=None, **parameters):
    method = mds.MetricMDS(**parameters)
    return fitting.fit(method, open_source(values, weights=weights), Execution()).model


def mentions(error, *expected):
    """Whether an error message contains all of these words and numbers."""
    return all(re.search(rf"(?<![\w.]){re.escape(str(word))}\b", str(error.value)) for word in expected)


# The three stresses and their gradients


def evaluated(kind, wanted, points, *, weights=None, pairs=None, split=None):
    """The stress accumulator of a configuration, updated block by block."""
    full = Stress(StoredDistances(len(wanted)), points, PairWeights(kind, weights, pairs), allow_nan=True)
    for span in Span(0, len(wanted)).split(split or len(wanted)):
        full.update(Block(span, wanted[span.slice]))
    return full


def norm(kind, full):
    return 1.0 if kind == "relative" else full.target_squares


@pytest.mark.parametrize("case", ["plain", "weights of points", "weights of pairs", "missing", "all of it"])
@pytest.mark.parametrize("kind", STRESSES)
def test_each_gradient_is_the_slope_of_its_stress(kind, case):
    n, rng = 14, np.random.default_rng(3)
    wanted, points = plain.distances(points_5d(n), metric="cityblock"), rng.normal(size=(n, 2)) * 4
    weights = rng.uniform(0.5, 3, n) if case in ("weights of points", "all of it") else None
    pairs = None
    if case in ("weights of pairs", "all of it"):
        pairs = rng.uniform(0, 2, (n, n))
        pairs = pairs + pairs.T
    if case in ("missing", "all of it"):
        wanted = np.where(incomplete(n, 0.3), np.nan, wanted)
    every = np.ones((n, n))
    if weights is not None:
        every = every * np.outer(weights, weights)
    if pairs is not None:
        every = every * pairs
    full = evaluated(kind, wanted, points, weights=weights, pairs=pairs, split=5)
    assert full.residual / norm(kind, full) == pytest.approx(
        plain.stress(kind, wanted, points, every), rel=1e-12
    )
    gradient = 2 * full.pull / norm(kind, full)
    scale = np.abs(gradient).max()
    slope = plain.slope(lambda at: plain.stress(kind, wanted, at, every), points)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-7 * scale)
    by_hand = plain.gradient(kind, wanted, points, every)
    np.testing.assert_allclose(gradient, by_hand, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine"])
@pytest.mark.parametrize("kind", STRESSES)
def test_each_gradient_is_the_slope_of_its_stress_for_points(kind, metric):
    n = 14
    rows, points = points_5d(n), np.random.default_rng(3).normal(size=(n, 2))
    wanted = plain.distances(rows, metric=metric)
    full = Stress(PointDistances(metric, rows), points, PairWeights(kind))
    for span in Span(0, n).split(5):
        full.update(Block(span, rows[span.slice]))
    gradient = 2 * full.pull / norm(kind, full)
    slope = plain.slope(lambda at: plain.stress(kind, wanted, at), points)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-7 * np.abs(gradient).max())


@pytest.mark.parametrize("kind", STRESSES)
def test_pairs_at_distance_zero_have_weight_zero_or_attract(kind):
    """Their weight is zero if the stress divides by the distance; otherwise the points attract each other."""
    rows = points_5d(10)
    rows[4] = rows[7]
    wanted, points = plain.distances(rows), points_2d(10)
    full = evaluated(kind, wanted, points)
    value = plain.stress(kind, wanted, points)
    assert full.residual / norm(kind, full) == pytest.approx(value, rel=1e-12)
    gradient = 2 * full.pull / norm(kind, full)
    slope = plain.slope(lambda at: plain.stress(kind, wanted, at), points)
    np.testing.assert_allclose(gradient, slope, rtol=0, atol=1e-7 * np.abs(gradient).max())


def test_the_gradient_of_coinciding_points_is_finite():
    points = points_2d(10)
    points[3] = points[5]
    full = evaluated("normalized", plain.distances(points_5d(10)), points)
    assert np.isfinite(full.pull).all()


# Convergence


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_the_gradient_vanishes_at_the_end(algorithm, kind):
    wanted = plain.distances(points_5d(25), metric="cityblock")
    ours = MetricMDS(metric="precomputed", stress=kind, algorithm=algorithm, **TIGHT).fit(wanted)
    gradient = plain.gradient(kind, wanted, ours.embedding_)
    start = plain.gradient(kind, wanted, plain.classical(wanted, 2)[1])
    assert np.abs(gradient).max() < 1e-3 * np.abs(start).max()
    assert ours.stress_ == pytest.approx(plain.stress(kind, wanted, ours.embedding_), rel=1e-9)
    best = plain.smacof(kind, wanted, ours.embedding_, steps=300)[1][-1]
    assert ours.stress_ <= best * (1 + 1e-4), "plain steps do not lower the stress any further"


@pytest.mark.parametrize("kind", STRESSES)
def test_majorization_never_increases_the_stress(kind):
    for wanted in (plain.distances(points_5d()), plain.distances(points_5d(), metric="cosine")):
        ours = MetricMDS(metric="precomputed", stress=kind, algorithm="smacof", tol=1e-10, n_init=2).fit(
            wanted
        )
        history = ours.stress_history_
        assert (np.diff(history) <= 1e-12 * history[:-1]).all()
        assert history[-1] < history[0]
        assert ours.n_iter_ >= len(history) - 1


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
def test_the_last_entry_of_the_history_is_the_stress_of_the_embedding(algorithm, kind):
    wanted = plain.distances(points_5d())
    given: dict[str, Any] = {"metric": "precomputed", "algorithm": algorithm, "n_epochs": 4}
    ours = MetricMDS(stress=kind, n_init=3, **given).fit(wanted)
    recomputed = plain.stress(kind, wanted, ours.embedding_)
    assert ours.stress_ == pytest.approx(recomputed, rel=1e-9)
    assert ours.stress_history_[-1] == pytest.approx(recomputed, rel=1e-9)
    assert ours.model_.algorithm == algorithm
    np.testing.assert_allclose(ours.embedding_.mean(axis=0), 0.0, atol=1e-9 * np.abs(ours.embedding_).max())


def test_max_iter_limits_the_history():
    wanted = plain.distances(points_5d())
    for algorithm in EXACT:
        short = MetricMDS(metric="precomputed", algorithm=algorithm, max_iter=3, tol=0.0).fit(wanted)
        long = MetricMDS(metric="precomputed", algorithm=algorithm, max_iter=30, tol=0.0).fit(wanted)
        assert short.n_iter_ <= 3
        assert long.stress_ < short.stress_
        np.testing.assert_allclose(long.stress_history_[:3], short.stress_history_[:3], rtol=1e-9)


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_a_map_is_recovered(algorithm, kind):
    places = points_2d()
    given: dict[str, Any] = {"stress": kind, "algorithm": algorithm, **TIGHT}
    for ours in (
        MetricMDS(metric="precomputed", **given).fit(plain.distances(places)),
        MetricMDS(**given).fit(places),
    ):
        np.testing.assert_allclose(plain.aligned(ours.embedding_, places), places, atol=1e-4)
        assert ours.stress_ < 1e-9


@pytest.mark.parametrize("algorithm", EXACT)
def test_points_in_three_dimensions_and_in_one_are_recovered(algorithm):
    rows = points_5d(d=3)
    given: dict[str, Any] = {"metric": "precomputed", "algorithm": algorithm, **TIGHT}
    ours = MetricMDS(3, **given).fit(plain.distances(rows))
    np.testing.assert_allclose(plain.aligned(ours.embedding_, rows), rows, atol=1e-4)
    line = np.sort(np.random.default_rng(0).normal(size=(20, 1)), axis=0)
    ours = MetricMDS(1, **given).fit(plain.distances(line))
    np.testing.assert_allclose(plain.aligned(ours.embedding_, line), line, atol=1e-4)


# Against scikit-learn


def data_sets():
    rng, along = np.random.default_rng(7), np.linspace(0, 6, N)
    iris = load_iris().data[::3] + 1e-3 * rng.normal(size=(50, 4))
    return {
        "iris": plain.distances(iris),
        "solid": plain.distances(points_5d()),
        "city blocks": plain.distances(points_5d(d=8), metric="cityblock"),
        "angles": plain.distances(points_5d(), metric="cosine"),
        "noise": plain.distances(rng.normal(size=(N, 20))),
        "spiral": plain.distances(np.column_stack([np.sin(along), np.cos(along), np.exp(along)])),
    }


DATA = data_sets()


def scikit_learn_mds(wanted, *, n_init=1, init="classical_mds"):
    found = sklearn.manifold.MDS(
        2, metric="precomputed", n_init=n_init, init=init, random_state=0, normalized_stress=False
    )
    return found.fit(wanted).embedding_


@pytest.mark.parametrize("name", DATA)
def test_the_stress_is_at_most_that_of_scikit_learn_from_the_same_start(name):
    wanted = DATA[name]
    ours = MetricMDS(metric="precomputed", algorithm="smacof").fit(wanted)
    want = plain.stress("normalized", wanted, scikit_learn_mds(wanted))
    assert plain.stress("normalized", wanted, ours.embedding_) <= want * (1 + 1e-9)


@pytest.mark.parametrize("algorithm", EXACT)
@pytest.mark.parametrize("name", DATA)
def test_the_stress_is_at_most_that_of_scikit_learn_with_several_starts(name, algorithm):
    wanted = DATA[name]
    ours = MetricMDS(metric="precomputed", algorithm=algorithm, n_init=4, tol=1e-9, max_iter=1000).fit(wanted)
    every = [scikit_learn_mds(wanted), scikit_learn_mds(wanted, n_init=4, init="random")]
    want = min(plain.stress("normalized", wanted, points) for points in every)
    assert ours.stress_ <= want * (1 + 1e-6)


@pytest.mark.parametrize("name", ["iris", "solid", "angles"])
@pytest.mark.parametrize("kind", ["relative", "sammon"])
def test_the_stress_is_at_most_that_of_plain_majorization(kind, name):
    wanted = DATA[name][:25, :25]
    ours = MetricMDS(metric="precomputed", stress=kind, **TIGHT).fit(wanted)
    _, history = plain.smacof(kind, wanted, plain.classical(wanted, 2)[1], steps=60)
    assert ours.stress_ <= history[-1] * (1 + 1e-6)


# Starts


@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
def test_the_best_of_several_starts_is_kept(algorithm):
    wanted = DATA["noise"]
    given: dict[str, Any] = {"metric": "precomputed", "algorithm": algorithm, "n_epochs": 4}
    ours = MetricMDS(n_init=5, **given).fit(wanted)
    assert len(ours.start_stresses_) == 5
    assert len(set(np.round(ours.start_stresses_, 12))) > 1, "the starts differ"
    assert ours.stress_ == pytest.approx(ours.start_stresses_.min(), rel=1e-9)
    one = MetricMDS(n_init=1, **given).fit(wanted)
    assert one.start_stresses_[0] == pytest.approx(ours.start_stresses_[0], rel=1e-9)
    assert ours.stress_ <= one.stress_ * (1 + 1e-9)


def test_seeds_of_starts():
    wanted = DATA["noise"]
    for algorithm in ("smacof", "stochastic"):
        given: dict[str, Any] = {"metric": "precomputed", "algorithm": algorithm, "n_init": 3, "n_epochs": 3}
        one, again, other = (MetricMDS(random_state=seed, **given).fit(wanted) for seed in (0, 0, 1))
        np.testing.assert_array_equal(one.embedding_, again.embedding_)
        assert not np.array_equal(one.start_stresses_, other.start_stresses_)


# Stochastic descent


@pytest.mark.parametrize("kind", STRESSES)
def test_stochastic_descent_is_close_to_smacof(kind):
    rows = points_5d(120)
    wanted = plain.distances(rows)
    best = plain.stress(kind, wanted, MetricMDS(stress=kind, algorithm="smacof").fit(rows).embedding_)
    for ours in (
        MetricMDS(stress=kind, algorithm="stochastic").fit(rows),
        MetricMDS(metric="precomputed", stress=kind, algorithm="stochastic").fit(wanted),
    ):
        assert plain.stress(kind, wanted, ours.embedding_) <= 1.1 * best
        assert ours.model_.algorithm == "stochastic"


def test_stochastic_descent_recovers_a_map():
    places = points_2d(200)
    ours = MetricMDS(algorithm="stochastic", n_epochs=60).fit(places)
    assert ours.stress_ < 1e-3
    np.testing.assert_allclose(plain.aligned(ours.embedding_, places), places, atol=0.3)


def test_more_epochs_lower_the_stress():
    rows = points_5d(150)
    few, many = (MetricMDS(algorithm="stochastic", n_epochs=n).fit(rows).stress_ for n in (2, 60))
    assert many < few


def test_the_algorithm_is_chosen_by_the_number_of_points():
    assert MetricMDS().fit(points_5d()).model_.algorithm == "smacof"
    many = open_source(np.zeros((6000, 4)))
    chosen = plan(mds.MetricMDS(), many, Execution()).route.method
    assert checked(mds.MetricMDS, chosen).algorithm == "stochastic"
    few = open_source(np.zeros((5000, 4)))
    chosen = plan(mds.MetricMDS(), few, Execution()).route.method
    assert checked(mds.MetricMDS, chosen).algorithm == "smacof"


# Weights


def repeated(matrix, times):
    every = np.repeat(np.arange(len(matrix)), times)
    return matrix[np.ix_(every, every)], every


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_weights_of_distances_equal_repeated_points(algorithm, kind):
    times = np.random.default_rng(5).integers(1, 4, 20)
    wanted = plain.distances(points_5d(20), metric="cityblock")
    more, every = repeated(wanted, times)
    given: dict[str, Any] = {"metric": "precomputed", "stress": kind, "algorithm": algorithm, **TIGHT}
    ours = fit_source(wanted, times, **given)
    assert ours.stress == pytest.approx(plain.stress(kind, more, ours.embedding[every]), rel=1e-9)
    gradient = plain.gradient(kind, more, ours.embedding[every])
    start = plain.gradient(kind, more, plain.classical(wanted, 2)[1][every])
    assert np.abs(gradient).max() < 1e-3 * np.abs(start).max()
    assert ours.stress != pytest.approx(fit_source(wanted, **given).stress, rel=1e-3)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_weights_of_rows_equal_repeated_rows(metric):
    times, rows = np.random.default_rng(5).integers(1, 4, 20), points_5d(20)
    ours = fit_source(rows, times, metric=metric, n_init=3, **TIGHT)
    more = np.repeat(rows, times, axis=0)
    wanted = plain.distances(more, metric=metric)
    every = np.repeat(np.arange(20), times)
    assert ours.stress == pytest.approx(plain.stress("normalized", wanted, ours.embedding[every]), rel=1e-9)
    both = fit_source(more, metric=metric, n_init=3, **TIGHT)
    assert ours.stress == pytest.approx(both.stress, rel=1e-4)


def test_equal_weights_change_nothing():
    wanted = DATA["solid"]
    for algorithm in ALGORITHMS:
        given: dict[str, Any] = {"metric": "precomputed", "algorithm": algorithm, "n_epochs": 4, **TIGHT}
        one = MetricMDS(**given).fit(wanted)
        two = fit_source(wanted, np.full(N, 2.0), **given)
        assert two.stress == pytest.approx(one.stress_, rel=1e-6)
        if algorithm != "stochastic":
            pairs = MetricMDS(**given, pair_weights=np.full((N, N), 3.0)).fit(wanted)
            assert pairs.stress_ == pytest.approx(one.stress_, rel=1e-6)


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_weights_of_pairs_are_used(algorithm, kind):
    n = 22
    wanted = plain.distances(points_5d(n), metric="cityblock")
    pairs = np.random.default_rng(8).uniform(0.05, 4, (n, n)) ** 2
    pairs = pairs + pairs.T
    given: dict[str, Any] = {"metric": "precomputed", "stress": kind, "algorithm": algorithm, **TIGHT}
    ours = MetricMDS(**given, pair_weights=pairs).fit(wanted)
    assert ours.stress_ == pytest.approx(plain.stress(kind, wanted, ours.embedding_, pairs), rel=1e-9)
    _, history = plain.smacof(kind, wanted, ours.embedding_, pairs, steps=200)
    assert ours.stress_ <= history[-1] * (1 + 1e-4)
    without = MetricMDS(**given).fit(wanted)
    assert ours.stress_ < plain.stress(kind, wanted, without.embedding_, pairs)


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_a_pair_of_weight_zero_equals_a_missing_pair(algorithm, kind):
    """Its distance does not matter: here, it is wrong."""
    places, missing = points_2d(24), incomplete(24, 0.2)
    wanted = plain.distances(places)
    given: dict[str, Any] = {"metric": "precomputed", "stress": kind, "algorithm": algorithm, **TIGHT}
    for some, weights in (
        (np.where(missing, np.nan, wanted), None),
        (np.where(missing, 3.0, wanted), np.where(missing, 0.0, 1.0)),
    ):
        ours = MetricMDS(**given, n_init=6, pair_weights=weights).fit(some)
        assert ours.stress_ < 1e-9
        np.testing.assert_allclose(plain.aligned(ours.embedding_, places), places, atol=1e-3)


# Missing pairs


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", EXACT)
def test_a_map_is_recovered_from_some_of_its_distances(algorithm, kind):
    places = points_2d()
    share = 0.2 if kind == "relative" else 0.4  # the relative stress has more local minima
    wanted = np.where(incomplete(N, share), np.nan, plain.distances(places))
    ours = MetricMDS(metric="precomputed", stress=kind, algorithm=algorithm, n_init=4, **TIGHT).fit(wanted)
    np.testing.assert_allclose(plain.aligned(ours.embedding_, places), places, atol=1e-3)
    assert ours.stress_ == pytest.approx(plain.stress(kind, wanted, ours.embedding_), rel=1e-6, abs=1e-12)


def test_a_map_is_recovered_from_some_of_its_distances_by_stochastic_descent():
    places = points_2d(150)
    wanted = np.where(incomplete(150, 0.4), np.nan, plain.distances(places))
    ours = MetricMDS(metric="precomputed", algorithm="stochastic", n_epochs=60).fit(wanted)
    assert ours.stress_ < 1e-3
    assert ours.stress_ == pytest.approx(plain.stress("normalized", wanted, ours.embedding_), rel=1e-9)


def test_missing_values_on_the_diagonal_do_not_matter():
    wanted = DATA["solid"].copy()
    want = MetricMDS(metric="precomputed", **TIGHT).fit(wanted)
    np.fill_diagonal(wanted, np.nan)
    ours = MetricMDS(metric="precomputed", **TIGHT).fit(wanted)
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["auto", *EXACT, "stochastic"])
def test_disconnected_pairs_are_refused(algorithm):
    wanted = plain.distances(points_2d(12))
    wanted[:5, 5:] = wanted[5:, :5] = np.nan
    with pytest.raises(DataError) as refused:
        fit_source(wanted, metric="precomputed", algorithm=algorithm)
    assert mentions(refused, 0, 5), refused.value
    wanted = plain.distances(points_2d(12))
    wanted[7, :7] = wanted[7, 8:] = wanted[:7, 7] = wanted[8:, 7] = np.nan
    with pytest.raises(DataError) as refused:
        fit_source(wanted, metric="precomputed", algorithm=algorithm)
    assert mentions(refused, 7), refused.value


def test_a_chain_of_distances_is_enough():
    n = 12
    wanted = np.full((n, n), np.nan)
    for i in range(n - 1):
        wanted[i, i + 1] = wanted[i + 1, i] = 1.0 + i
    assert MetricMDS(metric="precomputed", **TIGHT).fit(wanted).stress_ < 1e-6


def test_pairs_that_weights_disconnect_are_refused():
    pairs = np.ones((12, 12))
    pairs[:5, 5:] = pairs[5:, :5] = 0.0
    with pytest.raises((DataError, ParameterError)):
        fit_source(plain.distances(points_2d(12)), metric="precomputed", pair_weights=pairs)


def test_missing_features_are_refused():
    rows = points_5d()
    rows[3, 2] = np.nan
    with pytest.raises(ValueError):
        MetricMDS().fit(rows)
    with pytest.raises(DataError) as refused:
        fit_source(rows)
    assert mentions(refused, 3, 2), refused.value


# Storage of the distances


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
@pytest.mark.parametrize("metric", ["precomputed", "euclidean", "cosine"])
def test_every_storage_gives_the_same_result(metric, algorithm, kind):
    rows = points_5d(30)
    given = plain.distances(rows, metric="cityblock") if metric == "precomputed" else rows
    method = mds.MetricMDS(metric=metric, stress=kind, algorithm=algorithm, max_iter=40, n_epochs=4)
    routes = method.routes(MatrixSpec(given.shape[0], given.shape[1], given.dtype))
    models = [checked(StressModel, in_memory(route.method, given)) for route in routes]
    assert models
    for model in models[1:]:
        assert model.stress == pytest.approx(models[0].stress, rel=1e-6)
        # Rounding differs, and grows over the iterations.
        np.testing.assert_allclose(model.embedding, models[0].embedding, atol=1e-4)


# Fitted and new rows


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", "precomputed"])
@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
def test_training_rows_keep_their_exact_coordinates(algorithm, metric):
    rows = points_5d()
    given = plain.distances(rows) if metric == "precomputed" else rows
    ours = MetricMDS(metric=metric, algorithm=algorithm, n_epochs=3).fit(given)
    np.testing.assert_array_equal(ours.transform(given), ours.embedding_)
    np.testing.assert_array_equal(ours.transform(given[5:9]), ours.embedding_[5:9])
    again = MetricMDS(metric=metric, algorithm=algorithm, n_epochs=3)
    np.testing.assert_array_equal(again.fit_transform(given), ours.embedding_)


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_new_points_have_their_true_positions(metric, kind):
    all_points = points_2d(N + 6, seed=4)
    places, new = all_points[:N], all_points[N:]
    stored = metric == "precomputed"
    ours = MetricMDS(metric=metric, stress=kind, **TIGHT).fit(plain.distances(places) if stored else places)
    placed = ours.transform(plain.distances(new, places) if stored else new)
    together = np.concatenate([ours.embedding_, placed])
    np.testing.assert_allclose(plain.aligned(together, all_points), all_points, atol=2e-3)


@pytest.mark.parametrize("kind", STRESSES)
def test_a_new_point_has_the_least_stress(kind):
    """No position near it or far from it has a lower stress."""
    rows, new = points_5d(), points_5d(5, seed=9)
    ours = MetricMDS(stress=kind).fit(rows)
    wanted, placed = plain.distances(new, rows), ours.transform(new)
    rng = np.random.default_rng(0)

    def cost(at, want):
        reached = np.linalg.norm(ours.embedding_ - at, axis=1)
        return np.sum((reached - want) ** 2 / want ** plain.POWERS[kind])

    for at, want in zip(placed, wanted, strict=True):
        least = cost(at, want)
        for step in (1e-3, 1e-1, 1.0, 10.0):
            for _ in range(50):
                assert cost(at + step * rng.normal(size=2), want) >= least * (1 - 1e-6)


def test_new_rows_do_not_depend_on_each_other():
    ours = MetricMDS().fit(points_5d())
    new = points_5d(7, seed=9)
    together = ours.transform(new)
    alone = np.concatenate([ours.transform(new[i : i + 1]) for i in range(7)])
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_a_saved_model_maps_the_same(tmp_path):
    rows, new = points_5d(), points_5d(4, seed=9)
    ours = MetricMDS(stress="sammon", n_init=2).fit(rows)
    ours.save(tmp_path / "model.zarr")
    again = streamdr.load_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.embedding_, ours.embedding_)
    np.testing.assert_array_equal(again.transform(new), ours.transform(new))
    np.testing.assert_array_equal(again.stress_history_, ours.stress_history_)


def test_the_kind_metric_of_the_mds_factory():
    ours = MDS(3, kind="metric", stress="sammon")
    assert isinstance(ours, MetricMDS)
    assert (ours.n_components, ours.stress) == (3, "sammon")


# Shepard diagram


def test_a_shepard_diagram_of_few_points_has_all_pairs():
    wanted = DATA["solid"]
    ours = MetricMDS(metric="precomputed").fit(wanted)
    reached = plain.distances(ours.embedding_)
    got = np.column_stack([ours.shepard_dissimilarities_, ours.shepard_distances_])
    want = np.column_stack([plain.of_pairs(wanted), plain.of_pairs(reached)])
    np.testing.assert_allclose(got[np.lexsort(got.T)], want[np.lexsort(want.T)], rtol=1e-9)
    total = np.sum((got[:, 0] - got[:, 1]) ** 2) / np.sum(got[:, 0] ** 2)
    assert ours.stress_ == pytest.approx(total, rel=1e-9)


# Hostile data


@pytest.mark.parametrize("scale", [1e-60, 1e-6, 1e6, 1e60])
@pytest.mark.parametrize("kind", STRESSES)
def test_the_scale_of_distances_does_not_matter(kind, scale):
    wanted = DATA["solid"]
    for algorithm in ALGORITHMS:
        given = {
            "metric": "precomputed",
            "stress": kind,
            "algorithm": algorithm,
            "max_iter": 30,
            "n_epochs": 4,
        }
        ours, want = MetricMDS(**given).fit(wanted * scale), MetricMDS(**given).fit(wanted)
        assert ours.stress_ == pytest.approx(want.stress_, rel=1e-5)
        np.testing.assert_allclose(ours.embedding_ / scale, want.embedding_, atol=1e-4)


def test_a_large_offset_changes_nothing():
    rows = points_5d() + 1e8
    ours, want = MetricMDS(max_iter=30).fit(rows), MetricMDS(max_iter=30).fit(rows - 1e8)
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-9)
    np.testing.assert_allclose(ours.embedding_, want.embedding_, atol=1e-5)


def test_single_precision_and_bytes():
    rows = points_5d().astype(np.float32)
    for algorithm in ALGORITHMS:
        ours = MetricMDS(algorithm=algorithm, n_epochs=4).fit(rows)
        want = MetricMDS(algorithm=algorithm, n_epochs=4).fit(rows.astype(np.float64))
        assert ours.stress_ == pytest.approx(want.stress_, rel=1e-5)
        assert ours.transform(rows).dtype == np.float32
        np.testing.assert_array_equal(ours.transform(rows), ours.embedding_.astype(np.float32))
    small = np.random.default_rng(4).integers(150, 256, size=(30, 6), dtype=np.uint8)
    ours, want = MetricMDS().fit(small), MetricMDS().fit(small.astype(np.float64))
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-9)
    stored = plain.distances(small, metric="cityblock").astype(np.uint16)
    ours = MetricMDS(metric="precomputed").fit(stored)
    want = MetricMDS(metric="precomputed").fit(stored.astype(np.float64))
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-9)


@pytest.mark.parametrize("kind", STRESSES)
@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
def test_duplicate_points(algorithm, kind):
    rows = np.concatenate([points_5d(20), points_5d(20)])
    ours = MetricMDS(stress=kind, algorithm=algorithm, n_epochs=4).fit(rows)
    assert np.isfinite(ours.embedding_).all()
    assert np.isfinite(ours.stress_history_).all()
    assert ours.stress_ == pytest.approx(plain.stress(kind, plain.distances(rows), ours.embedding_), rel=1e-9)


def test_two_and_three_points():
    for algorithm in ALGORITHMS:
        two = MetricMDS(1, algorithm=algorithm).fit([[0.0, 0.0], [3.0, 4.0]])
        assert abs(two.embedding_[0, 0] - two.embedding_[1, 0]) == pytest.approx(5.0, rel=1e-3)
        three = plain.distances(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]))
        assert MetricMDS(2, metric="precomputed", algorithm=algorithm).fit(three).stress_ < 1e-4


# Invalid parameters and data


def broken(*places, value):
    bad = plain.distances(np.random.default_rng(6).normal(size=(9, 3)))
    for i, j in places:
        bad[i, j] = value
    return bad


BAD: dict[str, tuple[np.ndarray, list[Any]]] = {
    "negative": (broken((2, 5), (5, 2), value=-0.5), [2, 5, "-0.5"]),
    "diagonal": (broken((4, 4), value=0.25), [4, 0.25, "diagonal"]),
    "asymmetric": (broken((6, 1), value=7.5), [1, 6, 7.5, "symmetric"]),
    "missing on one side": (broken((6, 1), value=np.nan), [1, 6, "nan", "symmetric"]),
    "infinite": (broken((3, 8), (8, 3), value=np.inf), [3, 8, "inf"]),
}


@pytest.mark.parametrize("algorithm", ["auto", *EXACT, "stochastic"])
@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_pair_of_an_invalid_distance(case, algorithm):
    bad, expected = BAD[case]
    with pytest.raises(DataError) as refused:
        fit_source(bad, metric="precomputed", algorithm=algorithm)
    assert mentions(refused, *expected), refused.value


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(DataError, match="square"):
        fit_source(np.ones((9, 8)), metric="precomputed")


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("n_components", {"n_components": 0}),
        ("n_components", {"n_components": N}),
        ("stress", {"stress": "kruskal"}),
        ("algorithm", {"algorithm": "newton"}),
        ("n_init", {"n_init": 0}),
        ("max_iter", {"max_iter": 0}),
        ("tol", {"tol": -1.0}),
        ("n_epochs", {"n_epochs": 0}),
        ("metric", {"metric": "manhattan"}),
        ("pair_weights", {"pair_weights": np.ones((3, 3))}),
        ("pair_weights", {"pair_weights": -np.ones((N, N))}),
        ("pair_weights", {"pair_weights": np.triu(np.ones((N, N)))}),
        ("pair_weights", {"pair_weights": np.full((N, N), np.nan)}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_parameters_are_refused(parameter, given):
    with pytest.raises(ParameterError) as refused:
        MetricMDS(**given).fit(points_5d())
    assert refused.value.parameter == parameter


@pytest.mark.parametrize("algorithm", [*EXACT, "stochastic"])
def test_distances_that_are_all_zero_are_refused(algorithm):
    """A stress that divides by distances is undefined if all points coincide."""
    for kind in ("relative", "sammon"):
        with pytest.raises((DataError, ParameterError)):
            fit_source(np.full((9, 3), 2.0), stress=kind, algorithm=algorithm)
        with pytest.raises((DataError, ParameterError)):
            fit_source(np.zeros((9, 9)), metric="precomputed", stress=kind, algorithm=algorithm)
