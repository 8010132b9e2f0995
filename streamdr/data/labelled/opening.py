"""Opening variables of a container: rows are samples, with the coordinates of samples and of features."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from streamdr.core.axes import VARIABLE, Coordinate, FeatureAxes
from streamdr.core.blocks import Array, Span
from streamdr.data.labelled.container import Container, Subgroup
from streamdr.data.labelled.conventions import plain_attributes
from streamdr.data.labelled.packing import Packing
from streamdr.data.labelled.selection import Selection, Window
from streamdr.data.labelled.side_by_side import SideBySideSource
from streamdr.data.labelled.variable import RowCoordinateSource, SampleGrid, VariableSource
from streamdr.data.labelled.weights import along_dims
from streamdr.data.source import SampleCoordinate, Source
from streamdr.errors import DataError, ParameterError

_MAX_LISTED = 12


@dataclass(frozen=True)
class Labelled:
    """Which variables are read, and how they become rows x features.

    Parameters
    ----------
    variable : str, list of str or None
        The name of a variable, or the names of several, whose features are side by side. None for the only
        one.
    sample_dims : str, list of str or None
        The dimensions of the samples; None for the first dimension of the variable.
    select : mapping or None
        For some dimensions a label, a range of two labels, or `{"positions": ...}`.
    """

    variable: str | Sequence[str] | None = None
    sample_dims: str | Sequence[str] | None = None
    select: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `open_source` that say the same."""
        return {"variable": self.variable, "sample_dims": self.sample_dims, "select": self.select}

    @property
    def record(self) -> dict[str, Any]:
        """What a saved model records, to open the rows that it maps in the same way."""
        return {name: _plain(value) for name, value in self.arguments.items() if value is not None}

    @classmethod
    def recorded(cls, record: object) -> Labelled:
        """Return how the rows of a saved model were opened."""
        found = record if isinstance(record, Mapping) else {}
        return cls(**{name: found.get(name) for name in UNLABELLED.arguments})


def _plain(value: Any) -> Any:
    """Return a value of `select` and the like as JSON. Dates become text, as in a configuration."""
    if isinstance(value, slice):
        return [_plain(value.start), _plain(value.stop)]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    return value if isinstance(value, str | int | float | None) else str(value)


UNLABELLED = Labelled()
"""Nothing is said of variables and dimensions."""


@dataclass(frozen=True)
class Windows:
    """Which variables are read, the sample dimensions, and what is read of each dimension."""

    names: tuple[str, ...]
    sample_dims: tuple[str, ...]
    windows: Mapping[str, Window]


def windows_of(container: Container, how: Labelled) -> Windows:
    """Return what is read of the variables of a container."""
    return _Opening(container, how).resolved()


def open_labelled(container: Container, how: Labelled) -> Source:
    """Open variables of a container as rows x features, with their coordinates.

    Returns
    -------
    source : Source
        With `axes`, `sample_dims` and `sample_coords`.
    """
    return _Opening(container, how).source()


class _Opening:
    """One opening of variables."""

    def __init__(self, container: Container, how: Labelled) -> None:
        self._container, self._how = _within_group(container, how)
        self._selection = Selection(how.select)

    def source(self) -> Source:
        names = self._names
        self._require_dims_known()
        parts = [self._variable(name) for name in names]
        several = isinstance(self._how.variable, list | tuple)
        if several:
            source: Source = SideBySideSource(parts, f"{self._container.name}/{','.join(names)}")
        else:
            # An array that is read whole, as it is stored, is the same source with labels and without.
            source = copy.copy(parts[0].array) if parts[0].is_whole else parts[0]
        source.axes = self._axes(several)
        source.feature_names = _text_names(source.axes)
        source.sample_shape = source.axes.shape
        source.dims = (self._sample_dims[0], *source.axes.dims)
        source.sample_dims = self._sample_dims
        source.selected = {dim: self._windows[dim].ends for dim in sorted(self._selection.dims)}
        source.sample_coords = tuple(self._sample_coords())
        return source

    def resolved(self) -> Windows:
        """Return the variables, the sample dimensions, and the windows of all dimensions."""
        names = tuple(self._names)
        self._require_dims_known()
        return Windows(names, self._sample_dims, self._windows)

    def beside(self, name: str, axes: FeatureAxes) -> Array:
        """Return an array with some of the feature dimensions for each feature, flattened."""
        dims = self._dims_of(name)
        own = tuple(dim for dim in dims if dim in axes.dims)
        if own != dims:
            raise ParameterError(
                "feature_weights",
                f"{self._container.name}/{name}: has the dimensions {', '.join(dims)}, and features have "
                f"{', '.join(axes.dims)}",
            )
        values = self._whole(name)
        if values is None or values.dtype.kind == "U":
            raise ParameterError("feature_weights", f"{self._container.name}/{name}: weights are numbers")
        part = tuple(slice(self._windows[dim].start, self._windows[dim].stop) for dim in dims)
        return along_dims(values[part], dims, axes)

    @cached_property
    def _names(self) -> list[str]:
        """The names of the variables."""
        given, found = self._how.variable, self._container.names()
        if given is None:
            candidates = self._container.variables()
            if len(candidates) != 1:
                raise ParameterError(
                    VARIABLE, f"{self._container.name}: {_listed(candidates)}; say which one to read"
                )
            return candidates
        names = [given] if isinstance(given, str) else list(given)
        if not names:
            raise ParameterError(VARIABLE, "names no variable; name one or more")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ParameterError(VARIABLE, f"{twice!r} is named twice")
        for name in names:
            if name not in found:
                raise ParameterError(
                    VARIABLE,
                    f"{self._container.name}: no variable {name!r}; {_listed(self._container.variables())}",
                )
        return names

    @cached_property
    def _dims(self) -> tuple[str, ...]:
        """The dimensions of the first variable, in the order of the store."""
        return self._dims_of(self._names[0])

    def _dims_of(self, name: str) -> tuple[str, ...]:
        dims = self._container.dims(name)
        named = tuple(dim for dim in dims if dim is not None)
        where = f"{self._container.name}/{name}"
        if len(named) != len(dims) or not dims:
            raise ParameterError(
                VARIABLE,
                f"{where}: its dimensions have no names; write it with xarray, or leave out variable, "
                "sample_dims and select, and give array and sample_axis instead",
            )
        if len(set(named)) != len(named):
            raise ParameterError(VARIABLE, f"{where}: two of its dimensions have the same name: {named}")
        return named

    @cached_property
    def _sample_dims(self) -> tuple[str, ...]:
        given = self._how.sample_dims
        if given is None:
            return self._dims[:1]
        wanted = (given,) if isinstance(given, str) else tuple(given)
        for dim in wanted:
            if dim not in self._dims:
                raise ParameterError(
                    "sample_dims",
                    f"{self._container.name}/{self._names[0]}: no dimension {dim!r}; it has "
                    f"{', '.join(self._dims)}",
                )
        if len(set(wanted)) != len(wanted) or not wanted:
            raise ParameterError("sample_dims", "names a dimension twice, or none; name one or more")
        return wanted

    @property
    def _feature_dims(self) -> tuple[str, ...]:
        """The feature dimensions, with those of which one position is selected."""
        return tuple(dim for dim in self._dims if dim not in self._sample_dims)

    def _require_dims_known(self) -> None:
        """Refuse a selection along a dimension that is not there."""
        for dim in sorted(self._selection.dims):
            if dim not in self._dims:
                raise ParameterError(
                    "select",
                    f"{self._container.name}/{self._names[0]}: no dimension {dim!r}; it has "
                    f"{', '.join(self._dims)}",
                )

    @cached_property
    def _windows(self) -> dict[str, Window]:
        """What is read of each dimension."""
        lengths = dict(zip(self._dims, self._container.shape(self._names[0]), strict=True))
        return {dim: self._window(dim, lengths[dim]) for dim in self._dims}

    def _window(self, dim: str, length: int) -> Window:
        coordinate, attributes = None, {}
        if dim in self._selection.dims and dim in self._container.names():
            coordinate, attributes = self._numbers_or_text(dim), dict(self._container.attributes(dim))
        if coordinate is not None and coordinate.spec.n_rows != length:
            raise DataError(
                f"{self._container.name}/{dim}: {coordinate.spec.n_rows} labels for a dimension of {length}; "
                "the coordinate and the variable do not belong together"
            )
        window = self._selection.window(dim, length, coordinate, attributes)
        if window.is_single and dim in self._sample_dims:
            raise ParameterError(
                "select", f"{dim}: is a sample dimension, of which a range can be selected, not one position"
            )
        return window

    @cached_property
    def _samples(self) -> SampleGrid:
        return SampleGrid(self._sample_dims, tuple(self._windows[dim] for dim in self._sample_dims))

    def _variable(self, name: str) -> VariableSource:
        """Open one variable. All of them have the dimensions of the first, in any order."""
        dims, shape = self._dims_of(name), self._container.shape(name)
        lengths = dict(zip(dims, shape, strict=True))
        expected = dict(zip(self._dims, self._container.shape(self._names[0]), strict=True))
        if lengths != expected:
            raise ParameterError(
                VARIABLE,
                f"{self._container.name}: {name} has {_sizes(lengths)}, and {self._names[0]} has "
                f"{_sizes(expected)}; variables side by side need the same grid",
            )
        array = self._container.open(name, dims.index(self._sample_dims[0]))
        packing = Packing.of(
            array.spec.dtype, self._container.attributes(name), array.name, self._container.fill_value(name)
        )
        features = {dim: self._windows[dim] for dim in self._feature_dims}
        return VariableSource(array, dims, self._samples, features, packing)

    def _axes(self, several: bool) -> FeatureAxes:
        """Return the axes of the features."""
        kept = [dim for dim in self._feature_dims if not self._windows[dim].is_single]
        coords = list(self._feature_coords(kept))
        shape = tuple(len(self._windows[dim]) for dim in kept)
        attributes = [plain_attributes(self._container.attributes(name)) for name in self._names]
        common = {
            key: value
            for key, value in attributes[0].items()
            if all(other.get(key) == value for other in attributes[1:])
        }
        if several:
            names = np.array(self._names, dtype=np.str_)
            coords.insert(0, Coordinate(VARIABLE, (VARIABLE,), names))
            kept, shape = [VARIABLE, *kept], (len(names), *shape)
        name = self._names[0] if len(self._names) == 1 else None
        if not kept:  # one number per sample
            return FeatureAxes(("feature",), (1,), (), name, common)
        return FeatureAxes(tuple(kept), shape, tuple(coords), name, common)

    def _coordinates(self, dims: Sequence[str]) -> Iterator[str]:
        """Yield the names of the coordinates that have some of these dimensions, and no others."""
        listed = [one for name in self._names for one in self._container.listed_coordinates(name)]
        found = set(self._container.names())
        for name in dict.fromkeys([*dims, *listed]):
            if name not in found or name in self._names:
                continue
            own = self._container.dims(name)
            if own and set(own) <= set(dims):
                yield name

    def _feature_coords(self, dims: Sequence[str]) -> Iterator[Coordinate]:
        """Yield the coordinates of the features, as they are stored, in the windows that are read."""
        for name in self._coordinates(dims):
            own = tuple(dim for dim in self._container.dims(name) if dim is not None)
            part = tuple(slice(self._windows[dim].start, self._windows[dim].stop) for dim in own)
            values = self._whole(name)
            if values is not None:
                attributes = plain_attributes(self._container.attributes(name))
                yield Coordinate(name, own, np.ascontiguousarray(values[part]), attributes)

    def _whole(self, name: str) -> Array | None:
        """Return all values of a coordinate; None if they are neither numbers nor a list of text."""
        source = self._numbers_or_text(name)
        if source is None:
            return None
        values = source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))
        return values.reshape(self._container.shape(name))

    def _sample_coords(self) -> Iterator[SampleCoordinate]:
        """Yield the coordinates of the samples, which are read block by block."""
        for name in self._coordinates(self._sample_dims):
            own = tuple(dim for dim in self._container.dims(name) if dim is not None)
            values = self._numbers_or_text(name)
            if values is not None:
                rows = RowCoordinateSource(values, own, self._samples)
                yield SampleCoordinate(name, rows, plain_attributes(self._container.attributes(name)))

    def _numbers_or_text(self, name: str) -> Source | None:
        """Open a coordinate: numbers, decoded if they are packed, or text of one dimension."""
        shape = self._container.shape(name)
        if self._container.is_text(name):
            return self._container.open_text(name) if len(shape) == 1 else None
        try:
            array = self._container.open_coordinate(name)
        except DataError:  # of another type, such as dates of a data type of their own
            return None
        attributes = self._container.attributes(name)
        packed = {key: attributes[key] for key in ("scale_factor", "add_offset") if key in attributes}
        packing = Packing.of(array.spec.dtype, packed, array.name) if packed else None
        if packing is None:
            return array
        dims = [str(axis) for axis in range(len(shape))]
        windows = {dim: Window(0, length, is_open=True) for dim, length in zip(dims, shape, strict=True)}
        first = SampleGrid((dims[0],), (windows[dims[0]],))
        return VariableSource(array, dims, first, {dim: windows[dim] for dim in dims[1:]}, packing)


def _within_group(container: Container, how: Labelled) -> tuple[Container, Labelled]:
    """Return the group in which the variables are, where their coordinates are too, and their names in it."""
    several = isinstance(how.variable, list | tuple)
    paths = list(how.variable or ()) if several else [how.variable]
    groups = {path.rpartition("/")[0] if isinstance(path, str) else "" for path in paths}
    group = groups.pop() if len(groups) == 1 else ""
    if not (group and container.has_groups and any(one.startswith(f"{group}/") for one in container.names())):
        return container, how
    names = [str(path).removeprefix(f"{group}/") for path in paths]
    return Subgroup(container, group), replace(how, variable=names if several else names[0])


def _text_names(axes: FeatureAxes) -> tuple[str, ...] | None:
    """Return the names of the features, if they have one dimension and its labels are text."""
    labels = axes.coordinate(axes.dims[0]) if len(axes.dims) == 1 else None
    return None if labels is None or labels.values.dtype.kind != "U" else tuple(labels.values.tolist())


def _sizes(lengths: Mapping[str, int]) -> str:
    return " x ".join(f"{dim} {length}" for dim, length in lengths.items())


def _listed(names: Sequence[str]) -> str:
    """Return the variables of a container, for a message."""
    if not names:
        return "it has no variables"
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"it has {', '.join(names[:_MAX_LISTED])}{more}"


def features_beside(container: Container, how: Labelled, name: str, axes: FeatureAxes) -> Array:
    """Return an array beside the variables for each feature, flattened: in the part that is read."""
    return _Opening(container, how).beside(name, axes)
