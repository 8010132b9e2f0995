"""Landmark scaling is exact for Euclidean distances, and equals the plain formula for others."""

from __future__ import annotations

from typing import Literal

import numpy as np
import plain_mds as plain
import pytest
import scipy.spatial.distance
import sklearn.decomposition
import zarr
from narrowing import present

import streamdr
from streamdr import MDS, ClassicalMDS, LandmarkMDS
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError, ParameterError
from streamdr.methods import mds
from streamdr.methods.mds import distances

N, D, K = 90, 6, 3
CHOICES: list[Literal["maxmin", "random"]] = ["maxmin", "random"]


def flat(n=N, rank=K, seed=0, offset=0.0):
    """Points of six features in a space of three dimensions."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(99).normal(size=(D, rank)))[0]
    return rng.normal(size=(n, rank)) * np.array([5.0, 3.0, 1.5])[:rank] @ axes.T + offset


@pytest.fixture(scope="module")
def rows():
    """Points of six features, with a large variance in three dimensions."""
    rng = np.random.default_rng(1)
    return flat() + 0.2 * rng.normal(size=(N, D)) + 1.0


@pytest.fixture(scope="module")
def new():
    rng = np.random.default_rng(2)
    return flat(25, seed=3) + 0.2 * rng.normal(size=(25, D)) + 1.0


def fit_source(values, **parameters):
    return fitting.fit(mds.LandmarkMDS(**parameters), open_source(values), Execution()).model


def same_points(got, want, tolerance=1e-8):
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def up_to_sign(got, want):
    return got * np.sign(np.sum(got * want, axis=0))


def chebyshev(x, y):
    """A user-defined metric."""
    return np.abs(x - y).max()


# Euclidean distances in few dimensions


@pytest.mark.parametrize("landmarks", CHOICES)
@pytest.mark.parametrize("n_landmarks", [K + 1, 10, 40, N])
def test_euclidean_distances_are_recovered(n_landmarks, landmarks):
    rows, new = flat(offset=2.0), flat(20, seed=5, offset=2.0)
    ours = LandmarkMDS(K, n_landmarks=n_landmarks, landmarks=landmarks).fit(rows)
    same_points(plain.distances(ours.transform(rows)), plain.distances(rows))
    same_points(plain.distances(ours.transform(new)), plain.distances(new))
    same_points(plain.distances(ours.transform(new), ours.transform(rows)), plain.distances(new, rows))
    assert ours.stress_ == pytest.approx(0.0, abs=1e-8)
    assert len(present(ours.landmark_rows_)) == n_landmarks


@pytest.mark.parametrize("landmarks", CHOICES)
def test_stored_euclidean_distances_are_recovered(landmarks):
    rows, new = flat(), flat(20, seed=5)
    wanted = plain.distances(rows)
    ours = LandmarkMDS(K, metric="precomputed", n_landmarks=12, landmarks=landmarks).fit(wanted)
    same_points(plain.distances(ours.transform(wanted)), wanted)
    same_points(plain.distances(ours.transform(plain.distances(new, rows))), plain.distances(new))
    assert ours.stress_ == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("landmarks", CHOICES)
def test_a_large_offset_changes_nothing(landmarks):
    rows = flat(offset=1e8)
    for metric in ("euclidean", "cityblock"):
        given = {"metric": metric, "n_landmarks": 12, "landmarks": landmarks}
        ours, want = (LandmarkMDS(K, **given).fit(some) for some in (rows, rows - 1e8))
        np.testing.assert_array_equal(ours.landmark_rows_, want.landmark_rows_)
        np.testing.assert_allclose(ours.eigenvalues_, want.eigenvalues_, rtol=1e-9)
        same_points(ours.transform(rows), want.transform(rows - 1e8), 1e-9)


# The plain formula


@pytest.mark.parametrize("landmarks", CHOICES)
@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", chebyshev, "precomputed"])
def test_any_metric_equals_the_plain_formula(metric, landmarks, rows, new):
    def between(x, y):
        if callable(metric):
            return np.array([[metric(a, b) for b in y] for a in x])
        return plain.distances(x, y, "cityblock" if metric == "precomputed" else metric)

    stored = metric == "precomputed"
    ours = LandmarkMDS(K, metric=metric, n_landmarks=25, landmarks=landmarks)
    ours.fit(between(rows, rows) if stored else rows)
    chosen = rows[present(ours.landmark_rows_).astype(int)]
    values, want = plain.landmark(between(chosen, chosen), between(rows, chosen), K)
    np.testing.assert_allclose(ours.eigenvalues_, values[:K], rtol=1e-9)
    placed = ours.transform(between(rows, rows) if stored else rows)
    same_points(up_to_sign(placed, want), want)
    _, want_new = plain.landmark(between(chosen, chosen), between(new, chosen), K)
    got_new = ours.transform(between(new, rows) if stored else new)
    same_points(up_to_sign(got_new, want_new), want_new)
    same_points(got_new * np.sign(np.sum(placed * want, axis=0)), want_new)
    np.testing.assert_allclose(
        present(ours.mean_squares_), np.mean(between(chosen, chosen) ** 2, axis=0), rtol=1e-9
    )
    if not stored:
        np.testing.assert_array_equal(ours.landmarks_, chosen)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_landmark_mds_of_all_rows_is_classical_mds(metric, rows, new):
    ours = LandmarkMDS(K, metric=metric, n_landmarks=N).fit(rows)
    whole = ClassicalMDS(K, metric=metric, solver="exact").fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
    for given in (rows, new):
        want = whole.transform(given)
        same_points(up_to_sign(ours.transform(given), want), want)


def test_landmark_mds_of_all_rows_is_pca(rows):
    pca = sklearn.decomposition.PCA(K).fit(rows)
    ours = LandmarkMDS(K, n_landmarks=N).fit(rows)
    want = pca.transform(rows)
    same_points(up_to_sign(ours.transform(rows), want), want)


def test_landmarks_have_the_coordinates_of_classical_mds(rows):
    ours = LandmarkMDS(K, metric="cityblock", n_landmarks=20).fit(rows)
    chosen = rows[present(ours.landmark_rows_).astype(int)]
    _, want = plain.classical(plain.distances(chosen, metric="cityblock"), K)
    same_points(up_to_sign(ours.transform(chosen), want), want)


# The choice of landmarks


@pytest.mark.parametrize("landmarks", CHOICES)
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "precomputed"])
def test_landmarks_are_distinct_rows(metric, landmarks, rows):
    given = plain.distances(rows) if metric == "precomputed" else rows
    for n_landmarks in (4, 30, N):
        ours = LandmarkMDS(2, metric=metric, n_landmarks=n_landmarks, landmarks=landmarks).fit(given)
        assert len(set(present(ours.landmark_rows_).tolist())) == n_landmarks
        assert ((present(ours.landmark_rows_) >= 0) & (present(ours.landmark_rows_) < N)).all()


def test_maxmin_landmarks_are_far_from_each_other(rows):
    """No two landmarks are closer than the largest distance of any row to its nearest landmark."""
    wanted = plain.distances(rows)
    ours = LandmarkMDS(2, n_landmarks=15, landmarks="maxmin").fit(rows)
    chosen = present(ours.landmark_rows_).astype(int)
    closest = wanted[np.ix_(chosen, chosen)][~np.eye(15, dtype=bool)].min()
    left = wanted[:, chosen].min(axis=1).max()
    assert closest >= left - 1e-12
    at_random = present(LandmarkMDS(2, n_landmarks=15, landmarks="random").fit(rows).landmark_rows_).astype(
        int
    )
    assert wanted[np.ix_(at_random, at_random)][~np.eye(15, dtype=bool)].min() < closest


def test_maxmin_finds_outliers(rows):
    some = rows.copy()
    some[[7, 50]] += 1000.0
    some[50] *= -1
    assert {7, 50} <= set(present(LandmarkMDS(2, n_landmarks=4).fit(some).landmark_rows_).tolist())


def test_seeds_of_random_landmarks(rows):
    one, again, other = (
        LandmarkMDS(2, n_landmarks=10, landmarks="random", random_state=seed).fit(rows) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.landmark_rows_, again.landmark_rows_)
    assert set(present(one.landmark_rows_).tolist()) != set(present(other.landmark_rows_).tolist())


def test_fewer_distinct_points_than_landmarks():
    """Thirty rows have five distinct values: there are at most five distinct landmarks."""
    places = flat(5)
    rows = places[np.arange(30) % 5]
    ours = LandmarkMDS(K, n_landmarks=20).fit(rows)
    same_points(plain.distances(ours.transform(rows)), plain.distances(rows))


def test_duplicates_have_the_same_coordinates(rows):
    double = np.concatenate([rows, rows])
    for metric in ("euclidean", "cityblock"):
        placed = LandmarkMDS(2, metric=metric, n_landmarks=20).fit(double).transform(double)
        same_points(placed[:N], placed[N:], 1e-12)


# Stress and other attributes


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "precomputed"])
@pytest.mark.parametrize("landmarks", CHOICES)
def test_the_stress_of_few_rows_is_that_of_all_pairs(metric, landmarks, rows):
    stored = metric == "precomputed"
    wanted = plain.distances(rows, metric="cityblock" if stored else metric)
    given = wanted if stored else rows
    ours = LandmarkMDS(2, metric=metric, n_landmarks=15, landmarks=landmarks).fit(given)
    reached = plain.distances(ours.transform(given))
    assert ours.stress_ > 0.01
    want = plain.stress_one(plain.of_pairs(reached), plain.of_pairs(wanted))
    assert ours.stress_ == pytest.approx(want, rel=1e-8)
    order = np.argsort(ours.shepard_dissimilarities_)
    np.testing.assert_allclose(ours.shepard_dissimilarities_[order], np.sort(plain.of_pairs(wanted)))
    best = np.argsort(plain.of_pairs(wanted))
    np.testing.assert_allclose(ours.shepard_distances_[order], plain.of_pairs(reached)[best], atol=1e-9)


def test_the_stress_of_many_rows_is_that_of_sampled_pairs():
    rows = np.random.default_rng(4).normal(size=(3000, 5)) * [4, 3, 1, 0.5, 0.5]
    ours = LandmarkMDS(2, n_landmarks=50).fit(rows)
    placed = ours.transform(rows)
    pairs = np.random.default_rng(0).integers(0, 3000, size=(2, 20_000))
    wanted, reached = (np.linalg.norm(some[pairs[0]] - some[pairs[1]], axis=1) for some in (rows, placed))
    assert ours.stress_ == pytest.approx(plain.stress_one(reached, wanted), rel=0.1)
    assert ours.stress_ == pytest.approx(
        plain.stress_one(ours.shepard_distances_, ours.shepard_dissimilarities_), rel=1e-9
    )
    assert len(ours.shepard_distances_) <= 10_000


def test_few_landmarks_are_nearly_as_good_as_all():
    rows = np.random.default_rng(4).normal(size=(400, 5)) * [4, 3, 1, 0.5, 0.5]
    best = ClassicalMDS(2, solver="exact").fit(rows).stress_
    for landmarks in CHOICES:
        assert LandmarkMDS(2, n_landmarks=40, landmarks=landmarks).fit(rows).stress_ < 1.2 * best


def test_the_kind_landmark_of_the_mds_factory(rows):
    ours = MDS(kind="landmark", n_landmarks=10)
    assert isinstance(ours, LandmarkMDS)
    assert ours.get_params()["n_landmarks"] == 10
    assert ours.fit(rows).embedding_ is None
    assert ours.transform(rows).shape == (N, 2)
    assert list(ours.get_feature_names_out()) == ["landmarkmds0", "landmarkmds1"]


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "precomputed"])
def test_a_saved_model_maps_the_same(metric, rows, tmp_path):
    given = plain.distances(rows) if metric == "precomputed" else rows
    ours = LandmarkMDS(2, metric=metric, n_landmarks=11).fit(given)
    ours.save(tmp_path / "model.zarr")
    again = streamdr.load_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.transform(given), ours.transform(given))
    np.testing.assert_array_equal(again.landmark_rows_, ours.landmark_rows_)


# Hostile data


def test_single_precision(rows):
    for offset, tolerance in ((0.0, 2e-6), (1e4, 2e-4)):
        single = (flat() + offset).astype(np.float32)
        for metric in ("euclidean", "cityblock"):
            ours = LandmarkMDS(K, metric=metric, n_landmarks=12).fit(single)
            want = LandmarkMDS(K, metric=metric, n_landmarks=12).fit(single.astype(np.float64))
            np.testing.assert_array_equal(ours.landmark_rows_, want.landmark_rows_)
            np.testing.assert_allclose(ours.eigenvalues_, want.eigenvalues_, rtol=1e-6)
            placed = ours.transform(single)
            assert placed.dtype == np.float32
            same_points(placed.astype(float), want.transform(single.astype(np.float64)), tolerance)


def test_unsigned_bytes_do_not_overflow():
    small = np.random.default_rng(4).integers(180, 256, size=(40, 6), dtype=np.uint8)
    for metric in ("euclidean", "cityblock", "cosine"):
        ours = LandmarkMDS(2, metric=metric, n_landmarks=15).fit(small)
        want = LandmarkMDS(2, metric=metric, n_landmarks=15).fit(small.astype(np.float64))
        np.testing.assert_allclose(ours.eigenvalues_, want.eigenvalues_, rtol=1e-12)
        same_points(ours.transform(small), want.transform(small.astype(np.float64)), 1e-5)


@pytest.mark.parametrize("chunks", [(7, 6), (1, 6), (90, 1), (31, 4)])
def test_any_chunks_of_a_store(chunks, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("streamdr.core.blocks.LARGEST_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 1 << 11)
    zarr.create_array(tmp_path / "x.zarr", shape=rows.shape, chunks=chunks, dtype="f8")[:] = rows
    ours = LandmarkMDS(2, metric="cityblock", n_landmarks=20).fit(tmp_path / "x.zarr")
    chosen = rows[present(ours.landmark_rows_).astype(int)]
    values, want = plain.landmark(
        plain.distances(chosen, metric="cityblock"), plain.distances(rows, chosen, "cityblock"), 2
    )
    np.testing.assert_allclose(ours.eigenvalues_, values[:2], rtol=1e-9)
    same_points(up_to_sign(ours.transform(rows), want), want)


# Invalid parameters and data


def broken(*places, value):
    bad = plain.distances(np.random.default_rng(6).normal(size=(9, 3)))
    for i, j in places:
        bad[i, j] = value
    return bad


@pytest.mark.parametrize(
    ("bad", "pair"),
    [
        (broken((2, 5), (5, 2), value=-0.5), (2, 5)),
        (broken((4, 4), value=0.25), (4,)),
        (broken((6, 1), value=7.5), (1, 6)),
        (broken((3, 8), (8, 3), value=np.inf), (3, 8)),
        (broken((3, 8), (8, 3), value=np.nan), (3, 8)),
    ],
    ids=["negative", "diagonal", "asymmetric", "infinite", "missing"],
)
def test_errors_name_the_pair_of_an_invalid_distance(bad, pair):
    """Also where the pair is not a pair of landmarks."""
    for seed in range(3):
        with pytest.raises(DataError) as refused:
            fit_source(bad, metric="precomputed", n_landmarks=4, random_state=seed)
        words = str(refused.value).replace(":", " ").replace(",", " ").split()
        assert {str(number) for number in pair} <= set(words), refused.value


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(DataError, match="square"):
        fit_source(np.ones((9, 8)), metric="precomputed", n_landmarks=4)


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        ("n_components", {"n_components": 0}),
        ("n_components", {"n_landmarks": 2}),
        ("n_components", {"n_components": 7, "n_landmarks": 7}),
        ("landmarks", {"landmarks": "kmeans"}),
        ("metric", {"metric": "chebyshev"}),
        ("n_components", {"n_components": K + 1}),
        ("n_components", {"n_components": K + 1, "n_landmarks": 30}),
    ],
)
def test_invalid_parameters_are_refused(parameter, given):
    with pytest.raises(ParameterError) as refused:
        LandmarkMDS(**given).fit(flat())
    assert refused.value.parameter == parameter


def test_all_rows_are_landmarks_if_there_are_fewer_rows(rows):
    ours = LandmarkMDS(2, n_landmarks=500).fit(rows)
    assert len(present(ours.landmark_rows_)) == N


def test_identical_points_are_refused():
    with pytest.raises((ParameterError, DataError)):
        LandmarkMDS(2, n_landmarks=5).fit(np.full((20, 4), 3.0))


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine"])
def test_distances_of_pairs_do_not_depend_on_the_batch_size(monkeypatch, metric):
    points = np.random.default_rng(0).standard_normal((50, 7))
    pairs = np.random.default_rng(1).integers(0, 50, (333, 2))
    whole = distances.pair_distances(metric, points, pairs)
    monkeypatch.setattr(distances, "PAIR_BYTES", 300)
    np.testing.assert_array_equal(distances.pair_distances(metric, points, pairs), whole)
    apart = scipy.spatial.distance.cdist(points, points, metric)[pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(whole, apart, rtol=1e-12, atol=1e-12)
