"""A block takes no more memory than `overhead` returns, measured in a separate process."""

import json
import subprocess
import sys
import warnings

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as v3_numcodecs

MEASURE = """
import json, sys, warnings
warnings.simplefilter("ignore")
from streamdr.core.blocks import Span
from streamdr.data import open_source

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

open_source(sys.argv[2]).block(Span(0, 4))  # allocations that happen only once happen now
source = open_source(sys.argv[1])
start, stop, axis = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
open("/proc/self/clear_refs", "w").write("5")  # reset the peak
before = status("VmRSS")
block = source.block(Span(start, stop), axis)
measured = status("VmHWM") - before - block.values.nbytes
print(json.dumps({"measured": measured, "promised": source.overhead(*block.values.shape)}))
"""

BLOSC = BloscCodec(cname="lz4")
CASES = {
    "blosc": {"compressors": BLOSC},
    "zstd": {"compressors": ZstdCodec()},
    "gzip": {"compressors": GzipCodec(level=1)},
    "sharded": {"compressors": BLOSC, "chunks": (256, 512), "shards": (2048, 512)},
    "both dimensions": {"compressors": BLOSC, "chunks": (2048, 128)},
    "big-endian": {"compressors": BLOSC, "serializer": BytesCodec(endian="big")},
    "bytes": {"compressors": ZstdCodec(), "dtype": "u1"},
    "doubles": {"compressors": BLOSC, "dtype": "f8"},
    "with a filter": {"compressors": BLOSC, "filters": v3_numcodecs.Delta},
}


def write(path, *, shape=(8192, 512), chunks=(2048, 512), dtype="f4", filters=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
        chain = () if filters is None else (filters(dtype=np.dtype(dtype).str),)
        array = zarr.create_array(path, shape=shape, chunks=chunks, dtype=dtype, filters=chain, **options)
    noise = np.random.default_rng(0).integers(0, 200, (min(shape[0], 2048), *shape[1:]))
    for start in range(0, shape[0], 2048):
        array[start : start + 2048] = noise[: shape[0] - start]
    return path


def measure(tmp_path, data, start, stop, axis="rows", tiny=None):
    tiny = tiny or write(tmp_path / "tiny.zarr", shape=(8, 4), chunks=(4, 4))
    command = [sys.executable, "-c", MEASURE, str(data), str(tiny), str(start), str(stop), axis]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize(("start", "stop"), [(0, 4096), (1000, 1500)], ids=["whole chunks", "a part of one"])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_reading_a_store(tmp_path, options, start, stop):
    cost = measure(tmp_path, write(tmp_path / "x.zarr", **options), start, stop)
    # The system may allocate an extra huge page of 2 MiB.
    assert cost["measured"] <= cost["promised"] + 3 * 2**20


@pytest.mark.parametrize(("start", "stop", "axis"), [(0, 4096, "rows"), (100, 110, "columns")])
def test_reading_a_mapped_file(tmp_path, start, stop, axis):
    np.save(tmp_path / "x.npy", np.ones((8192, 2048), "f4"))
    cost = measure(tmp_path, tmp_path / "x.npy", start, stop, axis)
    # The system may allocate an extra huge page of 2 MiB.
    assert cost["measured"] <= cost["promised"] + 3 * 2**20


def write_hdf5(path, shape=(4096, 512), chunks=(2048, 512), **options):
    values = np.random.default_rng(0).integers(0, 200, shape).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=chunks, **options)
    return path


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf"}, {"chunks": None}],
    ids=["gzip", "lzf", "contiguous"],
)
def test_reading_hdf5(tmp_path, options):
    tiny = write_hdf5(tmp_path / "tiny.h5", (8, 4), (4, 4))
    cost = measure(tmp_path, write_hdf5(tmp_path / "x.h5", **options), 0, 4096, tiny=tiny)
    assert cost["measured"] <= cost["promised"] + 3 * 2**20


def write_parquet(path, shape=(4096, 512), **options):
    values = np.random.default_rng(0).integers(0, 200, shape).astype("f4")
    table = pa.table({f"c{i}": values[:, i] for i in range(shape[1])})
    pq.write_table(table, path, row_group_size=2048, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "compression": "zstd"}])
def test_reading_parquet(tmp_path, options):
    tiny = write_parquet(tmp_path / "tiny.parquet", (8, 4))
    cost = measure(tmp_path, write_parquet(tmp_path / "x.parquet", **options), 0, 4096, tiny=tiny)
    assert cost["measured"] <= cost["promised"] + 3 * 2**20


@pytest.mark.parametrize(("start", "stop"), [(0, 2048), (1000, 4000)], ids=["one store", "several stores"])
def test_reading_several_stores(tmp_path, start, stop):
    for number, length in enumerate((2100, 500, 2048)):
        write(tmp_path / f"x_{number}.zarr", shape=(length, 512), compressors=BLOSC)
    cost = measure(tmp_path, tmp_path / "x_*.zarr", start, stop)
    assert cost["measured"] <= cost["promised"] + 3 * 2**20
