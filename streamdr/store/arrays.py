"""The array format of outputs: zarr v3, with uncompressed chunks that end in their crc32c.

Such chunks are decoded here without a codec. Metadata that asks for anything else is refused.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from streamdr.core.blocks import Array
from streamdr.core.files import read_regular
from streamdr.errors import StoreError
from streamdr.store.record import ROOT

CHUNK_BYTES = 16 * 2**20
CHECKSUM_BYTES = 4
LARGEST_TEXT = 256 * 2**20
"""The largest chunk of text."""
_INTACT = 0x48674BC7
"""The crc32c of any content that ends in its own crc32c, as the file of every chunk does."""

_DTYPES = frozenset(np.dtype(code).name for code in "?bhiqBHIQefdFD")
_TEXT = "string"
_CODECS = (
    [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    [{"name": "bytes"}, {"name": "crc32c"}],  # types of one byte have no byte order
)
_TEXT_CODECS = [{"name": "vlen-utf8", "configuration": {}}, {"name": "crc32c"}]
_ENCODING = {"name": "default", "configuration": {"separator": "/"}}

_LONGEST = 2**62

Index = tuple[slice, ...]


@dataclass(frozen=True)
class ArrayLayout:
    """The shape, chunks, type and dimension names of a stored array."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]

    @classmethod
    def of(cls, values: Array, dims: tuple[str, ...]) -> ArrayLayout:
        """Return the layout in which an array in memory is saved, with chunks of at most `CHUNK_BYTES`."""
        is_text = values.dtype.kind == "U"
        chunks, budget = [], CHUNK_BYTES // (values.dtype.itemsize + (4 if is_text else 0))  # its length
        for length in reversed(values.shape):
            chunks.append(max(1, min(length, budget)))
            budget //= chunks[-1]
        dtype = np.dtype(np.str_) if is_text else values.dtype.newbyteorder("=")
        return cls(values.shape, tuple(reversed(chunks)), dtype, dims)

    @property
    def is_text(self) -> bool:
        """Whether the values are text, whose chunks have no fixed size. Only coordinates may be text."""
        return self.dtype.kind == "U"

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of chunks along each dimension."""
        return tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def file_bytes(self) -> int:
        """The size of the file of each chunk. Chunks at the edge are padded to the full shape."""
        return math.prod(self.chunks) * self.dtype.itemsize + CHECKSUM_BYTES

    def files(self) -> Iterator[tuple[str, Index]]:
        """Yield the file of each chunk, relative to the array, and the region that it holds."""
        for position in _positions(self.grid):
            starts = [i * chunk for i, chunk in zip(position, self.chunks, strict=True)]
            stops = map(min, (start + c for start, c in zip(starts, self.chunks, strict=True)), self.shape)
            yield "/".join(map(str, ("c", *position))), tuple(map(slice, starts, stops))


def _positions(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every position in a grid, the last dimension fastest.

    Unlike `itertools.product`, it does not store the ranges: metadata may declare any number of chunks.
    """
    if not grid:
        yield ()
        return
    for first in range(grid[0]):
        for rest in _positions(grid[1:]):
            yield first, *rest


def fill_value(dtype: np.dtype[Any]) -> float:
    """Return the fill value of a type: NaN for floats, otherwise 0."""
    return math.nan if dtype.kind == "f" else 0


def create_array(
    path: Path, layout: ArrayLayout, attributes: Mapping[str, Any] | None = None
) -> zarr.Array[Any]:
    """Create an array without data. Floats that were never written read as NaN."""
    dtype: Any = _TEXT if layout.is_text else layout.dtype
    return zarr.create_array(
        path,
        shape=layout.shape,
        chunks=layout.chunks,
        dtype=dtype,
        compressors=[Crc32cCodec()],
        fill_value="" if layout.is_text else fill_value(layout.dtype),
        dimension_names=layout.dims,
        attributes=stored_attributes(attributes or {}, layout.dtype),
        config={"write_empty_chunks": True},
    )


def open_writable(path: Path) -> zarr.Array[Any]:
    """Open an array to write its chunks: all of them, also those that hold nothing but the fill value.

    `zarr.open_array` ignores its `config` where the array exists.
    """
    return zarr.open_array(path, mode="r+").with_config({"write_empty_chunks": True})


def stored_attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return attributes as xarray writes them in zarr v3, where the fill value of floats is base64.

    Text has no fill value. JSON has no NaN, which stands for missing values in any case.
    """
    finite = {
        name: value for name, value in attributes.items() if not (isinstance(value, float) and value != value)
    }
    fill = attributes.get("_FillValue")
    if dtype.kind == "U":
        finite.pop("_FillValue", None)
    elif dtype.kind == "f" and isinstance(fill, int | float):
        finite["_FillValue"] = base64.b64encode(struct.pack("<d", fill)).decode("ascii")
    return finite


def can_store(dtype: np.dtype[Any]) -> bool:
    """Return whether values of a type are numbers that streamdr stores."""
    return dtype.name in _DTYPES


def write_array(
    path: Path,
    values: Array,
    dims: tuple[str, ...],
    attributes: Mapping[str, Any] | None = None,
    *,
    text: bool = False,
) -> ArrayLayout:
    """Save an array, one chunk at a time. `text` allows text."""
    is_text = text and isinstance(values, np.ndarray) and values.dtype.kind == "U"
    if not is_text and not (isinstance(values, np.ndarray) and can_store(values.dtype)):
        what = getattr(values, "dtype", type(values).__name__)
        raise StoreError(f"{path}: cannot save {what}; only arrays of numbers or booleans")
    if values.ndim != len(dims):
        raise StoreError(f"{path}: cannot save the shape {values.shape} under the dimensions {dims}")
    layout = ArrayLayout.of(values, dims)
    array = create_array(path, layout, attributes)
    for _, region in layout.files():
        array[region] = values[region]
    return layout


def parse_layout(metadata: Any, where: Path, *, text: bool = False) -> ArrayLayout:
    """Return the layout in the zarr metadata of an array. Refuse metadata that streamdr does not write.

    `text` allows an array of text.
    """
    file = where / ROOT
    if not isinstance(metadata, dict):
        raise StoreError(f"{file}: has no array metadata; write it again")
    dtype, codecs = metadata.get("data_type"), metadata.get("codecs")
    is_text = text and dtype == _TEXT
    if not is_text and (not isinstance(dtype, str) or dtype not in _DTYPES):
        raise StoreError(f"{file}: data type {dtype!r} is refused; streamdr arrays hold plain numbers")
    if codecs != _TEXT_CODECS if is_text else codecs not in _CODECS:
        raise StoreError(
            f"{file}: codecs {codecs} are refused; streamdr writes little-endian bytes and crc32c"
        )
    try:
        grid, names = metadata["chunk_grid"], metadata.get("dimension_names") or ()
        chunks = grid["configuration"]["chunk_shape"]
        kind = np.dtype(np.str_ if is_text else dtype)
        layout = ArrayLayout(tuple(metadata["shape"]), tuple(chunks), kind, tuple(names))
        plain = (
            grid["name"] == "regular"
            and metadata["chunk_key_encoding"] == _ENCODING
            and not metadata.get("storage_transformers")
            and len(layout.shape) == len(layout.chunks) == len(layout.dims)
            and all(type(length) is int and 0 <= length <= _LONGEST for length in layout.shape)
            and all(type(chunk) is int and 1 <= chunk <= _LONGEST for chunk in layout.chunks)
            and all(isinstance(dim, str) for dim in layout.dims)
        )
    except (KeyError, TypeError):
        plain = False
    if not plain:
        raise StoreError(
            f"{file}: shape, chunks and dimensions are not as streamdr writes them; write it again"
        )
    return layout


def decode_chunk(raw: bytes, layout: ArrayLayout, region: Index) -> Array:
    """Return the values in the file of a chunk, as a view of its bytes without the padding."""
    values = np.frombuffer(raw, layout.dtype.newbyteorder("<"), math.prod(layout.chunks))
    return values.reshape(layout.chunks)[tuple(slice(s.stop - s.start) for s in region)]


def encode_chunk(values: Array, layout: ArrayLayout) -> Array:
    """Return the bytes of the file of a chunk. A chunk at the edge is padded with the fill value."""
    raw = np.empty(layout.file_bytes, np.uint8)
    content, checksum = raw[:-CHECKSUM_BYTES], raw[-CHECKSUM_BYTES:]
    chunk = content.view(layout.dtype.newbyteorder("<")).reshape(layout.chunks)
    if values.shape != layout.chunks:
        chunk[...] = fill_value(layout.dtype)
    chunk[tuple(map(slice, values.shape))] = values
    checksum.view("<u4")[0] = google_crc32c.value(content)
    return raw


def chunk_fault(file: Path, layout: ArrayLayout) -> str | None:
    """Return what is wrong with the file of a chunk (missing, truncated, corrupt, not a file), or None."""
    try:
        return content_fault(
            read_regular(file, LARGEST_TEXT if layout.is_text else layout.file_bytes), layout
        )
    except FileNotFoundError:
        return content_fault(None, layout)
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def content_fault(raw: bytes | None, layout: ArrayLayout) -> str | None:
    """Return what is wrong with the content of a chunk (`raw` is None if there is no file), or None."""
    if raw is None:
        return "is missing"
    if not layout.is_text and len(raw) != layout.file_bytes:
        return f"has {len(raw)} bytes where {layout.file_bytes} were written"
    return None if google_crc32c.value(raw) == _INTACT else "fails its checksum"
