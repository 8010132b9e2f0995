"""Invalid input is refused when it is opened, with an error that says what is wrong and where."""

import json
import re
import warnings

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.storage import MemoryStore

from streamdr.data import open_source
from streamdr.errors import DataError


def write(path, values, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = zarr.create_array(path, shape=np.shape(values), dtype=np.asarray(values).dtype, **options)
        array[...] = values
    return path


def edit(path, **changes):
    """Change the metadata, and return its path."""
    (file,) = (path / name for name in ("zarr.json", ".zarray") if (path / name).exists())
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return file


def refused(data, *facts, **options):
    with pytest.raises(DataError) as caught:
        open_source(data, **options)
    for fact in facts:
        assert str(fact) in str(caught.value)
    return str(caught.value)


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def store(request, tmp_path):
    """A valid store of 10 x 4 values, for a test to damage."""
    return write(tmp_path / "x.zarr", np.ones((10, 4), "f4"), chunks=(4, 4), zarr_format=request.param)


# Paths


def test_a_path_that_does_not_exist(tmp_path):
    refused(tmp_path / "no.zarr", tmp_path / "no.zarr", "no such file or directory")


def test_a_directory_that_is_not_a_store(tmp_path):
    refused(tmp_path, tmp_path, "not a zarr store")
    refused(write(tmp_path / "x.zarr", np.ones((2, 2))) / "c", "not a zarr store")


@pytest.mark.parametrize("name", ["x.csv", "x.txt", "x.zarr"])
def test_other_files_are_refused_with_the_command_to_ingest_them(tmp_path, name):
    (tmp_path / name).write_bytes(b"1,2\n")
    refused(tmp_path / name, tmp_path / name, f"streamdr ingest {tmp_path / name} DEST.zarr")


def test_a_damaged_npy(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY, or so it says")
    refused(tmp_path / "x.npy", tmp_path / "x.npy")
    np.save(tmp_path / "short.npy", np.ones((100, 10)))
    with open(tmp_path / "short.npy", "r+b") as file:
        file.truncate(1000)
    refused(tmp_path / "short.npy", tmp_path / "short.npy")


def test_pickled_objects_in_a_npy(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(tmp_path / "x.npy", tmp_path / "x.npy", "object")


@pytest.mark.parametrize("data", [None, 3, {"a": 1}])
def test_objects_that_are_not_a_matrix(data):
    refused(data, type(data).__name__, "cannot be opened")


# Groups


def test_a_group_of_several_arrays_needs_a_name(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    for name in ("X", "deep/Y"):
        group.create_array(name, shape=(3, 2), dtype="f4")[...] = 1
    refused(tmp_path / "g.zarr", tmp_path / "g.zarr", "X, deep/Y", "array")
    refused(tmp_path / "g.zarr", "no array 'Z'", "X, deep/Y", array="Z")
    refused(tmp_path / "g.zarr", "'../g.zarr/X'", array="../g.zarr/X")
    refused(tmp_path / "g.zarr", "no array 'deep'", array="deep")


def test_an_empty_group(tmp_path):
    zarr.create_group(tmp_path / "g.zarr", zarr_format=2)
    refused(tmp_path / "g.zarr", tmp_path / "g.zarr", "no array")


def test_an_array_name_for_data_that_is_not_a_group():
    refused(np.ones((2, 2)), "'X'", "not a group", array="X")


# Types and shapes


TYPES = {
    "object": np.array([["a", 1]], dtype=object),
    "string": np.array([["a", "bc"]]),
    "bytes": np.array([[b"a", b"bc"]]),
    "complex": np.array([[1j, 2]]),
    "datetime": np.array([["2020-01-01", "2020-01-02"]], dtype="M8[ns]"),
    "timedelta": np.array([[1, 2]], dtype="m8[s]"),
    "structured": np.array([[(1, 2.0)]], dtype=[("a", "i4"), ("b", "f4")]),
}


@pytest.mark.parametrize("values", TYPES.values(), ids=TYPES.keys())
def test_arrays_that_are_not_numbers(values):
    for data in (values, da.from_array(values, chunks=1), xr.DataArray(values)):
        refused(data, "cannot be used", "float32")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", ["string", "bytes", "complex", "datetime", "timedelta", "structured"])
def test_stored_types_that_are_not_numbers(tmp_path, kind, zarr_format):
    refused(
        write(tmp_path / "x.zarr", TYPES[kind], zarr_format=zarr_format),
        "x.zarr",
        "cannot be used",
        "float32",
    )


@pytest.mark.parametrize("dtype", ["|O", "<U5", "<c8", "<f16", "<M8[ns]", [["a", "<f4"]], "f4,i4", 7])
def test_v2_types_that_are_not_numbers(tmp_path, dtype):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)), zarr_format=2)
    refused(path, edit(path, dtype=dtype), str(dtype), "cannot be used")


def test_longdouble_is_not_supported():
    refused(
        np.ones((2, 2), np.longdouble), "longdouble" if np.dtype(np.longdouble).itemsize == 8 else "float"
    )


def test_masked_dask_arrays():
    refused(da.ma.masked_invalid(da.from_array(np.ones((2, 2)), chunks=1)), "masked", "mask")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), (3, 0, 2)])
def test_empty_arrays(tmp_path, shape):
    values = np.ones(shape)
    for data in (
        values,
        da.from_array(values, chunks=1),
        xr.DataArray(values),
        write(tmp_path / "x.zarr", values),
    ):
        refused(data, "empty", shape)


def test_a_single_number(tmp_path):
    for data in (np.array(1.0), da.from_array(np.array(1.0)), write(tmp_path / "x.zarr", np.array(1.0))):
        refused(data, "0-dimensional")


# Metadata


def test_invalid_json(store):
    (file,) = (store / name for name in ("zarr.json", ".zarray") if (store / name).exists())
    for text in (b'{"shape": [10', b"[]", b"\xff\xfe", b"[" * 100_000, b""):
        file.write_bytes(text)
        refused(store, file, "JSON")


@pytest.mark.parametrize("key", ["shape", "codecs", "data_type", "chunk_grid", "chunk_key_encoding"])
def test_v3_metadata_with_a_missing_key(tmp_path, key):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)))
    file = path / "zarr.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != key}))
    refused(path, file, key)


@pytest.mark.parametrize("key", ["shape", "chunks", "dtype"])
def test_v2_metadata_with_a_missing_key(tmp_path, key):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)), zarr_format=2)
    file = path / ".zarray"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != key}))
    refused(path, file, key)


def chunked(store, chunks):
    if (store / ".zarray").exists():
        return edit(store, chunks=chunks)
    return edit(store, chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunks}})


@pytest.mark.parametrize("shape", [[-1, 4], [2.5, 4], ["10", 4], "10", None, [True, 4], [10], [10, 4, 1]])
def test_invalid_shapes(store, shape):
    refused(store, edit(store, shape=shape), "shape")


@pytest.mark.parametrize("chunks", [[0, 4], [-4, 4], [4], [4, None], 4, None])
def test_invalid_chunks(store, chunks):
    refused(store, chunked(store, chunks), "chunks")


def test_a_shape_that_overflows(store):
    refused(store, edit(store, shape=[2**40, 2**40]), "absurd")


def test_a_chunk_that_does_not_fit_in_memory(store):
    file = chunked(store, [10**7, 10**7])
    refused(store, file, "(10000000, 10000000)", "4e+14 bytes", "more than")


def sharded(tmp_path, shard, inner):
    path = write(
        tmp_path / "s.zarr",
        np.ones((8, 8), "f4"),
        chunks=(8, 8),
        serializer=ShardingCodec(chunk_shape=(4, 4), codecs=[BytesCodec()]),
        compressors=None,
    )
    codecs = json.loads((path / "zarr.json").read_text())["codecs"]
    codecs[0]["configuration"]["chunk_shape"] = inner
    edit(path, codecs=codecs)
    chunked(path, shard)
    return path


@pytest.mark.parametrize("inner", [[0, 4], [3, 4], [4], [16, 16], None])
def test_shards_that_cannot_hold_their_chunks(tmp_path, inner):
    refused(sharded(tmp_path, [8, 8], inner), "s.zarr/zarr.json", "chunks of")


def test_shards_that_do_not_fit_in_memory(tmp_path):
    refused(sharded(tmp_path, [10**7, 10**7], [10**7, 10**7]), "a chunk of (10000000, 10000000)")
    refused(sharded(tmp_path / "2", [10**7, 10**7], [1, 1]), "the index of a shard", "(10000000, 10000000)")
    open_source(sharded(tmp_path / "3", [10**7, 10**7], [10**4, 10**4]))


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"chunk_grid": {"name": "rectilinear", "configuration": {}}}, "rectilinear"),
        ({"chunk_grid": 7}, "chunk_grid"),
        ({"chunk_key_encoding": {"name": "secret"}}, "secret"),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "-"}}}, "separator"),
        ({"codecs": {"name": "bytes"}}, "codecs"),
        ({"codecs": [7]}, "codec"),
        ({"codecs": [{"name": "bytes", "configuration": 7}]}, "bytes"),
        ({"codecs": []}, "zarr cannot open"),
        ({"fill_value": {"a": 1}}, "zarr cannot open"),
        ({"node_type": "river"}, "neither an array nor a group"),
    ],
)
def test_invalid_v3_metadata(tmp_path, changes, fact):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)))
    edit(path, **changes)
    refused(path, path, fact)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"order": "Z"}, "order"),
        ({"dimension_separator": "-"}, "separator"),
        ({"compressor": "zlib"}, "zlib"),
        ({"filters": [{}]}, "filter"),
    ],
)
def test_invalid_v2_metadata(tmp_path, changes, fact):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)), zarr_format=2)
    refused(path, edit(path, **changes), fact)


# Codecs: a store must not be able to run code


UNSAFE = ["pickle", "json2", "msgpack2", "categorize", "vlen-utf8", "vlen-array", "base64", "made_up"]


@pytest.mark.parametrize("codec", UNSAFE)
@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_v2_codecs_that_are_not_allowed(tmp_path, codec, place):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)), zarr_format=2)
    declared = {"id": codec}
    file = edit(path, **{place: declared if place == "compressor" else [declared]})
    refused(path, file, repr(codec), "safe")


@pytest.mark.parametrize("codec", [*UNSAFE, "numcodecs.pickle", "numcodecs.json2"])
@pytest.mark.parametrize("place", ["codecs", "inner", "index", "named"])
def test_v3_codecs_that_are_not_allowed(tmp_path, codec, place):
    bad = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": codec}]
    good = [{"name": "bytes", "configuration": {"endian": "little"}}]
    path = write(tmp_path / "x.zarr", np.ones((2, 2)))
    sharding = {"chunk_shape": [1, 1], "codecs": good, "index_codecs": good}
    chain = {
        "codecs": bad,
        "named": [good[0], codec],
        "inner": [{"name": "sharding_indexed", "configuration": sharding | {"codecs": bad}}],
        "index": [{"name": "sharding_indexed", "configuration": sharding | {"index_codecs": bad}}],
    }
    refused(path, edit(path, codecs=chain[place]), repr(codec), "safe")


def test_an_allowed_name_cannot_hide_another_codec(tmp_path):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)))
    chain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    disguised = {"name": "numcodecs.zlib", "configuration": {"id": "pickle"}}
    refused(path, edit(path, codecs=[*chain, disguised]), "numcodecs.zlib", "id")


@pytest.mark.parametrize("dtype", ["O", "object", "U5", "f4,f4", ["f4"], "no such type"])
def test_filters_between_types_that_are_not_numbers(tmp_path, dtype):
    path = write(tmp_path / "x.zarr", np.ones((2, 2)), zarr_format=2)
    file = edit(path, filters=[{"id": "astype", "encode_dtype": "<f4", "decode_dtype": dtype}])
    refused(path, file, "astype", repr(dtype))


def test_codecs_are_checked_in_memory_too():
    store = MemoryStore()
    array = zarr.create_array(store, shape=(2, 2), dtype="f4", zarr_format=2, filters=None)
    document = json.loads(store._store_dict[".zarray"].to_bytes()) | {"filters": [{"id": "pickle"}]}
    store._store_dict[".zarray"] = type(store._store_dict[".zarray"]).from_bytes(
        json.dumps(document).encode()
    )
    refused(array, "'pickle'")


def test_messages_are_one_line(store):
    edit(store, shape=[-1])
    assert not re.search(r"\n", refused(store))
