"""Classical scaling against published values, PCA, and eigenvalues of whole matrices."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import plain_mds as plain
import pytest
import sklearn.decomposition
import zarr
from narrowing import present

import streamdr
from streamdr import MDS, ClassicalMDS, store
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError, ParameterError
from streamdr.methods import mds
from streamdr.testing import hostile_data

N, D = 60, 5
SOLVERS: list[Literal["exact", "krylov"]] = ["exact", "krylov"]
WIDTHS = np.array([4.0, 2.5, 1.5, 0.8, 0.3])
"""Standard deviations of the columns, such that no two eigenvalues are close."""


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(N, D)) * WIDTHS + 3.0


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(1).normal(size=(20, D)) * WIDTHS + 3.0


@pytest.fixture(scope="module")
def road_distances():
    """Distances along roads between places: a metric that is far from Euclidean."""
    rng = np.random.default_rng(2)
    links = np.full((N, N), np.inf)
    np.fill_diagonal(links, 0.0)
    for i in range(1, N):
        for j in (i - 1, int(rng.integers(0, i))):
            links[i, j] = links[j, i] = rng.uniform(1, 4)
    return plain.shortest_paths(links)


def chebyshev(x, y):
    """A user-defined metric of two rows."""
    return np.abs(x - y).max()


def chebyshev_blocks(x, y):
    """The same metric for two blocks of rows."""
    return np.abs(np.asarray(x)[:, None] - np.asarray(y)[None]).max(axis=2)


def by_hand(rows, metric, other=None):
    if callable(metric):
        other = rows if other is None else other
        return np.array([[chebyshev(x, y) for y in other] for x in rows])
    return plain.distances(rows, other, metric)


def fit_source(values, **parameters):
    """Fit without the input checks of scikit-learn, as for a store."""
    return fitting.fit(mds.ClassicalMDS(**parameters), open_source(values), Execution()).model


def same_points(got, want, tolerance=1e-9):
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def same_up_to_sign(got, want, tolerance=1e-9):
    same_points(got * np.sign(np.sum(got * want, axis=0)), want, tolerance)


# Published values

CITIES = np.array(
    [
        [0.0, 93.0, 82.0, 133.0],
        [93.0, 0.0, 52.0, 60.0],
        [82.0, 52.0, 0.0, 111.0],
        [133.0, 60.0, 111.0, 0.0],
    ]
)
"""Copenhagen, Aarhus, Odense, Aalborg."""


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_published_coordinates_of_danish_cities(solver):
    ours = ClassicalMDS(2, metric="precomputed", solver=solver).fit(CITIES)
    np.testing.assert_allclose(ours.eigenvalues_, [9724.168, 3160.986], atol=5e-4)
    table = np.array([(-62.831, -32.974), (18.403, 12.027), (-24.960, 39.711), (69.388, -18.763)])
    signs = np.sign(np.sum(ours.embedding_ * table, axis=0))
    np.testing.assert_allclose(ours.embedding_ * signs, table, atol=5e-4)
    values, coordinates = plain.classical(CITIES, 2)
    np.testing.assert_allclose(ours.eigenvalues_, values[:2], rtol=1e-10)
    same_points(ours.embedding_, coordinates)
    same_points(ours.fit_transform(CITIES), coordinates)


def test_the_stress_of_danish_cities_is_that_of_all_pairs():
    ours = ClassicalMDS(2, metric="precomputed").fit(CITIES)
    np.testing.assert_allclose(np.sort(ours.shepard_dissimilarities_), np.sort(plain.of_pairs(CITIES)))
    reached = plain.distances(present(ours.embedding_))
    np.testing.assert_allclose(np.sort(ours.shepard_distances_), np.sort(plain.of_pairs(reached)))
    wanted = plain.stress_one(plain.of_pairs(reached), plain.of_pairs(CITIES))
    assert ours.stress_ == pytest.approx(wanted, rel=1e-9)


# Euclidean distances


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_euclidean_distances_give_the_scores_of_pca(solver, rows, new):
    pca = sklearn.decomposition.PCA(3).fit(rows)
    ours = ClassicalMDS(3, solver=solver, tol=1e-12, max_passes=30).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, pca.explained_variance_ * (N - 1), rtol=1e-9)
    same_up_to_sign(ours.transform(rows), pca.transform(rows))
    same_up_to_sign(ours.transform(new), pca.transform(new))
    assert ours.n_features_in_ == D


@pytest.mark.parametrize("solver", SOLVERS)
def test_stored_distances_give_the_scores_of_pca(solver, rows, new):
    pca = sklearn.decomposition.PCA(3).fit(rows)
    ours = ClassicalMDS(3, metric="precomputed", solver=solver, tol=1e-12, max_passes=30)
    ours.fit(plain.distances(rows))
    same_up_to_sign(ours.embedding_, pca.transform(rows))
    same_up_to_sign(ours.transform(plain.distances(new, rows)), pca.transform(new))


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_all_dimensions_reproduce_all_distances(solver, rows):
    ours = ClassicalMDS(D, solver=solver, tol=1e-12, max_passes=30).fit(rows)
    same_points(plain.distances(ours.transform(rows)), plain.distances(rows), 1e-8)
    assert ours.stress_ == pytest.approx(0.0, abs=1e-8)
    assert ours.explained_squares_ == pytest.approx(1.0, abs=1e-9)
    if ours.goodness_of_fit_ is not None:
        assert ours.goodness_of_fit_ == pytest.approx(1.0, abs=1e-9)
    assert len(present(ours.negative_eigenvalues_)) == 0


def test_solvers_have_the_same_signs(rows):
    whole, streamed = (
        ClassicalMDS(3, metric="cityblock", solver=solver, tol=1e-11, max_passes=30).fit(rows)
        for solver in SOLVERS
    )
    same_points(streamed.embedding_, whole.embedding_, 1e-8)
    embedding = present(whole.embedding_)
    largest = np.argmax(np.abs(embedding), axis=0)
    assert (embedding[largest, [0, 1, 2]] > 0).all()


# All metrics


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", chebyshev, chebyshev_blocks])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_metric_equals_the_plain_reference(solver, metric, rows, new):
    k = 3
    wanted = by_hand(rows, metric)
    values, coordinates = plain.classical(wanted, k)
    ours = ClassicalMDS(k, metric=metric, solver=solver, tol=1e-12, max_passes=30).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, values[:k], rtol=1e-9)
    same_points(ours.embedding_, coordinates, 1e-8)
    same_points(ours.transform(rows), coordinates, 1e-8)
    _, placed = plain.landmark(wanted, by_hand(new, metric, rows), k)
    same_points(ours.transform(new), placed, 1e-8)
    assert ours.explained_squares_ == pytest.approx(
        np.sum(values[:k] ** 2) / np.sum(plain.double_centred(wanted) ** 2), rel=1e-9
    )


@pytest.mark.parametrize("metric", ["cityblock", "cosine", chebyshev])
def test_a_distance_matrix_gives_the_same_result_as_the_rows(metric, rows, new):
    wanted, between = by_hand(rows, metric), by_hand(new, metric, rows)
    for solver in SOLVERS:
        given: dict[str, Any] = {"solver": solver, "tol": 1e-12, "max_passes": 30}
        of_rows = ClassicalMDS(3, metric=metric, **given).fit(rows)
        of_matrix = ClassicalMDS(3, metric="precomputed", **given).fit(wanted)
        np.testing.assert_allclose(of_matrix.eigenvalues_, of_rows.eigenvalues_, rtol=1e-9)
        same_points(of_matrix.embedding_, of_rows.embedding_, 1e-8)
        same_points(of_matrix.transform(between), of_rows.transform(new), 1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_negative_eigenvalues_of_distances_that_are_not_euclidean(solver, road_distances):
    """Negative eigenvalues are reported, and the largest positive ones are kept."""
    values, coordinates = plain.classical(road_distances, 3)
    assert values[-1] < -0.05 * values[0]
    ours = ClassicalMDS(3, metric="precomputed", solver=solver, tol=1e-12, max_passes=30).fit(road_distances)
    np.testing.assert_allclose(ours.eigenvalues_, values[:3], rtol=1e-9)
    same_points(ours.embedding_, coordinates, 1e-8)
    negative = present(ours.negative_eigenvalues_)
    assert len(negative)
    assert (np.diff(negative) >= 0).all(), "ascending"
    assert (negative < 0).all()
    assert negative[0] == pytest.approx(values[-1], rel=1e-9 if solver == "exact" else 1e-3)
    squares = np.sum(values[:3] ** 2) / np.sum(values**2)
    assert ours.explained_squares_ == pytest.approx(squares, rel=1e-9)
    if solver == "exact":
        assert ours.goodness_of_fit_ == pytest.approx(np.sum(values[:3]) / np.sum(np.abs(values)), rel=1e-9)
        np.testing.assert_allclose(negative, values[::-1][: len(negative)], rtol=1e-9)
    else:
        assert ours.goodness_of_fit_ is None
    assert any("not Euclidean" in note for note in ours.model_.summary()["notes"])


def test_a_large_negative_eigenvalue_is_not_kept():
    """Points are closer to other groups than to their own, so a negative eigenvalue dominates."""
    groups = np.arange(24) % 3
    wanted = np.where(groups[:, None] == groups, 2.0, 1.0)
    np.fill_diagonal(wanted, 0.0)
    values, _ = plain.classical(wanted, 2)
    assert -values[-1] > values[0]
    for solver in SOLVERS:
        ours = ClassicalMDS(2, metric="precomputed", solver=solver, tol=1e-12, max_passes=30).fit(wanted)
        np.testing.assert_allclose(ours.eigenvalues_, values[:2], rtol=1e-9)
        negative = present(ours.negative_eigenvalues_)
        if solver == "exact":
            assert negative[0] == pytest.approx(values[-1], rel=1e-9)
        else:  # the smallest Ritz value is an upper bound
            assert values[-1] * (1 + 1e-9) <= negative[0] < 0


def test_the_residuals_of_krylov_are_below_the_tolerance(road_distances):
    """The residual is |B v - lambda v| relative to the largest eigenvalue."""
    inner = plain.double_centred(road_distances)
    for tol in (1e-2, 1e-6, 1e-10):
        ours = ClassicalMDS(3, metric="precomputed", solver="krylov", tol=tol, max_passes=40).fit(
            road_distances
        )
        vectors = ours.embedding_ / np.sqrt(ours.eigenvalues_)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-9)
        left = np.linalg.norm(inner @ vectors - vectors * ours.eigenvalues_, axis=0)
        assert left.max() <= 1.001 * tol * np.abs(np.linalg.eigvalsh(inner)).max()


def test_cosine_distances_of_rows_of_zeros(rows):
    some = rows.copy()
    some[[3, 17]] = 0.0
    values, coordinates = plain.classical(plain.distances(some, metric="cosine"), 3)
    for solver in SOLVERS:
        ours = ClassicalMDS(3, metric="cosine", solver=solver, tol=1e-12, max_passes=30).fit(some)
        np.testing.assert_allclose(ours.eigenvalues_, values[:3], rtol=1e-9)
        same_points(ours.embedding_, coordinates, 1e-8)
        embedding = present(ours.embedding_)
        same_points(embedding[3], embedding[17])


def test_seeds_of_krylov(road_distances):
    given: dict[str, Any] = {"metric": "precomputed", "solver": "krylov", "tol": 1e-12, "max_passes": 40}
    one, again, other = (
        ClassicalMDS(2, random_state=seed, **given).fit(road_distances) for seed in (0, 0, 5)
    )
    np.testing.assert_array_equal(one.embedding_, again.embedding_)
    same_points(one.embedding_, other.embedding_, 1e-8)


# Fitted and new rows


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine", chebyshev, "precomputed"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_training_rows_keep_their_coordinates(solver, metric, rows):
    given = plain.distances(rows, metric="cityblock") if metric == "precomputed" else rows
    ours = ClassicalMDS(2, metric=metric, solver=solver, tol=1e-12, max_passes=30).fit(given)
    same_points(ours.transform(given), ours.embedding_, 1e-9)
    embedding = present(ours.embedding_)
    np.testing.assert_allclose(embedding.mean(axis=0), 0.0, atol=1e-10 * np.abs(embedding).max())
    assert embedding.shape == (N, 2)


@pytest.mark.parametrize("metric", ["cityblock", "precomputed"])
def test_a_saved_model_maps_the_same(metric, rows, tmp_path):
    given = plain.distances(rows) if metric == "precomputed" else rows
    ours = ClassicalMDS(2, metric=metric).fit(given)
    ours.save(tmp_path / "model.zarr")
    again = streamdr.load_model(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.transform(given), ours.transform(given))
    np.testing.assert_array_equal(again.embedding_, ours.embedding_)
    assert again.get_params() == ours.get_params()


def test_the_kind_classical_of_the_mds_factory(rows):
    same = MDS(3, kind="classical", metric="cityblock").fit(rows)
    assert isinstance(same, ClassicalMDS)
    np.testing.assert_array_equal(same.embedding_, ClassicalMDS(3, metric="cityblock").fit(rows).embedding_)
    with pytest.raises(ParameterError) as refused:
        MDS(kind="classic")  # type: ignore[arg-type]
    assert refused.value.parameter == "kind"


def test_precomputed_distances_have_the_pairwise_tag():
    assert ClassicalMDS(metric="precomputed").__sklearn_tags__().input_tags.pairwise
    assert not ClassicalMDS().__sklearn_tags__().input_tags.pairwise


# Hostile data


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_a_large_offset_changes_nothing(solver, metric, rows):
    shifted = rows + 1e8
    kept = shifted - 1e8  # the rows after rounding in float64
    given: dict[str, Any] = {"metric": metric, "solver": solver, "tol": 1e-12, "max_passes": 30}
    ours, want = (ClassicalMDS(3, **given).fit(some) for some in (shifted, kept))
    np.testing.assert_allclose(ours.eigenvalues_, want.eigenvalues_, rtol=1e-9)
    same_up_to_sign(ours.transform(shifted), want.transform(kept), 1e-9)
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-6)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_single_precision(solver, rows):
    for offset in (0.0, 1e4):
        single = (rows + offset).astype(np.float32)
        pca = sklearn.decomposition.PCA(2).fit(single.astype(np.float64))
        ours = ClassicalMDS(2, solver=solver, max_passes=30).fit(single)
        np.testing.assert_allclose(ours.eigenvalues_, pca.explained_variance_ * (N - 1), rtol=1e-5)
        scores = ours.transform(single)
        assert scores.dtype == np.float32
        same_up_to_sign(scores.astype(float), pca.transform(single.astype(np.float64)), 2e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_unsigned_bytes_do_not_overflow(solver, metric):
    rng = np.random.default_rng(4)
    small = rng.integers(180, 256, size=(40, 6), dtype=np.uint8)
    values, coordinates = plain.classical(plain.distances(small, metric=metric), 2)
    ours = ClassicalMDS(2, metric=metric, solver=solver, tol=1e-10, max_passes=30).fit(small)
    np.testing.assert_allclose(ours.eigenvalues_, values[:2], rtol=1e-9)
    same_points(ours.embedding_, coordinates, 1e-6)


def test_distances_of_other_dtypes():
    rng = np.random.default_rng(5)
    places = rng.integers(0, 100, size=(30, 2))
    whole = plain.distances(places, metric="cityblock")
    values, coordinates = plain.classical(whole, 2)
    for dtype in (np.uint8, np.int32, np.float32, ">f8"):
        for solver in SOLVERS:
            ours = ClassicalMDS(2, metric="precomputed", solver=solver, tol=1e-10, max_passes=30)
            ours.fit(whole.astype(dtype))
            np.testing.assert_allclose(ours.eigenvalues_, values[:2], rtol=1e-9)
            same_points(ours.embedding_, coordinates, 1e-7)


def test_single_precision_distances_are_symmetric_enough(rows):
    """Both distances of a pair may differ in the last digit of single precision."""
    wanted = plain.distances(rows)
    nearly = wanted.astype(np.float32)
    nearly[np.tril_indices(N, -1)] = np.nextafter(nearly[np.tril_indices(N, -1)], np.float32(np.inf))
    ours = ClassicalMDS(2, metric="precomputed").fit(nearly)
    same_points(ours.embedding_, plain.classical(wanted, 2)[1], 1e-5)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_duplicate_points(solver, rows):
    double = np.concatenate([rows, rows, rows[:7]])
    wanted = plain.classical(plain.distances(double), 3)
    ours = ClassicalMDS(3, solver=solver, tol=1e-12, max_passes=30).fit(double)
    np.testing.assert_allclose(ours.eigenvalues_, wanted[0][:3], rtol=1e-9)
    scores = ours.transform(double)
    same_up_to_sign(scores, wanted[1], 1e-8)
    same_points(scores[:N], scores[N : 2 * N], 1e-12)


@pytest.mark.parametrize("scale", [1e-60, 1e-8, 1e8, 1e60])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_scale_of_distances_does_not_matter(solver, scale, road_distances):
    given: dict[str, Any] = {"metric": "precomputed", "solver": solver, "tol": 1e-12, "max_passes": 30}
    ours = ClassicalMDS(2, **given).fit(road_distances * scale)
    want = ClassicalMDS(2, **given).fit(road_distances)
    same_points(ours.embedding_ / scale, want.embedding_, 1e-9)
    assert ours.stress_ == pytest.approx(want.stress_, rel=1e-9)


@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_one_large_variance_does_not_hide_small_ones(solver, metric):
    """The common part of all squares must not leak into coordinates that are 100,000 times smaller."""
    rows = hostile_data("drifting", N, 8)
    given = plain.distances(rows) if metric == "precomputed" else rows
    ours = ClassicalMDS(2, metric=metric, solver=solver, tol=1e-13, max_passes=30).fit(given)
    want = sklearn.decomposition.PCA(2).fit_transform(rows)
    same_up_to_sign(present(ours.embedding_)[:, 1:], want[:, 1:], 0.01)
    same_up_to_sign(ours.transform(given)[:, 1:], want[:, 1:], 0.01)


@pytest.mark.parametrize("chunks", [(7, 60), (1, 60), (60, 11), (13, 17)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_chunks_of_a_store(solver, chunks, road_distances, tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("streamdr.core.blocks.LARGEST_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 1 << 13)
    array = zarr.create_array(tmp_path / "d.zarr", shape=road_distances.shape, chunks=chunks, dtype="f8")
    array[:] = road_distances
    given: dict[str, Any] = {"metric": "precomputed", "solver": solver, "tol": 1e-12, "max_passes": 30}
    ours = ClassicalMDS(3, **given).fit(tmp_path / "d.zarr")
    values, coordinates = plain.classical(road_distances, 3)
    np.testing.assert_allclose(ours.eigenvalues_, values[:3], rtol=1e-9)
    same_points(ours.embedding_, coordinates, 1e-8)
    same_points(np.asarray(ours.transform(array)), coordinates, 1e-8)


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
    "infinite": (broken((3, 8), (8, 3), value=np.inf), [3, 8, "inf"]),
    "missing": (broken((3, 8), (8, 3), value=np.nan), [3, 8, "nan"]),
}


def mentions(error, *expected):
    """Whether an error message contains all of these words and numbers."""
    return all(re.search(rf"(?<![\w.]){re.escape(str(word))}\b", str(error.value)) for word in expected)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_pair_of_an_invalid_distance(case, solver):
    bad, expected = BAD[case]
    with pytest.raises(DataError) as refused:
        fit_source(bad, metric="precomputed", solver=solver)
    assert mentions(refused, *expected), refused.value


@pytest.mark.parametrize("case", BAD)
def test_the_estimator_refuses_invalid_distances(case):
    with pytest.raises(ValueError):
        ClassicalMDS(metric="precomputed").fit(BAD[case][0])


def test_the_error_names_both_values_of_an_asymmetric_pair():
    bad = plain.distances(np.arange(9.0)[:, None] ** 1.5)
    bad[7, 2] = 100.5
    for solver in SOLVERS:
        with pytest.raises(DataError) as refused:
            fit_source(bad, metric="precomputed", solver=solver)
        assert mentions(refused, 2, 7, 100.5, f"{bad[2, 7]:g}"), refused.value


@pytest.mark.parametrize("gap", [1e-6, 1e-3])
def test_a_small_asymmetry_is_found_in_double_precision(gap, road_distances):
    bad = road_distances.copy()
    bad[50, 3] += gap
    for solver in SOLVERS:
        with pytest.raises(DataError, match="symmetric") as refused:
            fit_source(bad, metric="precomputed", solver=solver)
        assert mentions(refused, 50, 3), refused.value


def test_rounding_is_not_an_asymmetry(road_distances):
    nearly = road_distances * (1 + 1e-15 * np.random.default_rng(0).normal(size=road_distances.shape))
    same_points(
        fit_source(nearly, metric="precomputed").embedding, plain.classical(road_distances, 2)[1], 1e-9
    )


def test_a_function_that_is_not_a_metric_is_refused(rows):
    for function in (lambda x, y: x[0] - y[0], lambda x, y: np.nan, lambda x, y: -1.0):
        with pytest.raises(DataError):
            fit_source(rows, metric=function)


def test_an_asymmetric_function_is_refused(rows):
    with pytest.raises(DataError, match="symmetric"):
        fit_source(rows, metric=lambda x, y: abs(2 * x[0] - y[0]) * bool((x != y).any()))


@pytest.mark.parametrize("shape", [(5, 4), (4, 5)])
def test_a_matrix_that_is_not_square_is_refused(shape):
    for solver in ("auto", *SOLVERS):
        with pytest.raises(DataError, match="square") as refused:
            fit_source(np.ones(shape), metric="precomputed", solver=solver)
        assert mentions(refused, *shape)


@pytest.mark.parametrize("solver", SOLVERS)
def test_more_components_than_positive_eigenvalues_are_refused(solver):
    """The message contains the number of positive eigenvalues."""
    line = plain.distances(np.array([0.0, 1.0, 3.0, 7.0, 8.5, 20.0])[:, None])
    with pytest.raises(ParameterError, match=r"\b1\b") as refused:
        fit_source(line, n_components=2, metric="precomputed", solver=solver)
    assert refused.value.parameter == "n_components"
    assert fit_source(line, n_components=1, metric="precomputed", solver=solver).stress < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_error_names_the_number_of_positive_eigenvalues(solver, road_distances):
    values, _ = plain.classical(road_distances, 1)
    positive = int(np.sum(values > 1e-9 * values[0]))
    with pytest.raises(ParameterError, match=rf"\b{positive}\b"):
        fit_source(
            road_distances, n_components=positive + 1, metric="precomputed", solver=solver, max_passes=60
        )


def test_more_components_than_features_or_points_are_refused(rows):
    for given in ({"n_components": D + 1}, {"n_components": D + 1, "solver": "exact"}, {"n_components": N}):
        with pytest.raises(ParameterError) as refused:
            fit_source(rows, **given)
        assert refused.value.parameter == "n_components"


def test_identical_points_are_refused():
    for solver in ("auto", *SOLVERS):
        with pytest.raises((ParameterError, DataError)):
            fit_source(np.full((8, 3), 2.5), solver=solver)
    for solver in SOLVERS:
        with pytest.raises((ParameterError, DataError)):
            fit_source(np.zeros((8, 8)), metric="precomputed", solver=solver)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_components", 0),
        ("n_components", 1.5),
        ("metric", "manhattan"),
        ("solver", "fast"),
        ("n_oversamples", -1),
        ("max_passes", 0),
        ("tol", -1.0),
    ],
)
def test_invalid_parameters_are_refused(parameter, value, rows):
    with pytest.raises(ParameterError) as refused:
        ClassicalMDS(**{parameter: value}).fit(rows)
    assert refused.value.parameter == parameter


def test_rows_of_another_length_are_refused(rows):
    ours = ClassicalMDS(metric="precomputed").fit(plain.distances(rows))
    with pytest.raises(ValueError):
        ours.transform(plain.distances(rows)[:, :-1])


def test_a_refused_fit_does_not_affect_later_ones(tmp_path):
    zarr.create_array(tmp_path / "d.zarr", data=BAD["asymmetric"][0])
    with pytest.raises(DataError):
        ClassicalMDS(metric="precomputed").fit(tmp_path / "d.zarr")
    good = ClassicalMDS(metric="precomputed").fit(CITIES)
    good.save(tmp_path / "m.zarr")
    assert store.load_model(tmp_path / "m.zarr").model.n_outputs == 2


@pytest.mark.parametrize("solver", ["covariance", "exact", "krylov"])
def test_rounding_of_single_precision_is_not_a_dimension(solver):
    rng = np.random.default_rng(0)
    places = rng.integers(-50, 51, (300, 3)) * 8.0 + 1.0
    rows = (places @ rng.integers(-50, 51, (3, 12))).astype(np.float32)  # exact, of rank 3
    with pytest.raises(ParameterError, match="only 3 of the distances' eigenvalues are positive"):
        streamdr.ClassicalMDS(4, solver=solver).fit(rows)
