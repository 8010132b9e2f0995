"""Runs of multidimensional scaling: invalid input, appended rows, and changed distance matrices."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
import zarr
from command_line import streamdr as program
from fits import bits, fit, stored
from nightly import Nights

import streamdr
from streamdr import store
from streamdr.errors import DataError
from streamdr.estimators import ESTIMATORS
from streamdr.methods.mds import LandmarkMDS

N, D = 150, 5
ROW = 8 * D


def rows_of(n=N, seed=0):
    """Noisy rows on a curved surface."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-2, 2, size=(2, n))
    sheet = np.column_stack([2 * u, v, u * v / 2, np.sin(2 * u), u**2 / 2])
    return sheet + 0.1 * rng.normal(size=(n, D)) + 5.0


def cityblock_distances(rows):
    return np.abs(rows[:, None] - rows).sum(axis=2)


@pytest.fixture(autouse=True)
def _small_blocks(blocks_of):
    blocks_of(1 << 11)


def test_cosine_landmarks_have_the_same_bits_with_any_threads_and_a_ledger(tmp_path):
    path = stored(tmp_path / "x.zarr", rows_of(), (8, 3))
    method = LandmarkMDS(2, metric="cosine", n_landmarks=30, landmarks="random")
    one = bits(fit(method, path, workers=1).model)
    for _ in range(2):
        assert bits(fit(method, path, workers=2, ledger=tmp_path / "ledger").model) == one
    assert fit(method, path, workers=2, ledger=tmp_path / "ledger").bytes_read == 0


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "classical_mds", "metric": "precomputed"}, "square"),
        ({"name": "classical_mds", "n_components": 0}, "n_components"),
        ({"name": "landmark_mds", "n_landmarks": 1}, "n_landmarks"),
        ({"name": "landmark_mds", "n_components": 999}, "n_components: 999 dimensions"),
        ({"name": "landmark_mds", "metric": "my.function"}, "metric"),
        ({"name": "metric_mds", "stress": "kruskal"}, "stress"),
        ({"name": "metric_mds", "algorithm": "newton"}, "algorithm"),
        ({"name": "nonmetric_mds", "ties": "some"}, "ties"),
        ({"name": "nonmetric_mds", "n_inits": 3}, "n_inits"),
    ],
    ids=str,
)
def test_invalid_configurations_are_refused_without_a_traceback(tmp_path, method, words):
    stored(tmp_path / "x.zarr", rows_of(), (16, D))
    config = {"input": {"path": "x.zarr"}, "method": method, "output": {"model": "out/model.zarr"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    outcome = program("run", "config.yaml", cwd=tmp_path)
    assert outcome.code != 0
    assert words in " ".join(outcome.errors), outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out/model.zarr").exists()


@pytest.mark.parametrize("name", ["classical_mds", "landmark_mds", "metric_mds", "nonmetric_mds"])
@pytest.mark.parametrize(
    ("pair", "value"),
    [((20, 7), 99.5), ((7, 20), -1.0), ((9, 9), 0.5)],
    ids=["asymmetric", "negative", "diagonal"],
)
def test_errors_name_the_pair_of_an_invalid_distance(tmp_path, name, pair, value):
    bad = cityblock_distances(rows_of())
    bad[pair] = value
    stored(tmp_path / "d.zarr", bad, (16, 64))
    config = {
        "input": {"path": "d.zarr"},
        "method": {"name": name, "metric": "precomputed"},
        "output": {"model": "out/model.zarr"},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    outcome = program("run", "config.yaml", cwd=tmp_path)
    assert outcome.code != 0
    words = " ".join(outcome.errors).replace(":", " ").replace(",", " ").split()
    assert {str(number) for number in pair} <= set(words), outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out/model.zarr").exists()


# Appended rows


def nights(place, method, rows, **sections):
    return Nights(place, rows, {"method": {"n_components": 2, **method}, **sections})


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_only_appended_rows_are_read_and_landmarks_are_kept(tmp_path, metric):
    rows = rows_of(6000)
    method = {"name": "landmark_mds", "metric": metric, "n_landmarks": 40}
    run = nights(tmp_path, method, rows, output={"embedding": str(tmp_path / "z.zarr")})
    run.write(5000)
    run.run()
    landmarks, before = run.model()["landmarks"], store.open_embedding(tmp_path / "z.zarr")[:]
    size = 5000
    for added in (200, 33, 500):
        size += added
        run.grow(size)
        report = run.run()
        # Rows of an incomplete grain, and of grains that became a larger one, are read again.
        assert report.fit.bytes_read <= (added + max(size / 16, 200)) * ROW
        assert report.fit.n_rows == size
        np.testing.assert_array_equal(run.model()["landmarks"], landmarks)
    placed = store.open_embedding(tmp_path / "z.zarr")[:]
    assert placed.shape == (size, 2)
    np.testing.assert_array_equal(placed[:5000], before)
    model = store.load_model(tmp_path / "out/model.zarr").model
    np.testing.assert_allclose(placed, model.transform(rows[:size]), atol=1e-9)
    assert run.run().fit.bytes_read == 0


def test_classical_scaling_of_points_reads_only_appended_rows(tmp_path):
    rows = rows_of(4000)
    run = nights(tmp_path, {"name": "classical_mds"}, rows)
    run.write(3000)
    run.run()
    run.grow(3200)
    assert run.run().fit.bytes_read <= (200 + 3200 / 16) * ROW
    here = streamdr.ClassicalMDS().fit(rows[:3200])
    np.testing.assert_allclose(run.model()["eigenvalues"], here.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize("name", ["metric_mds", "nonmetric_mds"])
def test_iterative_scaling_continues_from_the_earlier_configuration(tmp_path, name):
    rows = rows_of(160)
    run = nights(tmp_path, {"name": name, "n_init": 1}, rows)
    run.write(140, chunks=(20, D))
    run.run()
    run.grow(160)
    run.run()
    model = store.load_model(tmp_path / "out/model.zarr").model
    assert model.embedding.shape == (160, 2)
    afresh = ESTIMATORS[name](n_init=1).fit(rows)
    assert model.stress <= 1.05 * afresh.stress_


@pytest.mark.parametrize("name", ["classical_mds", "landmark_mds", "metric_mds", "nonmetric_mds"])
def test_a_larger_distance_matrix_is_refused(tmp_path, name):
    """Its rows are longer too, so this is not an append. The model is not changed."""
    wanted = cityblock_distances(rows_of(120))
    run = nights(tmp_path, {"name": name, "metric": "precomputed"}, wanted)
    for size in (90, 120):
        array = zarr.create_array(
            tmp_path / "x.zarr", shape=(size, size), chunks=(30, 30), dtype="f8", overwrite=True
        )
        array[:] = wanted[:size, :size]
        if size == 90:
            run.run()
    with pytest.raises(DataError, match=r"120.*90.*--fresh"):
        run.run()
    assert store.load_model(tmp_path / "out/model.zarr").model.n_features == 90


def test_a_changed_distance_is_read_again(tmp_path):
    """The ledger is not used for changed data."""
    wanted = cityblock_distances(rows_of(90))
    run = nights(tmp_path, {"name": "metric_mds", "metric": "precomputed"}, wanted)
    run.write(90, chunks=(30, 90))
    run.run()
    array = zarr.open_array(tmp_path / "x.zarr", mode="r+")
    array[4, 60] = 50.0
    with pytest.raises(DataError, match=r"\b60\b"):
        run.run()
