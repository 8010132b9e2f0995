"""Files of `scipy.sparse.save_npz`: the arrays of a sparse matrix, read without pickle."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from scipy import sparse

from streamdr.core.blocks import Array
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.execution import current
from streamdr.core.files import open_regular
from streamdr.core.system import memory_limit
from streamdr.data.dtypes import require_numeric
from streamdr.data.snapshot import FileSnapshot, Snapshot
from streamdr.data.sparse.matrix import checked_shape, require_rows_first
from streamdr.data.sparse.scipy_matrices import open_scipy
from streamdr.data.sparse.source import CsrSource
from streamdr.data.sparse.vectors import LoadedArrays, LoadedVector, Vector
from streamdr.errors import DataError, MemoryLimitError

_ARRAYS = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "bsr": ("indptr", "indices", "data"),
    "dia": ("offsets", "data"),
    "coo": ("row", "col", "data"),
}
_LARGEST_HEADER = 1 << 16
_READ_BYTES = 1 << 20
_ENCRYPTED = 1
_CHANGED = "has changed since it was opened; run again when nothing writes to it"
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    SyntaxError,
    NotImplementedError,
    RuntimeError,
)
Stamp = tuple[int, int]


def is_npz(path: Path) -> bool:
    """Whether a file has the suffix of archives of numpy."""
    return path.name.lower().endswith(".npz")


def open_npz(path: Path, *, sample_axis: int | str = 0) -> CsrSource:
    """Open the sparse matrix in a file. If it is by rows and not compressed, it is read piece by piece."""
    require_rows_first(sample_axis, str(path))
    with _archive(path) as archive:
        kind = _text(archive, path)
        shape = checked_shape(_member(archive, path, "shape").read(archive, path), str(path))
        if kind not in _ARRAYS:
            raise DataError(f"{path}: a sparse matrix of format {kind!r}; save it as csr, as in tocsr()")
        found = {name: _member(archive, path, name) for name in _ARRAYS[kind]}
        require_numeric(found["data"].dtype, str(path))
        for name in _ARRAYS[kind]:
            if name != "data" and found[name].dtype.kind not in "iu":
                raise DataError(f"{path}: {name} is of type {found[name].dtype}; write it as integers")
        _require_memory(path, found.values(), copies=1 if kind == "csr" else 3)
        if kind == "csr":
            return _rows(path, shape, found)
        arrays = {name: each.read(archive, path) for name, each in found.items()}
    return open_scipy(_matrix(path, kind, arrays, shape), name=str(path))


@dataclass(frozen=True)
class _Member:
    """An array in an archive."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    header: int
    """The bytes before its values."""
    start: int | None
    """Where the values begin in the file; None if they are compressed."""

    @property
    def length(self) -> int:
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        return self.length * self.dtype.itemsize

    def read(self, archive: zipfile.ZipFile, path: Path) -> Array:
        """Return the values."""
        values = np.empty(self.length, self.dtype)
        with archive.open(f"{self.name}.npy") as file:
            file.seek(self.header)
            self.fill(values, file, path)
            file.read(1)  # the end, where the checksum is compared
        return values.astype(self.dtype.newbyteorder("="), copy=False).reshape(self.shape)

    def fill(self, values: Array, file: IO[bytes], path: Path) -> None:
        """Read values from where a file stands."""
        target, done = values.view(np.uint8), 0
        while done < len(target):
            part = file.read(min(_READ_BYTES, len(target) - done))
            if not part:
                raise DataError(f"{path}: {self.name} is cut off; restore the file from a copy")
            target[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)


class StoredMember(Vector):
    """An uncompressed array in an archive, of which parts are read."""

    def __init__(self, path: Path, stamp: Stamp, member: _Member) -> None:
        self.name, self.length = str(path), member.length
        self.dtype = member.dtype.newbyteorder("=")
        self._path, self._stamp, self._member = path, stamp, member

    def read(self, start: int, stop: int) -> Array:
        """Return the values from `start` to before `stop`."""
        values = np.empty(stop - start, self._member.dtype)
        with open_regular(self._path) as file:
            _require_same(self._path, self._stamp)
            file.seek(cast(int, self._member.start) + start * values.itemsize)
            self._member.fill(values, file, self._path)
        return values.astype(self.dtype, copy=False)

    def snapshot(self, *, by_value: bool) -> Snapshot:
        """Return the snapshot of the file."""
        return FileSnapshot.of(self._path, self.name, self._member.name, lambda: None)

    def require_chunks(self) -> None:
        """Do nothing: there are no chunks."""


def _rows(path: Path, shape: tuple[int, int], found: Mapping[str, _Member]) -> CsrSource:
    """Return a matrix that is stored by rows."""
    n_rows, n_cols = shape
    members = [found[name] for name in _ARRAYS["csr"]]
    if any(len(each.shape) != 1 for each in members) or members[0].length != n_rows + 1:
        shapes = ", ".join(f"{each.name} {each.shape}" for each in members)
        raise DataError(f"{path}: {n_rows} rows do not have arrays of the shapes {shapes}; save it again")
    stamp = _stamp(path)
    vectors: list[Vector]
    if all(each.start is not None for each in members):
        vectors = [StoredMember(path, stamp, each) for each in members]
    else:
        arrays = LoadedArrays(partial(_loaded, path, stamp, tuple(members)))
        snapshot = partial(FileSnapshot.of, path, str(path), "", _nothing)
        vectors = [
            LoadedVector(arrays, number, each.length, each.dtype.newbyteorder("="), str(path), snapshot)
            for number, each in enumerate(members)
        ]
    pointers, columns, values = vectors
    return CsrSource(str(path), n_cols, pointers=pointers, columns=columns, values=values, sorts=True)


def _loaded(path: Path, stamp: Stamp, members: tuple[_Member, ...]) -> tuple[Array, Array, Array]:
    """Read the three arrays."""
    with _archive(path) as archive:
        _require_same(path, stamp)
        pointers, columns, values = (each.read(archive, path) for each in members)
    return pointers, columns, values


def _matrix(path: Path, kind: str, arrays: Mapping[str, Array], shape: tuple[int, int]) -> Any:
    """Return a matrix of another format. scipy checks that its arrays fit together."""
    try:
        if kind == "coo":
            return sparse.coo_array((arrays["data"], (arrays["row"], arrays["col"])), shape=shape)
        if kind == "dia":
            return sparse.dia_array((arrays["data"], arrays["offsets"]), shape=shape)
        make = {"csc": sparse.csc_array, "bsr": sparse.bsr_array}[kind]
        return make((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
    except ValueError as error:
        raise DataError(f"{path}: its arrays do not fit together: {error}; save it again") from error


def _require_memory(path: Path, members: Any, *, copies: int) -> None:
    """Refuse a matrix that must be held and does not fit: a small file may hold large arrays of zeros."""
    held = copies * sum(each.n_bytes for each in members if copies > 1 or each.start is None)
    limit = current().memory_limit or memory_limit()
    if held > limit:
        raise MemoryLimitError(
            f"{path}: takes {format_bytes(held)} of memory; the memory limit is {format_bytes(limit)}",
            -(-held >> 20),
            ", or save the matrix by rows, uncompressed: save_npz(path, matrix.tocsr(), compressed=False)",
        )


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive. Errors of the archive name the file."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except _DAMAGED as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as a .npz file ({error}); was it copied whole?") from error


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> _Member:
    """Return an array of an archive. What its header promises must be what the archive says."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        held = ", ".join(sorted(each.removesuffix(".npy") for each in archive.namelist()[:8]))
        raise DataError(
            f"{path}: has no array {name!r}, as a matrix of scipy.sparse.save_npz has (it holds {held}); "
            "save a dense array with numpy.save, as .npy"
        ) from None
    if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(f"{path}: {name} is encrypted or compressed unusually; write it by save_npz")
    with archive.open(info) as file:
        start = file.read(12)
        length = int.from_bytes(start[8:12] if start[6:7] > b"\1" else start[8:10], "little")
        if start[:6] != np.lib.format.MAGIC_PREFIX or length > _LARGEST_HEADER:
            raise DataError(f"{path}: {name} has no header of numpy; save the matrix again")
        header = io.BytesIO(start + file.read(length))
    version = np.lib.format.read_magic(header)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(header)
    if dtype.hasobject or (fortran and len(shape) > 1):
        raise DataError(f"{path}: {name} is no plain array of numbers; save the matrix again")
    if header.tell() + prod(shape) * dtype.itemsize != info.file_size or min(shape, default=0) < 0:
        raise DataError(
            f"{path}: {name} has {info.file_size} bytes where {shape} of {dtype} take "
            f"{header.tell() + prod(shape) * dtype.itemsize}; restore the file from a copy"
        )
    start_of_values = None
    if info.compress_type == zipfile.ZIP_STORED:
        start_of_values = _start(archive, info) + header.tell()
    return _Member(name, dtype, shape, header.tell(), start_of_values)


def _start(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Return where a member begins in the file: after its own header, whose length the directory lacks."""
    file = cast(Any, archive.fp)
    file.seek(info.header_offset + 26)
    lengths = file.read(4)
    return (
        info.header_offset
        + 30
        + int.from_bytes(lengths[:2], "little")
        + int.from_bytes(lengths[2:], "little")
    )


def _text(archive: zipfile.ZipFile, path: Path) -> str:
    """Return the format of the matrix."""
    value = _member(archive, path, "format").read(archive, path).item()
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _stamp(path: Path) -> Stamp:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _require_same(path: Path, stamp: Stamp) -> None:
    if _stamp(path) != stamp:
        raise DataError(f"{path}: {_CHANGED}")


def _nothing() -> None:
    """Require nothing: a file has no chunks."""
