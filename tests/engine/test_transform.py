"""A transform maps every row, resumes, and publishes atomically."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import zarr
from fits import StopAfter

from streamdr import store
from streamdr.core import blocks
from streamdr.core.execution import Execution
from streamdr.core.method import in_memory
from streamdr.core.row_outputs import EMBEDDING
from streamdr.data import open_source
from streamdr.engine import fitting, planner
from streamdr.errors import DataError, Interrupted, MemoryLimitError, StoreError
from streamdr.methods.pca import PCA


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(blocks, "SEGMENT_BYTES", 1 << 14)
    monkeypatch.setattr(planner, "_OUTPUT_CHUNK", 1 << 12)


def write(path, data, chunks):
    array = zarr.create_array(path, shape=data.shape, chunks=chunks, dtype=data.dtype)
    array[:] = data
    return path


@pytest.fixture
def data():
    return (np.random.default_rng(0).normal(size=(2000, 12)) * np.arange(1, 13) + 40).astype(np.float32)


def transform(model, path, target, **settings):
    execution = Execution(**{"workers": 2, **settings.pop("execution", {})})
    return fitting.transform(
        model, open_source(path), target, execution, attributes={"of": "test"}, **settings
    )


@pytest.mark.parametrize("whiten", [None, "pca", "zca"])
@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
@pytest.mark.parametrize("chunks", [(70, 12), (2000, 12), (1, 12), (333, 5)])
def test_every_row_is_mapped(data, tmp_path, whiten, dtype, chunks):
    model = in_memory(PCA(4, solver="covariance", whiten=whiten), data)
    path = write(tmp_path / "x.zarr", data, chunks)
    done = transform(model, path, tmp_path / "z.zarr", dtype=dtype)
    embedding = store.open_embedding(tmp_path / "z.zarr")
    assert embedding.dtype == (dtype or "float32")
    assert done.n_outputs == model.n_outputs
    assert done.bytes_read == data.nbytes
    np.testing.assert_allclose(embedding[:], model.transform(data), rtol=0, atol=1e-4)
    assert xr.open_zarr(tmp_path / "z.zarr")["embedding"].dims == ("sample", "component")


def test_same_bits_on_any_number_of_workers(data, tmp_path):
    model = in_memory(PCA(4, solver="covariance"), data)
    path = write(tmp_path / "x.zarr", data, (70, 12))
    for workers in (1, 2, 5):
        transform(model, path, tmp_path / f"{workers}.zarr", execution={"workers": workers})
    first, *others = (
        store.open_embedding(tmp_path / f"{workers}.zarr")[:].tobytes() for workers in (1, 2, 5)
    )
    assert others == [first, first]


@pytest.mark.parametrize("whiten", [None, "pca"])
def test_wide_rows_are_read_by_columns(tmp_path, whiten, monkeypatch):
    data = (np.random.default_rng(0).normal(size=(40, 3000)) + 7).astype(np.float32)
    model = in_memory(PCA(3, solver="gram", whiten=whiten), data)
    path = write(tmp_path / "x.zarr", data, (40, 50))
    source = open_source(path)
    by_rows = planner.plan_transform(EMBEDDING.of(model), source, Execution(workers=1), np.dtype("f4"))
    assert by_rows.axis == "rows"
    monkeypatch.setattr(
        planner, "_by_rows", lambda *given: by_rows.__class__(**{**vars(by_rows), "peak": 1 << 60})
    )
    view = EMBEDDING.of(model)
    assert planner.plan_transform(view, source, Execution(workers=1), np.dtype("f4")).axis == "columns"
    done = transform(model, path, tmp_path / "z.zarr")
    assert done.bytes_read == data.nbytes
    got = store.open_embedding(tmp_path / "z.zarr")[:]
    np.testing.assert_allclose(got, model.transform(data), atol=1e-5 * np.abs(got).max())


def test_an_interrupted_transform_resumes(data, tmp_path):
    model = in_memory(PCA(4, solver="covariance"), data)
    path = write(tmp_path / "x.zarr", data, (70, 12))
    stopper = StopAfter(900)
    with pytest.raises(Interrupted):
        transform(model, path, tmp_path / "z.zarr", progress=stopper, stop=stopper.stop)
    assert not (tmp_path / "z.zarr").exists(), "half an embedding was published"
    again = transform(model, path, tmp_path / "z.zarr")
    assert 0 < again.bytes_read < data.nbytes
    transform(model, path, tmp_path / "whole.zarr")
    halves, whole = (store.open_embedding(tmp_path / name)[:] for name in ("z.zarr", "whole.zarr"))
    assert halves.tobytes() == whole.tobytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["whole.zarr", "x.zarr", "z.zarr"]


def test_a_bad_row_leaves_no_embedding(data, tmp_path):
    model = in_memory(PCA(4, solver="covariance"), data)
    data[1500, 3] = np.nan
    path = write(tmp_path / "x.zarr", data, (70, 12))
    with pytest.raises(DataError, match="row 1500, column 3"):
        transform(model, path, tmp_path / "z.zarr")
    assert not (tmp_path / "z.zarr").exists()


def test_other_features_small_limits_and_existing_outputs_are_refused(data, tmp_path):
    model = in_memory(PCA(4, solver="covariance"), data)
    path = write(tmp_path / "x.zarr", data, (70, 12))
    narrow = write(tmp_path / "narrow.zarr", data[:, :5], (70, 5))
    with pytest.raises(DataError, match=r"narrow.zarr: has 5 features, and the model takes 12"):
        transform(model, narrow, tmp_path / "z.zarr")
    with pytest.raises(MemoryLimitError, match="raise memory_limit"):
        transform(model, path, tmp_path / "z.zarr", execution={"memory_limit": 1 << 20})
    transform(model, path, tmp_path / "z.zarr")
    with pytest.raises(StoreError, match="exists"):
        transform(model, path, tmp_path / "z.zarr")
    transform(model, path, tmp_path / "z.zarr", overwrite=True)
