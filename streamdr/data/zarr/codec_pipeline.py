"""Decoding of chunks, for every codec that a store may use.

Codecs without parameters have a faster decoder, in `decoding`. Filters, transposed chunks, nested shards and
text are decoded here. Each step has a limit for the size of its input and of its output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numcodecs
import numpy as np
from numpy.typing import NDArray

from streamdr.core.blocks import Array
from streamdr.data.layout import Region
from streamdr.data.zarr.codecs import ARRAY_FILTERS, CHECKSUMS, VLEN_TEXT, Codec
from streamdr.data.zarr.decompression import LZMA_MEMORY, Decode, decompressor, encoded_limit
from streamdr.data.zarr.metadata import ArrayMetadata, Sharding, parse_sharding
from streamdr.data.zarr.shards import ABSENT, ShardIndex
from streamdr.errors import DataError

MAX_TEXT_LENGTH = 1024
"""The most characters of one label."""
_MAX_MEAN_TEXT_BYTES = 256
_MIN_TEXT_LIMIT = 1 << 20
_USUAL_TEXT_BYTES = 64


class MissingChunkError(Exception):
    """A chunk is missing, and that is not allowed."""


@dataclass(frozen=True)
class Values:
    """The shape and type of an array between two codecs."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """The number of values."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """The size of the values in bytes; for text of variable length, the most it may be."""
        if self.dtype.kind == "O":
            return 4 + 4 * self.count + max(_MIN_TEXT_LIMIT, _MAX_MEAN_TEXT_BYTES * self.count)
        return self.count * self.dtype.itemsize


class Pipeline(ABC):
    """Decodes the chunks of one array."""

    encoded_limit: int
    """The most bytes that an encoded chunk can have."""
    overhead: int
    """The bytes that decoding a chunk needs, with the encoded chunk and the result."""

    @abstractmethod
    def decode(self, data: Any, needed: Region) -> Array:
        """Return a whole chunk; at least the needed part is valid. Damaged data raises any exception."""


def pipeline(metadata: ArrayMetadata, fill_value: Any, where: str) -> Pipeline:
    """Return the pipeline for chunks (or shards) of an array; `fill_value` None forbids missing chunks."""
    values = Values(metadata.grid.chunk, metadata.dtype)
    try:
        if metadata.zarr_format == 2:
            return _PipelineV2(values, metadata.order, metadata.codecs)
        return _PipelineV3(values, metadata.codecs, fill_value, where)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{where}: its codecs cannot be used: {error}; the metadata is damaged") from error


class _PipelineV2(Pipeline):
    """The codecs of zarr v2: filters and a compressor, all from bytes to bytes."""

    def __init__(self, values: Values, order: Literal["C", "F"], codecs: Sequence[Codec]) -> None:
        self._values, self._order = values, order
        self._text = values.dtype.kind == "O"
        if self._text != (bool(codecs) and codecs[0].name == VLEN_TEXT):
            raise ValueError("the filter vlen-utf8 is needed for text of variable length, and only for that")
        # v2 names codecs of numcodecs without the prefix. Their checksums may be at either end.
        steps = [Codec(f"numcodecs.{codec.name}", codec.configuration) for codec in codecs[self._text :]]
        self._steps = _Steps(values.size, steps)
        self.encoded_limit = self._steps.limits[-1]
        usual = 3 * _USUAL_TEXT_BYTES * values.count if self._text else 3 * max(self._steps.limits)
        self.overhead = usual + self._steps.memory

    def decode(self, data: Any, needed: Region) -> Array:
        decoded = self._steps.decode(data)
        if self._text:
            return _decoded_text(decoded, self._values)
        return _as_bytes(decoded).view(self._values.dtype).reshape(self._values.shape, order=self._order)


class _PipelineV3(Pipeline):
    """The codecs of zarr v3: array to array, then array to bytes, then bytes to bytes."""

    def __init__(self, values: Values, codecs: Sequence[Codec], fill_value: Any, where: str) -> None:
        self._filters: list[tuple[Codec, Values]] = []
        codecs = list(codecs)
        while codecs and codecs[0].name.removeprefix("numcodecs.") in ARRAY_FILTERS:
            codec = _with_type(codecs.pop(0), values.dtype)
            self._filters.append((codec, values))
            values = _after_filter(codec, values)
        if not codecs:
            raise ValueError("no codec turns values into bytes")
        self._serializer = _serializer(codecs[0], values, fill_value, where)
        compressors = [_with_type(codec, values.dtype) for codec in codecs[1:]]
        self._steps = _Steps(self._serializer.encoded_limit, compressors)
        self.encoded_limit = self._steps.limits[-1]
        widest = max((before.size for _, before in self._filters), default=0)
        encoded = 0 if values.dtype.kind == "O" else 2 * max(self._steps.limits)
        self.overhead = encoded + self._steps.memory + self._serializer.overhead + 2 * widest

    def decode(self, data: Any, needed: Region) -> Array:
        for codec, before in self._filters:
            if codec.name == "transpose":
                needed = tuple(needed[axis] for axis in codec.configuration["order"])
            else:
                needed = tuple(slice(0, length) for length in _after_filter(codec, before).shape)
        array = self._serializer.decode(self._steps.decode(data), needed)
        for codec, before in reversed(self._filters):
            if codec.name == "transpose":
                array = array.transpose(np.argsort(codec.configuration["order"]))
            else:
                decoded = _numcodec(codec).decode(np.ascontiguousarray(array))
                array = np.asarray(decoded).view(before.dtype).reshape(before.shape)
        return array


class _Bytes(Pipeline):
    """Values as in memory, in a given byte order."""

    def __init__(self, values: Values, configuration: Mapping[str, Any]) -> None:
        big = configuration.get("endian") == "big"
        self._values = Values(values.shape, values.dtype.newbyteorder(">" if big else "<"))
        self.encoded_limit = self._values.size
        self.overhead = 0

    def decode(self, data: Any, needed: Region) -> Array:
        return _as_bytes(data).view(self._values.dtype).reshape(self._values.shape)


class _Text(Pipeline):
    """Text of variable length: each string follows its length."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self.encoded_limit = values.size
        self.overhead = 3 * _USUAL_TEXT_BYTES * values.count

    def decode(self, data: Any, needed: Region) -> Array:
        return _decoded_text(data, self._values)


class _Shard(Pipeline):
    """A shard: several chunks, with an index of their offsets and lengths."""

    def __init__(self, values: Values, sharding: Sharding, fill_value: Any, where: str) -> None:
        self._values, self._fill_value = values, fill_value
        index = ShardIndex.within(values.shape, sharding)
        if index is None:
            raise ValueError("the codecs of the index of its shards are not supported")
        self._index = index
        self._chunk = _PipelineV3(Values(sharding.inner, values.dtype), sharding.codecs, fill_value, where)
        self.encoded_limit = index.size + prod(index.grid.counts) * self._chunk.encoded_limit
        self.overhead = values.size + self._chunk.overhead + 3 * index.size

    def decode(self, data: Any, needed: Region) -> Array:
        view = _as_bytes(data).data
        index = self._index.parse(
            view[-self._index.size :] if self._index.at_end else view[: self._index.size]
        )
        array = np.empty(self._values.shape, self._values.dtype)
        grid = self._index.grid
        for coords, within, _ in grid.overlaps(needed):
            offset, length = (int(number) for number in index[coords])
            if offset == ABSENT:
                if self._fill_value is None:
                    raise MissingChunkError(f"{coords} of a shard")
                array[grid.bounds(coords)] = self._fill_value
            elif offset + length > len(view) or length > self._chunk.encoded_limit:
                raise ValueError(f"chunk {coords} of the shard is outside of it")
            else:
                array[grid.bounds(coords)] = self._chunk.decode(view[offset : offset + length], within)
        return array


def _serializer(codec: Codec, values: Values, fill_value: Any, where: str) -> Pipeline:
    """Return the decoder of an array-to-bytes codec."""
    if codec.name == "bytes" and values.dtype.kind != "O":
        return _Bytes(values, codec.configuration)
    if codec.name == VLEN_TEXT and values.dtype.kind == "O":
        return _Text(values)
    if codec.name == "sharding_indexed":
        text = values.dtype.kind == "O"
        sharding = parse_sharding(codec.configuration, values.shape, where, text)
        return _Shard(values, sharding, fill_value, where)
    raise ValueError(f"codec {codec.name!r} does not turn values of type {values.dtype} into bytes")


class _Steps:
    """Codecs from bytes to bytes, with a limit for the size of the data between them."""

    def __init__(self, size: int, codecs: Sequence[Codec]) -> None:
        self.limits = [size]
        """The most bytes before the first codec encodes, and after each codec."""
        self._decoders: list[Decode] = []
        for codec in codecs:
            self.limits.append(_encoded_limit(codec, self.limits[-1]))
            self._decoders.append(decompressor(codec) or _unbounded(codec))
        self.memory = LZMA_MEMORY if any(codec.name.endswith("lzma") for codec in codecs) else 0

    def decode(self, data: Any) -> Any:
        """Return the decoded data."""
        bounds = list(pairwise(self.limits))
        for decoder, (decoded, encoded) in zip(reversed(self._decoders), reversed(bounds), strict=True):
            data = _as_bytes(data)
            if data.size > encoded:
                raise ValueError(f"it has {data.size:,} bytes where at most {encoded:,} are expected")
            data = decoder(data, decoded)
        return data


def _unbounded(codec: Codec) -> Decode:
    """Return the decoder of a filter or checksum. Its output is at most eight times as long as its input."""
    numcodec = _numcodec(codec)
    return lambda data, limit: numcodec.decode(data)


def _numcodec(codec: Codec) -> Any:
    """Return the codec of numcodecs."""
    return numcodecs.get_codec({"id": codec.name.removeprefix("numcodecs."), **codec.configuration})


def _encoded_limit(codec: Codec, size: int) -> int:
    """Return the most bytes that a codec makes of `size` bytes."""
    name = codec.name.removeprefix("numcodecs.")
    if name in CHECKSUMS:
        return size + 8
    if name == "packbits":
        return size // 8 + 2
    if name in ARRAY_FILTERS or name == "shuffle":
        decoded, encoded = _types(codec)
        return size if decoded is None or encoded is None else size // decoded.itemsize * encoded.itemsize
    return encoded_limit(size)


def _types(codec: Codec) -> tuple[np.dtype[Any] | None, np.dtype[Any] | None]:
    """Return the types that a filter decodes to and encodes to, if it declares them."""
    given = codec.configuration
    decoded = given.get("decode_dtype") or given.get("dtype")
    encoded = given.get("encode_dtype") or given.get("astype") or decoded
    return (None if decoded is None else np.dtype(decoded), None if encoded is None else np.dtype(encoded))


def _with_type(codec: Codec, dtype: np.dtype[Any]) -> Codec:
    """Return a v3 codec with the parameter that defaults to the type of the array."""
    parameter, value = {
        "shuffle": ("elementsize", dtype.itemsize),
        "fixedscaleoffset": ("dtype", str(dtype)),
        "quantize": ("dtype", str(dtype)),
        "astype": ("decode_dtype", str(dtype)),
    }.get(codec.name.removeprefix("numcodecs."), (None, None))
    if parameter is None or codec.configuration.get(parameter) is not None:
        return codec
    return Codec(codec.name, {**codec.configuration, parameter: value})


def _after_filter(codec: Codec, values: Values) -> Values:
    """Return the shape and type of values that a filter has encoded."""
    name = codec.name.removeprefix("numcodecs.")
    if name == "transpose":
        order = codec.configuration.get("order")
        if not isinstance(order, list) or sorted(map(str, order)) != sorted(
            map(str, range(len(values.shape)))
        ):
            raise ValueError(
                f"the order of codec 'transpose' is not a permutation of {len(values.shape)} axes"
            )
        return Values(tuple(values.shape[axis] for axis in order), values.dtype)
    _numcodec(codec)
    if name == "packbits":
        return Values((1 + -(-values.count // 8),), np.dtype(np.uint8))
    return Values(values.shape, _types(codec)[1] or values.dtype)


def _as_bytes(data: Any) -> NDArray[np.uint8]:
    """Return the output of a codec as bytes, without a copy."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def _decoded_text(data: Any, values: Values) -> Array:
    """Return strings that were encoded by vlen-utf8."""
    raw = _as_bytes(data)
    if raw.size > values.size:
        raise ValueError(f"it has {raw.size:,} bytes of text where at most {values.size:,} are expected")
    count = int.from_bytes(raw[:4].tobytes(), "little")
    if raw.size < 4 or count != values.count:
        raise ValueError(f"it holds {count} strings where {values.count} are expected")
    text: Array = numcodecs.VLenUTF8().decode(raw)
    if 4 + 4 * count + sum(map(len, map(str.encode, text))) != raw.size:
        raise ValueError("there is extra data after its text")
    if max(map(len, text), default=0) > MAX_TEXT_LENGTH:
        raise ValueError(f"a string has more than {MAX_TEXT_LENGTH} characters")
    return text.reshape(values.shape)
