"""Measures of embeddings are what their definitions say, on rows that stand for all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import trustworthiness
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from streamdr.core.blocks import MatrixSpec
from streamdr.workflow.metrics import MOST_ROWS, N_PAIRS, measure, sampled_rows


def clouds(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, n)
    return rng.normal(size=(n, 5)) + 2 * classes[:, None], classes


def test_measures_are_those_of_their_definitions():
    rows, classes = clouds()
    embedded = 7 * rows[:, :2] + np.random.default_rng(1).normal(size=(120, 2))
    found = measure(rows, embedded, classes)
    assert found.trustworthiness == trustworthiness(rows, embedded, n_neighbors=10)
    wanted, reached = pdist(rows), pdist(embedded)
    assert len(wanted) < N_PAIRS  # so that all pairs were looked at
    best = minimize_scalar(lambda scale: np.sum((wanted - scale * reached) ** 2) / np.sum(wanted**2))
    assert found.stress == pytest.approx(np.sqrt(best.fun), rel=1e-6)
    alone = cross_val_score(KNeighborsClassifier(1), embedded, classes, cv=LeaveOneOut())
    assert found.accuracy == pytest.approx(alone.mean())


def test_the_stress_of_many_rows_is_that_of_some_pairs():
    rows, _ = clouds(1_000)
    embedded = rows[:, :2]
    wanted, reached = pdist(rows), pdist(embedded)
    scale = wanted @ reached / (reached @ reached)
    exact = np.sqrt(np.sum((wanted - scale * reached) ** 2) / np.sum(wanted**2))
    assert measure(rows, embedded, None).stress == pytest.approx(exact, rel=0.03)


def test_a_rotation_a_shift_and_a_scale_lose_nothing():
    rows, classes = clouds()
    turned = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 5)))[0]
    found = measure(rows, 1e-3 * rows @ turned + 40, classes)
    assert found.trustworthiness == 1
    assert found.stress == pytest.approx(0, abs=1e-7)
    assert found.accuracy == measure(rows, rows, classes).accuracy


def test_points_in_one_place_have_all_the_stress_there_is():
    rows, _ = clouds()
    assert measure(rows, np.zeros((120, 2)), None).stress == 1
    assert measure(np.ones((120, 3)), rows, None).stress == 1
    assert measure(np.ones((120, 3)), np.zeros((120, 2)), None).stress == 0


def test_rows_with_missing_values_are_left_out():
    rows, classes = clouds()
    pierced = rows.copy()
    pierced[::4, 1] = np.nan
    kept = np.arange(120) % 4 != 0
    expected = measure(rows[kept], rows[kept, :2], classes[kept])
    assert measure(pierced, rows[:, :2], classes) == expected


def test_classes_may_be_text():
    rows, classes = clouds()
    named = np.array(["low", "middle", "high"])[classes]
    assert measure(rows, rows[:, :2], named) == measure(rows, rows[:, :2], classes)


@pytest.mark.parametrize(("n", "neighbours"), [(3, 1), (12, 5), (20, 9), (21, 10)])
def test_few_rows_have_fewer_neighbours(n, neighbours):
    rows, _ = clouds(n)
    assert measure(rows, rows[:, :1], None).trustworthiness == trustworthiness(
        rows, rows[:, :1], n_neighbors=neighbours
    )


def test_what_cannot_be_measured_is_not():
    one = measure(np.ones((1, 3)), np.ones((1, 2)), np.array([4]))
    assert (one.trustworthiness, one.stress, one.accuracy) == (None, None, None)
    two = measure(np.eye(2), np.eye(2), None)
    assert (two.trustworthiness, two.accuracy) == (None, None)
    assert two.stress == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "chunk"),
    [
        (7, 3, 2),
        (2_000, 64, 256),
        (2_001, 64, 5_000),
        (100_000, 9, 1),
        (10**10, 40, 16_384),
        (2_000_000, 64, 65_536),
        (9_000, 10**6, 500),
    ],
)
def test_a_sample_is_spread_over_the_rows_and_bounded(n_rows, n_cols, chunk):
    sample = sampled_rows(MatrixSpec(n_rows, n_cols, np.dtype("f4")), chunk)
    numbers = np.concatenate([chosen for _, chosen in sample])
    assert (np.diff(numbers) > 0).all()
    assert all(band.start <= chosen[0] <= chosen[-1] < band.stop <= n_rows for band, chosen in sample)
    assert len(numbers) == min(n_rows, len(numbers)) <= MOST_ROWS
    assert sum(len(band) for band, _ in sample) * n_cols <= max(2**24, 8 * chunk * n_cols)
    if n_cols < 1_000:
        assert len(numbers) >= min(n_rows, 0.95 * MOST_ROWS)
    assert len(numbers) * n_cols <= 2**25
    assert max(len(band) for band, _ in sample) * n_cols <= 2**25
    assert len(sample) <= max(50, n_rows // chunk + 1 if n_rows <= MOST_ROWS else 0)
    assert numbers[0] <= 0.02 * n_rows
    assert numbers[-1] >= 0.97 * n_rows - 1
    again = sampled_rows(MatrixSpec(n_rows, n_cols, np.dtype("f4")), chunk)
    np.testing.assert_array_equal(np.concatenate([chosen for _, chosen in again]), numbers)


def test_the_nearest_row_is_never_the_row_itself():
    places = np.array([[0.0], [0.0], [5.0], [6.0]])
    classes = np.array([0, 1, 2, 2])
    assert measure(places, places, classes).accuracy == 0.5
    assert squareform(pdist(places))[0, 1] == 0
