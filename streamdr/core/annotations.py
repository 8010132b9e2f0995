"""What models say of variables and of themselves, as AnnData arranges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.mapping import columns_kept
from streamdr.core.method import Model

HIGHLY_VARIABLE = "highly_variable"
"""The column of `var` with the variables that a step selected."""


@dataclass(frozen=True)
class Annotations:
    """The entries of an AnnData object that a model adds, besides the scores."""

    varm: Mapping[str, Array] = field(default_factory=dict)
    """Arrays with one row per variable."""
    uns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Groups of arrays, numbers, text and further groups."""
    var: Mapping[str, Array] = field(default_factory=dict)
    """Columns with one value per variable."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The places of the entries, in the order in which they are published."""
        tables = (("var", self.var), ("uns", self.uns), ("varm", self.varm))
        return tuple(f"{table}/{name}" for table, entries in tables for name in entries)

    def scattered(self, columns: Array, n_variables: int) -> Annotations:
        """The same for more variables, of which these are `columns`.

        The others have loadings of zero, as in scanpy, and are not selected; numbers of theirs are missing.
        """
        return replace(
            self,
            varm={name: _scattered(each, columns, n_variables, 0.0) for name, each in self.varm.items()},
            var={
                name: _scattered(each, columns, n_variables, False if each.dtype == np.bool_ else np.nan)
                for name, each in self.var.items()
            },
        )


def _scattered(values: Array, columns: Array, n_variables: int, otherwise: float) -> Array:
    """Return rows at the places of some variables, and a value at the places of the others."""
    everywhere = np.full((n_variables, *values.shape[1:]), otherwise, values.dtype)
    everywhere[columns] = values
    return everywhere


@runtime_checkable
class Annotates(Protocol):
    """A model with entries for AnnData besides its scores."""

    annotated: ClassVar[tuple[str, ...]]
    """The places of the entries, such as `varm/PCs`."""

    def annotations(self) -> Annotations:
        """The entries, with one row per column that the model takes."""


@runtime_checkable
class ComparesVariances(Protocol):
    """A model that keeps the variables that vary most."""

    support: Array
    """The mask of the variables that are kept."""
    means: Array
    """The mean of each variable."""
    variances: Array
    """The variance of each variable."""
    dispersions: Array | None
    """The dispersion of each variable, if they were compared by these."""
    dispersions_norm: Array | None
    """The dispersion relative to those of variables with similar means."""


_COMPARED = ("means", "variances", "dispersions", "dispersions_norm")
"""The columns of `var` beside the selection, as far as a model has them."""


def annotations_of(model: Model) -> Annotations:
    """The entries of a model; none if it has none."""
    if isinstance(model, Annotates):
        return model.annotations()
    if isinstance(model, ComparesVariances):
        found = {name: getattr(model, name) for name in _COMPARED}
        known = {name: values for name, values in found.items() if values is not None}
        return Annotations(var={HIGHLY_VARIABLE: model.support, **known})
    return Annotations()


def annotated_by(model: type) -> tuple[str, ...]:
    """The places of the entries that models of a class may have."""
    columns = {"support", *_COMPARED} <= getattr(model, "__dataclass_fields__", {}).keys()
    own = tuple(f"var/{name}" for name in (HIGHLY_VARIABLE, *_COMPARED)) if columns else ()
    return (*own, *getattr(model, "annotated", ()))


def composed(models: Sequence[Model]) -> Annotations:
    """The entries of models that map rows one after another, for the variables of the first.

    Columns of `var` are those of all models; the others are those of the last one.
    """
    n_variables = models[0].n_features
    columns: Array | None = np.arange(n_variables)
    var: dict[str, Array] = {}
    found = Annotations()
    for model in models:
        own = annotations_of(model)
        if columns is None:
            found = Annotations(uns=own.uns)
            continue
        found = own.scattered(columns, n_variables)
        var |= found.var
        kept = columns_kept(model)
        columns = None if kept is None else columns[kept]
    uns = {name: _with_mask(group) if HIGHLY_VARIABLE in var else group for name, group in found.uns.items()}
    return replace(found, var=var, uns=uns)


def _with_mask(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters as scanpy records them after a selection of variables."""
    parameters = group.get("params")
    if not isinstance(parameters, Mapping):
        return group
    return {**group, "params": {**parameters, "use_highly_variable": True, "mask_var": HIGHLY_VARIABLE}}
