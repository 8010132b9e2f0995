"""Missing, truncated and changed chunks are detected. Errors name the chunk and its rows."""

import json
import math
import os
import random
import warnings
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs import numcodecs as v3_numcodecs
from zarr.storage import MemoryStore

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.errors import DataError

N, D = 20, 6


def write(path, *, shape=(N, D), chunks=(4, D), **options):
    """Create a store of numbers without the fill value."""
    array = zarr.create_array(path, shape=shape, chunks=chunks, dtype="f4", **options)
    array[...] = np.arange(1, math.prod(shape) + 1, dtype="f4").reshape(shape)
    return array


def refused(call, *facts):
    with pytest.raises(DataError) as caught:
        call()
    for fact in facts:
        assert str(fact) in str(caught.value)
    return caught.value


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


# Missing chunks


def v2(separator):
    return {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": separator}}


def v3(name, separator):
    return {"zarr_format": 3, "chunk_key_encoding": {"name": name, "separator": separator}}


PLAIN, SHARDED = {"chunks": (4, D)}, {"chunks": (2, 3), "shards": (4, D)}
V3_KEYS = [
    ("c/2/0", v3("default", "/")),
    ("c.2.0", v3("default", ".")),
    ("2.0", v3("v2", ".")),
    ("2/0", v3("v2", "/")),
]
STORES = [
    ("2.0", v2("."), PLAIN),
    ("2/0", v2("/"), PLAIN),
    *((key, encoding, cut) for key, encoding in V3_KEYS for cut in (PLAIN, SHARDED)),
]


@pytest.mark.parametrize(("key", "encoding", "cut"), STORES)
def test_a_missing_chunk_is_named_with_its_rows(tmp_path, key, encoding, cut):
    write(tmp_path / "x.zarr", **encoding, **cut)
    open_source(tmp_path / "x.zarr").validate()
    (tmp_path / "x.zarr" / key).unlink()
    source = open_source(tmp_path / "x.zarr")
    for call in (source.validate, lambda: everything(source)):
        refused(call, tmp_path / "x.zarr", f"chunk {key} is missing", "rows 8-11", "allow_missing_chunks")
    source.read(Span(0, 8), Span(0, D))


def test_missing_chunks_are_counted_and_located_in_both_dimensions(tmp_path):
    write(tmp_path / "x.zarr", chunks=(4, 4))
    for key in ("c/4/1", "c/1/1", "c/3/0"):
        (tmp_path / "x.zarr" / key).unlink()
    source = open_source(tmp_path / "x.zarr")
    refused(source.validate, "chunk c/1/1 is missing", "rows 4-7, columns 4-5", "(3 of 10 are)")


def test_missing_chunks_are_located_along_another_sample_axis(tmp_path):
    write(tmp_path / "x.zarr", shape=(4, 6, 5), chunks=(2, 3, 5))
    (tmp_path / "x.zarr/c/1/0/0").unlink()
    refused(open_source(tmp_path / "x.zarr").validate, "rows 2-3, columns 0-14")
    refused(open_source(tmp_path / "x.zarr", sample_axis=1).validate, "rows 0-2, columns 10-19")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_without_chunks_is_refused(tmp_path, zarr_format):
    zarr.create_array(tmp_path / "x.zarr", shape=(N, D), chunks=(4, D), dtype="f4", zarr_format=zarr_format)
    refused(open_source(tmp_path / "x.zarr").validate, "rows 0-3", "(5 of 5 are)")


def test_missing_chunks_can_be_allowed(tmp_path):
    array = write(tmp_path / "x.zarr", fill_value=7)
    (tmp_path / "x.zarr/c/2/0").unlink()
    source = open_source(tmp_path / "x.zarr", allow_missing_chunks=True)
    source.validate()
    np.testing.assert_array_equal(everything(source), array[...])
    assert (everything(source)[8:12] == 7).all()


@pytest.mark.parametrize("fill_value", [0, -1.5, np.nan, np.inf])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_allowed_missing_chunks_are_read_as_the_fill_value(tmp_path, zarr_format, fill_value):
    write(tmp_path / "x.zarr", zarr_format=zarr_format, fill_value=fill_value)
    (tmp_path / "x.zarr" / ("0.0" if zarr_format == 2 else "c/0/0")).unlink()
    source = open_source(tmp_path / "x.zarr", allow_missing_chunks=True)
    np.testing.assert_array_equal(source.read(Span(0, 4), Span(0, D)), np.full((4, D), fill_value, "f4"))


def test_files_with_other_names_are_not_chunks(tmp_path):
    write(tmp_path / "x.zarr")
    (tmp_path / "x.zarr/c/2/0").rename(tmp_path / "x.zarr/c/2/0.1234.partial")
    for name in ("c/02/0", "c/9/0", "c/2/0x", "2.0"):
        (tmp_path / "x.zarr" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "x.zarr" / name).write_bytes(b"")
    refused(open_source(tmp_path / "x.zarr").validate, "chunk c/2/0 is missing", "rows 8-11;")


SHARD = {"chunks": (2, 3), "shards": (8, D)}


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_chunk_missing_in_a_shard_is_named(tmp_path, location):
    sharding = ShardingCodec(chunk_shape=(2, 3), codecs=[BytesCodec(), BloscCodec()], index_location=location)
    array = write(tmp_path / "x.zarr", chunks=(8, D), serializer=sharding, compressors=None)
    open_source(tmp_path / "x.zarr").validate()
    array[10:12, 3:] = 0  # zarr does not store chunks that equal the fill value
    array[18:20, :3] = 0
    source = open_source(tmp_path / "x.zarr")
    where = "chunk (1, 1) of shard c/1/0 is missing"
    refused(source.validate, where, "rows 10-11, columns 3-5", "(2 of 20 are)", "allow_missing_chunks")
    refused(lambda: everything(source), where, "rows 8-15")
    allowed = open_source(tmp_path / "x.zarr", allow_missing_chunks=True)
    allowed.validate()
    np.testing.assert_array_equal(everything(allowed), array[...])


def test_a_shard_need_not_hold_chunks_beyond_the_array(tmp_path):
    write(tmp_path / "x.zarr", shape=(9, 4), chunks=(2, 3), shards=(8, 6))
    open_source(tmp_path / "x.zarr").validate()


def test_a_shard_with_a_damaged_index_is_refused(tmp_path):
    write(tmp_path / "x.zarr", **SHARD)
    shard = tmp_path / "x.zarr/c/1/0"
    valid = shard.read_bytes()
    for damaged in (valid[:-1], valid[:40], b"", valid[:-8] + bytes([valid[-8] ^ 1]) + valid[-7:]):
        shard.write_bytes(damaged)
        source = open_source(tmp_path / "x.zarr")
        refused(source.validate, tmp_path / "x.zarr", "shard c/1/0", "index")
        refused(lambda source=source: everything(source), "chunk c/1/0 cannot be read, rows 8-15", "index")


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_shards_whose_chunks_cannot_be_listed_are_refused(tmp_path):
    write(tmp_path / "x.zarr", shape=(8, 8), chunks=(2, 2), shards=(4, 4))
    file = tmp_path / "x.zarr/zarr.json"
    document = json.loads(file.read_text())
    document["codecs"].insert(0, {"name": "transpose", "configuration": {"order": [1, 0]}})
    file.write_text(json.dumps(document))
    refused(open_source(tmp_path / "x.zarr").validate, "x.zarr", "shards", "allow_missing_chunks")
    open_source(tmp_path / "x.zarr", allow_missing_chunks=True).validate()


def test_missing_chunks_in_memory_are_named():
    store = MemoryStore()
    array = write(store)
    del store._store_dict["c/2/0"]
    source = open_source(array)
    for call in (source.validate, lambda: everything(source)):
        refused(call, "chunk c/2/0 is missing", "rows 8-11")


def test_missing_chunks_of_shards_in_memory_are_named():
    array = write(MemoryStore(), **SHARD)
    array[10:12, 3:] = 0
    refused(open_source(array).validate, "chunk (1, 1) of shard c/1/0", "rows 10-11, columns 3-5")


# Truncated and corrupt chunks


BLOSC = BloscCodec(cname="lz4")
CODECS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "blosc-lz4": {"compressors": BLOSC},
    "blosc-zstd": {"compressors": BloscCodec(cname="zstd")},
    "zstd": {"compressors": ZstdCodec()},
    "gzip": {"compressors": GzipCodec()},
    "crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "blosc-crc32c": {"compressors": [BLOSC, Crc32cCodec()]},
    "v2-lz4": {"compressors": numcodecs.LZ4(), "zarr_format": 2},
    "v2-zlib": {"compressors": numcodecs.Zlib(), "zarr_format": 2},
}
WITH_CHECKSUM = [name for name in CODECS if "crc32c" in name or name in ("gzip", "v2-zlib")]


def cases(names):
    """Yield codecs with plain chunks, and those of v3 also with shards."""
    yield from ((name, False) for name in names)
    yield from ((name, True) for name in names if "zarr_format" not in CODECS[name])


def write_encoded(path, codec, sharded):
    """Create a store whose second chunk (or shard) has rows 8-15, and return the file of that chunk."""
    cut: dict[str, Any] = {"chunks": (4, D), "shards": (8, D)} if sharded else {"chunks": (8, D)}
    write(path, **cut, **CODECS[codec])
    return path / ("1.0" if "zarr_format" in CODECS[codec] else "c/1/0")


@pytest.mark.parametrize(("codec", "sharded"), [*cases(CODECS)])
def test_a_truncated_chunk_is_named(tmp_path, codec, sharded):
    file = write_encoded(tmp_path / "x.zarr", codec, sharded)
    whole = file.read_bytes()
    source = open_source(tmp_path / "x.zarr")
    for length in sorted({0, 1, 3, len(whole) // 2, len(whole) - 1}):
        file.write_bytes(whole[:length])
        refused(
            lambda: everything(source),
            tmp_path / "x.zarr",
            f"chunk {file.relative_to(tmp_path / 'x.zarr')} cannot be read",
            "rows 8-15",
        )
    source.read(Span(0, 8), Span(0, D))


@pytest.mark.parametrize(("codec", "sharded"), [*cases(WITH_CHECKSUM)])
def test_a_flipped_bit_is_detected_by_a_checksum(tmp_path, codec, sharded):
    file = write_encoded(tmp_path / "x.zarr", codec, sharded)
    expected = np.asarray(zarr.open_array(tmp_path / "x.zarr")[...])
    whole = file.read_bytes()
    source = open_source(tmp_path / "x.zarr")
    outcomes: list[bool | str] = []
    for position in random.Random(0).sample(range(len(whole)), 40):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 8]) + whole[position + 1 :])
        try:
            outcomes.append(np.array_equal(everything(source), expected))
        except DataError as error:
            outcomes.append(str(error))
    named = f"chunk {file.relative_to(tmp_path / 'x.zarr')} cannot be read, rows 8-15"
    # A header may have bits without meaning, such as the date in gzip. Only then the values are right.
    assert all(outcome is True or named in str(outcome) for outcome in outcomes)
    assert outcomes.count(True) <= (10 if codec == "gzip" else 0)


@pytest.mark.parametrize("codec", ["blosc-lz4", "blosc-zstd", "zstd"])
def test_a_flipped_bit_in_the_header_is_detected(tmp_path, codec):
    write(tmp_path / "x.zarr", chunks=(8, D), **CODECS[codec])
    file = tmp_path / "x.zarr/c/1/0"
    whole = bytearray(file.read_bytes())
    whole[4 if "blosc" in codec else 0] ^= 16
    file.write_bytes(whole)
    refused(lambda: everything(open_source(tmp_path / "x.zarr")), "chunk c/1/0 cannot be read", "rows 8-15")


@pytest.mark.parametrize("codec", ["none", "blosc-lz4", "zstd", "gzip"])
@pytest.mark.parametrize("size", [4 * D, 12 * D, 8 * D - 1, 8 * D + 1])
def test_a_chunk_of_the_wrong_size_is_refused(tmp_path, codec, size):
    write(tmp_path / "x.zarr", chunks=(8, D), **CODECS[codec])
    zarr.create_array(tmp_path / "y.zarr", shape=(size,), chunks=(size,), dtype="f4", **CODECS[codec])[:] = 1
    os.replace(tmp_path / "y.zarr/c/0", tmp_path / "x.zarr/c/1/0")
    refused(
        lambda: everything(open_source(tmp_path / "x.zarr")),
        "chunk c/1/0 cannot be read, rows 8-15",
        f"{4 * 8 * D} are expected",  # decoding stops at the limit, so the full size is not known
    )


def test_damaged_chunks_with_filters_are_named(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
        array = write(
            tmp_path / "x.zarr", chunks=(8, 4), filters=[v3_numcodecs.Delta(dtype="<f4")], compressors=BLOSC
        )
        source = open_source(tmp_path / "x.zarr")
    np.testing.assert_array_equal(everything(source), array[...])
    file = tmp_path / "x.zarr/c/1/1"
    file.write_bytes(file.read_bytes()[:-5])
    error = refused(lambda: everything(source), "chunk c/1/1 cannot be read", "rows 8-15, columns 4-5")
    assert error.__cause__ is not None
    file.unlink()
    refused(lambda: everything(source), "chunk c/1/1 is missing", "rows 8-15, columns 4-5")


def test_a_truncated_chunk_in_memory_is_named():
    store = MemoryStore()
    array = write(store)
    store._store_dict["c/2/0"] = store._store_dict["c/2/0"][:9]
    refused(lambda: everything(open_source(array)), "chunk c/2/0 cannot be read", "rows 8-11")


def test_a_chunk_that_cannot_be_opened_is_named(tmp_path):
    write(tmp_path / "x.zarr")
    chunk = tmp_path / "x.zarr/c/2/0"
    chunk.unlink()
    chunk.symlink_to(chunk)
    error = refused(
        lambda: everything(open_source(tmp_path / "x.zarr")), "chunk c/2/0 cannot be read, rows 8-11", chunk
    )
    assert isinstance(error.__cause__, OSError)


def test_a_truncated_mapped_file_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((100, 10)))
    source = open_source(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", 500)
    refused(lambda: everything(source), tmp_path / "x.npy")
    (tmp_path / "x.npy").unlink()
    refused(source.fingerprint, tmp_path / "x.npy")


def test_a_store_that_was_moved_is_an_error(tmp_path):
    write(tmp_path / "x.zarr")
    source = open_source(tmp_path / "x.zarr")
    (tmp_path / "x.zarr").rename(tmp_path / "y.zarr")
    refused(source.validate, tmp_path / "x.zarr", "cannot be listed")
    refused(source.fingerprint, tmp_path / "x.zarr", "cannot be listed")
    refused(lambda: everything(source), "chunk c/0/0 is missing")
