"""HDF5 and netCDF-4 files: every layout has its values, and files that lie are refused."""

from __future__ import annotations

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from fits import bits, fit, stored

from streamdr.core.blocks import Span
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.hdf5 import Hdf5File
from streamdr.data.hdf5_chunks import _fletcher32
from streamdr.errors import DataError, InputError
from streamdr.methods.pca import PCA

SHAPE = (23, 6, 5)
VALUES = (np.random.default_rng(0).standard_normal(SHAPE) * 100).astype("f4")
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (4, 4, 3)},
    "gzip": {"chunks": (4, 4, 3), "compression": "gzip"},
    "gzip and shuffle": {"chunks": (4, 6, 5), "compression": "gzip", "shuffle": True},
    "checksums": {"chunks": (4, 6, 5), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": (4, 6, 5), "compression": "lzf"},
    "one chunk": {"chunks": SHAPE, "compression": "gzip"},
}


def written(path, values=VALUES, name="x", **options):
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=values, **options)
    return path


def opened(path, name="x", sample_axis=0, **options):
    return Hdf5File(path, **options).open(name, sample_axis)


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


@pytest.mark.parametrize("sample_axis", [0, 1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read(layout, sample_axis, tmp_path):
    source = opened(written(tmp_path / "x.h5", **LAYOUTS[layout]), sample_axis=sample_axis)
    source.validate()
    matrix = np.moveaxis(VALUES, sample_axis, 0).reshape(SHAPE[sample_axis], -1)
    assert np.array_equal(everything(source), matrix)
    rng = np.random.default_rng(1)
    for _ in range(20):
        a, b = sorted(rng.choice(matrix.shape[0] + 1, 2, replace=False))
        c, d = sorted(rng.choice(matrix.shape[1] + 1, 2, replace=False))
        for read in (source.read, source.read_scratch):
            assert np.array_equal(read(Span(a, b), Span(c, d)), matrix[a:b, c:d])
    box = np.empty((3, 2, 5), "f4")
    source.fill_box((slice(3, 6), slice(1, 3), slice(0, 5)), box)
    assert np.array_equal(box, VALUES[3:6, 1:3])


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", ">i4", "<i8", "f2", ">f4", ">f8"])
@pytest.mark.parametrize("options", [{}, {"chunks": (4, 6, 5), "compression": "gzip", "shuffle": True}])
def test_every_type_is_read_in_native_order(dtype, options, tmp_path):
    values = np.abs(VALUES).astype(dtype)
    source = opened(written(tmp_path / "x.h5", values, **options))
    assert source.spec.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(everything(source), values.reshape(23, -1))


def test_a_fit_has_the_bits_of_a_store_with_these_chunks(tmp_path, small_blocks):
    values = np.random.default_rng(2).standard_normal((300, 12)).astype("f4")
    source = opened(written(tmp_path / "x.h5", values, chunks=(10, 12), compression="gzip"))
    assert source.chunks == source.grain == (10, 12)
    one = stored(tmp_path / "x.zarr", values, (10, 12))
    assert bits(fit(PCA(3), source).model) == bits(fit(PCA(3), one).model)


def test_files_one_after_another_are_one_source(tmp_path):
    parts = [
        opened(written(tmp_path / f"{n}.h5", VALUES[rows], chunks=(4, 6, 5)))
        for n, rows in enumerate((slice(0, 10), slice(10, 23)))
    ]
    source = ConcatenatedSource(parts, "*.h5")
    assert np.array_equal(everything(source), VALUES.reshape(23, -1))
    assert source.snapshot().digest(10) == ConcatenatedSource(parts[:1], "*.h5").snapshot().digest(10)


def test_it_is_read_by_many_threads_and_by_other_processes(tmp_path):
    source = opened(written(tmp_path / "x.h5", **LAYOUTS["gzip and shuffle"]))
    assert len(pickle.dumps(source)) < 3000
    again = pickle.loads(pickle.dumps(source))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: again.read(Span(n % 23, n % 23 + 1), Span(0, 30)), range(200)))
    assert all(np.array_equal(row[0], VALUES[n % 23].ravel()) for n, row in enumerate(found))


def test_a_file_is_open_only_while_it_is_read(tmp_path):
    source = opened(written(tmp_path / "x.h5"))
    everything(source)
    written(tmp_path / "x.h5")  # HDF5 refuses to replace a file that is open


# netCDF


@pytest.fixture(params=["h5netcdf"])
def netcdf(request, tmp_path):
    data = xr.Dataset(
        {
            "sst": (("time", "lat", "lon"), VALUES, {"units": "K", "long_name": "temperature"}),
            "level": (("time",), np.arange(23.0)),
            "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
            "names": (("lon",), np.array(list("abcde"), dtype=object)),
        },
        coords={
            "time": np.datetime64("2000-01-01", "ns") + np.arange(23) * np.timedelta64(1, "D"),
            "lat": ("lat", np.linspace(-50, 50, 6), {"units": "degrees_north"}),
            "lon": np.arange(5.0),
            "area": (("lat", "lon"), np.ones((6, 5))),
        },
        attrs={"title": "a test"},
    )
    packed = {"dtype": "i2", "scale_factor": np.float32(0.5), "add_offset": 10.0, "_FillValue": np.int16(-9)}
    encoding = {"sst": {"zlib": True, "chunksizes": (8, 6, 5), **packed}}
    data.to_netcdf(tmp_path / "x.nc", engine=request.param, encoding=encoding)
    return tmp_path / "x.nc"


def test_a_netcdf_file_has_dimensions_and_attributes(netcdf):
    file = Hdf5File(netcdf)
    assert set(file.names()) == {"sst", "level", "crs", "names", "time", "lat", "lon", "area"}
    assert file.dims("sst") == ("time", "lat", "lon")
    assert file.dims("area") == ("lat", "lon")
    assert file.dims("time") == ("time",)
    assert file.dims("crs") == ()
    assert file.shape("sst") == SHAPE
    assert file.dtype("sst") == np.int16
    attributes = file.attributes("sst")
    assert (attributes["units"], attributes["long_name"]) == ("K", "temperature")
    assert attributes["scale_factor"] == 0.5
    assert attributes["scale_factor"].dtype == np.float32
    assert attributes["add_offset"].dtype == np.float64
    assert attributes["_FillValue"].dtype == np.int16
    assert not {"DIMENSION_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates"} & set(attributes)
    assert file.attributes("time")["units"].startswith("days since 2000-01-01")
    assert file.attributes_of_root == {"title": "a test"}
    assert file.is_text("names")
    assert file.open_text("names").read(Span(0, 5), Span(0, 1))[:, 0].tolist() == list("abcde")
    with xr.open_dataset(netcdf, engine="h5netcdf", decode_cf=False, mask_and_scale=False) as data:
        assert np.array_equal(everything(file.open("sst", 0)), data["sst"].values.reshape(23, -1))
        assert np.array_equal(everything(file.open("lat", 0))[:, 0], data["lat"].values)
    assert file.open("sst", "lat").dims == ("lat", "time", "lon")


def test_dimensions_without_a_variable_and_multidimensional_coordinates(tmp_path):
    with h5py.File(tmp_path / "x.nc", "w") as file:
        only = file.create_dataset("y", data=np.zeros(3, "f4"))
        only.make_scale("This is a netCDF dimension but not a netCDF variable.         3")
        only.attrs["_Netcdf4Dimid"] = np.int32(0)
        both = file.create_dataset("x", data=np.zeros((4, 3)))
        both.make_scale("x")
        both.attrs["_Netcdf4Dimid"] = np.int32(1)
        both.attrs["_Netcdf4Coordinates"] = np.array([1, 0], "i4")
        renamed = file.create_dataset("_nc4_non_coord_y", data=np.arange(3))
        renamed.dims[0].attach_scale(only)
        labelled = file.create_dataset("group/z", data=np.ones((4, 2)))
        labelled.dims[0].label = "x"
    found = Hdf5File(tmp_path / "x.nc")
    assert {name: found.dims(name) for name in found.names()} == {
        "x": ("x", "y"),
        "y": ("y",),
        "group/z": ("x", None),
    }
    assert everything(found.open("y", 0))[:, 0].tolist() == [0, 1, 2]


def test_the_only_array_of_a_file_needs_no_name(tmp_path, netcdf):
    assert Hdf5File(written(tmp_path / "x.h5")).only(None) == "x"
    file = Hdf5File(netcdf)
    assert file.only("/sst") == "sst"
    with pytest.raises(InputError, match=r"the file has the arrays .*sst.*; say which with `variable`"):
        file.only(None)
    with pytest.raises(InputError, match=r"x.nc: no array 'sea'; it has .*sst"):
        file.only("sea")
    with pytest.raises(InputError, match=r"x.nc: no variable 'sea'"):
        file.open("sea")


# fingerprints


def test_the_fingerprint_changes_with_the_file(tmp_path):
    path = written(tmp_path / "x.h5")
    source = opened(path)
    before = source.fingerprint()
    assert opened(path).fingerprint() == before
    assert opened(path, sample_axis=1).fingerprint() != before
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert source.fingerprint() != before
    path.unlink()
    with pytest.raises(DataError, match=r"x.h5/x: cannot be read: .*No such file"):
        source.fingerprint()


def test_a_file_that_was_replaced_is_not_read_as_before(tmp_path):
    source = opened(written(tmp_path / "x.h5"))
    written(tmp_path / "x.h5", VALUES[:20])
    with pytest.raises(DataError, match=r"x.h5/x: has changed since it was opened; run again"):
        everything(source)


# bad files


def test_chunks_that_were_never_written_are_an_error_unless_allowed(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (20, 4), "f4", chunks=(5, 4), fillvalue=7)
        dataset[:5], dataset[15:] = 1, 2
    source = opened(tmp_path / "x.h5")
    message = r"x.h5/x: chunk \(1, 0\) was never written, rows 5-9 \(2 of 4 are\); set allow_missing_chunks"
    for validate in (source.validate, lambda: source.validate(source.snapshot())):
        with pytest.raises(DataError, match=message):
            validate()
    with pytest.raises(DataError, match=r"x.h5/x: .*chunk \(1, 0\) was never written, rows 5-9; set"):
        everything(source)
    filled = opened(tmp_path / "x.h5", allow_missing=True)
    filled.validate()
    assert everything(filled)[:, 0].tolist() == [1] * 5 + [7] * 10 + [2] * 5


def flipped(path, name="x", chunk=1):
    """Change a byte of a stored chunk."""
    with h5py.File(path) as file:
        info = file[name].id.get_chunk_info(chunk)
    with path.open("r+b") as file:
        file.seek(info.byte_offset + info.size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x55]))


@pytest.mark.parametrize("layout", ["gzip", "checksums"])
def test_a_damaged_chunk_is_named(layout, tmp_path):
    path = written(tmp_path / "x.h5", **LAYOUTS[layout])
    flipped(path)
    with pytest.raises(DataError, match=r"x.h5/x: chunk \(\d, \d, \d\) cannot be read, rows \d+-\d+"):
        everything(opened(path))


def test_a_flipped_bit_is_detected_by_the_checksum(tmp_path):
    path = written(tmp_path / "x.h5", chunks=(4, 6, 5), fletcher32=True)
    flipped(path)
    with pytest.raises(
        DataError, match=r"chunk \(1, 0, 0\) cannot be read, rows 4-7: the checksum \(fletcher32"
    ):
        everything(opened(path))


@pytest.mark.parametrize("length", [1, 2, 7, 720, 100_001])
@pytest.mark.parametrize("value", [0, 255, None])
def test_the_checksum_is_that_of_its_definition(length, value):
    rng = np.random.default_rng(length)
    data = rng.integers(0, 256, length, np.uint8) if value is None else np.full(length, value, np.uint8)
    low = high = 0
    for i in range(0, length, 2):
        low += int(data[i]) * 256 + (int(data[i + 1]) if i + 1 < length else 0)
        high += low
    fold = [(s - 1) % 65535 + 1 if s else 0 for s in (low, high)]
    assert _fletcher32(data) == fold[1] << 16 | fold[0]


def test_a_chunk_that_inflates_without_end_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (8, 4), "f4", chunks=(4, 4), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 16)))
        dataset.id.write_direct_chunk((4, 0), bytes(1 << 20))
    source = opened(tmp_path / "x.h5")
    with pytest.raises(
        DataError, match=r"chunk \(0, 0\) cannot be read, rows 0-3: it decodes to 65 bytes or"
    ):
        source.read(Span(0, 4), Span(0, 4))
    with pytest.raises(
        DataError, match=r"chunk \(1, 0\) cannot be read, rows 4-7: its 64 bytes are stored in"
    ):
        source.read(Span(4, 8), Span(0, 4))


def test_chunks_that_do_not_fit_in_memory_are_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "x.h5", **LAYOUTS["gzip"])
    monkeypatch.setattr("streamdr.data.hdf5.memory_limit", lambda: 100)
    with pytest.raises(DataError, match=r"x.h5/x: a chunk of \(4, 4, 3\) takes 192 bytes, more than the 100"):
        opened(path)


@pytest.mark.parametrize("where", ["values", "virtual"])
def test_values_in_other_files_are_refused(where, tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        if where == "values":
            file.create_dataset("x", (4, 3), "f8", external=[(str(tmp_path / "raw"), 0, 96)])
        else:
            layout = h5py.VirtualLayout((4, 3), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (4, 3))
            file.create_virtual_dataset("x", layout)
    with pytest.raises(
        DataError, match=r"x.h5: the values of dataset '/x' are in other files, which are not"
    ):
        opened(tmp_path / "x.h5")


def test_links_to_other_files_are_not_followed(tmp_path):
    written(tmp_path / "other.h5")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "x")
        file["y"] = np.ones((2, 2))
    assert Hdf5File(tmp_path / "x.h5").names() == ["y"]
    with pytest.raises(InputError, match="no array 'x'; it has y"):
        Hdf5File(tmp_path / "x.h5").only("x")


def test_a_link_that_replaces_an_array_is_not_followed(tmp_path):
    source = opened(written(tmp_path / "x.h5"))
    written(tmp_path / "other.h5")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink("other.h5", "x")
    with pytest.raises(DataError, match=r"x.h5: dataset '/x' is a link to another file; give that file"):
        everything(source)


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4, 3))
        properties.set_filter(32004, h5py.h5z.FLAG_OPTIONAL, (0,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((8, 3)), properties)
    with pytest.raises(DataError, match=r"x.h5/x: .*compressed by the filter lz4, which is not installed"):
        opened(tmp_path / "x.h5")


@pytest.mark.parametrize(("number", "name"), [(32015, "zstd"), (32001, "blosc"), (307, "bz2")])
def test_chunks_of_other_compressors_are_decoded_without_a_plugin(number, name, tmp_path):
    import numcodecs

    codec = numcodecs.get_codec({"id": name})
    values = VALUES.reshape(23, -1)[:20]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((10, 30))
        properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (0,))
        dataset = h5py.h5d.create(
            file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((20, 30)), properties
        )
        for start in (0, 10):
            dataset.write_direct_chunk((start, 0), bytes(codec.encode(values[start : start + 10].copy())))
    assert np.array_equal(everything(opened(tmp_path / "x.h5")), values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "no variable 'x'"),
        (np.zeros((3, 2), "c8"), "no variable 'x'"),
        (np.array(["a", "b"], dtype=object), "values of type text cannot be used"),
        (np.zeros((0, 3)), r"the array is empty \(shape \(0, 3\)\)"),
        (np.float64(3), "a single number"),
    ],
)
def test_arrays_of_other_types_are_refused(values, message, tmp_path):
    with pytest.raises(DataError, match=message):
        opened(written(tmp_path / "x.h5", values))


def test_files_that_are_no_hdf5_are_refused(tmp_path):
    (tmp_path / "old.nc").write_bytes(b"CDF\x01" + bytes(100))
    with pytest.raises(DataError, match=r"old.nc: is netCDF of the classic format, not netCDF-4; convert it"):
        Hdf5File(tmp_path / "old.nc")
    (tmp_path / "x.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(DataError, match=r"x.nc: cannot be read as HDF5 .*; was it copied whole\?"):
        Hdf5File(tmp_path / "x.nc")
    os.mkfifo(tmp_path / "pipe.nc")
    with pytest.raises(DataError, match=r"pipe.nc: .*named pipe"):
        Hdf5File(tmp_path / "pipe.nc")
    with pytest.raises(DataError, match=r"none.nc: .*No such file"):
        Hdf5File(tmp_path / "none.nc")
    path = written(tmp_path / "cut.h5", **LAYOUTS["gzip"])
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"cut.h5: cannot be read as HDF5"):
        Hdf5File(path)
