"""A fingerprint changes if and only if the data changes."""

import hashlib
import os
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

from streamdr.data import open_source
from streamdr.data.snapshot import DIGEST_BYTES


def numbers(shape=(20, 6), dtype="f4"):
    return np.arange(1, np.prod(shape) + 1, dtype=dtype).reshape(shape)


def write(store, values, **options):
    array = zarr.create_array(store, shape=values.shape, dtype=values.dtype, **{"chunks": (4, 6), **options})
    array[...] = values
    return array


def of(data, **options):
    return open_source(data, **options).fingerprint()


def assert_all_differ(*fingerprints):
    assert len(set(fingerprints)) == len(fingerprints)


@pytest.mark.parametrize("shards", [None, (8, 6)])
def test_the_fingerprint_of_a_store_changes_with_its_chunks(tmp_path, shards):
    array = write(tmp_path / "x.zarr", numbers(), shards=shards)
    source = open_source(tmp_path / "x.zarr")
    chunk = tmp_path / "x.zarr/c/1/0"
    untouched = source.fingerprint()
    assert of(tmp_path / "x.zarr") == of(array) == untouched

    status = chunk.stat()
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    touched = source.fingerprint()
    chunk.write_bytes(chunk.read_bytes() + b"\0")
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))
    grown = source.fingerprint()
    chunk.unlink()
    removed = source.fingerprint()
    assert_all_differ(untouched, touched, grown, removed)


def test_the_fingerprint_of_a_store_does_not_depend_on_its_path_or_attributes(tmp_path):
    array = write(tmp_path / "x.zarr", numbers())
    before = of(tmp_path / "x.zarr")
    array.attrs["title"] = "numbers"
    (tmp_path / "x.zarr").rename(tmp_path / "y.zarr")
    assert of(tmp_path / "y.zarr") == before


def test_the_fingerprint_of_a_store_depends_on_sample_axis_and_weights(tmp_path):
    write(tmp_path / "x.zarr", numbers((6, 6)), chunks=(6, 6))
    np.save(tmp_path / "w.npy", np.ones(6))
    assert_all_differ(
        of(tmp_path / "x.zarr"),
        of(tmp_path / "x.zarr", sample_axis=1),
        of(tmp_path / "x.zarr", weights=np.ones(6)),
        of(tmp_path / "x.zarr", weights=np.arange(6)),
        of(tmp_path / "x.zarr", weights=tmp_path / "w.npy"),
    )


def test_the_fingerprint_of_a_store_in_memory_depends_on_its_contents():
    array = write(MemoryStore(), numbers())
    assert of(array) == of(write(MemoryStore(), numbers()))
    before = of(array)
    array[3, 3] = 0
    assert of(array) != before


def test_the_fingerprint_of_an_array_depends_on_its_contents():
    values = numbers()
    changed = values.copy()
    changed[-1, -1] += 1
    assert (
        of(values)
        == of(values.copy())
        == of(np.asfortranarray(values))
        == of(np.repeat(values, 2, axis=0)[::2])
    )
    assert_all_differ(
        of(values),
        of(changed),
        of(values.astype("f8")),
        of(values.astype(">f4")),
        of(values.reshape(10, 12)),
        of(values.T),
        of(values[:-1]),
    )


def test_the_fingerprint_of_a_large_array_depends_on_all_its_contents():
    values = np.zeros((5, 2**20), "f8")
    before = of(values)
    values[3, 7] = 1
    assert of(values) != before


def test_the_fingerprint_of_a_file_depends_on_its_modification_time(tmp_path):
    np.save(tmp_path / "x.npy", numbers())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert of(tmp_path / "x.npy") == of(str(tmp_path / "x.npy")) == of(mapped)
    status = (tmp_path / "x.npy").stat()
    before = of(mapped)
    assert_all_differ(before, of(mapped[1:]), of(mapped[:-1]), of(mapped, sample_axis=1))
    os.utime(tmp_path / "x.npy", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert of(mapped) != before


def test_the_fingerprint_of_a_dask_array_depends_on_its_graph():
    array = da.from_array(numbers(), chunks=4)
    assert of(array) == of(array) == of(da.from_array(numbers(), chunks=4))
    assert_all_differ(
        of(array),
        of(array + 1),
        of(array.rechunk(5)),
        of(array, sample_axis=1),
        of(da.from_array(numbers() + 1, chunks=4)),
    )


def test_the_fingerprint_of_a_lazy_dataarray_depends_on_its_contents(tmp_path):
    values = numbers()

    def stored(name, values):
        xr.Dataset({"x": (("a", "b"), values)}).to_zarr(tmp_path / name, consolidated=False)
        return xr.open_zarr(tmp_path / name, chunks=None, consolidated=False)["x"]

    assert of(stored("1", values)) == of(stored("2", values))
    assert of(stored("3", values + 1)) != of(stored("4", values))


@pytest.mark.parametrize("step", [1, 3, 1 << 16])
def test_digests_of_prefixes_do_not_depend_on_those_that_were_asked_for_before(tmp_path, step, monkeypatch):
    monkeypatch.setattr("streamdr.data.snapshot._STEP", step)
    write(tmp_path / "x.zarr", numbers((40, 6)), chunks=(2, 3))
    snapshot: Any = open_source(tmp_path / "x.zarr").snapshot()
    for rows in (40, 7, 0, 39, 8, 40):
        stamps = snapshot.stamps[snapshot.positions < -(-rows // 2)]
        expected = hashlib.blake2b(snapshot.meaning, digest_size=DIGEST_BYTES)
        expected.update(stamps.tobytes() + str(rows).encode())
        assert snapshot.digest(rows) == expected.hexdigest()
