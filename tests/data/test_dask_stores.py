"""Dask arrays over zarr arrays: a whole store is read as its path, and nothing else is taken for one."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from dask._task_spec import DataNode, Task, TaskRef
from dask.array.core import getter
from zarr.codecs import BloscCodec, BytesCodec
from zarr.storage import LocalStore, MemoryStore

from streamdr import PCA, execution
from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.dask_stores import DirectArray, direct_nodes, whole_store
from streamdr.data.lazy_arrays import DaskSource, LazyStore
from streamdr.errors import DataError

N, D, CHUNK = 130, 12, 20


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, D)) * np.arange(1, D + 1) + 50.0).astype("f4")


@pytest.fixture
def path(values, tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(CHUNK, D))
    return str(tmp_path / "x.zarr")


def whole(source) -> np.ndarray:
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (CHUNK, D)},
    "v2": {"chunks": (CHUNK, D), "zarr_format": 2},
    "sharded": {"chunks": (5, D), "shards": (40, D)},
    "chunks along columns": {"chunks": (CHUNK, 5)},
    "blosc": {"chunks": (CHUNK, D), "compressors": BloscCodec(cname="lz4")},
    "one chunk, longer than the array": {"chunks": (2 * N, D)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_store_is_read_as_its_path_with_the_same_bits(values, tmp_path, small_blocks, layout):
    zarr.create_array(tmp_path / "x.zarr", data=values, **LAYOUTS[layout])
    lazy = da.from_zarr(str(tmp_path / "x.zarr"))
    source = open_source(lazy)
    assert isinstance(source, LazyStore)
    np.testing.assert_array_equal(whole(source), values)
    by_path = PCA(3).fit(tmp_path / "x.zarr")
    np.testing.assert_array_equal(PCA(3).fit(lazy).components_, by_path.components_)
    np.testing.assert_array_equal(PCA(3).fit(lazy).explained_variance_, by_path.explained_variance_)


def test_stores_opened_in_other_ways_are_recognised_too(values, path):
    opened = (zarr.open_array(path), zarr.open_array(LocalStore(path), mode="r"))
    for store in opened:
        assert isinstance(open_source(da.from_zarr(store)), LazyStore)
    assert isinstance(open_source(da.from_zarr(path, chunks=(7, 5))), LazyStore)
    cube = zarr.create_array(f"{path}/../cube.zarr", data=values.reshape(N, 3, 4), chunks=(CHUNK, 2, 2))
    assert isinstance(open_source(da.from_zarr(cube), sample_axis=1), LazyStore)
    expected = np.moveaxis(values.reshape(N, 3, 4), 1, 0).reshape(3, -1)
    np.testing.assert_array_equal(whole(open_source(da.from_zarr(cube), sample_axis=1)), expected)


def read_elsewhere(task: Task, slices) -> Task:
    """A task like that of from_zarr, that reads another part of the store."""
    return Task(task.key, getter, task.args[0], DataNode(None, slices))


def with_tasks(lazy, change):
    """The array of from_zarr with other tasks under the same keys, chunks and name."""
    graph = lazy.__dask_graph__()
    (root,) = (name for name in graph.layers if name != lazy.name)
    tasks = {key: change(key, task) for key, task in dict(graph.layers[lazy.name]).items()}
    layers = {root: dict(graph.layers[root]), lazy.name: tasks}
    changed = type(graph)(layers, {root: set(), lazy.name: {root}})
    return da.Array(changed, lazy.name, lazy.chunks, meta=lazy._meta)


def swapped(key, task):
    """The first two blocks are exchanged."""
    _, row, _ = key
    other = {0: 1, 1: 0}.get(row, row)
    return read_elsewhere(task, (slice(CHUNK * other, min(CHUNK * (other + 1), N)), slice(0, D)))


def repeated(key, task):
    """Every block is the beginning of the array."""
    return read_elsewhere(task, (slice(0, min(CHUNK, N - CHUNK * key[1])), slice(0, D)))


def negated(array, selection):
    return -np.asarray(array[selection])


NEAR_MISSES = {
    "some rows": lambda x: x[:100],
    "rows from the second on": lambda x: x[1:],
    "every second row": lambda x: x[::2],
    "rows in reverse": lambda x: x[::-1],
    "rows in another order": lambda x: x[np.r_[1, 0, 2:N]],
    "some columns": lambda x: x[:, 2:],
    "columns in another order": lambda x: x[:, ::-1],
    "other chunks": lambda x: x.rechunk((33, 5)),
    "twice": lambda x: da.concatenate([x, x]),
    "itself, a value changed": lambda x: x.map_blocks(lambda block: block + (block > 90), dtype="f4"),
    "another type": lambda x: x.astype("f8"),
    "another type of the same size": lambda x: x.view("i4"),
    "transposed twice, after a map": lambda x: (x.T + 0).T,
    "with missing rows filled": lambda x: da.where(x > 60, 0, x),
    "rows dropped and added": lambda x: da.concatenate([x[10:], x[:10]]),
    "two blocks exchanged": lambda x: with_tasks(x, swapped),
    "one block repeated": lambda x: with_tasks(x, repeated),
    "another function": lambda x: with_tasks(
        x, lambda key, task: Task(key, negated, task.args[0], task.args[1])
    ),
    "one task more complicated": lambda x: with_tasks(
        x,
        lambda key, task: (
            Task(key, np.add, Task(None, getter, *task.args), DataNode(None, 1)) if key[1] == 3 else task
        ),
    ),
}


@pytest.mark.parametrize("change", NEAR_MISSES)
def test_nothing_else_is_taken_for_the_whole_store(path, small_blocks, change):
    lazy = NEAR_MISSES[change](da.from_zarr(path))
    source = open_source(lazy)
    assert isinstance(source, DaskSource)
    np.testing.assert_array_equal(whole(source), lazy.compute(scheduler="synchronous"))
    parts = [source.read(rows, Span(1, 7)) for rows in Span(0, source.spec.n_rows).split(17)]
    np.testing.assert_array_equal(np.concatenate(parts), lazy.compute(scheduler="synchronous")[:, 1:7])


def test_an_array_of_another_store_under_the_same_name_is_read_from_its_own(path, values, tmp_path):
    zarr.create_array(tmp_path / "y.zarr", data=-values, chunks=(CHUNK, D))
    same_name = da.from_zarr(str(tmp_path / "y.zarr"), name=da.from_zarr(path).name)
    np.testing.assert_array_equal(whole(open_source(same_name)), -values)


def test_stores_that_are_not_local_files_are_read_by_zarr(values):
    lazy = da.from_zarr(zarr.create_array(MemoryStore(), data=values, chunks=(CHUNK, D)))
    assert whole_store(lazy) is None
    np.testing.assert_array_equal(whole(open_source(lazy + 1)), values + 1)


def test_values_in_the_byte_order_of_another_machine_keep_their_type(values, tmp_path):
    stored = zarr.create_array(
        tmp_path / "x.zarr", data=values, chunks=(CHUNK, D), serializer=BytesCodec(endian="big")
    )
    kinds = da.from_zarr(stored).map_blocks(
        lambda block: np.full(block.shape, block.dtype.isnative, "f4"), dtype="f4"
    )
    np.testing.assert_array_equal(whole(open_source(kinds)), kinds.compute())
    np.testing.assert_array_equal(whole(open_source(da.from_zarr(stored))), values)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("fill_value", [7.0, np.nan, 0.0])
def test_chunks_that_are_not_stored_have_the_fill_value_as_in_dask(tmp_path, zarr_format, fill_value):
    stored = zarr.create_array(
        tmp_path / "x.zarr",
        shape=(N, D),
        chunks=(CHUNK, D),
        dtype="f4",
        fill_value=fill_value,
        zarr_format=zarr_format,
    )
    stored[:CHUNK] = 1.0
    lazy = da.from_zarr(str(tmp_path / "x.zarr"))
    for each in (lazy, lazy * 2):
        np.testing.assert_array_equal(whole(open_source(each)), each.compute())


def test_an_array_that_has_grown_since_it_was_opened_is_read_by_zarr(path, values):
    lazy = da.from_zarr(path)
    zarr.open_array(path).append(values)
    assert isinstance(open_source(lazy), DaskSource)
    np.testing.assert_array_equal(whole(open_source(lazy)), values)


def test_a_damaged_chunk_is_named(path):
    with open(f"{path}/c/2/0", "r+b") as file:
        file.truncate(10)
    for lazy in (da.from_zarr(path), da.from_zarr(path) + 1):
        with pytest.raises(DataError, match=r"x\.zarr: chunk c/2/0 cannot be read, rows 40-59"):
            PCA(2).fit(lazy)


SELECTIONS = [
    (slice(3, 50), slice(0, D)),
    (slice(None), slice(2, 5)),
    (slice(-10, None), slice(None)),
    (slice(5, 5), slice(None)),
    (slice(0, 100, 3), slice(None)),
    (4, slice(None)),
    slice(2, 9),
    (Ellipsis, 3),
    ([1, 5, 2], slice(None)),
    (np.arange(N) % 2 == 0, slice(None)),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=repr)
def test_any_selection_of_a_direct_array_is_that_of_zarr(path, selection):
    stored = zarr.open_array(path, mode="r")
    node: Any
    (node,) = direct_nodes({"x": stored}).values()
    direct = node.value
    assert isinstance(direct, DirectArray)
    assert isinstance(direct, zarr.Array)
    for array in (direct, pickle.loads(pickle.dumps(direct))):
        np.testing.assert_array_equal(array[selection], stored[selection])
        assert np.asarray(array[selection]).dtype == stored.dtype


def test_functions_that_receive_the_zarr_array_find_it_as_it_was(path, values):
    stored = zarr.open_array(path, mode="r")
    graph = {"store": stored, ("x", 0, 0): Task(("x", 0, 0), _mean_and_chunks, TaskRef("store"))}
    lazy = da.Array(graph, "x", ((1,), (D,)), dtype="f8")
    np.testing.assert_array_equal(whole(open_source(lazy)), values.mean(0, dtype="f8")[None] + CHUNK)


def _mean_and_chunks(stored: Any) -> np.ndarray:
    return stored[...].mean(0, dtype="f8")[None] + stored.chunks[0]


def test_a_fit_of_a_whole_store_uses_the_ledger_of_its_path(path, tmp_path, small_blocks):
    with execution(ledger=tmp_path / "ledger"):
        expected = PCA(2).fit(path)
        entries = sorted(entry.name for entry in (tmp_path / "ledger").iterdir())
        np.testing.assert_array_equal(PCA(2).fit(da.from_zarr(path)).components_, expected.components_)
    assert sorted(entry.name for entry in (tmp_path / "ledger").iterdir()) == entries
