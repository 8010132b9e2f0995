"""The elements of AnnData stores: how arrays, text, numbers and groups of them are encoded.

The encodings are those of the on-disk format of anndata. They are the same in zarr and in HDF5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamdr.core.blocks import Array

OURS = "streamdr"
"""The attribute of what streamdr wrote."""
TABLES = ("layers", "obsm", "obsp", "uns", "varm", "varp")
"""The groups of a store besides `X`, `obs` and `var`."""

_TEXT = np.dtype(np.str_)


@dataclass(frozen=True)
class Rows:
    """An array that is written piece by piece along its first dimension, in whole chunks."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    pieces: Iterable[Array]


class Writer(Protocol):
    """Writes groups and arrays at paths below a root."""

    def group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Create a group; the root has the path ``""``."""

    def array(self, path: str, values: Array, attributes: Mapping[str, Any]) -> None:
        """Write an array of numbers or of text. It may be a scalar."""

    def rows(self, path: str, rows: Rows, attributes: Mapping[str, Any]) -> None:
        """Write an array piece by piece."""

    def describe(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes to an array."""


class Reader(Protocol):
    """Reads groups and arrays at paths below a root."""

    def attributes(self, path: str) -> Mapping[str, Any] | None:
        """Return the attributes of a group or an array; None if there is none."""

    def array(self, path: str) -> Any:
        """Return an array, which is read by slices; None if there is none."""

    def members(self, path: str) -> Sequence[str]:
        """Return the names of what is in a group, sorted."""

    def close(self) -> None:
        """Close the files that are open. Arrays cannot be read any more."""


def encoding(kind: str, version: str, **others: Any) -> dict[str, Any]:
    """Return the attributes that say how an element is encoded."""
    return {**others, "encoding-type": kind, "encoding-version": version}


DICT = encoding("dict", "0.1.0")
ARRAY = encoding("array", "0.2.0")
_STRINGS = encoding("string-array", "0.2.0")


def write_element(writer: Writer, path: str, value: Any, about: Mapping[str, Any] | None = None) -> None:
    """Write an array, a number, a text, or a mapping of such elements.

    `about` are further attributes.
    """
    more = dict(about or {})
    if isinstance(value, Mapping):
        writer.group(path, DICT | more)
        for name, each in value.items():
            write_element(writer, f"{path}/{name}", each)
    elif isinstance(value, Rows):
        writer.rows(path, value, (_STRINGS if value.dtype.kind == "U" else ARRAY) | more)
    elif isinstance(value, np.ndarray):
        writer.array(path, value, (_STRINGS if value.dtype.kind == "U" else ARRAY) | more)
    elif isinstance(value, str):
        writer.array(path, np.array(value), encoding("string", "0.2.0") | more)
    else:
        writer.array(path, np.asarray(value), encoding("numeric-scalar", "0.2.0") | more)


def write_table(writer: Writer, path: str, index: Rows, columns: Sequence[str]) -> None:
    """Write a table with an index. Its columns are written by whoever has their values."""
    writer.group(path, table_attributes(columns))
    write_element(writer, f"{path}/_index", index)


def table_attributes(columns: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a table with these columns."""
    return encoding("dataframe", "0.2.0", _index="_index") | {"column-order": list(columns)}


def names_as_rows(names: Sequence[str]) -> Rows:
    """Return names as one piece."""
    return Rows((len(names),), _TEXT, max(1, len(names)), [np.array(names, dtype=np.str_)])


def numbered(length: int, chunk_rows: int) -> Rows:
    """Return the numbers from 0 as text, in pieces: the names that anndata gives to nameless rows."""

    def pieces() -> Iterator[Array]:
        for start in range(0, length, chunk_rows):
            yield np.arange(start, min(start + chunk_rows, length)).astype(np.str_)

    return Rows((length,), _TEXT, chunk_rows, pieces())


class ContentDigest:
    """The sha256 of the values of an array, whatever its chunks."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, values: Array) -> None:
        """Add the values of the next rows."""
        if values.dtype.kind in "USOT":
            self._sum.update(b"\0".join([*map(_encoded, values.ravel().tolist()), b""]))
        else:
            self._sum.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())

    def __str__(self) -> str:
        return self._sum.hexdigest()


def read_text(array: Any, rows: slice) -> list[str]:
    """Return some values of an array of names, which HDF5 stores as bytes."""
    values = np.asarray(array[rows]).tolist()
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


class Names:
    """The names of the rows of a table, whatever their encoding: text, categories, or values and a mask.

    Parameters
    ----------
    reader : Reader
        The store.
    table : str
        The table, such as `obs`.
    """

    def __init__(self, reader: Reader, table: str) -> None:
        path = f"{table}/{(reader.attributes(table) or {}).get('_index', '_index')}"
        codes, categories = reader.array(f"{path}/codes"), reader.array(f"{path}/categories")
        self._categories = None if categories is None else read_text(categories, slice(None))
        self._values = codes if self._categories is not None else reader.array(f"{path}/values")
        self._values = reader.array(path) if self._values is None else self._values

    def __len__(self) -> int:
        return 0 if self._values is None else int(self._values.shape[0])

    def __getitem__(self, rows: slice) -> list[str]:
        if self._categories is None:
            return read_text(self._values, rows)
        codes = np.asarray(self._values[rows]).tolist()
        return [self._categories[code] if code >= 0 else "" for code in codes]


def _encoded(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def stored_digest(reader: Reader, path: str) -> str:
    """Return a digest of the values of an array, or of all arrays in a group, as they are stored."""
    array = reader.array(path)
    if array is None:
        inner = [f"{name}: {stored_digest(reader, f'{path}/{name}')}" for name in reader.members(path)]
        return hashlib.sha256("\n".join(inner).encode()).hexdigest()
    content = ContentDigest()
    if not array.shape:
        content.add(np.asarray(array[()]))
    for start in range(0, array.shape[0] if array.shape else 0, (array.chunks or array.shape or (1,))[0]):
        content.add(np.asarray(array[start : start + (array.chunks or array.shape)[0]]))
    return str(content)


def value_digest(value: Any) -> str:
    """Return the digest that a value will have when it is stored."""
    if isinstance(value, Mapping):
        inner = [f"{name}: {value_digest(value[name])}" for name in sorted(value)]
        return hashlib.sha256("\n".join(inner).encode()).hexdigest()
    content = ContentDigest()
    content.add(np.asarray(value))
    return str(content)
