"""Self-organising maps, against a plain implementation and on data that breaks careless ones."""

from __future__ import annotations

import numpy as np
import plain_som
import pytest
from sklearn.datasets import load_digits

import streamdr
from streamdr.core.blocks import Block, Span
from streamdr.errors import DataError, ParameterError
from streamdr.methods.som import SOM
from streamdr.methods.som.grid import Grid
from streamdr.methods.som.nearest import Search
from streamdr.methods.som.statistics import UnitSums
from streamdr.methods.som.training import in_plane, radii, stepped

GRIDS = [
    Grid(4, 5),
    Grid(4, 5, toroidal=True),
    Grid(4, 5, "hexagonal"),
    Grid(4, 5, "hexagonal", toroidal=True),
    Grid(1, 6, "hexagonal"),
    Grid(5, 1),
    Grid(2, 2, "hexagonal", toroidal=True),
]


def rows_of(n_rows: int, n_cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_rows, n_cols)) * np.linspace(3, 1, n_cols)


def plain_distances(grid: Grid) -> np.ndarray:
    return plain_som.all_distances(grid.height, grid.width, grid.topology, grid.toroidal)


def looked_at(codebook, rows, grid, *, weights=None, double=True) -> UnitSums:
    full = UnitSums(codebook, rows.mean(axis=0), grid, double=double, topographic=True)
    full.update(Block(Span(0, len(rows)), rows, None, weights))
    return full


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_distances_on_the_grid_are_those_to_the_nearest_copy(grid):
    expected = plain_distances(grid)
    found = np.sqrt(grid.squared_distances(Span(0, grid.n_units)))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    first, second = np.divmod(np.arange(grid.n_units**2), grid.n_units)
    near = 1.0 if grid.topology == "hexagonal" else np.sqrt(2)
    np.testing.assert_array_equal(grid.are_neighbours(first, second), expected.ravel() <= near + 1e-9)


def test_every_unit_inside_a_hexagonal_grid_has_six_neighbours_and_on_a_torus_all_have():
    for toroidal in (False, True):
        grid = Grid(6, 7, "hexagonal", toroidal)
        squares = grid.squared_distances(Span(0, grid.n_units))
        counts = ((squares > 0) & (squares < 1 + 1e-9)).sum(axis=1).reshape(6, 7)
        assert (counts[1:-1, 1:-1] == 6).all()
        assert (counts == 6).all() == toroidal


@pytest.mark.parametrize("neighborhood", ["gaussian", "bubble"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_an_epoch_is_that_of_the_plain_implementation(grid, neighborhood):
    rows = rows_of(80, 3)
    weights = np.random.default_rng(1).integers(0, 4, size=80).astype(float)
    codebook = rows_of(grid.n_units, 3, seed=2)
    for sigma in (2.0, 0.7):
        found = stepped(looked_at(codebook, rows, grid, weights=weights), neighborhood, sigma)
        expected = plain_som.epoch(rows, weights, codebook, plain_distances(grid), neighborhood, sigma)
        # Both are means of the same rows in double precision.
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_errors_and_hits_are_those_of_the_codebook_row_by_row(grid):
    rows, codebook = rows_of(120, 4), rows_of(grid.n_units, 4, seed=3)
    weights = np.random.default_rng(4).uniform(0, 2, size=120)
    full = looked_at(codebook, rows, grid, weights=weights)
    quantization, topographic, hits = plain_som.errors(
        rows, weights, codebook, plain_distances(grid), grid.topology
    )
    assert full.quantization_error == pytest.approx(quantization, rel=1e-12)
    assert full.topographic_error == pytest.approx(topographic, rel=1e-12)
    np.testing.assert_allclose(full.weights, hits, rtol=1e-12)


def test_a_whole_fit_is_that_of_the_plain_implementation():
    rows = rows_of(150, 3)
    som = streamdr.SOM(3, 4, topology="hexagonal", n_epochs=4, sigma=1.5, sigma_end=0.5).fit(rows)
    grid, weights = Grid(3, 4, "hexagonal"), np.ones(150)
    distances = plain_distances(grid)
    codebook, history = in_plane(rows, weights, grid), []
    for sigma in 1.5 * (0.5 / 1.5) ** (np.arange(4) / 3):
        history.append(plain_som.errors(rows, weights, codebook, distances, "hexagonal")[0])
        codebook = plain_som.epoch(rows, weights, codebook, distances, "gaussian", sigma)
    np.testing.assert_allclose(som.codebook_, codebook, rtol=1e-9, atol=1e-9)
    quantization, topographic, hits = plain_som.errors(rows, weights, codebook, distances, "hexagonal")
    np.testing.assert_allclose(som.quantization_errors_, [*history, quantization], rtol=1e-9)
    assert som.quantization_error_ == som.quantization_errors_[-1]
    assert som.topographic_error_ == pytest.approx(topographic)
    np.testing.assert_array_equal(som.hits_, hits)


def test_units_and_places_of_rows_are_those_of_the_nearest_unit():
    rows = rows_of(100, 5)
    som = streamdr.SOM(3, 3, topology="hexagonal").fit(rows)
    nearest = np.argmin(np.linalg.norm(rows[:, None] - som.codebook_, axis=2), axis=1)
    found = som.predict(rows)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, nearest)
    np.testing.assert_array_equal(np.bincount(found, minlength=9), som.hits_)
    np.testing.assert_allclose(som.transform(rows), plain_som.places(3, 3, "hexagonal")[nearest])


def test_the_first_of_equally_near_units_is_taken():
    codebook = np.array([[3.0], [1.0], [1.0], [-1.0], [1.0]])
    (tile,) = Search(codebook, np.zeros(1), np.dtype(np.float64)).tiles(np.array([[1.1], [0.0], [-4.0]]))
    np.testing.assert_array_equal(tile.units, [1, 1, 3])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_row_finds_its_unit_whatever_the_rows_beside_it(dtype):
    rows = rows_of(3000, 6).astype(dtype)
    som = streamdr.SOM(7, 9).fit(rows).model_
    whole = som.predict(rows)
    for size in (1, 7, 500):
        parts = [som.predict(rows[start : start + size]) for start in range(0, 1000, size)]
        np.testing.assert_array_equal(np.concatenate(parts)[:1000], whole[:1000])


def test_radii_shrink_to_the_last():
    np.testing.assert_allclose(radii(8.0, 0.5, 5, "exponential"), [8, 4, 2, 1, 0.5])
    np.testing.assert_allclose(radii(4.0, 1.0, 4, "linear"), [4, 3, 2, 1])
    assert SOM(4, 14).schedule[0] == 2.0
    assert SOM(4, 14, init="random").schedule[0] == 7.0
    assert SOM(4, 3).schedule[0] == 1.0
    assert SOM(1, 1, sigma_end=2.0).schedule.tolist() == [2.0] * 10


def test_the_plane_of_the_first_components_is_that_of_an_svd():
    rows, weights = rows_of(60, 4), np.ones(60)
    _, singular, axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    for wide in (rows, np.hstack([rows, np.zeros((60, 100))])):  # more columns than rows, too
        codebook = in_plane(wide, weights, Grid(3, 5))[:, :4]
        corners = codebook.reshape(3, 5, 4) - rows.mean(axis=0)
        for found, axis, length in (
            (corners[1, 4], axes[0], singular[0]),
            (corners[2, 2], axes[1], singular[1]),
        ):
            assert np.linalg.norm(found) == pytest.approx(2 * length / np.sqrt(60))
            assert abs(found @ axis) == pytest.approx(np.linalg.norm(found))
    tall = in_plane(rows, weights, Grid(5, 3)).reshape(5, 3, 4) - rows.mean(axis=0)
    assert np.linalg.norm(tall[4, 1]) > np.linalg.norm(tall[2, 2])


@pytest.mark.parametrize("neighborhood", ["gaussian", "bubble"])
def test_weights_count_rows_as_often(neighborhood):
    rows = rows_of(60, 3)
    times = np.random.default_rng(5).integers(0, 4, size=60)
    codebook, grid = rows_of(6, 3, seed=6), Grid(2, 3)
    weighed = looked_at(codebook, rows, grid, weights=times.astype(float))
    repeated = looked_at(codebook, np.repeat(rows, times, axis=0), grid)
    np.testing.assert_allclose(
        stepped(weighed, neighborhood, 0.8), stepped(repeated, neighborhood, 0.8), rtol=1e-12, atol=1e-12
    )
    assert weighed.quantization_error == pytest.approx(repeated.quantization_error)
    assert weighed.topographic_error == pytest.approx(repeated.topographic_error)


def test_rows_of_no_weight_are_as_good_as_not_there():
    rows = rows_of(90, 3)
    weights = np.ones(90)
    weights[::3] = 0
    with_them = streamdr.SOM(2, 3).fit(np.where(weights[:, None] > 0, rows, 1e6), sample_weight=weights)
    # The sample is drawn by the numbers of rows: it holds all of these.
    without = streamdr.SOM(2, 3).fit(rows[weights > 0])
    np.testing.assert_allclose(with_them.codebook_, without.codebook_, atol=1e-9)
    assert with_them.hits_.sum() == 60
    with pytest.raises(DataError, match="every weight is zero"):
        streamdr.SOM(2, 3).fit(rows, sample_weight=np.zeros(90))


def test_a_unit_that_no_row_is_near_stays_where_it_is_in_a_bubble():
    codebook = np.array([[0.0], [50.0], [100.0]])
    full = looked_at(codebook, np.array([[-1.0], [0.0], [1.0], [3.0]]), Grid(1, 3))
    np.testing.assert_allclose(stepped(full, "bubble", 0.5), [[0.75], [50.0], [100.0]])


def test_a_unit_far_beyond_a_gaussian_goes_to_the_rows_that_are_nearest_on_the_map():
    codebook = np.linspace(0.0, 1000.0, 60)[:, None]
    full = looked_at(codebook, np.array([[-1.0], [1.0]]), Grid(1, 60))
    after = stepped(full, "gaussian", 0.5)  # exp(-2 * 59^2) is zero: without care, 0 / 0
    np.testing.assert_allclose(after, 0.0, atol=1e-12)


HOSTILE = {
    "one row": np.array([[1.0, 2.0, 3.0]]),
    "two rows": np.array([[1.0, 2.0], [3.0, 5.0]]),
    "fewer rows than units": rows_of(5, 3),
    "one column": rows_of(50, 1),
    "all rows alike": np.full((40, 3), 7.0),
    "repeated rows": np.repeat(rows_of(3, 4), 30, axis=0),
    "rank one": np.outer(rows_of(50, 1), [1.0, 2.0, 0.0]),
    "a constant column": np.hstack([rows_of(50, 2), np.full((50, 1), 3.0)]),
    "bytes": np.random.default_rng(0).integers(0, 256, size=(60, 5), dtype=np.uint8),
    "few values": np.random.default_rng(0).integers(0, 2, size=(60, 3)).astype(np.int16),
    "more columns than rows": rows_of(20, 300),
    "tiny": 1e-150 * rows_of(50, 3),
    "large": 1e150 * rows_of(50, 3),
}


@pytest.mark.parametrize("way", SOM.examples(), ids=lambda som: f"{som.topology}-{som.init}")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_data_gives_a_map_of_all_rows(kind, way):
    rows = HOSTILE[kind]
    som = streamdr.SOM(**vars(way)).fit(rows)
    assert np.isfinite(som.codebook_).all()
    assert som.hits_.sum() == len(rows)
    nearest = som.codebook_[som.predict(rows)]
    scale = np.abs(rows).max(initial=0).astype(float)
    expected = scale * np.linalg.norm((rows - nearest) / scale, axis=1).mean()
    rounding = 1e-6 * scale if rows.dtype.itemsize <= 2 else 1e-12 * scale
    assert som.quantization_error_ == pytest.approx(expected, rel=1e-6, abs=rounding)
    # Units are means of rows: none is outside of them, but for those that no row has moved in a bubble.
    if way.neighborhood == "gaussian":
        assert (som.codebook_ >= rows.min(axis=0) - 1e-6 * scale).all()
        assert (som.codebook_ <= rows.max(axis=0) + 1e-6 * scale).all()


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_a_large_offset_costs_no_digits(offset):
    rows = np.round(rows_of(300, 3) * 1024) / 1024  # exact after the shift, too
    near, far = (streamdr.SOM(3, 4, n_epochs=4).fit(rows + shift) for shift in (0.0, offset))
    np.testing.assert_allclose(far.codebook_ - offset, near.codebook_, atol=1e-7)
    assert far.quantization_error_ == pytest.approx(near.quantization_error_, rel=1e-7)


def test_single_precision_finds_the_map_of_double():
    rows = (rows_of(2000, 8) + 100).astype(np.float32)
    mixed, double = (streamdr.SOM(4, 4, precision=precision).fit(rows) for precision in ("mixed", "double"))
    # A few rows half-way between two units may choose otherwise.
    np.testing.assert_allclose(mixed.codebook_, double.codebook_, atol=2e-3)
    assert mixed.quantization_error_ == pytest.approx(double.quantization_error_, rel=1e-5)


def test_a_map_of_digits_is_in_order_and_tells_them_apart():
    digits = load_digits()
    som = streamdr.SOM(12, 12, sigma=6.0, sigma_end=0.5).fit(digits.data)
    assert som.topographic_error_ < 0.1
    units = som.predict(digits.data)
    right = sum(np.bincount(digits.target[units == unit]).max() for unit in np.unique(units))
    assert right / len(units) > 0.9


def test_values_that_are_missing_or_infinite_are_refused_with_their_place():
    rows = rows_of(50, 3)
    rows[7, 1] = np.nan
    with pytest.raises(DataError, match=r"(?s)row 7.*ppca"):
        streamdr.SOM(2, 2).fit(rows)
    rows[7, 1] = np.inf
    with pytest.raises(DataError, match="row 7"):
        streamdr.SOM(2, 2).fit(rows)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"height": 0}, "height"),
        ({"width": 2.5}, "width"),
        ({"n_epochs": 0}, "n_epochs"),
        ({"topology": "triangular"}, "topology"),
        ({"neighborhood": "mexican_hat"}, "neighborhood"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": 1.0, "sigma_end": 2.0}, "sigma"),
        ({"sigma_end": -1.0}, "sigma_end"),
        ({"decay": "none"}, "decay"),
        ({"init": "zeros"}, "init"),
        ({"append_tol": -1.0}, "append_tol"),
        ({"height": 3, "topology": "hexagonal", "toroidal": True}, "height"),
    ],
)
def test_impossible_parameters_are_refused(parameters, name):
    with pytest.raises(ParameterError, match=name):
        SOM(**parameters).check()
