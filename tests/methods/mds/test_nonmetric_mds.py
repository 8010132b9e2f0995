"""Nonmetric scaling: only the order of the dissimilarities counts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import plain_mds as plain
import pytest
import sklearn.manifold
from narrowing import checked, present
from sklearn.datasets import load_iris
from sklearn.isotonic import IsotonicRegression, isotonic_regression

import streamdr
from streamdr import MDS, NonmetricMDS
from streamdr.core.blocks import MatrixSpec
from streamdr.core.execution import Execution
from streamdr.core.method import in_memory
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError, ParameterError
from streamdr.methods import mds
from streamdr.methods.mds.stress_model import StressModel

N = 40
TIES: list[Literal["secondary", "primary"]] = ["secondary", "primary"]


def points_2d(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)) * [3.0, 2.0]


def points_5d(n=N, d=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(3, 0.5, d)


def noisy(n=N, seed=2):
    """The distances of a map with multiplicative noise."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0.7, 1.3, (n, n)), 1)
    return plain.distances(points_2d(n)) * (upper + upper.T)


def coarse(n=N):
    """Few different dissimilarities, and therefore many ties."""
    wanted = np.ceil(2 * noisy(n) / 3)
    np.fill_diagonal(wanted, 0.0)
    return wanted


def data_sets():
    rng = np.random.default_rng(7)
    iris = load_iris().data[::3] + 1e-3 * rng.normal(size=(50, 4))
    return {
        "iris": plain.distances(iris),
        "solid": plain.distances(points_5d()),
        "city blocks": plain.distances(points_5d(d=8), metric="cityblock"),
        "angles": plain.distances(points_5d(), metric="cosine"),
        "noisy": noisy(),
        "coarse": coarse(),
    }


DATA = data_sets()


def fit_source(values, weights=None, **parameters):
    method = mds.NonmetricMDS(**parameters)
    return fitting.fit(method, open_source(values, weights=weights), Execution()).model


def mentions(error, *expected):
    return all(re.search(rf"(?<![\w.]){re.escape(str(word))}\b", str(error.value)) for word in expected)


def aligned_and_scaled(points, to):
    """Points aligned with others and scaled to their size, which nonmetric scaling does not determine."""
    sizes = [np.sqrt(np.sum((some - some.mean(axis=0)) ** 2)) for some in (points, to)]
    return plain.aligned(points * sizes[1] / sizes[0], to)


# Isotonic regression


@pytest.mark.parametrize("seed", range(5))
def test_the_plain_reference_equals_the_isotonic_regression_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=60).cumsum(), rng.uniform(0.1, 3, 60)
    np.testing.assert_allclose(
        plain.pava(values, weights), isotonic_regression(values, sample_weight=weights)
    )
    dissimilarities = rng.integers(0, 15, 60).astype(float)
    want = IsotonicRegression().fit_transform(dissimilarities, values, sample_weight=weights)
    np.testing.assert_allclose(plain.disparities(dissimilarities, values, "secondary", weights), want)


@pytest.mark.parametrize("name", DATA)
def test_disparities_equal_the_isotonic_regression_of_scikit_learn(name):
    ours = NonmetricMDS(metric="precomputed").fit(DATA[name])
    dissimilarities, reached = ours.shepard_dissimilarities_, ours.shepard_distances_
    want = IsotonicRegression().fit_transform(dissimilarities, reached)
    np.testing.assert_allclose(present(ours.shepard_disparities_), want, rtol=0, atol=1e-9 * reached.max())


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", ["solid", "coarse"])
def test_disparities_equal_the_plain_reference(name, ties):
    ours = NonmetricMDS(metric="precomputed", ties=ties).fit(DATA[name])
    dissimilarities, reached = ours.shepard_dissimilarities_, ours.shepard_distances_
    want = plain.disparities(dissimilarities, reached, ties)
    np.testing.assert_allclose(present(ours.shepard_disparities_), want, rtol=0, atol=1e-9 * reached.max())
    assert (
        np.diff(present(ours.shepard_disparities_)[np.lexsort((reached, dissimilarities))]) >= -1e-9
    ).all()


def test_tied_pairs_have_equal_disparities_only_in_the_secondary_approach():
    """Pairs of equal dissimilarity have one disparity (secondary approach) or several (primary)."""
    wanted = DATA["coarse"]
    secondary, primary = (NonmetricMDS(metric="precomputed", ties=ties).fit(wanted) for ties in TIES)
    for level in np.unique(secondary.shepard_dissimilarities_):
        tied = present(secondary.shepard_disparities_)[secondary.shepard_dissimilarities_ == level]
        np.testing.assert_allclose(tied, tied[0], rtol=1e-9)
    middle = primary.shepard_dissimilarities_ == np.median(plain.of_pairs(wanted))
    some = present(primary.shepard_disparities_)[middle]
    assert np.ptp(some) > 0.01 * some.mean()
    assert primary.stress_ < secondary.stress_
    assert NonmetricMDS().ties == "secondary"


def test_both_approaches_are_equal_without_ties():
    secondary, primary = (NonmetricMDS(metric="precomputed", ties=ties).fit(DATA["solid"]) for ties in TIES)
    assert primary.stress_ == pytest.approx(secondary.stress_, rel=1e-6)


# Kruskal's stress


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("name", DATA)
def test_the_stress_is_kruskals(name, ties):
    wanted = DATA[name]
    ours = NonmetricMDS(metric="precomputed", ties=ties).fit(wanted)
    recomputed = plain.nonmetric_stress(wanted, ours.embedding_, ties)
    assert ours.stress_ == pytest.approx(recomputed, rel=1e-8)
    assert ours.stress_history_[-1] == pytest.approx(recomputed, rel=1e-8)
    of_pairs = plain.stress_one(ours.shepard_distances_, present(ours.shepard_disparities_))
    assert ours.stress_ == pytest.approx(of_pairs, rel=1e-8)
    assert np.isfinite(ours.embedding_).all()
    assert 0 <= ours.stress_ < 0.5


@pytest.mark.parametrize("name", ["solid", "noisy"])
def test_the_stress_does_not_rise(name):
    history = NonmetricMDS(metric="precomputed", tol=1e-10).fit(DATA[name]).stress_history_
    assert (np.diff(history) <= 1e-9).all()
    assert history[-1] < history[0]


@pytest.mark.parametrize("name", ["solid", "noisy", "coarse"])
def test_small_moves_do_not_lower_the_stress(name):
    wanted = DATA[name]
    ours = NonmetricMDS(metric="precomputed", tol=1e-12, max_iter=3000).fit(wanted)
    size, rng = np.abs(ours.embedding_).max(), np.random.default_rng(0)
    for step in (1e-3, 1e-2, 1e-1):
        for _ in range(10):
            moved = ours.embedding_ + step * size * rng.normal(size=ours.embedding_.shape)
            assert plain.nonmetric_stress(wanted, moved) > ours.stress_ * (1 - 1e-3)


# Against scikit-learn


def scikit_learn_mds(wanted, n_init, init):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sklearn.manifold.MDS(
            2,
            metric_mds=False,
            metric="precomputed",
            normalized_stress=True,
            n_init=n_init,
            init=init,
            random_state=0,
        )
        return found.fit(wanted).embedding_


@pytest.mark.parametrize("name", DATA)
def test_the_stress_is_at_most_that_of_scikit_learn(name):
    wanted = DATA[name]
    ours = NonmetricMDS(metric="precomputed").fit(wanted)
    every = [scikit_learn_mds(wanted, 4, "random"), scikit_learn_mds(wanted, 1, "classical_mds")]
    want = min(plain.nonmetric_stress(wanted, points) for points in every)
    assert plain.nonmetric_stress(wanted, ours.embedding_) <= want * (1 + 1e-6)


def test_the_stress_is_lower_than_that_of_metric_scaling():
    for name, wanted in DATA.items():
        metric = streamdr.MetricMDS(metric="precomputed", n_init=2).fit(wanted)
        ours = NonmetricMDS(metric="precomputed").fit(wanted)
        assert ours.stress_ < plain.nonmetric_stress(wanted, metric.embedding_), name


# Only the order counts

MONOTONE: dict[str, Callable[[Any], Any]] = {
    "squares": np.square,
    "roots": lambda x: x**0.3,
    "logarithms": lambda x: np.log1p(5 * x),
    "exponentials": lambda x: np.expm1(x),
    "ranks": lambda x: np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(float),
    "shifted": lambda x: np.where(x > 0, x + 100.0, 0.0),
    "large": lambda x: 1e30 * x,
    "small": lambda x: 1e-30 * x,
}


@pytest.mark.parametrize("name", MONOTONE)
def test_a_monotone_function_of_distances_gives_the_same_map(name):
    places = points_2d(30, seed=3)
    wanted = MONOTONE[name](plain.distances(places))
    ours = NonmetricMDS(metric="precomputed", tol=1e-10, max_iter=2000).fit(wanted)
    assert ours.stress_ < 5e-3
    np.testing.assert_allclose(aligned_and_scaled(ours.embedding_, places), places, atol=0.25)


@pytest.mark.parametrize(
    ("data", "name"), [*(("noisy", name) for name in MONOTONE), ("solid", "large"), ("solid", "small")]
)
def test_a_monotone_function_of_dissimilarities_gives_the_same_stress(data, name):
    wanted = DATA[data]
    moved = MONOTONE[name](wanted)
    one, other = (
        NonmetricMDS(metric="precomputed", tol=1e-8, max_iter=1000).fit(some) for some in (wanted, moved)
    )
    assert other.stress_ == pytest.approx(one.stress_, rel=0.02)
    assert other.stress_ == pytest.approx(plain.nonmetric_stress(wanted, other.embedding_), rel=1e-8)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine"])
def test_points_give_the_same_result_as_their_distances(metric):
    rows = points_5d()
    of_rows = NonmetricMDS(metric=metric, max_iter=40).fit(rows)
    of_matrix = NonmetricMDS(metric="precomputed", max_iter=40).fit(plain.distances(rows, metric=metric))
    assert of_rows.stress_ == pytest.approx(of_matrix.stress_, rel=1e-4)
    want = plain.nonmetric_stress(plain.distances(rows, metric=metric), of_rows.embedding_)
    assert of_rows.stress_ == pytest.approx(want, rel=1e-6)


# Bins


@pytest.mark.parametrize("metric", ["precomputed", "cityblock"])
def test_bins_are_close_to_the_exact_result(metric):
    """Distances that do not fit into memory are binned. The exact stress is that of all pairs."""
    rows = points_5d(60)
    wanted = plain.distances(rows, metric="cityblock")
    given = wanted if metric == "precomputed" else rows
    method = mds.NonmetricMDS(metric=metric, n_init=1, max_iter=80)
    routes = method.routes(MatrixSpec(given.shape[0], given.shape[1], given.dtype))
    assert len(routes) > 1, "one route keeps all pairs in memory, and one streams them"
    models = [checked(StressModel, in_memory(route.method, given)) for route in routes]
    for model in models:
        true = plain.nonmetric_stress(wanted, model.embedding)
        assert model.stress == pytest.approx(true, rel=0.02)
        assert true == pytest.approx(models[0].stress, rel=0.02)
        assert present(model.shepard_disparities).shape == present(model.shepard_distances).shape


def test_more_bins_lower_the_stress():
    """Pairs of a bin are tied: the reported stress is never below the stress without these ties."""
    wanted = plain.distances(points_5d(60))
    spec = MatrixSpec(wanted.shape[0], wanted.shape[1], wanted.dtype)
    true = []
    for n_bins in (10, 100, 10_000):
        method = mds.NonmetricMDS(metric="precomputed", n_init=1, n_bins=n_bins)
        binned = checked(StressModel, in_memory(method.routes(spec)[-1].method, wanted))
        exact = plain.nonmetric_stress(wanted, binned.embedding)
        assert binned.stress >= exact * (1 - 1e-9)
        true.append(binned.stress)
    assert true[2] <= true[1] <= true[0]


# Missing pairs and weights


def incomplete(n, share, seed=0):
    some = np.triu(np.random.default_rng(seed).random((n, n)) < share, 1)
    return some | some.T


def test_a_map_is_recovered_from_the_order_of_some_of_its_distances():
    places = points_2d()
    wanted = np.where(incomplete(N, 0.3), np.nan, plain.distances(places) ** 2)
    ours = NonmetricMDS(metric="precomputed", tol=1e-10, max_iter=2000).fit(wanted)
    assert ours.stress_ == pytest.approx(plain.nonmetric_stress(wanted, ours.embedding_), rel=1e-6, abs=1e-9)
    assert ours.stress_ < 5e-3
    np.testing.assert_allclose(aligned_and_scaled(ours.embedding_, places), places, atol=0.4)


def test_disconnected_pairs_are_refused():
    wanted = plain.distances(points_2d(12))
    wanted[:5, 5:] = wanted[5:, :5] = np.nan
    with pytest.raises(DataError) as refused:
        fit_source(wanted, metric="precomputed")
    assert mentions(refused, 0, 5), refused.value


def test_weights_equal_repeated_points():
    times = np.random.default_rng(5).integers(1, 4, 20)
    wanted = noisy(20)
    for storage in ("memory", "stream"):
        ours = fit_source(wanted, times, metric="precomputed", storage=storage, max_iter=50)
        want = plain.nonmetric_stress(wanted, ours.embedding, weights=np.outer(times, times).astype(float))
        assert ours.stress == pytest.approx(want, rel=1e-6)


# Fitted and new rows


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "precomputed"])
def test_training_rows_keep_their_exact_coordinates(metric):
    rows = points_5d()
    given = plain.distances(rows) if metric == "precomputed" else rows
    ours = NonmetricMDS(metric=metric).fit(given)
    np.testing.assert_array_equal(ours.transform(given), ours.embedding_)
    np.testing.assert_array_equal(ours.transform(given[5:9]), ours.embedding_[5:9])


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_new_points_have_their_true_positions(metric):
    all_points = points_2d(N + 6, seed=4)
    places, new = all_points[:N], all_points[N:]
    stored = metric == "precomputed"
    given = plain.distances(places) if stored else places
    ours = NonmetricMDS(metric=metric, tol=1e-10, max_iter=2000).fit(given)
    placed = ours.transform(plain.distances(new, places) if stored else new)
    together = np.concatenate([ours.embedding_, placed])
    np.testing.assert_allclose(aligned_and_scaled(together, all_points), all_points, atol=0.5)


def test_a_saved_model_maps_the_same(tmp_path):
    rows, new = points_5d(), points_5d(4, seed=9)
    ours = NonmetricMDS(n_init=2).fit(rows)
    ours.save(tmp_path / "model.zarr")
    again = streamdr.load_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.embedding_, ours.embedding_)
    np.testing.assert_array_equal(again.transform(new), ours.transform(new))
    np.testing.assert_array_equal(again.shepard_disparities_, ours.shepard_disparities_)


def test_the_kind_nonmetric_of_the_mds_factory():
    ours = MDS(3, kind="nonmetric", ties="primary")
    assert isinstance(ours, NonmetricMDS)
    assert (ours.n_components, ours.ties, ours.n_init) == (3, "primary", 8)


# Starts


def test_the_best_of_several_starts_is_kept():
    ours = NonmetricMDS(metric="precomputed", n_init=5).fit(DATA["solid"])
    assert len(ours.start_stresses_) == 5
    assert ours.stress_ == pytest.approx(ours.start_stresses_.min(), rel=1e-9)
    one = NonmetricMDS(metric="precomputed", n_init=1).fit(DATA["solid"])
    assert ours.stress_ <= one.stress_ * (1 + 1e-9)
    again = NonmetricMDS(metric="precomputed", n_init=5).fit(DATA["solid"])
    np.testing.assert_array_equal(again.embedding_, ours.embedding_)


# Hostile data


def test_equal_dissimilarities_are_refused():
    for ties in TIES:
        with pytest.raises(DataError, match="order"):
            fit_source(1.0 - np.eye(10), metric="precomputed", ties=ties)


def test_groups_far_apart_stay_finite():
    """With the order alone, groups may shrink to points, but coordinates must stay finite."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(10, 3)) + offset for offset in (0.0, 1e3, 1e6)])
    ours = NonmetricMDS(tol=1e-12, max_iter=1000).fit(rows)
    assert np.isfinite(ours.embedding_).all()
    assert np.abs(ours.embedding_).max() > 0
    assert np.isfinite(ours.stress_history_).all()


def test_duplicate_points():
    rows = np.concatenate([points_5d(15), points_5d(15)])
    for ties in TIES:
        ours = NonmetricMDS(ties=ties).fit(rows)
        want = plain.nonmetric_stress(plain.distances(rows), ours.embedding_, ties)
        assert ours.stress_ == pytest.approx(want, rel=1e-6)


def test_single_precision_and_bytes():
    small = np.random.default_rng(4).integers(150, 256, size=(30, 6), dtype=np.uint8)
    want = NonmetricMDS(max_iter=50).fit(small.astype(np.float64))
    for dtype in (np.uint8, np.float32):
        ours = NonmetricMDS(max_iter=50).fit(small.astype(dtype))
        assert ours.stress_ == pytest.approx(want.stress_, rel=1e-4)
        assert ours.transform(small.astype(dtype)).dtype == np.float32


# Invalid parameters and data


def broken(*places, value):
    bad = plain.distances(np.random.default_rng(6).normal(size=(9, 3)))
    for i, j in places:
        bad[i, j] = value
    return bad


BAD = {
    "negative": (broken((2, 5), (5, 2), value=-0.5), [2, 5, "-0.5"]),
    "diagonal": (broken((4, 4), value=0.25), [4, 0.25, "diagonal"]),
    "asymmetric": (broken((6, 1), value=7.5), [1, 6, 7.5, "symmetric"]),
    "infinite": (broken((3, 8), (8, 3), value=np.inf), [3, 8, "inf"]),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_pair_of_an_invalid_distance(case):
    bad, expected = BAD[case]
    with pytest.raises(DataError) as refused:
        fit_source(bad, metric="precomputed")
    assert mentions(refused, *expected), refused.value


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(DataError, match="square"):
        fit_source(np.ones((9, 8)), metric="precomputed")


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_components", 0),
        ("n_components", N),
        ("ties", "tertiary"),
        ("n_init", 0),
        ("max_iter", 0),
        ("tol", -1.0),
        ("n_bins", 1),
        ("metric", "manhattan"),
    ],
)
def test_invalid_parameters_are_refused(parameter, value):
    with pytest.raises(ParameterError) as refused:
        NonmetricMDS(**{parameter: value}).fit(points_5d())
    assert refused.value.parameter == parameter
