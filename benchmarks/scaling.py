"""Multidimensional scaling: streamdr as a user calls it, and the others with both cores."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import CORES, Fit, Solution
from benchmarks.scaling_judge import judged_rows, plain_axes

ITERATIONS = "iterations"


def landmark_mds(store: str, memory_limit: str, **parameters: Any) -> Fit:
    """Landmark MDS on a thread pool, and the coordinates of all rows written to a store."""
    import streamdr
    from streamdr.core.execution import current
    from streamdr.data import open_source
    from streamdr.engine.fitting import transform
    from streamdr.store import open_embedding

    execution, LandmarkMDS = streamdr.execution, streamdr.LandmarkMDS
    place = Path(tempfile.mkdtemp(prefix="landmarks-", dir=Path(store).parent))
    atexit.register(shutil.rmtree, place)

    def fit() -> Solution:
        start = time.perf_counter()
        with execution(workers=CORES, memory_limit=memory_limit):
            model = LandmarkMDS(**parameters).fit(store).model_
            fitted = time.perf_counter()
            transform(model, open_source(store), place / "points.zarr", current(), attributes={})
        written = time.perf_counter()
        array = open_embedding(place / "points.zarr")
        found = array[judged_rows(array.shape[0])]
        return Solution(
            model.eigenvalues,
            np.empty((0, 0)),
            {"seconds of the fit": fitted - start, "stress, as reported": model.stress},
            landmarks=model.landmarks,
            embedding=np.asarray(found),
            aside=time.perf_counter() - written,
        )

    return fit


def plain_landmarks(store: str, m: int, k: int, metric: str) -> Fit:
    """Landmark MDS in a few lines of numpy and scipy: landmarks at random, and all rows in memory."""
    import zarr
    from scipy.spatial.distance import cdist

    slab = 50_000

    def fit() -> Solution:
        rows: Any = zarr.open_array(store, mode="r")[:]
        landmarks = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:m])].astype(np.float64)
        values, projection, means = plain_axes(landmarks, k, metric)
        points = np.empty((len(rows), k))
        for start in range(0, len(rows), slab):
            squares = cdist(rows[start : start + slab], landmarks, metric) ** 2
            points[start : start + slab] = (squares - means) @ projection.T
        return Solution(
            values, np.empty((0, 0)), landmarks=landmarks, embedding=points[judged_rows(len(rows))]
        )

    return fit


def stress_mds(store: str, name: str, memory_limit: str, **parameters: Any) -> Fit:
    """Metric or nonmetric MDS on a thread pool."""
    import streamdr

    execution, kind = streamdr.execution, getattr(streamdr, name)

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = kind(**parameters).fit(store).model_
        notes = {ITERATIONS: len(model.stress_history), "stress, as reported": model.stress}
        return Solution(np.empty(0), np.empty((0, 0)), notes, embedding=model.embedding)

    return fit


def landmark_points(store: str, memory_limit: str, **parameters: Any) -> Fit:
    """Landmark MDS and the coordinates of all rows in memory: what metric MDS starts from."""
    import zarr

    import streamdr

    execution, LandmarkMDS = streamdr.execution, streamdr.LandmarkMDS

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            found = LandmarkMDS(**parameters).fit(store).transform(zarr.open_array(store, mode="r")[:])
        return Solution(np.empty(0), np.empty((0, 0)), embedding=found)

    return fit


def sklearn_mds(store: str, *, seconds: float | None = None, **parameters: Any) -> Fit:
    """scikit-learn's MDS, to convergence, or for the number of iterations that comes nearest to `seconds`.

    The time of an iteration is measured before the clock starts. At least one is made.
    """
    import zarr
    from sklearn.manifold import MDS

    rows = np.asarray(zarr.open_array(store, mode="r")[:], np.float64)
    chosen = {"n_components": 2, "random_state": 0} | parameters
    if seconds is not None:
        few, more = 1, 5
        taken = []
        for number in (few, few, more):  # the first is a warming up
            start = time.perf_counter()
            MDS(**chosen, max_iter=number, eps=0.0).fit(rows)
            taken.append(time.perf_counter() - start)
        each = max((taken[2] - taken[1]) / (more - few), 1e-3)
        chosen |= {"max_iter": max(1, round(few + (seconds - taken[1]) / each)), "eps": 0.0}

    def fit() -> Solution:
        model = MDS(**chosen).fit(rows)
        return Solution(
            np.empty(0), np.empty((0, 0)), {ITERATIONS: model.n_iter_}, embedding=model.embedding_
        )

    return fit
