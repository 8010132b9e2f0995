"""Lazy arrays that estimators have made: they remember the data, and the models that have mapped its rows.

So an estimator that is given one reads the data itself, through these models, as the next method of a chain
does: sparse rows stay sparse, blocks are cut as the data is stored, and errors name its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamdr.core.blocks import Array
from streamdr.core.method import Model
from streamdr.data import Source, open_source
from streamdr.data.frames import is_of
from streamdr.data.labelled.opening import Labelled
from streamdr.data.transformed import TransformedSource
from streamdr.estimators.lazy import RowMap
from streamdr.methods.chain import ChainModel, chain_model

_ATTRIBUTE = "_streamdr_mapped_rows"


@dataclass(frozen=True)
class MappedRows:
    """Streamed data, and the models that map its rows, one after another."""

    data: Any
    labelled: Labelled
    """How the data is opened."""
    models: tuple[Model, ...] = ()

    @property
    def model(self) -> Model:
        """The models as one."""
        return self.models[0] if len(self.models) == 1 else _chain(self.models)

    def source(
        self, *, weights: Any = None, labels: Any = None, features: Mapping[str, Any] | None = None
    ) -> Source:
        """Return the mapped rows, with weights and labels, and with what is asked of their features."""
        how, asked = self.labelled.arguments, features or {}
        if not self.models:
            return open_source(self.data, weights=weights, labels=labels, **how, **asked)
        whole = open_source(self.data, weights=weights, labels=labels, **how)
        return open_source(TransformedSource(whole, self.model), **asked)

    def then(self, model: Model) -> MappedRows:
        """Return the rows as a further model maps them."""
        further = model.models if isinstance(model, ChainModel) else (model,)
        return MappedRows(self.data, self.labelled, (*self.models, *further))

    def composed(self, function: RowMap, model: Model) -> RowMap:
        """Return a function of the rows that a further model takes as a function of those of the data."""
        chain = _chain((*self.models, *(model.models if isinstance(model, ChainModel) else (model,))))
        if function == model.transform:
            return chain.transform
        before = len(self.models)

        def of_data(rows: Array) -> Array:
            return function(chain.through(before, rows))

        return of_data


def _chain(models: Sequence[Model]) -> ChainModel:
    """Return models as one. They have no names here: errors have those of the methods."""
    return chain_model([""] * len(models), models)


def remember(data: Any, rows: MappedRows) -> None:
    """Let a dask array remember whose rows it has. What is made of it, or read from a pickle, does not."""
    if is_of(data, "dask.array", "Array"):
        vars(data)[_ATTRIBUTE] = (data.name, rows)


def mapped_rows_of(data: Any) -> MappedRows | None:
    """Return whose rows a dask array has, if an estimator has made it; None for other data."""
    if not is_of(data, "dask.array", "Array"):
        return None
    name, rows = vars(data).get(_ATTRIBUTE, (None, None))
    return rows if name == data.name else None  # an assignment to a part of it gives it another name
