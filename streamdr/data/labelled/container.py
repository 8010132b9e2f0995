"""Containers of named arrays with named dimensions: zarr groups, xarray data sets."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.data.grid_source import GridSource
from streamdr.data.in_memory import ArraySource
from streamdr.data.labelled.packing import Packing
from streamdr.data.lazy_arrays import DaskSource, XarraySource
from streamdr.data.source import Source
from streamdr.data.text_labels import TextArray, TextStore
from streamdr.data.zarr.locate import Located, array_at, arrays_below, document_of, is_array
from streamdr.data.zarr.reading import declared_fill_value
from streamdr.data.zarr.source import ZarrSource
from streamdr.data.zarr.stores import Node
from streamdr.errors import DataError, InputError


class Container(ABC):
    """Named arrays with named dimensions: some are variables, others are coordinates of them."""

    name: str
    """The name in errors and reports."""
    has_groups = True
    """Whether a slash in a name separates groups."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of its arrays."""

    @abstractmethod
    def dims(self, name: str) -> tuple[str | None, ...]:
        """Return the names of the dimensions of an array."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""

    @abstractmethod
    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array, as they are stored."""

    @abstractmethod
    def open(self, name: str, sample_axis: int = 0) -> GridSource:
        """Open an array of numbers."""

    @property
    def attributes_of_root(self) -> Mapping[str, Any]:
        """The attributes of the container."""
        return {}

    def variables(self) -> list[str]:
        """Return the names of arrays of numbers that are no coordinates, nor bounds of coordinates."""
        found = list(self.names())
        others: set[str] = set()
        for name in found:
            bounds = self.attributes(name).get("bounds")
            others |= {dim for dim in self.dims(name) if dim is not None}
            others |= {*self.listed_coordinates(name), *([bounds] if isinstance(bounds, str) else [])}
        return [name for name in found if name not in others and self.shape(name) and not self.is_text(name)]

    def listed_coordinates(self, name: str) -> list[str]:
        """Return the names of the coordinates that an array, or the container, lists in an attribute."""
        listed = (self.attributes(name).get("coordinates"), self.attributes_of_root.get("coordinates"))
        return [one for text in listed if isinstance(text, str) for one in text.split()]

    def open_coordinate(self, name: str) -> GridSource:
        """Open a coordinate of numbers."""
        return self.open(name)

    def is_text(self, name: str) -> bool:
        """Whether the values of an array are text."""
        return False

    def open_text(self, name: str) -> Source:
        """Open a one-dimensional array of text."""
        raise DataError(f"{self.name}/{name}: is not text")

    def fill_value(self, name: str) -> Any:
        """Return the fill value of an array, if it stands for missing values; None otherwise."""
        return None


class Subgroup(Container):
    """A group within a container. By the CF conventions, names are looked up in it, then in those above."""

    def __init__(self, whole: Container, path: str) -> None:
        self.name = f"{whole.name}/{path}"
        self._whole = whole
        above = path.split("/")
        self._paths: dict[str, str] = {}
        """The path in the container of each name."""
        for depth in range(len(above), -1, -1):
            prefix = "".join(f"{part}/" for part in above[:depth])
            for one in whole.names():
                if one.startswith(prefix) and (depth == len(above) or "/" not in one.removeprefix(prefix)):
                    self._paths.setdefault(one.removeprefix(prefix), one)

    def names(self) -> Sequence[str]:
        """Return the names of the arrays in the group and its subgroups, and in the groups above."""
        return list(self._paths)

    def dims(self, name: str) -> tuple[str | None, ...]:
        """Return the names of the dimensions of an array."""
        return self._whole.dims(self._path(name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self._whole.shape(self._path(name))

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array."""
        return self._whole.attributes(self._path(name))

    def open(self, name: str, sample_axis: int = 0) -> GridSource:
        """Open an array of numbers."""
        return self._whole.open(self._path(name), sample_axis)

    def open_coordinate(self, name: str) -> GridSource:
        """Open a coordinate of numbers."""
        return self._whole.open_coordinate(self._path(name))

    def is_text(self, name: str) -> bool:
        """Whether the values of an array are text."""
        return self._whole.is_text(self._path(name))

    def open_text(self, name: str) -> Source:
        """Open a one-dimensional array of text."""
        return self._whole.open_text(self._path(name))

    def fill_value(self, name: str) -> Any:
        """Return the fill value of an array, if it stands for missing values."""
        return self._whole.fill_value(self._path(name))

    @property
    def attributes_of_root(self) -> Mapping[str, Any]:
        """The attributes of the container."""
        return self._whole.attributes_of_root

    def _path(self, name: str) -> str:
        return self._paths.get(name, name)


class ZarrGroup(Container):
    """A group of a zarr store."""

    def __init__(self, node: Node, *, allow_missing: bool = False) -> None:
        self.name = node.name
        self._node = node
        self._allow_missing = allow_missing
        self._located: dict[str, Located] = {}

    def names(self) -> Sequence[str]:
        """Return the paths of all arrays in the group and its subgroups."""
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        try:
            return [] if is_array(self._node) else list(arrays_below(self._node))
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read: {error}") from error

    def _array(self, name: str) -> Located:
        if name not in self._located:
            try:
                found = array_at(self._node.child(name)) if name in self._names else None
            except OSError as error:
                raise DataError(f"{self.name}/{name}: cannot be read: {error}") from error
            if found is None:
                raise InputError("variable", f"{self.name}: no variable {name!r}")
            self._located[name] = found
        return self._located[name]

    def dims(self, name: str) -> tuple[str | None, ...]:
        """Return the names of the dimensions of an array."""
        metadata = self._array(name).metadata
        return metadata.dims or (None,) * len(metadata.grid.shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return self._array(name).metadata.grid.shape

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array."""
        return self._array(name).metadata.attributes

    def open(self, name: str, sample_axis: int = 0) -> GridSource:
        """Open an array of numbers.

        Where the fill value means missing, zarr writes no chunk that has no other value: those of land are
        never written.
        """
        metadata = self._array(name).metadata
        packing = Packing.of(
            metadata.dtype, metadata.attributes, f"{self.name}/{name}", self.fill_value(name)
        )
        return self._open(name, sample_axis, self._allow_missing, self._fills_missing(name, packing))

    def _fills_missing(self, name: str, packing: Packing | None) -> bool:
        """Whether the fill value of an array stands for missing values."""
        filled = declared_fill_value(self._array(name).metadata, f"{self.name}/{name}")
        if isinstance(filled, float | np.floating) and np.isnan(filled):
            return True
        return packing is not None and filled is not None and filled in packing.missing

    def open_coordinate(self, name: str) -> GridSource:
        """Open a coordinate of numbers. zarr does not write chunks of fill values, such as 0."""
        return self._open(name, 0, True, False)

    def _open(self, name: str, sample_axis: int, allow_missing: bool, may_be_unwritten: bool) -> GridSource:
        found = self._array(name)
        return ZarrSource(
            found.node,
            found.metadata,
            sample_axis=sample_axis,
            allow_missing=allow_missing,
            may_be_unwritten=may_be_unwritten,
        )

    def is_text(self, name: str) -> bool:
        """Whether the values of an array are text."""
        return self._array(name).metadata.is_text

    def open_text(self, name: str) -> Source:
        """Open a one-dimensional array of text."""
        return TextStore(self._array(name))

    def fill_value(self, name: str) -> Any:
        """Return the fill value of an array of version 2, as xarray does: in version 3 it is an attribute."""
        metadata = self._array(name).metadata
        return declared_fill_value(metadata, f"{self.name}/{name}") if metadata.zarr_format == 2 else None

    @property
    def attributes_of_root(self) -> Mapping[str, Any]:
        """The attributes of the group."""
        with suppress(OSError):
            found = (document_of(self._node, "zarr.json") or {}).get("attributes")
            found = document_of(self._node, ".zattrs") if found is None else found
            return found if isinstance(found, dict) else {}
        return {}


class XarrayDataset(Container):
    """A Dataset of xarray, or a DataArray with its coordinates. Times are encoded as numbers with units."""

    has_groups = False

    def __init__(self, data: Any, name: str) -> None:
        self.name = name
        self._data = data
        self._encoded: dict[str, Any] = {}

    @classmethod
    def of(cls, data: Any) -> XarrayDataset:
        """Return the container of a Dataset or of a DataArray."""
        if type(data).__name__ == "Dataset":
            return cls(data, "Dataset")
        name = "DataArray" if data.name is None else f"DataArray {data.name!r}"
        variable = data.name if isinstance(data.name, str) and data.name not in data.coords else "values"
        # Not through to_dataset, which drops a name that is also that of a coordinate.
        dataset = sys.modules["xarray"].Dataset({variable: data.variable}, coords=data.coords)
        return cls(dataset, name)

    def variables(self) -> list[str]:
        """Return the names of the variables that are not coordinates."""
        return [str(name) for name in self._data.data_vars]

    def listed_coordinates(self, name: str) -> list[str]:
        """Return the names of the coordinates of the data set."""
        return [str(coordinate) for coordinate in self._data.coords]

    def names(self) -> Sequence[str]:
        """Return the names of all variables and coordinates."""
        return [str(name) for name in self._data.variables]

    def _variable(self, name: str) -> Any:
        if name not in self._data.variables:
            raise InputError("variable", f"{self.name}: no variable {name!r}")
        if name not in self._encoded:
            variable = self._data.variables[name]
            if variable.dtype.kind in "mMO" and name in self._data.coords:
                # Labels that are neither numbers, times nor text, such as those of a MultiIndex.
                with suppress(TypeError, ValueError, NotImplementedError):
                    variable = sys.modules["xarray"].conventions.encode_cf_variable(variable)
            self._encoded[name] = variable
        return self._encoded[name]

    def dims(self, name: str) -> tuple[str | None, ...]:
        """Return the names of the dimensions of an array."""
        return tuple(str(dim) for dim in self._variable(name).dims)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        return tuple(self._variable(name).shape)

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array. What encodes its values in a file is not among them."""
        found: Mapping[str, Any] = self._variable(name).attrs
        return found

    def open(self, name: str, sample_axis: int = 0) -> GridSource:
        """Open an array of numbers."""
        variable = self._variable(name)
        label = self.name if [name] == self.variables() else f"{self.name}/{name}"
        if variable.chunks is not None:
            return DaskSource(variable.data, sample_axis=sample_axis, name=label)
        if variable._in_memory:
            return ArraySource(variable.values, sample_axis=sample_axis, name=label)
        return XarraySource(variable, sample_axis=sample_axis, name=label)

    def is_text(self, name: str) -> bool:
        """Whether the values of an array are text."""
        kind = self._variable(name).dtype.kind
        return kind in "UT" or (kind == "O" and _all_text(self._variable(name)))

    def open_text(self, name: str) -> Source:
        """Open a one-dimensional array of text."""
        return TextArray(np.asarray(self._variable(name).values), f"{self.name}/{name}")


def _all_text(variable: Any) -> bool:
    values: Array = variable.values
    return all(isinstance(value, str) for value in values.ravel())
