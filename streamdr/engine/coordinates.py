"""The frame of an output of rows: its dimensions, and the coordinates of samples and features beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, is_array_name, named_features
from streamdr.core.blocks import Array, Span
from streamdr.core.mapping import mapped_names
from streamdr.core.row_outputs import ROW_OUTPUTS, RowView
from streamdr.data.features import axes_of
from streamdr.data.source import SampleCoordinate, Source
from streamdr.errors import DataError
from streamdr.store import RowCoordinate
from streamdr.store.arrays import ArrayLayout, can_store

_CHUNK_BYTES = 1 << 20
"""The bytes of a chunk of a coordinate: what is read of the coordinates of samples at a time."""
_LARGEST = 16
"""The chunks of a coordinate are those of its source, if these are at most so many times as large."""
_TEXT_BYTES = 64
"""The expected bytes of a text, whose length is not known before it is read."""


@dataclass(frozen=True)
class RowFrame:
    """The shape and the dimensions of an output of rows, its attributes, and its coordinates."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    coordinates: tuple[RowCoordinate, ...] = ()


def row_frame(view: RowView, source: Source) -> RowFrame:
    """Return the frame of an output of a source.

    Where columns are features, it has the dimensions, coordinates and attributes of the features. Rows are
    along the dimension of the samples if there is one, and otherwise along `sample`.
    """
    shape, dims = frame_shape(view, source)
    # A dimension of the features may have the name of the columns, such as `component`.
    shared = dims if view.columns == "feature" and view.makes_features else dims[:1]
    found = {one.name: one for one in _of_features(source, shared)}
    if view.columns == "feature" and not view.makes_features:  # a step of a chain has selected some
        names = mapped_names(source.feature_names, view.model)
        found |= {one.name: _whole(one) for one in named_features("feature", names)}
    found |= {one.name: one for one in _of_samples(source, dims)}
    attributes: dict[str, Any] = {}
    if view.columns == "feature" and view.kind.power == 1 and source.axes is not None:
        attributes |= dict(source.axes.attributes)
    auxiliary = [one.name for one in found.values() if one.layout.dims != (one.name,)]
    if auxiliary:
        attributes["coordinates"] = " ".join(auxiliary)
    return RowFrame(shape, dims, attributes, tuple(found.values()))


def frame_shape(view: RowView, source: Source) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the shape and the dimensions of an output of a source."""
    dims = source.dims
    if source.axes is not None:
        dims = (None if dims is None else dims[0], *source.axes.dims)
    shape, plain = view.frame(source.spec.n_rows, sample_shape(source), dims)
    along = source.sample_dims[0] if len(source.sample_dims) == 1 else "sample"
    if source.sample_dims and along not in (*plain[1:], view.kind.name):
        return shape, (along, *plain[1:])
    return shape, plain


def sample_shape(source: Source) -> tuple[int, ...] | None:
    """Return the shape of a sample, with the features that a model leaves out."""
    return source.sample_shape if source.axes is None else source.axes.shape


def _of_samples(source: Source, dims: Sequence[str]) -> Iterator[RowCoordinate]:
    """Yield the coordinates of samples. They are read chunk by chunk, when they are written."""
    for one in source.sample_coords:
        spec = one.values.spec
        if spec.n_rows != source.spec.n_rows:
            raise DataError(
                f"{one.values.name}: has {spec.n_rows:,} values of the coordinate {one.name!r} for "
                f"{source.spec.n_rows:,} samples; give each sample one"
            )
        is_text = spec.dtype.kind == "U"
        if _is_free(one.name, dims[1:]) and (is_text or can_store(spec.dtype)):
            rows = _chunk_rows(one.values, _TEXT_BYTES if is_text else spec.dtype.itemsize)
            dtype = np.dtype(np.str_) if is_text else spec.dtype.newbyteorder("=")
            layout = ArrayLayout((spec.n_rows,), (min(rows, spec.n_rows),), dtype, (dims[0],))
            yield RowCoordinate(one.name, layout, _values_of(one), one.attributes)


def _chunk_rows(values: Source, item_bytes: int) -> int:
    """Return how many values of a coordinate are read together: whole chunks, so that none is read twice."""
    stored, most = values.chunks[0], _CHUNK_BYTES // item_bytes
    if stored <= most:
        return most // stored * stored
    return stored if stored <= _LARGEST * most else most


def _values_of(coordinate: SampleCoordinate) -> Any:
    """Return a function that reads the values of some rows."""
    return lambda rows: coordinate.values.read(rows, Span(0, 1))[:, 0]


def _of_features(source: Source, dims: Sequence[str]) -> Iterator[RowCoordinate]:
    """Yield the coordinates of the feature dimensions that the output has."""
    for one in axes_of(source).coords:
        is_text = one.values.dtype.kind == "U"
        if set(one.dims) <= set(dims[1:]) and _is_free(one.name) and (is_text or can_store(one.values.dtype)):
            yield _whole(one)


def _whole(coordinate: Coordinate) -> RowCoordinate:
    """Return a coordinate that is in memory, cut along its first dimension."""
    values = coordinate.values

    def read(rows: Span) -> Array:
        return values[rows.slice] if values.ndim else values

    layout = ArrayLayout.of(values, coordinate.dims)
    layout = ArrayLayout(layout.shape, (*layout.chunks[:1], *layout.shape[1:]), layout.dtype, layout.dims)
    return RowCoordinate(coordinate.name, layout, read, coordinate.attributes)


def _is_free(name: str, taken: Sequence[str] = ()) -> bool:
    """Return whether a coordinate can be an array of this name."""
    return is_array_name(name) and name not in taken and name not in {kind.name for kind in ROW_OUTPUTS}
