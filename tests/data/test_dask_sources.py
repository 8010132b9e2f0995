"""Dask arrays: shared results are computed once, and results on a cluster can be read."""

from __future__ import annotations

from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client, LocalCluster

from streamdr import PCA, PPCA, KernelPCA, execution
from streamdr.core.blocks import Part, Span
from streamdr.data import dask_graphs, open_source
from streamdr.data.column_subset import ColumnSubset
from streamdr.data.row_subset import RowSubset
from streamdr.data.shared_tasks import Key, keys_to_hold, repetition
from streamdr.errors import DataError

N, D, CHUNK = 2400, 6, 100


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)) * np.arange(1, D + 1) + 50.0


class Counted:
    """An array that counts how often its chunks are computed."""

    def __init__(self, values: np.ndarray, chunks=(CHUNK, D)) -> None:
        self.computed: Counter = Counter()

        def count(block, block_info=None):
            self.computed[block_info[0]["chunk-location"]] += 1
            return block

        meta = np.empty((0,) * values.ndim, values.dtype)
        self.array = da.from_array(values, chunks=chunks).map_blocks(count, dtype=values.dtype, meta=meta)

    @property
    def most(self) -> int:
        return max(self.computed.values())


SHARING = {
    "mean": lambda x: x - x.mean(0),
    "standardised": lambda x: (x - x.mean(0)) / x.std(0),
    "total": lambda x: x / x.sum(),
    "means of several": lambda x: (x + 2 * x) - (x + 1).mean(0) - x[::2].mean(0),
    "running sum": lambda x: da.cumsum(x, axis=0) / 1000,
    "projection": lambda x: x @ (x.T @ x / N),
    "orthogonal": lambda x: da.linalg.qr(x)[0],
}


@pytest.mark.parametrize("name", SHARING)
def test_shared_results_are_computed_once(small_blocks, values, name):
    counted = Counted(values)
    lazy = SHARING[name](counted.array)
    expected = lazy.compute()
    counted.computed.clear()
    source = open_source(lazy)
    blocks = [source.block(span).values for span in Span(0, N).split(CHUNK)]
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
    # For the shared results, as often as dask needs a chunk there, and once more for its block.
    assert sum(counted.computed.values()) <= 5 * (N // CHUNK)


def test_a_fit_of_a_lazily_centred_array_is_bitwise_that_of_the_computed_array(small_blocks, values):
    counted = Counted(values)
    fitted = PCA(3).fit(counted.array - counted.array.mean(0))
    centred = da.from_array((counted.array - counted.array.mean(0)).compute(), chunks=(CHUNK, D))
    np.testing.assert_array_equal(fitted.components_, PCA(3).fit(centred).components_)


def test_the_mean_of_a_data_array_is_computed_once(small_blocks, values):
    counted = Counted(values)
    labelled = xr.DataArray(counted.array, dims=("time", "x"))
    fitted = PCA(3).fit(labelled - labelled.mean("time"))
    assert counted.most <= 3
    np.testing.assert_allclose(fitted.mean_, 0, atol=1e-9)


def test_blocks_of_columns_share_results_too(small_blocks, values):
    counted = Counted(values.T.copy(), chunks=(D, CHUNK))
    source = open_source(counted.array - counted.array.mean(1, keepdims=True))
    for span in Span(0, N).split(CHUNK):
        source.block(span, "columns")
    assert counted.most <= 3


def test_nothing_is_kept_where_blocks_share_nothing(small_blocks, values):
    counted = Counted(values)
    source = open_source(counted.array * 2 + 1)
    source.block(Span(0, CHUNK))
    assert sum(counted.computed.values()) == 1


def test_overlaps_of_neighbouring_blocks_are_not_kept(small_blocks, values):
    counted = Counted(values)
    lazy = da.overlap.map_overlap(lambda block: block, counted.array, depth={0: 1}, boundary="reflect")
    source = open_source(lazy)
    source.block(Span(0, CHUNK))
    assert len(counted.computed) <= 2


def test_shared_results_that_do_not_fit_are_refused_with_advice(small_blocks, values):
    wide = da.from_array(values, chunks=(N, 1)).map_blocks(lambda block: block + 0, dtype=values.dtype)
    lazy = wide.rechunk((20, D))
    with execution(memory_limit="100kB"), pytest.raises(DataError, match=r"to_zarr\('x.zarr'\).*persist"):
        open_source(lazy).block(Span(0, 20))


def test_errors_in_shared_results_are_reported():
    def fail(block):
        raise OSError("the disk is on fire")

    broken = da.ones((40, 3), chunks=(4, 3)).map_blocks(fail, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(DataError, match="share cannot be computed: the disk is on fire"):
        open_source(da.ones((40, 3), chunks=(4, 3)) - broken.mean(0)).read(Span(0, 4), Span(0, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda block: block[:1],
        lambda block: block[:, :1],
        lambda block: np.vstack([block, block]),
        lambda block: block[..., None],
        lambda block: block.ravel(),
        lambda block: 3.0,
        lambda block: None,
        lambda block: block + 1j,
        lambda block: block.astype(object),
        lambda block: block.astype("U8"),
        lambda block: np.ma.masked_greater(block, 0),
    ],
)
def test_chunks_that_do_not_match_the_array_are_refused(values, change):
    wrong = da.from_array(values, chunks=(CHUNK, D)).map_blocks(change, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(DataError, match=r"chunk \(0, 0\) is .*and the array says|masked arrays"):
        PCA(2).fit(wrong)


def test_chunks_of_a_narrower_type_than_the_array_are_read(values):
    narrow = da.from_array(values, chunks=(CHUNK, D)).map_blocks(np.float32, dtype="f8")
    read = open_source(narrow).read(Span(0, N), Span(0, D))
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, values.astype("f4"))


def test_large_graphs_are_sampled(monkeypatch):
    monkeypatch.setattr("streamdr.data.shared_tasks._MAX_STEPS", 100)
    leaves: dict[Key, set[Key]] = {f"x{i}": set() for i in range(500)}
    graph = leaves | {"mean": set(leaves)} | {f"out{i}": {f"x{i}", "mean"} for i in range(500)}
    bands: list[list[Key]] = [[f"out{i}"] for i in range(500)]
    assert repetition(graph, bands, ()) > 10
    assert keys_to_hold(graph, bands, ()) == {"mean"}
    assert keys_to_hold(graph, bands, {"mean"}) == set()


# A cluster


@pytest.fixture(scope="module")
def stored(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("dask") / "x.zarr"
    zarr.create_array(path, data=values, chunks=(CHUNK, D))
    return path


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def require_worker(block):
    from distributed import get_worker

    get_worker()  # fails outside of a worker
    return block


@pytest.mark.parametrize("place", ["default", "threads", "client"])
def test_persisted_arrays_give_bitwise_the_results_of_lazy_ones(client, stored, small_blocks, place):
    lazy = da.from_zarr(stored)
    expected, centred = PCA(2).fit(lazy), PCA(2).fit(lazy - lazy.mean(0))
    held = client.persist(lazy)
    places = {"default": {}, "threads": {"scheduler": "threads"}, "client": {"scheduler": client}}
    with execution(**places[place]):
        np.testing.assert_array_equal(PCA(2).fit(held).components_, expected.components_)
        np.testing.assert_array_equal(PCA(2).fit(held - held.mean(0)).components_, centred.components_)


@pytest.mark.parametrize("method", [PPCA(2), KernelPCA(2, random_state=0)], ids=["ppca", "kernel_pca"])
def test_persisted_arrays_work_with_methods_of_several_passes(client, stored, method):
    lazy = da.from_zarr(stored)
    with client.as_current():
        np.testing.assert_allclose(
            np.abs(method.fit(lazy.persist()).transform(lazy[:5].compute())),
            np.abs(method.fit(stored).transform(lazy[:5].compute())),
            rtol=1e-6,
            atol=1e-9,
        )


def test_an_active_client_computes_the_array(client, stored):
    lazy = da.from_zarr(stored).map_blocks(require_worker, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(DataError, match="No worker found"):
        PCA(2).fit(lazy)
    with client.as_current():
        expected = PCA(2).fit(stored).components_
        np.testing.assert_array_equal(PCA(2).fit(lazy).components_, expected)
        with execution(scheduler="threads"):
            np.testing.assert_array_equal(PCA(2).fit(lazy).components_, expected)
        with dask.config.set(scheduler="synchronous"), pytest.raises(DataError, match="No worker found"):
            PCA(2).fit(lazy)


def test_large_arrays_of_this_process_are_not_sent_to_a_cluster(client, monkeypatch, values):
    monkeypatch.setattr(dask_graphs, "_MAX_SENT_BYTES", 1000)
    with client.as_current():
        assert open_source(da.from_array(values, chunks=(CHUNK, D))).client is None
        assert open_source(da.from_array(values[:2], chunks=(1, D))).client is client


def test_weights_that_a_cluster_holds_are_read(client, stored, values):
    weights = np.linspace(1, 2, N)
    with client.as_current():
        held = da.from_array(weights, chunks=CHUNK).persist()
        fitted = PCA(2).fit(stored, sample_weight=held)
    np.testing.assert_array_equal(fitted.components_, PCA(2).fit(stored, sample_weight=weights).components_)


@pytest.mark.parametrize("wrapped", ["mask", "label column", "some rows", "some columns"])
def test_a_source_that_reads_what_a_cluster_holds_is_read_by_this_process(client, values, wrapped):
    with client.as_current():
        plain = da.from_array(values, chunks=(CHUNK, D))
        held = plain.persist()
        sources = {
            "mask": lambda x: open_source(values, mask=x > 60.0),
            "label column": lambda x: open_source(x, label_column=0),
            "some rows": lambda x: RowSubset(open_source(x), Part(0, 3)),
            "some columns": lambda x: ColumnSubset(open_source(x), np.array([1, 3])),
        }
        assert sources[wrapped](held.persist()).is_process_local
        assert not sources[wrapped](plain).is_process_local


def test_chunks_of_a_closed_client_are_an_error(stored):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        held = client.persist(da.from_zarr(stored))
    with pytest.raises(DataError, match=r"a client that is closed; persist\(\) it again"):
        PCA(2).fit(held)
