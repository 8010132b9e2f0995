"""What a model makes of rows, without mapping any: their spec, the names of their columns, and a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.digests import array_digest
from streamdr.core.function_digest import function_digest
from streamdr.core.method import DeclaresWork, MapsColumnsApart, MapsSparse, Model, SelectsColumns
from streamdr.core.work import Work, products

REPORT = {"report": True}
"""The metadata of a field of a model that `transform` does not use, such as a count or a score.

Rows mapped by two models that differ in such fields only are the same: what was learned of them is kept.
"""


@runtime_checkable
class ComposesColumns(Protocol):
    """A model of several, whose outputs may be features that one of them selects."""

    @property
    def columns_kept(self) -> Array | None:
        """The feature that each output stands for; None if outputs are not features."""


def columns_read(model: Model) -> Array | None:
    """The columns that a model reads, ascending; None if it reads all."""
    return model.reads if isinstance(model, SelectsColumns) else None


def columns_kept(model: Model) -> Array | None:
    """The feature that each output stands for; None if outputs are not features."""
    if model.outputs_are_features:
        return np.arange(model.n_features)
    if isinstance(model, ComposesColumns):
        return model.columns_kept
    if isinstance(model, SelectsColumns) and model.reads is not None:
        return model.reads if model.narrowed().outputs_are_features else None
    return None


def maps_apart(model: Model) -> bool:
    """Whether a model makes each output of one column, so that columns can be read without the others."""
    return isinstance(model, MapsColumnsApart) and model.maps_columns_apart


def mapped_chunks(chunks: tuple[int, int], data: MatrixSpec, model: Model) -> tuple[int, int]:
    """The chunks of rows that a model has mapped: whole rows, unless it maps each column apart."""
    apart = data.density is None and maps_apart(model)
    return chunks[0], min(chunks[1], model.n_outputs) if apart else model.n_outputs


def fills_missing(model: Model) -> bool:
    """Whether rows with missing values have none after this model, which accepts them.

    A model whose outputs are features lets them through, unless its `fills_missing` says otherwise.
    """
    return bool(getattr(model, "fills_missing", columns_kept(model) is None))


def class_fills_missing(kind: type) -> bool:
    """Whether models of a class leave no missing values, as far as that is known before there is one."""
    columns_stay = getattr(kind, "outputs_are_features", False) is True or hasattr(kind, "narrowed")
    return getattr(kind, "fills_missing", not columns_stay) is not False


def keeps_sparse(data: MatrixSpec, model: Model) -> bool:
    """Whether such rows are sparse, and still are when the model has mapped them."""
    return data.density is not None and isinstance(model, MapsSparse) and model.keeps_zeros


def mapping_work(model: Any, data: MatrixSpec, operation: str = "transform") -> Work:
    """The work of mapping all rows of such data by a model: by default, a product with its components.

    Other operations map rows to components and back.
    """
    if isinstance(model, DeclaresWork):
        return model.mapping_work(data, operation)
    values = float(data.n_rows) * data.n_cols
    if operation == "transform" and model.outputs_are_features:
        if data.density is not None:
            return Work(scattered=8 * values * data.density, functions=values * data.density)
        return Work(moved=3 * values * data.working.itemsize)
    made = float(data.n_rows) * model.n_outputs * data.working.itemsize
    if data.density is not None:
        return Work(sparse=values * model.n_outputs * data.density, moved=4 * made)
    products_taken = 1 if operation == "transform" else 2
    moved = 3 * products_taken * values * data.working.itemsize + 4 * made
    return products(products_taken * values * model.n_outputs, data.working, "thin") + Work(moved=moved)


def mapped_spec(data: MatrixSpec, model: Model) -> MatrixSpec:
    """The spec of rows that a model has mapped."""
    kept = columns_kept(model)
    weights = None if data.feature_weights is None or kept is None else data.feature_weights[kept]
    columns = kept if kept is None or data.columns is None else data.columns[kept]
    return replace(
        data,
        n_cols=model.n_outputs,
        dtype=data.working,
        feature_weights=weights,
        columns=data.columns if model.outputs_are_features else columns,
        feature_names=mapped_names(data.feature_names, model),
        density=data.density if keeps_sparse(data, model) else None,
        chunks=None if data.chunks is None else mapped_chunks(data.chunks, data, model),
    )


def mapped_names(names: Sequence[str] | None, model: Model) -> tuple[str, ...] | None:
    """The names of the columns that a model makes of features with names; None if they are no features."""
    kept = columns_kept(model)
    return None if names is None or kept is None else tuple(names[column] for column in kept)


def mapped_axes(axes: FeatureAxes | None, model: Model) -> FeatureAxes | None:
    """The axes of the columns that a model makes of features with axes; None if they are no features."""
    kept = columns_kept(model)
    if axes is None or kept is None:
        return None
    mask = np.zeros(axes.n_features, dtype=np.bool_)
    mask[axes.columns[kept]] = True
    return axes.keeping(mask)


def mapping_digest(model: Model) -> str:
    """The digest of what `transform` of a model uses: all its fields, except those marked as `REPORT`.

    An UnidentifiedError if it depends on a function that cannot be distinguished from others.
    """
    return hashlib.sha256(repr(_identified(model)).encode()).hexdigest()[:32]


def _identified(value: Any) -> Any:
    """Return plain values that are equal only for parts of models that map rows alike."""
    if is_dataclass(value) and not isinstance(value, type):
        used = [field for field in fields(value) if field.init and not field.metadata.get("report")]
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        return [name, *((field.name, _identified(getattr(value, field.name))) for field in used)]
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if isinstance(value, np.generic):
        return [value.dtype.str, value.item()]
    if isinstance(value, Mapping):
        return [(str(key), _identified(item)) for key, item in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [_identified(item) for item in value]
    return function_digest(value) if callable(value) else value
