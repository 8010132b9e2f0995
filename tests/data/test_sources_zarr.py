"""Zarr stores of every kind are read as the numpy arrays that were written."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.codecs import numcodecs as v3_numcodecs
from zarr.storage import MemoryStore

from streamdr.core.blocks import Span
from streamdr.data import open_source

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
BLOSC = BloscCodec(cname="lz4", shuffle="shuffle")


def numbers(shape, dtype):
    """Return values that every type represents exactly, without the fill value."""
    return (np.arange(np.prod(shape)) % 97 + 1).astype(dtype).reshape(shape)


def write(store, values, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
        array = zarr.create_array(store, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
    return array


def flat(values, sample_axis=0):
    """Return the matrix by definition: sample axis first, the others flattened in C order."""
    return np.moveaxis(values, sample_axis, 0).reshape(values.shape[sample_axis], -1)


def assert_reads(source, matrix):
    """Assert that everything, rows, columns and a region across chunks are read."""
    n, d = matrix.shape
    assert (source.spec.n_rows, source.spec.n_cols) == (n, d)
    for rows in (Span(0, n), Span(0, 1), Span(n // 3, n // 2 + 1), Span(n - 1, n)):
        for cols in (Span(0, d), Span(d // 3, d // 2 + 1), Span(d - 1, d)):
            values = source.read(rows, cols)
            assert values.dtype == source.spec.dtype
            np.testing.assert_array_equal(values, matrix[rows.slice, cols.slice])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_read_in_either_byte_order(tmp_path, zarr_format, byte_order, dtype):
    values = numbers((23, 11), np.dtype(dtype).newbyteorder(byte_order))
    endian = (
        {}
        if zarr_format == 2
        else {"serializer": BytesCodec(endian="big" if byte_order == ">" else "little")}
    )
    if zarr_format == 3:
        values = values.astype(np.dtype(dtype))
    write(tmp_path / "x.zarr", values, chunks=(7, 4), zarr_format=zarr_format, **endian)
    source = open_source(tmp_path / "x.zarr")
    assert_reads(source, values)
    assert source.spec.dtype.isnative
    assert source.block(Span(3, 20)).values.dtype == source.spec.working


with warnings.catch_warnings():
    warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
    V3_CODECS: dict[str, dict[str, Any]] = {
        "none": {"compressors": None},
        "blosc-lz4": {"compressors": BLOSC},
        "blosc-zstd": {"compressors": BloscCodec(cname="zstd", shuffle="bitshuffle")},
        "zstd": {"compressors": ZstdCodec(level=1)},
        "gzip": {"compressors": GzipCodec(level=1)},
        "crc32c": {"compressors": [Crc32cCodec()]},
        "blosc-crc32c": {"compressors": [BLOSC, Crc32cCodec()]},
        "gzip-blosc": {"compressors": [GzipCodec(level=1), BLOSC]},
        "numcodecs-lz4": {"compressors": v3_numcodecs.LZ4()},
        "numcodecs-zlib": {"compressors": v3_numcodecs.Zlib(level=1)},
        "numcodecs-bz2": {"compressors": v3_numcodecs.BZ2(level=1)},
        "numcodecs-lzma": {"compressors": v3_numcodecs.LZMA(preset=0)},
        "numcodecs-shuffle": {
            "compressors": [v3_numcodecs.Shuffle(elementsize=4), v3_numcodecs.Zlib(level=1)]
        },
        "numcodecs-crc32c": {"compressors": [v3_numcodecs.CRC32C(location="start")]},
        "numcodecs-crc32": {"compressors": [v3_numcodecs.CRC32()]},
        "numcodecs-adler32": {"compressors": [v3_numcodecs.Adler32()]},
        "numcodecs-fletcher32": {"compressors": [v3_numcodecs.Fletcher32()]},
        "delta": {"filters": [v3_numcodecs.Delta(dtype="<f4")]},
        "fixedscaleoffset": {
            "filters": [v3_numcodecs.FixedScaleOffset(offset=0, scale=1, dtype="<f4", astype="<i4")]
        },
        "quantize": {"filters": [v3_numcodecs.Quantize(digits=2, dtype="<f4")]},
        "bitround": {"filters": [v3_numcodecs.BitRound(keepbits=10)]},
        "astype": {"filters": [v3_numcodecs.AsType(encode_dtype="<f8", decode_dtype="<f4")]},
        "transpose": {"filters": [TransposeCodec(order=(1, 0))], "compressors": BLOSC},
    }


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("codecs", V3_CODECS.values(), ids=V3_CODECS.keys())
@pytest.mark.parametrize(
    "cut", [{"chunks": (8, 12)}, {"chunks": (7, 5)}, {"chunks": (4, 6), "shards": (16, 12)}]
)
def test_v3_codecs_are_read_plain_and_in_shards(tmp_path, codecs, cut):
    values = numbers((40, 12), "f4")
    write(tmp_path / "x.zarr", values, **cut, **codecs)
    source = open_source(tmp_path / "x.zarr")
    source.validate()
    assert_reads(source, values)


V2_CODECS = {
    "none": {"compressors": None},
    "blosc": {"compressors": numcodecs.Blosc(cname="lz4")},
    "zstd": {"compressors": numcodecs.Zstd(level=1)},
    "gzip": {"compressors": numcodecs.GZip(level=1)},
    "zlib": {"compressors": numcodecs.Zlib(level=1)},
    "lz4": {"compressors": numcodecs.LZ4()},
    "bz2": {"compressors": numcodecs.BZ2(level=1)},
    "lzma": {"compressors": numcodecs.LZMA(preset=0)},
    "shuffle": {"filters": [numcodecs.Shuffle(elementsize=4)], "compressors": numcodecs.Zlib(level=1)},
    "delta": {"filters": [numcodecs.Delta(dtype="<f4")], "compressors": numcodecs.Blosc()},
    "crc32c": {"filters": [numcodecs.CRC32C(location="start")], "compressors": None},
}


@pytest.mark.parametrize("codecs", V2_CODECS.values(), ids=V2_CODECS.keys())
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_v2_codecs_are_read_with_any_order_and_separator(tmp_path, codecs, order, separator):
    values = numbers((40, 12), "f4")
    encoding = {"name": "v2", "separator": separator}
    write(
        tmp_path / "x.zarr",
        values,
        chunks=(8, 5),
        zarr_format=2,
        order=order,
        chunk_key_encoding=encoding,
        **codecs,
    )
    source = open_source(tmp_path / "x.zarr")
    source.validate()
    assert_reads(source, values)


@pytest.mark.parametrize("name", ["default", "v2"])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("shards", [None, (8, 6)])
def test_v3_key_encodings_are_read(tmp_path, name, separator, shards):
    values = numbers((21, 11), "f8")
    keys = {"name": name, "separator": separator}
    write(tmp_path / "x.zarr", values, chunks=(4, 3), shards=shards, chunk_key_encoding=keys)
    source = open_source(tmp_path / "x.zarr")
    source.validate()
    assert_reads(source, values)


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize(
    "index_codecs", [[BytesCodec()], [BytesCodec(), Crc32cCodec()], [BytesCodec(endian="big")]]
)
def test_shard_indexes_are_read_at_either_end(tmp_path, location, index_codecs):
    values = numbers((21, 11), "f4")
    sharding = ShardingCodec(
        chunk_shape=(4, 3), codecs=[BytesCodec(), BLOSC], index_codecs=index_codecs, index_location=location
    )
    write(tmp_path / "x.zarr", values, chunks=(8, 6), serializer=sharding, compressors=None)
    source = open_source(tmp_path / "x.zarr")
    source.validate()
    assert_reads(source, values)
    assert source.chunks == (8, 6)


SHAPES = [((13,), (5,)), ((13, 6, 5), (4, 3, 5)), ((13, 6, 5), (4, 4, 2)), ((7, 4, 3, 5), (2, 4, 2, 2))]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("shape", "chunks"), SHAPES)
def test_any_axis_of_any_number_of_dimensions_may_be_the_samples(tmp_path, zarr_format, shape, chunks):
    values = numbers(shape, "f4") + np.arange(np.prod(shape), dtype="f4").reshape(shape)
    write(tmp_path / "x.zarr", values, chunks=chunks, zarr_format=zarr_format)
    for axis in range(-len(shape), len(shape)):
        source = open_source(tmp_path / "x.zarr", sample_axis=axis)
        assert_reads(source, flat(values, axis))


def test_granularity_follows_chunks_and_shards(tmp_path):
    ones = np.ones((40, 6, 5), "f4")
    for name, array in {
        "plain": write(tmp_path / "plain.zarr", ones, chunks=(8, 2, 5)),
        "split": write(tmp_path / "split.zarr", ones, chunks=(8, 2, 3)),
        "sharded": write(tmp_path / "sharded.zarr", ones, chunks=(8, 2, 5), shards=(16, 6, 5)),
        "large": write(tmp_path / "large.zarr", ones, chunks=(100, 100, 100)),
    }.items():
        expected = {"plain": (8, 10), "split": (8, 10), "sharded": (16, 30), "large": (100, 30)}[
            name
        ]  # a chunk may extend beyond the array: rows may be appended
        assert open_source(array).chunks == expected
    assert open_source(tmp_path / "plain.zarr", sample_axis=1).chunks == (2, 8 * 5)
    assert open_source(write(tmp_path / "line.zarr", np.ones(9, "f4"), chunks=(4,))).chunks == (4, 1)


def test_a_span_of_columns_reads_only_the_chunks_that_hold_it(tmp_path):
    values = numbers((10, 6, 4), "f4")
    write(tmp_path / "x.zarr", values, chunks=(5, 2, 4))
    for path in tmp_path.glob("x.zarr/c/*/[02]/0"):
        path.write_bytes(b"must not be read")
    source = open_source(tmp_path / "x.zarr")
    np.testing.assert_array_equal(source.read(Span(0, 10), Span(8, 16)), flat(values)[:, 8:16])
    np.testing.assert_array_equal(source.read(Span(0, 10), Span(9, 15)), flat(values)[:, 9:15])


def test_a_part_of_a_shard_reads_only_the_chunks_that_hold_it(tmp_path):
    values = numbers((16, 4), "f4")
    write(tmp_path / "x.zarr", values, chunks=(4, 4), shards=(16, 4), compressors=None)
    shard = tmp_path / "x.zarr/c/0/0"
    damaged = bytearray(shard.read_bytes())
    damaged[:64] = bytes(64)
    shard.write_bytes(damaged)
    np.testing.assert_array_equal(open_source(tmp_path / "x.zarr").read(Span(4, 16), Span(0, 4)), values[4:])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_in_groups_are_read(tmp_path, zarr_format):
    values = numbers((9, 4), "f4")
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    group.create_array("deep/er/X", shape=values.shape, chunks=(4, 4), dtype="f4")[...] = values
    for source in (
        open_source(tmp_path / "g.zarr"),
        open_source(str(tmp_path / "g.zarr"), array="deep/er/X"),
        open_source(tmp_path / "g.zarr/deep/er/X"),
        open_source(tmp_path / "g.zarr/deep", array="er/X"),
        open_source(group),
        open_source(group, array="/deep/er/X"),
        open_source(group["deep/er/X"]),
    ):
        assert_reads(source, values)
        assert source.name == str(tmp_path / "g.zarr/deep/er/X")


@pytest.mark.parametrize(("zarr_format", "shards"), [(2, None), (3, None), (3, (8, 4))])
def test_stores_in_memory_are_read(zarr_format, shards):
    values = numbers((21, 4), "f4")
    store = MemoryStore()
    group = zarr.create_group(store, zarr_format=zarr_format)
    array = group.create_array("in/X", shape=values.shape, chunks=(4, 4), shards=shards, dtype="f4")
    array[...] = values
    for source in (open_source(array), open_source(group), open_source(group["in"], array="X")):
        source.validate()
        assert_reads(source, values)
        assert source.name.endswith("in/X")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_feature_names_come_from_the_attributes(tmp_path, zarr_format):
    array = write(tmp_path / "x.zarr", np.ones((4, 3)), zarr_format=zarr_format)
    for names, expected in {
        ("a", "b", "c"): ("a", "b", "c"),
        ("a", "b"): None,
        (1, 2, 3): None,
    }.items():
        array.attrs["feature_names"] = list(names)
        assert open_source(tmp_path / "x.zarr").feature_names == expected


def test_the_sample_axis_may_be_a_stored_dimension_name(tmp_path):
    values = numbers((3, 5), "f4")
    write(tmp_path / "x.zarr", values, dimension_names=("gene", "cell"))
    assert_reads(open_source(tmp_path / "x.zarr", sample_axis="cell"), values.T)


@pytest.mark.parametrize("cut", [{"chunks": (100, 8)}, {"chunks": (50, 8), "shards": (500, 8)}])
@pytest.mark.parametrize("codec", ["zstd", "delta"], ids=["plain", "with a filter"])
@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
def test_a_source_pickles_small_and_reads_after_unpickling(tmp_path, cut, codec):
    values = numbers((5000, 8), "f4")
    write(tmp_path / "x.zarr", values, **V3_CODECS[codec], **cut)
    pickled = pickle.dumps(open_source(tmp_path / "x.zarr"))
    assert len(pickled) < 10_000
    source = pickle.loads(pickled)
    assert_reads(source, values)
    assert source.fingerprint() == open_source(tmp_path / "x.zarr").fingerprint()


@pytest.mark.parametrize("cut", [{"chunks": (16, 5)}, {"chunks": (8, 8), "shards": (64, 8)}])
def test_threads_read_concurrently(tmp_path, cut):
    values = numbers((640, 8), "f4")
    write(tmp_path / "x.zarr", values, compressors=BLOSC, **cut)
    source = open_source(tmp_path / "x.zarr")
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(source.block, Span(0, 640).split(24)))
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), values)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "f2"])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_blocks_of_narrow_types_are_widened_in_the_same_memory(tmp_path, dtype, axis):
    values = numbers((64, 48), dtype)
    write(tmp_path / "x.zarr", values, chunks=(10, 7), compressors=BLOSC)
    source = open_source(tmp_path / "x.zarr")
    first = source.scratch_block(Span(0, 16), axis)
    kept, memory = first.values.copy(), first.values
    second = source.scratch_block(Span(16, 32), axis)
    assert np.shares_memory(memory, second.values)
    assert first.disposable
    assert second.disposable
    both = np.concatenate([kept, second.values], axis=0 if axis == "rows" else 1)
    expected = values[:32] if axis == "rows" else values[:, :32]
    assert both.dtype == source.spec.working
    np.testing.assert_array_equal(both, expected)
