"""`min_observed` and balanced variables: a pass counts observed values first, and the ledger remembers it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from fits import StopAfter, bits, fit, grown, stored
from labelled import Grid, labelled
from narrowing import checked, present
from sklearn import decomposition

from streamdr.core.execution import Execution
from streamdr.core.progress import PassStart, Silent
from streamdr.data import open_source
from streamdr.data.feature_subset import FeatureSubset
from streamdr.engine import fitting, planner
from streamdr.engine.narrowing import narrowed
from streamdr.engine.read_estimates import estimate_fit_reads
from streamdr.errors import DataError, Interrupted, MemoryLimitError, MissingValuesError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.methods.ppca import PPCA


class Passes(Silent):
    """Lists the passes of a fit, and how many rows of each are read."""

    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []

    def start(self, begun: PassStart) -> None:
        self.read.append((begun.label, begun.total - begun.done))


def gappy(seed: int = 0, n_rows: int = 300) -> tuple[Grid, np.ndarray]:
    """A grid where column 5 is observed in half of the rows and column 6 in 95%; the share of each column."""
    grid, rng = Grid.made(n_rows, seed=seed), np.random.default_rng(seed + 9)
    grid.values[rng.permutation(n_rows)[: n_rows // 2], 5] = np.nan
    grid.values[rng.permutation(n_rows)[: n_rows // 20], 6] = np.nan
    return grid, np.isfinite(grid.values).mean(axis=0)


def pca_of(found: fitting.Fitted) -> PCAModel:
    return checked(PCAModel, found.model)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.94, 0.95, 0.96, 1.0])
def test_features_that_are_observed_less_often_are_left_out(share):
    grid, shares = gappy()
    found = fit(PPCA(2), labelled(grid.values, (3, 4), min_observed=share), workers=1)
    assert found.axes is not None
    np.testing.assert_array_equal(found.axes.kept, (shares >= share) & (shares > 0))


def test_what_is_left_is_fitted(tmp_path):
    grid, shares = gappy()
    found = fit(PCA(3), labelled(grid.store(tmp_path), (3, 4), grid.weights, min_observed=0.96), workers=2)
    kept = shares >= 0.96
    rows = (grid.values[:, kept] - grid.values[:, kept].mean(axis=0)) * grid.weights[kept]
    expected = decomposition.PCA(3).fit(rows)
    np.testing.assert_allclose(pca_of(found).explained_variance, expected.explained_variance_, rtol=1e-10)


def test_a_feature_that_is_kept_and_missing_in_some_rows_is_refused_by_pca():
    grid, _ = gappy()
    with pytest.raises(MissingValuesError, match=r"column 6 .*ppca.*min_observed"):
        fit(PCA(2), labelled(grid.values, (3, 4), min_observed=0.9), workers=1)


def test_rows_count_by_their_weights():
    grid, _ = gappy()
    source = labelled(grid.values, (3, 4), min_observed=1.0)
    source.weights = open_source(np.isfinite(grid.values[:, 6]).astype(float)[:, None])
    found = fit(PPCA(2), source, workers=1)
    assert found.axes is not None
    assert found.axes.kept is not None
    assert found.axes.kept[6], "it is missing in rows of weight 0 only"


def test_features_observed_late_are_counted_and_not_refused():
    grid = Grid.made(300)
    grid.values[200:, 4] = np.arange(100)
    found = fit(PCA(2), labelled(grid.values, (3, 4), min_observed=0.5), workers=1)
    assert found.axes is not None
    np.testing.assert_array_equal(found.axes.kept, ~grid.land)


def test_a_missing_first_day_is_no_error_where_values_are_counted():
    grid = Grid.made(300)
    grid.values[:100] = np.nan
    found = fit(PPCA(2), labelled(grid.values, (3, 4), min_observed=0.5), workers=1)
    assert found.axes is not None
    np.testing.assert_array_equal(found.axes.kept, ~grid.land)


def test_no_feature_is_observed_often_enough():
    grid = Grid.made(300)
    grid.values[::3] = np.nan
    message = r"min_observed: no feature is observed in 0\.9 of the rows, .* 0\.6667 of them; lower it"
    with pytest.raises(ParameterError, match=message):
        fit(PPCA(2), labelled(grid.values, (3, 4), min_observed=0.9), workers=1)


@pytest.mark.parametrize("wish", [{"min_observed": 0.9}, {"balanced": True}])
def test_all_values_are_missing(wish):
    with pytest.raises(DataError, match="all 12 features are missing in all rows; check the variable"):
        fit(PPCA(2), labelled(np.full((90, 12), np.nan), (3, 4), **wish), workers=1)


def variables() -> tuple[np.ndarray, np.ndarray]:
    """Two variables of very different variance on a grid of 2 x 3, with land; and weights."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=(200, 12)) @ rng.normal(size=(12, 12))
    values[:, :6] *= 1e4
    values[:, [2, 8]] = np.nan
    return values + 1e6, 0.3 + rng.random(12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_balanced_variables_have_the_same_total_variance(solver, weighted):
    values, given = variables()
    weights = given if weighted else np.ones(12)
    source = labelled(values, (2, 2, 3), given if weighted else None, balanced=True)
    found = fit(PCA(3, solver=solver, max_passes=10, tol=1e-12), source, workers=1)
    rows = (values - values.mean(axis=0)) * weights
    for variable in (slice(0, 6), slice(6, 12)):
        rows[:, variable] /= np.sqrt(np.nansum(np.var(rows[:, variable], axis=0)))
    kept = np.isfinite(values[0])
    expected = decomposition.PCA(3).fit(rows[:, kept])
    np.testing.assert_allclose(pca_of(found).explained_variance, expected.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(pca_of(found).total_variance, 2 * 200 / 199, rtol=1e-10)
    assert found.axes is not None
    assert found.axes.weights is not None
    factors = found.axes.weights / weights
    np.testing.assert_allclose(factors[6:] / factors[6], 1.0, rtol=1e-12)


def test_balanced_variables_of_a_scaled_pca_count_the_same_although_they_differ_in_length():
    values, _ = variables()
    values[:, 8:11] = np.nan
    found = fit(PCA(2, scale=True), labelled(values, (2, 2, 3), balanced=True), workers=1)
    assert found.axes is not None
    assert found.axes.weights is not None
    np.testing.assert_allclose(found.axes.weights[[0, 6]], 1 / np.sqrt([5, 3]), rtol=1e-12)


def test_a_constant_variable_keeps_its_weights():
    values, _ = variables()
    values[:, 6:] = 5.0
    found = fit(PCA(2), labelled(values, (2, 2, 3), np.full(12, 1e-170), balanced=True), workers=1)
    assert found.axes is not None
    assert found.axes.weights is not None
    assert (found.axes.weights[6:] == 1e-170).all()
    np.testing.assert_allclose(pca_of(found).total_variance, 200 / 199, rtol=1e-9)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("wish", [{"min_observed": 0.9}, {"balanced": True}])
@pytest.mark.parametrize("method", [PCA(3), PPCA(2)])
def test_threads_resumption_and_appending_give_the_same_bits(wish, method, tmp_path):
    grid = Grid.made(640, 24, dtype=np.float32)
    if isinstance(method, PPCA):
        grid.values[::50, 7] = np.nan
    settings: dict[str, Any] = {"ledger": tmp_path / "ledger"}

    def source(name: str, rows: int) -> Any:
        path = tmp_path / name
        if not path.exists():
            stored(path, grid.values[:rows], (16, 5))
        return labelled(path, (4, 6), grid.weights, **wish)

    expected = fit(method, source("whole.zarr", 640), workers=1)
    for workers in (2, 8):
        assert bits(fit(method, source("whole.zarr", 640), workers=workers).model) == bits(expected.model)
    stopping = StopAfter(200)
    with pytest.raises(Interrupted):
        fit(method, source("whole.zarr", 640), progress=stopping, stop=stopping.stop, workers=1, **settings)
    resumed = fit(method, source("whole.zarr", 640), workers=1, **settings)
    assert bits(resumed.model) == bits(expected.model)
    again = Passes()
    fit(method, source("whole.zarr", 640), progress=again, **settings)
    # The closed form of PPCA meets a missing value again before EM is answered from the ledger.
    assert again.read == ([("moments", 640)] if isinstance(method, PPCA) else [])
    fit(method, source("grown.zarr", 512), workers=1, **settings)
    grown(tmp_path / "grown.zarr", grid.values)
    appended = Passes()
    found = fit(method, source("grown.zarr", 640), progress=appended, workers=1, **settings)
    assert bits(found.model) == bits(expected.model)
    assert appended.read[0] == ("observed values", 128), "only the new rows are counted"
    if isinstance(method, PCA):
        assert appended.read == [("observed values", 128), ("moments", 128)], "moments have no weights"


def test_another_share_or_other_weights_read_nothing_again(tmp_path):
    grid, _ = gappy()
    settings: dict[str, Any] = {"ledger": tmp_path / "ledger", "workers": 1}
    path = grid.store(tmp_path)
    fit(PCA(2), labelled(path, (3, 4), min_observed=0.97), **settings)
    for weights, share in ((None, 0.99), (grid.weights, 0.97)):
        passes = Passes()
        fit(PCA(2), labelled(path, (3, 4), weights, min_observed=share), progress=passes, **settings)
        assert passes.read == []


def test_a_cluster_counts_with_the_same_bits(tmp_path):
    grid, _ = gappy()
    path = grid.store(tmp_path)
    wishes: dict[str, Any] = {"min_observed": 0.5, "balanced": True}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        one, other = (
            fit(PPCA(2), labelled(path, (3, 4), grid.weights, **wishes), workers=2, scheduler=scheduler)
            for scheduler in ("threads", client)
        )
    assert bits(one.model) == bits(other.model)
    assert one.axes is not None
    assert other.axes is not None
    np.testing.assert_array_equal(one.axes.weights, other.axes.weights)


def test_the_estimate_has_the_pass_that_counts(tmp_path):
    grid, _ = gappy()
    path, size = grid.store(tmp_path), grid.values.nbytes
    execution = Execution(ledger=tmp_path / "ledger")

    def estimated() -> tuple[int, int]:
        return estimate_fit_reads(PCA(2), labelled(path, (3, 4), min_observed=0.96), execution)

    assert estimated() == (size, 2 * size)
    found = fit(PCA(2), labelled(path, (3, 4), min_observed=0.96), ledger=tmp_path / "ledger")
    assert found.bytes_read == 2 * size
    assert estimated() == (0, 0)


def test_the_plan_has_the_memory_of_the_pass_that_counts(tmp_path):
    wide = open_source(np.zeros((70, 40_000), np.float32))
    counted = labelled(wide, balanced=True)
    narrow = narrowed(PCA(1, solver="gram"), counted, Execution())
    with_count = planner.plan(PCA(1, solver="gram"), narrow, Execution(workers=1))
    phase = present(checked(FeatureSubset, narrow).counting)
    alone = planner.plan_counting(PCA(1), counted, phase, Execution(workers=1))
    assert with_count.peak >= alone.peak


def test_rows_that_do_not_fit_are_not_counted():
    source = labelled(np.zeros((4, 2_000_000), np.float32), balanced=True)
    with pytest.raises(MemoryLimitError, match="observed values"):
        fit(PCA(1, solver="gram"), source, memory_limit=planner.resident() + (60 << 20))


def test_impossible_parameters_are_refused_before_values_are_counted():
    grid, _ = gappy()
    passes = Passes()
    with pytest.raises(ParameterError, match="9 components need"):
        fit(PCA(9), labelled(grid.values, (3, 4), min_observed=0.2), progress=passes)
    assert passes.read == []


def test_a_fit_that_continues_has_the_same_features(tmp_path):
    """A model of other features is no start: column 4 is observed since rows were appended."""
    grid = Grid.made(400, offset=0.0)
    before = fit(PPCA(2, method="em", max_iter=20), labelled(grid.values[:300], (3, 4)), workers=1)
    grid.values[350:, 4] = 1.0
    method = PPCA(2, method="em", max_iter=20)
    found = fitting.fit(
        method,
        labelled(grid.values, (3, 4)),
        Execution(workers=1),
        start=before.model,
        start_axes=before.axes,
    )
    assert bits(found.model) == bits(fit(method, labelled(grid.values, (3, 4)), workers=1).model)


def test_a_stop_while_counting(tmp_path):
    grid, _ = gappy()
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        fit(PCA(2), labelled(grid.store(tmp_path), (3, 4), min_observed=0.9), stop=stop)


def test_first_rows_that_do_not_fit_are_not_read(tmp_path):
    """A chunk may be declared far larger than memory."""
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=(70_000, 70_000), chunks=(70_000, 70_000), dtype="f4", compressors=None)
    source = labelled(open_source(path, allow_missing_chunks=True))
    for attempt in (
        lambda: fit(PCA(2, solver="krylov"), source, memory_limit=1 << 30),
        lambda: narrowed(PCA(2), source, Execution(memory_limit=1 << 30)),
    ):
        with pytest.raises(MemoryLimitError, match=r"x\.zarr: reading the first rows takes 3\d(\.\d+)? GiB"):
            attempt()
