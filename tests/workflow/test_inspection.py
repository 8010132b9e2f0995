"""What `inspect` finds: layouts as they are stored, what is missing, and why something cannot be used."""

from __future__ import annotations

import threading

import numpy as np
import pandas
import pytest
import sparse_stores as stores
import xarray
import zarr
from command_line import write_store
from narrowing import checked
from zarr.codecs import BloscCodec, Crc32cCodec

from streamdr import config
from streamdr.core.progress import Silent
from streamdr.errors import DataError, StoreError
from streamdr.store import Staging, create_embedding
from streamdr.workflow import pipeline, report_text
from streamdr.workflow.findings import (
    ArrayInspection,
    Blocks,
    LabelsInspection,
    MatrixInspection,
    MissingChunks,
    StoreInspection,
    TableInspection,
    UnusableArray,
)
from streamdr.workflow.inspection import inspect

X = np.arange(120.0).reshape(20, 6)


def only_array(path):
    (array,) = checked(StoreInspection, inspect(path)).arrays
    return array


def stored_bytes(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and "zarr" not in file.name)


def test_a_plain_array(tmp_path):
    codecs = [BloscCodec(cname="lz4"), Crc32cCodec()]
    write_store(
        tmp_path / "x.zarr", X, chunks=(8, 6), compressors=codecs, dimension_names=("sample", "feature")
    )
    report = checked(StoreInspection, inspect(tmp_path / "x.zarr"))
    assert (report.kind, report.path, report.origin) == (
        "zarr array",
        str(tmp_path / "x.zarr"),
        None,
    )
    array = only_array(tmp_path / "x.zarr")
    assert (array.name, array.to_json()["problem"]) == ("x.zarr", None)
    assert (array.shape, array.dtype, array.bytes) == ((20, 6), "float64", X.nbytes)
    assert (array.chunks, array.shards, array.zarr_format) == ((8, 6), None, 3)
    assert array.codecs == ("bytes", "blosc", "crc32c")
    assert array.dims == ("sample", "feature")
    assert array.stored_bytes == stored_bytes(tmp_path / "x.zarr")
    assert array.missing == MissingChunks(count=0, total=3, first=None)
    assert (array.n_rows, array.n_cols) == (20, 6)


def test_blocks_are_whole_chunks_that_reach_the_size_at_which_blocks_are_read(tmp_path):
    large = zarr.create_array(tmp_path / "x.zarr", shape=(100_000, 256), chunks=(3_000, 64), dtype="float32")
    large[:1, :1] = 1
    blocks = only_array(tmp_path / "x.zarr").blocks
    rows = 4 * 3_000  # as many as make no more than 16 MB, and a power of two of chunks
    assert blocks["rows"] == Blocks(count=-(-100_000 // rows), lines=rows, bytes=rows * 256 * 4)
    assert blocks["columns"] == Blocks(count=4, lines=64, bytes=100_000 * 64 * 4)


def test_a_sharded_array_with_gaps(tmp_path):
    array = write_store(tmp_path / "x.zarr", X + 1, chunks=(2, 3), shards=(10, 6))
    array[4:6, :3] = 0
    found = only_array(tmp_path / "x.zarr")
    assert (found.chunks, found.shards) == ((2, 3), (10, 6))
    assert found.missing == MissingChunks(count=1, total=20, first="(2, 0) of shard c/0/0")


def test_a_v2_array_with_a_missing_chunk(tmp_path):
    write_store(tmp_path / "x.zarr", X, chunks=(5, 6), zarr_format=2)
    (tmp_path / "x.zarr" / "2.0").unlink()
    found = only_array(tmp_path / "x.zarr")
    assert (found.zarr_format, found.missing) == (2, MissingChunks(count=1, total=4, first="2.0"))


def test_a_group_of_several_arrays_one_of_which_cannot_be_used(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("x", data=X)
    group.create_array("deep/images", data=np.zeros((4, 2, 3), np.uint8), fill_value=1)
    group.create_array("empty", shape=(0, 3), dtype="f8")
    report = checked(StoreInspection, inspect(tmp_path / "g.zarr"))
    arrays = {array.name: array for array in report.arrays}
    assert report.kind == "zarr group"
    assert set(arrays) == {"x", "deep/images", "empty"}
    images = checked(ArrayInspection, arrays["deep/images"])
    assert (images.n_rows, images.n_cols) == (4, 6)
    assert "empty" in checked(UnusableArray, arrays["empty"]).problem


def test_a_netcdf_file_and_a_table(tmp_path):
    coords = {"lat": np.arange(3.0), "name": ("lat", ["a", "b", "c"])}
    data = xarray.Dataset({"sst": (("time", "lat"), np.ones((20, 3)))}, coords)
    data.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding={"sst": {"chunksizes": (5, 3)}})
    report = checked(StoreInspection, inspect(tmp_path / "x.nc"))
    found = {array.name: array for array in report.arrays}
    assert (report.kind, sorted(found)) == ("HDF5 file", ["lat", "name", "sst"])
    sst = checked(ArrayInspection, found["sst"])
    assert (sst.shape, sst.dims, sst.chunks, sst.dtype) == ((20, 3), ("time", "lat"), (5, 3), "float64")
    assert (sst.bytes, sst.stored_bytes) == (480, 480)
    assert checked(LabelsInspection, found["name"]).labels == 3
    pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}).to_parquet(tmp_path / "x.parquet")
    report = checked(StoreInspection, inspect(tmp_path / "x.parquet"))
    (table,) = report.arrays
    assert (report.kind, checked(ArrayInspection, table).shape) == ("Parquet file", (2, 2))


def test_a_npy_file(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(">f4").reshape(20, 2, 3))
    report = checked(StoreInspection, inspect(tmp_path / "x.npy"))
    array = checked(ArrayInspection, *report.arrays)
    assert (report.kind, array.dtype, array.shape) == ("npy file", ">f4", (20, 2, 3))
    assert (array.n_rows, array.n_cols, array.missing) == (20, 6, None)
    assert array.stored_bytes == (tmp_path / "x.npy").stat().st_size


def test_an_unfinished_embedding_is_not_taken_for_one(tmp_path):
    with Staging(tmp_path / "z.zarr", kind="embedding", overwrite=False) as staging:
        create_embedding(staging.path, n_rows=4, n_outputs=2, dtype="f4", chunk_rows=2, attributes={})
        with pytest.raises(StoreError, match="never finished"):
            inspect(staging.path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.csv", "1,2\n3,4\n", "streamdr ingest"),
        ("x.npy", "not an array", "x.npy"),
        (None, None, "no such file"),
        ("directory/note.txt", "hello", "not a zarr store"),
    ],
)
def test_what_is_nothing_of_ours_is_said_to_be(name, content, said, tmp_path):
    path = tmp_path / (name or "nowhere.zarr")
    if name is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    with pytest.raises(DataError, match=said):
        inspect(path.parent if name == "directory/note.txt" else path)


def test_a_pattern_is_refused_with_one_of_its_files(tmp_path):
    for name in ("b", "a"):
        write_store(tmp_path / f"{name}.zarr", np.ones((3, 2)))
    with pytest.raises(DataError, match=r"is 2 files; inspect one of them, such as .*a\.zarr"):
        inspect(tmp_path / "*.zarr")


@pytest.mark.parametrize("kind", stores.KINDS)
def test_a_store_of_anndata_has_matrices_and_tables(tmp_path, kind):
    rows = stores.counts()
    path = stores.written(stores.annotated(rows), tmp_path, kind)
    found = {array.name: array for array in checked(StoreInspection, inspect(path)).arrays}
    matrices = ["X", "layers/by columns", "layers/counts", "raw/X"]
    assert list(found) == [*matrices, "obs", "var", "raw/var", "layers/dense"]
    matrix = checked(MatrixInspection, found["X"])
    assert (matrix.format, matrix.n_rows, matrix.n_cols, matrix.dtype) == ("csr", *rows.shape, "float64")
    assert (matrix.stored_values, matrix.density) == (rows.nnz, rows.nnz / (rows.shape[0] * rows.shape[1]))
    assert matrix.missing == (None if kind == "h5ad" else MissingChunks(0, 3, None))
    if kind == "v3.zarr":
        assert matrix.stored_bytes == stored_bytes(path / "X")
    assert checked(MatrixInspection, found["layers/by columns"]).format == "csc"
    obs = checked(TableInspection, found["obs"])
    assert (obs.n_rows, obs.first[:2], obs.columns) == (60, ("cell 0", "cell 1"), ("n_counts", "cell_type"))
    assert checked(TableInspection, found["var"]).first == ("GENE0", "GENE1", "GENE2")
    assert checked(ArrayInspection, found["layers/dense"]).shape == rows.shape
    text = report_text.inspected(inspect(path))
    assert "60 x 13 float64, by rows (csr)" in text
    assert f"density        {matrix.density:.2%}: {rows.nnz} values" in text


def test_a_sparse_matrix_that_cannot_be_used_is_listed_with_the_reason(tmp_path):
    path = stores.write_csr(tmp_path / "x.zarr", stores.counts())
    zarr.open_group(path / "X", mode="r+").attrs["shape"] = [1, 2, 3]
    (found,) = checked(StoreInspection, inspect(path)).arrays
    assert "its shape is [1, 2, 3]" in checked(UnusableArray, found).problem


def test_chunks_that_are_missing_in_a_sparse_matrix_are_counted(tmp_path):
    path = stores.write_csr(tmp_path / "x.zarr", stores.counts(), chunk=20)
    (path / "X/indices/c/1").unlink()
    (found,) = checked(StoreInspection, inspect(path)).arrays
    assert checked(MatrixInspection, found).missing == MissingChunks(1, 24, "c/1")


def test_the_plan_says_how_much_of_sparse_rows_is_stored(tmp_path):
    rows = stores.counts()
    stores.write_csr(tmp_path / "x.zarr", rows)
    given = {"input": {"path": str(tmp_path / "x.zarr")}, "method": {"name": "pca", "n_components": 2}}
    run = config.read({**given, "output": {"model": str(tmp_path / "m.zarr")}})
    plan = pipeline.plan(pipeline.RunContext(run, Silent(), threading.Event()))
    density = rows.nnz / (rows.shape[0] * rows.shape[1])
    assert plan.to_json()["density"] == density
    assert f"60 x 13 float64, sparse: {density:.2%} of the values are stored" in report_text.plan(plan.fit)
