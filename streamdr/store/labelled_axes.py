"""The axes of features in the store of a model: arrays become maps, with their coordinates beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field
from typing import Any

import numpy as np

from streamdr.core.axes import Coordinate, FeatureAxes, is_array_name
from streamdr.core.blocks import Array
from streamdr.store.record import to_json

KEPT, WEIGHTS = "feature_kept", "feature_weights"
_COMPACT = "kept_feature"
"""The dimension of arrays that hold the kept features only, such as a covariance."""

Dims = tuple[str, ...]
ReadArray = Callable[[str], Array]
"""Reads an array of the model by its name, and checks it."""


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """An array under its dimensions, with its attributes, as it is in a store or a Dataset."""

    name: str
    values: Array
    dims: Dims
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelledAxes:
    """The axes of features under the names that they have in the store of a model.

    A dimension or coordinate that is called like a dimension or field of the model gets a suffix.
    """

    axes: FeatureAxes
    taken: frozenset[str]

    @classmethod
    def of(cls, axes: FeatureAxes, fields: Iterable[Field[Any]]) -> LabelledAxes:
        """Return the axes for a model with these fields."""
        dims = {dim for field in fields for dim in field.metadata.get("dims", ())} - {"feature"}
        return cls(axes, frozenset({*(field.name for field in fields), *dims, KEPT, WEIGHTS, _COMPACT}))

    def name(self, name: str) -> str:
        """Return the name of a dimension or coordinate in the store."""
        return f"{name}_feature" if name in self.taken else name

    @property
    def dims(self) -> Dims:
        """The names of the feature dimensions."""
        return tuple(map(self.name, self.axes.dims))

    def stored_dims(self, dims: Dims) -> Dims:
        """Return the dimensions under which an array of the model is stored."""
        if "feature" not in dims:
            return dims
        if "feature_too" in dims:
            return dims if self.axes.kept is None else tuple(_COMPACT if d == "feature" else d for d in dims)
        at = dims.index("feature")
        return (*dims[:at], *self.dims, *dims[at + 1 :])

    def expanded(self, values: Array, dims: Dims) -> tuple[Array, Dims]:
        """Return an array of the model as a map, and its dimensions: NaN where a feature is left out."""
        stored = self.stored_dims(dims)
        if "feature" not in dims or "feature_too" in dims:
            return values, stored
        at = dims.index("feature")
        whole = np.moveaxis(self.axes.expanded(np.moveaxis(values, at, -1)), -1, at)
        shape = (*whole.shape[:at], *self.axes.shape, *whole.shape[at + 1 :])
        return np.ascontiguousarray(whole).reshape(shape), stored

    def compacted(self, values: Array, dims: Dims) -> Array:
        """Return the array of the model: undo `expanded`."""
        if "feature" not in dims or "feature_too" in dims:
            return values
        at, number = dims.index("feature"), len(self.axes.shape)
        flat = values.reshape(*values.shape[:at], self.axes.n_features, *values.shape[at + number :])
        return flat if self.axes.kept is None else np.take(flat, self.axes.columns, axis=at)

    @property
    def auxiliary(self) -> str:
        """The names of coordinates that are not those of a dimension, as the attribute `coordinates`."""
        names = [self.name(one.name) for one in self._stored() if one.dims != (one.name,)]
        names += [KEPT] if self.axes.kept is not None else []
        return " ".join(names + ([WEIGHTS] if self.axes.weights is not None else []))

    def attributes(self, dims: Dims) -> dict[str, Any]:
        """Return the attributes of an array with these dimensions in the model."""
        is_map = "feature" in dims and "feature_too" not in dims
        return {"coordinates": self.auxiliary} if is_map and self.auxiliary else {}

    def arrays(self) -> Iterator[LabelledArray]:
        """Yield coordinates, which features are kept, and weights."""
        for one in self._stored():
            yield LabelledArray(
                self.name(one.name), one.values, tuple(map(self.name, one.dims)), one.attributes
            )
        for name, values in ((KEPT, self.axes.kept), (WEIGHTS, self.axes.weights)):
            if values is not None:
                yield LabelledArray(name, values.reshape(self.axes.shape), self.dims)

    def record(self) -> dict[str, Any]:
        """Return the entry of the record."""
        axes = self.axes
        coords = [
            {
                "name": one.name,
                "dims": list(one.dims),
                "attributes": dict(one.attributes),
                "text": one.values.tolist() if one.values.dtype.kind == "U" else None,
            }
            for one in self._stored()
        ]
        entry: dict[str, Any] = to_json(
            {
                "dims": list(axes.dims),
                "shape": list(axes.shape),
                "name": axes.name,
                "attributes": dict(axes.attributes),
                "coords": coords,
                "kept": axes.n_kept if axes.kept is not None else None,
                "weights": axes.weights is not None,
                "weighted": axes.weighted,
            }
        )
        return entry

    @classmethod
    def read(cls, record: Mapping[str, Any], fields: Iterable[Field[Any]], read: ReadArray) -> LabelledAxes:
        """Return the axes from their entry in the record and from the arrays of the model."""
        plain = FeatureAxes(tuple(map(str, record["dims"])), tuple(map(int, record["shape"])))
        labelled = cls.of(plain, fields)

        def coordinate(entry: Mapping[str, Any]) -> Coordinate:
            name, text = str(entry["name"]), entry["text"]
            values = read(labelled.name(name)) if text is None else np.array(text, dtype=np.str_)
            return Coordinate(name, tuple(map(str, entry["dims"])), values, dict(entry["attributes"]))

        coords = tuple(map(coordinate, record["coords"]))
        kept = None if record["kept"] is None else read(KEPT).astype(np.bool_).reshape(-1)
        axes = FeatureAxes(
            plain.dims,
            plain.shape,
            coords,
            record["name"],
            dict(record["attributes"]),
            read(WEIGHTS).reshape(-1) if record["weights"] else None,
            kept,
            weighted=bool(record["weighted"]),
        )
        if len(axes.dims) != len(axes.shape) or (kept is not None and len(kept) != axes.n_features):
            raise ValueError("the axes of its features do not agree with each other")
        return cls(axes, labelled.taken)

    def _stored(self) -> list[Coordinate]:
        """The coordinates that are stored: those whose names can be names of files everywhere."""
        return [one for one in self.axes.coords if is_array_name(one.name)]
