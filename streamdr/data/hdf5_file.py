"""HDF5 and netCDF-4 files: which arrays are in them, their dimensions and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from streamdr.core.files import open_regular
from streamdr.errors import DataError

DAMAGED = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError, MemoryError)
"""The exceptions that h5py raises for damaged files, depending on the call."""
_CLASSIC = b"CDF"
"""How files of netCDF-3 begin."""
_MAX_ARRAYS = 20_000
_MAX_ATTRIBUTE_BYTES = 1 << 20
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_NOT_COORDINATE = "_nc4_non_coord_"
"""The prefix of a variable with the name of a dimension that it is no coordinate of."""
_OF_THE_FORMAT = frozenset(
    (
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
        *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"),
    )
)
"""Attributes that the format itself keeps: they say nothing of the data."""


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open a file for one read: a file that stays open could not be written by anybody.

    That takes a tenth of a millisecond. Errors of h5py become a DataError that names the file.
    """
    try:
        with open_regular(path, buffering=0) as plain:
            if plain.read(len(_CLASSIC)) == _CLASSIC:
                raise DataError(
                    f"{path}: is netCDF of the classic format, not netCDF-4; convert it, say with "
                    f"`nccopy -k nc4 {path.name} NEW.nc`"
                )
        with h5py.File(path, "r") as file:
            yield file
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(f"{path}: cannot be read as HDF5 ({error}); was it copied whole?") from error


def require_values_within(path: Path, dataset: h5py.Dataset) -> None:
    """Raise an error if the values of a dataset are in other files."""
    if dataset.is_virtual or dataset.external is not None:
        raise DataError(
            f"{path}: the values of dataset {dataset.name!r} are in other files, which are not read; "
            "copy it into one file first, say with h5repack or with h5py"
        )


def require_same_file(path: Path, file: h5py.File, dataset: h5py.Dataset) -> None:
    """Raise an error if a link to another file was followed, which may be newer than the list of arrays."""
    if h5py.h5o.get_info(dataset.id).fileno != h5py.h5o.get_info(file.id).fileno:
        raise DataError(f"{path}: dataset {dataset.name!r} is a link to another file; give that file instead")


@dataclass(frozen=True)
class ArrayInfo:
    """What the metadata of a file says of an array."""

    key: str
    """The path of the dataset."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str | None, ...]
    attributes: Mapping[str, Any]
    stored_bytes: int
    """The bytes that its values take in the file."""

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self.dtype.kind in "SU" or h5py.check_string_dtype(self.dtype) is not None


def arrays_in(path: Path, file: h5py.File) -> dict[str, ArrayInfo]:
    """Return the arrays of numbers and of text in a file, by the names that netCDF gives them."""
    datasets: dict[str, h5py.Dataset] = {}

    def collect(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            datasets[key] = item
        if len(datasets) > _MAX_ARRAYS:
            raise DataError(f"{path}: has more than {_MAX_ARRAYS:,} arrays; is it the right file?")

    file.visititems(collect)  # follows no links to other files
    scales = {int(item.attrs["_Netcdf4Dimid"]): key for key, item in datasets.items() if _is_scale(item)}
    found = {}
    for key, item in datasets.items():
        if item.shape is None or not _is_readable(item.dtype) or _is_only_a_dimension(item):
            continue
        folder, _, own = key.rpartition("/")
        own = own.removeprefix(_NOT_COORDINATE)
        name = f"{folder}/{own}" if folder else own
        found[name] = ArrayInfo(
            key,
            item.shape,
            item.dtype,
            _dims(item, scales),
            attributes_of(item),
            item.id.get_storage_size(),
        )
    return found


def attributes_of(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """Return the attributes of a dataset or a group: text, numpy scalars, and arrays of several values."""
    found = {}
    for name in item.attrs:
        if name in _OF_THE_FORMAT:
            continue
        attribute = item.attrs.get_id(name)
        size = int(np.prod(attribute.shape or (0,), dtype=np.float64)) if attribute.shape != () else 1
        if size * max(1, attribute.dtype.itemsize) > _MAX_ATTRIBUTE_BYTES or attribute.dtype.kind == "V":
            continue
        value = _plain(item.attrs[name])
        if value is not None:
            found[name] = value
    return found


def _plain(value: Any) -> Any:
    """Return an attribute as text, a numpy scalar, or an array; None for references and the like."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufSUO":
        if value.dtype.kind in "SUO":
            texts = [_plain(one) for one in value.ravel().tolist()]
            if not texts or not all(isinstance(text, str) for text in texts):
                return None
            return texts[0] if len(texts) == 1 else texts
        return value.ravel()[0] if value.size == 1 else value
    return None


def _dims(item: h5py.Dataset, scales: Mapping[int, str]) -> tuple[str | None, ...]:
    """Return the names of the dimensions: those of their scales, or else their labels."""
    if _is_scale(item) or item.attrs.get("CLASS") == b"DIMENSION_SCALE":
        if len(item.shape) == 1:
            return (_last_part(item.name),)
        numbers = item.attrs.get("_Netcdf4Coordinates")
        if numbers is not None and len(numbers) == len(item.shape):
            return tuple(_last_part(scales[int(n)]) if int(n) in scales else None for n in numbers)
        return (None,) * len(item.shape)
    return tuple(_dim(dimension) for dimension in item.dims)


def _dim(dimension: Any) -> str | None:
    """Return the name of a dimension, if it has one."""
    if len(dimension):
        scale = dimension[0].name
        if scale is not None:
            return _last_part(scale)
    return dimension.label or None


def _last_part(path: str) -> str:
    return path.rpartition("/")[2].removeprefix(_NOT_COORDINATE)


def _is_scale(item: h5py.Dataset) -> bool:
    """Whether a dataset is a dimension of netCDF-4."""
    return item.attrs.get("CLASS") == b"DIMENSION_SCALE" and "_Netcdf4Dimid" in item.attrs


def _is_only_a_dimension(item: h5py.Dataset) -> bool:
    name = item.attrs.get("NAME")
    return isinstance(name, bytes) and name.startswith(_NO_VARIABLE)


def _is_readable(dtype: np.dtype[Any]) -> bool:
    """Whether values are numbers or text: no compounds, references, or sequences."""
    return (dtype.kind in "biufSU" and dtype.subdtype is None) or h5py.check_string_dtype(dtype) is not None
