"""Multidimensional scaling of stores: as in memory, the same bits everywhere, after any interruption."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import yaml
import zarr
from command_line import streamdr as program
from command_line import succeed
from dask_processes import scheduler, worker
from killing import Started, chunks, tree
from nightly import Nights

import streamdr
from streamdr import fitting, methods, segments, store
from streamdr.errors import DataError, Interrupted
from streamdr.estimators import ESTIMATORS
from streamdr.progress import Silent
from streamdr.settings import Execution
from streamdr.sources import open_source

N, D, K = 150, 5, 2
ROW = 8 * D
OF_POINTS = {
    "covariance": methods.ClassicalMDS(K),
    "exact": methods.ClassicalMDS(K, metric="cityblock", solver="exact"),
    "krylov": methods.ClassicalMDS(K, metric="cityblock", solver="krylov", max_passes=4),
    "landmarks": methods.LandmarkMDS(K, n_landmarks=30),
    "random landmarks": methods.LandmarkMDS(K, metric="cosine", n_landmarks=30, landmarks="random"),
    "smacof": methods.MetricMDS(K, max_iter=8, n_init=2),
    "smacof streamed": methods.MetricMDS(K, storage="stream", max_iter=6, n_init=2),
    "gradient streamed": methods.MetricMDS(
        K, storage="stream", algorithm="gradient", stress="sammon", max_iter=6
    ),
    "stochastic": methods.MetricMDS(K, algorithm="stochastic", n_epochs=5),
    "nonmetric": methods.NonmetricMDS(K, max_iter=6, n_init=2),
    "nonmetric streamed": methods.NonmetricMDS(K, storage="stream", max_iter=5, n_init=1),
}
OF_DISTANCES = {
    "exact": methods.ClassicalMDS(K, metric="precomputed", solver="exact"),
    "krylov": methods.ClassicalMDS(K, metric="precomputed", solver="krylov", max_passes=4),
    "landmarks": methods.LandmarkMDS(K, metric="precomputed", n_landmarks=30),
    "smacof": methods.MetricMDS(K, metric="precomputed", max_iter=8),
    "smacof streamed": methods.MetricMDS(K, metric="precomputed", storage="stream", max_iter=6, n_init=2),
    "stochastic": methods.MetricMDS(K, metric="precomputed", algorithm="stochastic", n_epochs=5),
    "nonmetric": methods.NonmetricMDS(K, metric="precomputed", max_iter=6, n_init=2),
    "nonmetric streamed": methods.NonmetricMDS(
        K, metric="precomputed", storage="stream", max_iter=5, n_init=2
    ),
}
EVERY = [("points", name) for name in OF_POINTS] + [("distances", name) for name in OF_DISTANCES]
IN_STEPS = [
    ("points", "krylov"),
    ("points", "smacof streamed"),
    ("points", "nonmetric streamed"),
    *(
        ("distances", name)
        for name in ("exact", "krylov", "landmarks", "smacof streamed", "nonmetric streamed")
    ),
]


ON_A_CLUSTER = {
    "points": [
        methods.LandmarkMDS(K, n_landmarks=30),
        methods.MetricMDS(K, storage="stream", max_iter=2),
    ],
    "distances": [
        methods.ClassicalMDS(K, metric="precomputed", solver="krylov", max_passes=2),
        methods.MetricMDS(K, metric="precomputed", algorithm="stochastic", n_epochs=2),
        methods.NonmetricMDS(K, metric="precomputed", storage="stream", max_iter=1, n_init=1),
    ],
}


def rows_of(n=N, seed=0):
    """Rows about a bent sheet."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-2, 2, size=(2, n))
    sheet = np.column_stack([2 * u, v, u * v / 2, np.sin(2 * u), u**2 / 2])
    return sheet + 0.1 * rng.normal(size=(n, D)) + 5.0


def apart(rows):
    return np.abs(rows[:, None] - rows).sum(axis=2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Cut small data as if it were large: many blocks, many segments, several levels."""
    monkeypatch.setattr(segments, "BLOCK_BYTES", 1 << 11)
    monkeypatch.setattr(segments, "LARGEST_BLOCK_BYTES", 1 << 11)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1 << 12)


def stored(place, values, chunks_):
    zarr.create_array(place, shape=values.shape, chunks=chunks_, dtype=values.dtype)[:] = values
    return place


@pytest.fixture
def paths(tmp_path):
    return {
        "points": stored(tmp_path / "x.zarr", rows_of(), (8, 3)),
        "distances": stored(tmp_path / "d.zarr", apart(rows_of()), (16, 64)),
    }


def method_of(kind, name):
    return (OF_POINTS if kind == "points" else OF_DISTANCES)[name]


def fit(method, path, *, start=None, progress=None, stop=None, **settings):
    return fitting.fit(
        method, open_source(path), Execution(**settings), start=start, progress=progress, stop=stop
    )


def bits(model):
    """All that a model is: arrays as bytes, numbers as they are."""
    fields = {name: getattr(model, name) for name in type(model).__dataclass_fields__}
    return {name: x.tobytes() if isinstance(x, np.ndarray) else x for name, x in fields.items()}


# The same bits


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_same_bits_on_any_number_of_threads_and_with_a_ledger(kind, name, paths, tmp_path):
    method, path = method_of(kind, name), paths[kind]
    one = bits(fit(method, path, workers=1).model)
    assert bits(fit(method, path, workers=2).model) == one
    settings = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    assert bits(fit(method, path, **settings).model) == one
    again = fit(method, path, **settings)
    assert bits(again.model) == one
    assert again.bytes_read == 0


def test_same_bits_on_a_cluster(paths, tmp_path):
    file = tmp_path / "scheduler.json"
    with scheduler(file), worker(file), worker(file):
        for kind, some in ON_A_CLUSTER.items():
            for method in some:
                there = fit(method, paths[kind], scheduler=str(file)).model
                here = fit(method, paths[kind], workers=2).model
                assert bits(there) == bits(here), (kind, method)
            written = []
            for number, execution in enumerate((Execution(workers=1), Execution(scheduler=str(file)))):
                target = tmp_path / f"{kind} {number}.zarr"
                fitting.transform(here, open_source(paths[kind]), target, execution, attributes={})
                written.append(store.open_embedding(target)[:])
            np.testing.assert_array_equal(*written)


@pytest.mark.parametrize(
    ("kind", "name"), [case for case in EVERY if case[0] == "distances" or "landmarks" not in case[1]]
)
def test_a_store_gives_what_memory_gives(kind, name, paths):
    """Up to rounding, however it is cut. Landmarks of points are chosen by the layout."""
    method = method_of(kind, name)
    values = zarr.open_array(paths[kind])[:]
    there = fit(method, paths[kind]).model
    route = method.routes(open_source(values).spec)[0]
    here = methods.in_memory(route.method, values)
    scale = np.abs(here.transform(values)).max()
    np.testing.assert_allclose(there.transform(values), here.transform(values), rtol=0, atol=1e-6 * scale)
    assert there.stress == pytest.approx(here.stress, rel=1e-6)


# Interrupted


class StopAfter(Silent):
    """Asks the run to stop once so many rows were folded."""

    def __init__(self, rows):
        self.left = rows
        self.stop = threading.Event()

    def advance(self, rows):
        self.left -= rows
        if self.left <= 0:
            self.stop.set()


@pytest.mark.parametrize("share", [0.5, 2.2])
@pytest.mark.parametrize(("kind", "name"), IN_STEPS)
def test_an_interrupted_fit_resumes_to_the_same_bits(kind, name, share, paths, tmp_path):
    method, path = method_of(kind, name), paths[kind]
    whole = fit(method, path, workers=2)
    stopper = StopAfter(share * N)
    settings = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    try:
        fit(method, path, progress=stopper, stop=stopper.stop, **settings)
    except Interrupted:
        again = fit(method, path, **settings)
        assert bits(again.model) == bits(whole.model)
        row = open_source(path).spec.line_bytes("rows")
        read = share * N - stopper.left
        assert again.bytes_read <= whole.bytes_read - read * row, "what was read is not read again"
    else:
        assert share > 1, "the first pass can be interrupted, whatever comes after it"
        assert stopper.left > 0


# From a configuration


def configuration(place, kind, method, **sections):
    parameters = {
        name: value for name, value in vars(method).items() if value is not None and not name.startswith("_")
    }
    config = {
        "input": {"path": "x.zarr" if kind == "points" else "d.zarr"},
        "method": {"name": method.name, **parameters},
        "output": {"model": "out/model.zarr", "embedding": "out/z.zarr"},
        **sections,
    }
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    return "config.yaml"


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_the_program_writes_what_the_estimator_gives(kind, name, tmp_path):
    values = rows_of() if kind == "points" else apart(rows_of())
    path = stored(tmp_path / ("x.zarr" if kind == "points" else "d.zarr"), values, (16, values.shape[1]))
    method = method_of(kind, name)
    outcome = succeed("run", configuration(tmp_path, kind, method), "--json", cwd=tmp_path)
    written = store.open_embedding(tmp_path / "out/z.zarr")[:]
    parameters = {key: value for key, value in vars(method).items() if not key.startswith("_")}
    here = ESTIMATORS[method.name](**parameters).fit(path)
    scale = np.abs(written).max()
    np.testing.assert_allclose(written, np.asarray(here.transform(values)), rtol=0, atol=1e-6 * scale)
    assert written.shape == (N, K)
    summary = outcome.report["fit"]["summary"]
    assert summary["stress"] == pytest.approx(here.stress_, rel=1e-6)
    saved = streamdr.load_model(tmp_path / "out/model.zarr")
    np.testing.assert_allclose(saved.transform(values), written, rtol=0, atol=1e-9 * scale)


def test_killed_at_any_step_it_ends_with_the_same(tmp_path):
    """A streamed fit that kills itself before a change of the file system, and is started again."""
    method = OF_DISTANCES["smacof streamed"]
    for place in ("whole", "killed"):
        (tmp_path / place).mkdir()
        stored(tmp_path / place / "d.zarr", apart(rows_of()), (16, 64))
        configuration(tmp_path / place, "distances", method, execution={"checkpoint_seconds": 0.001})
    succeed("run", "config.yaml", cwd=tmp_path / "whole")
    kills = 0
    for last_step in (3, 12, 20, 30, 41, 55, 72):
        with Started("run", "config.yaml", cwd=tmp_path / "killed", last_step=last_step) as run:
            kills += run.outcome().code != 0
    assert kills >= 3
    succeed("run", "config.yaml", cwd=tmp_path / "killed")
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    assert chunks(tmp_path / "killed/out") == chunks(tmp_path / "whole/out")


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
def test_bad_configurations_are_refused_in_a_line(tmp_path, method, words):
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
def test_bad_distances_are_refused_by_their_pair(tmp_path, name, pair, value):
    bad = apart(rows_of())
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
    told = " ".join(outcome.errors).replace(":", " ").replace(",", " ").split()
    assert {str(number) for number in pair} <= set(told), outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out/model.zarr").exists()


# More rows


def nights(place, method, rows, **sections):
    return Nights(place, rows, {"method": {"n_components": K, **method}, **sections})


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_appended_rows_are_all_that_is_read_and_landmarks_stay(tmp_path, metric):
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
        # What was not a whole grain is read again, and what has become a larger one.
        assert report["fit"]["bytes_read"] <= (added + max(size / 16, 200)) * ROW
        assert report["fit"]["n_rows"] == size
        np.testing.assert_array_equal(run.model()["landmarks"], landmarks)
    placed = store.open_embedding(tmp_path / "z.zarr")[:]
    assert placed.shape == (size, 2)
    np.testing.assert_array_equal(placed[:5000], before)
    model = store.load_model(tmp_path / "out/model.zarr").model
    np.testing.assert_allclose(placed, model.transform(rows[:size]), atol=1e-9)
    assert run.run()["fit"]["bytes_read"] == 0


def test_classical_scaling_of_points_is_appended_to(tmp_path):
    rows = rows_of(4000)
    run = nights(tmp_path, {"name": "classical_mds"}, rows)
    run.write(3000)
    run.run()
    run.grow(3200)
    assert run.run()["fit"]["bytes_read"] <= (200 + 3200 / 16) * ROW
    here = streamdr.ClassicalMDS().fit(rows[:3200])
    np.testing.assert_allclose(run.model()["eigenvalues"], here.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize("name", ["metric_mds", "nonmetric_mds"])
def test_iterative_scaling_goes_on_from_where_points_are(tmp_path, name):
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
def test_a_larger_matrix_of_distances_is_another_one(tmp_path, name):
    """Rows of it are longer too: that is nothing that was appended, and the model stays as it was."""
    wanted = apart(rows_of(120))
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


def test_a_distance_that_changes_is_noticed(tmp_path):
    """The ledger does not answer for what is no longer there."""
    wanted = apart(rows_of(90))
    run = nights(tmp_path, {"name": "metric_mds", "metric": "precomputed"}, wanted)
    run.write(90, chunks=(30, 90))
    run.run()
    array = zarr.open_array(tmp_path / "x.zarr", mode="r+")
    array[4, 60] = 50.0
    with pytest.raises(DataError, match=r"\b60\b"):
        run.run()
