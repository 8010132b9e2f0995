"""Dask arrays on a cluster: blocks are computed, or folded, by the workers that hold them."""

from __future__ import annotations

import os
import signal
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, wait

from streamdr import LDA, PCA, PPCA, execution
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError, StreamdrError
from streamdr.methods import pca

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D, CHUNK = 1200, 12, 50


class CountingClient(Client):
    """A client that counts the bytes of the results that it fetches."""

    fetched = 0

    async def _gather(self, *arguments: Any, **named: Any) -> Any:
        found = await super()._gather(*arguments, **named)
        self.fetched += sizeof(found)
        return found


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        CountingClient(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, D)) * rng.uniform(1, 9, size=D) + 30).astype("f4")


@pytest.fixture(scope="module")
def path(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("held") / "x.zarr"
    zarr.create_array(path, data=values, chunks=(CHUNK, D))
    return str(path)


def root_of_size(block):
    return np.sqrt(np.abs(block))


def common(x):
    roots = x.map_blocks(root_of_size, dtype="f4")
    return roots - np.float32(0.1) * roots * roots


KINDS = {
    "plain": lambda x: x,
    "chain": lambda x: (x.map_blocks(root_of_size, dtype="f4") * 2.5).astype("f8").astype("f4"),
    "centred": lambda x: x - x.mean(0),
    "common subexpression": common,
    "projection": lambda x: x @ (x.T @ x / N),
    "chunks along columns": lambda x: x.rechunk((CHUNK, 7)),
    "ragged chunks": lambda x: x.rechunk(((1, 199, 0, 600, 400), (D,))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_gives_the_bits_of_threads(client, path, kind):
    lazy = KINDS[kind](da.from_zarr(path))
    with dask.config.set(scheduler="threads"):
        expected = PCA(3).fit(lazy)
    with client.as_current():
        on_cluster = PCA(3).fit(lazy)
    of_held = PCA(3).fit(KINDS[kind](client.persist(da.from_zarr(path))))
    held = PCA(3).fit(client.persist(lazy))
    for found in (on_cluster, of_held, held):
        np.testing.assert_array_equal(found.components_, expected.components_)
        np.testing.assert_array_equal(found.explained_variance_, expected.explained_variance_)


@pytest.mark.parametrize("kind", ["plain", "chain", "centred"])
def test_chunks_that_a_cluster_holds_do_not_pass_through_the_client(client, path, values, kind):
    held = KINDS[kind](client.persist(da.from_zarr(path)))
    client.fetched = 0
    PCA(3).fit(held)
    assert 0 < client.fetched < values.nbytes // 8
    client.fetched = 0
    with execution(scheduler="threads"):
        PCA(3).fit(held)
    assert client.fetched >= values.nbytes


@pytest.mark.parametrize(
    ("method", "statistics"),
    [(PPCA(2), 0), (PCA(2, solver="gram"), 8 * N * N), (PCA(2, solver="krylov"), 0)],
    ids=str,
)
def test_methods_of_several_passes_fold_what_a_cluster_holds(client, path, method, statistics):
    expected = method.fit(path).components_
    held = client.persist(da.from_zarr(path))
    client.fetched = 0
    np.testing.assert_array_equal(method.fit(held).components_, expected)
    assert client.fetched - statistics < 4 * N * D, "more than the statistics was fetched"


def test_labels_and_weights_of_this_process_go_with_rows_of_a_cluster(client, path, values):
    labels, weights = (values[:, 0] > 30).astype(int), np.linspace(1, 2, N)
    held = client.persist(da.from_zarr(path))
    with execution(scheduler=client):
        found = LDA(1).fit(held, labels, sample_weight=weights)
    expected = LDA(1).fit(path, labels, sample_weight=weights)
    np.testing.assert_array_equal(found.model_.scalings, expected.model_.scalings)


def test_lazy_scores_of_what_a_cluster_holds_are_computed_there(client, path, values):
    held = client.persist(da.from_zarr(path))
    fitted = PCA(3).fit(held)
    client.fetched = 0
    scores = client.persist(fitted.transform(held))
    with client.as_current():
        wait(scores)
    assert client.fetched == 0
    np.testing.assert_allclose(
        client.compute(scores, sync=True), fitted.transform(values), rtol=1e-4, atol=1e-4
    )


class Once(Silent):
    """Calls a function when the first rows have been read."""

    def __init__(self, function) -> None:
        self.function = function

    def advance(self, rows: int) -> None:
        function, self.function = self.function, lambda: None
        function()


def test_a_worker_that_dies_with_chunks_changes_no_bits(path):
    expected = PCA(3).fit(path).components_
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        held = client.persist(da.from_zarr(path))
        with client.as_current():
            wait(held)
        (first, _) = client.run(os.getpid).values()
        progress = Once(lambda: os.kill(first, signal.SIGKILL))
        found: Any = fitting.fit(pca.PCA(3), open_source(held), Execution(), progress=progress).model
        np.testing.assert_array_equal(found.components, expected)


def test_chunks_that_nobody_can_compute_again_are_an_error(values):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        parts = [values[start : start + CHUNK] for start in range(0, N, CHUNK)]
        scattered = client.scatter(parts, hash=False)
        graph: dict[Any, Any] = {("given", i, 0): future for i, future in enumerate(scattered)}
        held = da.Array(graph, "given", ((CHUNK,) * len(parts), (D,)), dtype="f4")
        np.testing.assert_array_equal(
            PCA(3).fit(held).components_, PCA(3).fit(da.from_array(values, chunks=(CHUNK, D))).components_
        )
        (first, _) = client.run(os.getpid).values()
        progress = Once(lambda: os.kill(first, signal.SIGKILL))
        with pytest.raises(StreamdrError, match=r"lost|cannot be computed"):
            fitting.fit(pca.PCA(3), open_source(held), Execution(), progress=progress)


def test_a_client_that_is_closed_during_a_fit_is_an_error(path):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        source = open_source(client.persist(da.from_zarr(path)))
        with pytest.raises(StreamdrError, match=r"scheduler was lost|a client that is closed"):
            fitting.fit(pca.PCA(3), source, Execution(), progress=Once(client.close))
        with pytest.raises(DataError, match="a client that is closed"):
            fitting.fit(pca.PCA(3), source, Execution())


def fail_at_row_600(block, block_info=None):
    start = block_info[0]["array-location"][0][0]
    if start == 600:
        raise ValueError("no such thing")
    return block


@pytest.mark.parametrize("place", ["threads", "cluster", "persisted"])
def test_the_error_of_a_function_names_the_rows_of_its_block(client, path, place):
    lazy = da.from_zarr(path)
    if place == "persisted":
        lazy = client.persist(lazy)
    broken = lazy.map_blocks(fail_at_row_600, dtype="f4")
    with (
        dask.config.set(scheduler="threads" if place == "threads" else client.get),
        pytest.raises(DataError, match=r"rows (\d+)-(\d+) cannot be computed: no such thing") as failed,
    ):
        PCA(3).fit(broken)
    start, stop = (int(word) for word in str(failed.value).split("rows ")[1].split(" ")[0].split("-"))
    assert start <= 600 <= stop
    assert stop - start < N // 2
    assert broken.name in str(failed.value)


def test_regions_need_only_the_futures_of_their_chunks(client, path):
    source = open_source(client.persist(da.from_zarr(path)) * 2)
    rows = Span(CHUNK // 2, 2 * CHUNK)
    assert len(source.remote_results([(rows, Span(0, D))])) == 2
    assert len(source.remote_results([(rows, Span(0, D)), (Span(0, 10), Span(0, 3))])) == 2
    assert open_source(path).remote_results([(rows, Span(0, D))]) == {}


def test_with_weights_of_this_process_shared_results_are_still_computed_once(client, path):
    held = client.persist(da.from_zarr(path))
    source = open_source(held - held.mean(0), weights=np.ones(N))
    assert source.holder is client
    assert len(source.remote_results([(Span(0, CHUNK), Span(0, D))])) == 2  # its chunk, and the mean
