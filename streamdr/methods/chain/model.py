"""The fitted chain: models that map rows one after another, and the operations of the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.annotations import Annotations, annotated_by, composed
from streamdr.core.blocks import Array, MatrixSpec, Span, SparseRows
from streamdr.core.facts import Fact, Table
from streamdr.core.mapping import (
    columns_kept,
    columns_read,
    fills_missing,
    mapped_spec,
    mapping_work,
    maps_apart,
)
from streamdr.core.method import MapsColumns, MapsColumnsApart, MapsSparse, Model, SelectsColumns, UsesScratch
from streamdr.core.pictures import Picture
from streamdr.core.plain_maps import HasPlainMaps, PlainClasses, PlainMap
from streamdr.core.work import Work
from streamdr.errors import ParameterError, RowError

_SLAB_BYTES = 1 << 23
"""The bytes of rows, at their widest and in double precision, that go through a chain together."""
_OF_ROWS = (
    "predict",
    "likeliest",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
)
"""The operations on rows that return one array, which has nothing to do with the features."""
_LENGTHS = ("n_mixtures", "n_classes", "classes", "n_components")


@dataclass(frozen=True, eq=False)
class ChainModel:
    """Models that map rows one after another.

    What the last model does with rows besides mapping them, such as predicting their classes, the chain
    does with its own rows: see `chain_model`.
    """

    pictures: ClassVar[tuple[Picture, ...]] = ()
    annotated: ClassVar[tuple[str, ...]] = ()

    names: tuple[str, ...] = field(metadata={"report": True})
    """The name of each model."""
    models: tuple[Model, ...]
    """The models."""

    def __reduce__(self) -> tuple[Callable[..., ChainModel], tuple[Any, ...]]:
        return chain_model, (self.names, self.models)

    def __getitem__(self, name: str) -> Model:
        """Return the model of a name."""
        return self.models[self.names.index(name)]

    @property
    def last(self) -> Any:
        """The last model."""
        return self.models[-1]

    @property
    def allow_nan(self) -> bool:
        """Whether every model accepts missing values, up to the first that leaves none."""
        for model in self.models:
            if not model.allow_nan:
                return False
            if fills_missing(model):
                return True
        return True

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return self.models[0].n_features

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        return self.models[-1].n_outputs

    @property
    def outputs_are_features(self) -> bool:
        """Whether every model returns its features."""
        return all(model.outputs_are_features for model in self.models)

    @property
    def keeps_zeros(self) -> bool:
        """Whether every model keeps zeros."""
        return all(isinstance(model, MapsSparse) and model.keeps_zeros for model in self.models)

    @property
    def reads(self) -> Array | None:
        """The columns that the first model reads; None for all."""
        return columns_read(self.models[0])

    @property
    def columns_kept(self) -> Array | None:
        """The feature that each output stands for; None if a model makes something else of them."""
        return self._kept_before(len(self.models))

    def narrowed(self) -> ChainModel:
        """The same chain for rows that hold these columns only."""
        first = self.models[0]
        narrow = first.narrowed() if isinstance(first, SelectsColumns) and self.reads is not None else first
        return chain_model(self.names, (narrow, *self.models[1:]))

    def up_to(self, name: str) -> Model:
        """The chain of the first models up to one of them; that model itself if it is the first."""
        number = self.names.index(name) + 1
        return self.models[0] if number == 1 else chain_model(self.names[:number], self.models[:number])

    @cached_property
    def _slab_rows(self) -> int:
        """How many rows go through the chain together: they stay in cache from one model to the next."""
        widest = max(self.n_features, *(model.n_outputs for model in self.models))
        return max(1, _SLAB_BYTES // (8 * widest))

    def _slabs(self, n_rows: int) -> Iterator[slice]:
        for start in range(0, n_rows, self._slab_rows):
            yield slice(start, min(start + self._slab_rows, n_rows))

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of all models. What is made of the rows besides embedding them is that of the last one."""
        total = Work()
        for model in self.models[:-1]:
            total += mapping_work(model, data)
            data = mapped_spec(data, model)
        return total + mapping_work(self.models[-1], data, operation)

    def scratch_bytes(self, n_rows: int) -> int:
        """The bytes that a slab takes between two models, and in one of them."""
        rows = min(n_rows, self._slab_rows)
        most = 0
        for model in self.models:
            own = model.scratch_bytes(rows) if isinstance(model, UsesScratch) else 8 * rows * model.n_features
            most = max(most, own + 8 * rows * (model.n_features + model.n_outputs))
        back = hasattr(self, "denoise") or hasattr(self, "impute")
        return most + 16 * rows * self.n_features * back

    def transform(self, values: Array) -> Array:
        """Map rows through all models."""
        return self._apply(range(len(self.models)), values)

    def transform_sparse(self, rows: SparseRows) -> SparseRows | Array:
        """Map sparse rows, which stay sparse as long as the models keep zeros."""
        end = len(self.models)
        for number, model in enumerate(self.models):
            if not (isinstance(model, MapsSparse) and model.keeps_zeros):
                return self._apply(range(number, end), rows)
            mapped = self._mapped(number, rows)
            if isinstance(mapped, np.ndarray):
                return self._apply(range(number + 1, end), mapped) if number + 1 < end else mapped
            rows = mapped
        return rows

    @property
    def maps_columns_apart(self) -> bool:
        """Whether every model maps each column without the others."""
        return all(maps_apart(model) for model in self.models)

    def for_outputs(self, outputs: Span) -> tuple[Span, ChainModel]:
        """The columns of which some outputs are made, and the chain that makes these outputs of them."""
        models: list[Model] = []
        for model in reversed(self.models):
            assert isinstance(model, MapsColumnsApart)  # by `maps_columns_apart`
            outputs, part = model.for_outputs(outputs)
            models.insert(0, part)
        return outputs, chain_model(self.names, models)

    @property
    def maps_by_columns(self) -> bool:
        """Whether the last model maps by columns, and those before it map each column without the others."""
        last = self.last
        able = isinstance(last, MapsColumns) and last.maps_by_columns and len(self.models) > 1
        return able and all(maps_apart(model) for model in self.models[:-1])

    @property
    def columns_through(self) -> Model:
        """The models before the last one."""
        return self.up_to(self.names[-2])

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """The scores of the last model, of columns that the models before it have mapped."""
        return self.last.scores_by_columns(n_rows) if self.maps_by_columns else None

    def summary(self) -> dict[str, Any]:
        """The summaries of all models, by name."""
        return {name: model.summary() for name, model in zip(self.names, self.models, strict=True)}

    def facts(self) -> tuple[Fact, ...]:
        """What the models do, in order, and the facts of the last one."""
        chain = Fact("chain", " -> ".join(self.names))
        before = [
            Fact(f"after {name}", model.n_outputs, f"of {model.n_features:,} columns")
            for name, model in zip(self.names[:-1], self.models[:-1], strict=True)
            if model.n_outputs != model.n_features
        ]
        return (chain, *before, *self.last.facts())

    def tables(self) -> tuple[Table, ...]:
        """The tables of the last model."""
        found: tuple[Table, ...] = self.last.tables()
        return found

    def through(self, number: int, values: Array) -> Array:
        """Map rows through the first models."""
        return self._apply(range(number), values) if number else values

    def plain_maps(self) -> tuple[PlainMap, ...]:
        """`transform` as elementary maps. A ParameterError names a model that has none."""
        return _plain_maps(self.names, self.models)

    def annotations(self) -> Annotations:
        """What the models say of the variables of the chain, and the last one of itself."""
        return composed(self.models)

    def _before(self, values: Array) -> Array:
        """Map rows through all models but the last."""
        return self.through(len(self.models) - 1, values)

    def _apply(self, numbers: range, rows: Array | SparseRows) -> Array:
        """Map rows through the models of some numbers, slab by slab, to dense rows."""
        if not rows.shape[0]:
            return np.empty((0, self.models[numbers[-1]].n_outputs), rows.dtype)
        return self._by_slabs(rows, lambda slab: self._through(numbers, slab))

    def _through(self, numbers: range, mapped: Array | SparseRows) -> Array:
        """Map a slab of rows through the models of some numbers."""
        for number in numbers:
            mapped = self._mapped(number, mapped)
        return mapped if isinstance(mapped, np.ndarray) else mapped.toarray()

    def _mapped(self, number: int, rows: Array | SparseRows) -> Array | SparseRows:
        """Map rows through one of the models. An error has its name there, and the column of the chain."""
        model = self.models[number]
        try:
            if isinstance(rows, np.ndarray):
                return model.transform(rows)
            if isinstance(model, MapsSparse):
                return model.transform_sparse(rows)
            return model.transform(rows.toarray())
        except RowError as error:
            raise error.in_chain(self.names[number], self._feature(number, error.column)) from None

    def _feature(self, number: int, column: int | None) -> int | None:
        """Return the feature of the chain that a column of one of the models stands for, if it is one."""
        kept = None if column is None else self._kept_before(number)
        return None if kept is None else int(kept[column])

    def _kept_before(self, number: int) -> Array | None:
        """Return the feature of the chain that each column of a model stands for; None if none is one."""
        found = np.arange(self.n_features)
        for model in self.models[:number]:
            kept = columns_kept(model)
            if kept is None:
                return None
            found = found[kept]
        return found

    def _by_slabs(self, rows: Array | SparseRows, operation: Callable[[Any], Array]) -> Array:
        """Apply an operation slab by slab. An error names the row among all of them."""
        n_rows, found = rows.shape[0], None
        for slab in self._slabs(n_rows):
            try:
                part = operation(rows[slab])
            except RowError as error:
                raise error.at_row(slab.start + error.row) from None
            if len(part) == n_rows:
                return part
            if found is None:
                found = np.empty((n_rows, *part.shape[1:]), part.dtype)
            found[slab] = part
        return operation(rows) if found is None else found


def chain_model(names: Sequence[str], models: Sequence[Model]) -> ChainModel:
    """Return the chain of some models, with the operations that the last one gives it."""
    return chain_model_class(tuple(map(type, models)))(tuple(names), tuple(models))


@cache
def chain_model_class(kinds: tuple[type, ...]) -> type[ChainModel]:
    """Return the class of chains of models of some classes.

    It has the operations of the last class on rows. Those whose result has the features of the rows, such as
    imputing, need the way back through all models.
    """
    last, before = kinds[-1], kinds[:-1]
    contents: dict[str, Any] = {name: _of_mapped(name) for name in _OF_ROWS if hasattr(last, name)}
    contents |= {
        name: property(attrgetter(f"last.{name}"))
        for name in _LENGTHS
        if hasattr(last, name) or name in getattr(last, "__dataclass_fields__", {})
    }
    if hasattr(last, "latent"):
        contents["latent"] = _latent
    goes_back = all(hasattr(kind, "inverse_transform") for kind in before)
    if goes_back and hasattr(last, "denoise"):
        contents["denoise"] = _denoise
    if goes_back and hasattr(last, "impute"):
        contents["impute"] = _impute
    if goes_back and hasattr(last, "inverse_transform"):
        contents["inverse_transform"] = _inverse_transform
    pictures = getattr(last, "pictures", ())
    if hasattr(last, "plain_classes"):
        contents["plain_classes"] = _plain_classes
    contents["annotated"] = (
        *(path for kind in before for path in annotated_by(kind) if path.startswith("var/")),
        *annotated_by(last),
    )
    contents |= {"__module__": __name__, "__doc__": ChainModel.__doc__, "pictures": pictures}
    return cast(type[ChainModel], type("ChainModel", (ChainModel,), contents))


def _of_mapped(name: str) -> Callable[[ChainModel, Array], Any]:
    """Return an operation of the last model, on rows that the other models have mapped."""

    def operation(chain: ChainModel, values: Array) -> Any:
        return chain._by_slabs(values, lambda slab: getattr(chain.last, name)(chain._before(slab)))

    operation.__name__ = name
    operation.__doc__ = f"`{name}` of the last model, for rows that the others have mapped."
    return operation


def _plain_maps(names: Sequence[str], models: Sequence[Model]) -> tuple[PlainMap, ...]:
    """Return the elementary maps of models, one after another."""
    found: list[PlainMap] = []
    for name, model in zip(names, models, strict=True):
        if not isinstance(model, HasPlainMaps):
            raise ParameterError("onnx", f"{name} is not a sequence of linear and elementary maps")
        found += model.plain_maps()
    return tuple(found)


def _plain_classes(chain: ChainModel) -> PlainClasses:
    """The classes of the last model, for rows that the others have mapped."""
    classes: PlainClasses = chain.last.plain_classes()
    return replace(classes, maps=(*_plain_maps(chain.names[:-1], chain.models[:-1]), *classes.maps))


def _latent(chain: ChainModel, values: Array) -> tuple[Array, Array]:
    """`latent` of the last model, for rows that the others have mapped."""
    found: tuple[Array, Array] = chain.last.latent(chain._before(values))
    return found


def _back(chain: ChainModel, rows: Array) -> Array:
    """Map rows from before the last model back to the features of the chain."""
    for model in reversed(chain.models[:-1]):
        rows = cast(Any, model).inverse_transform(rows)
    return rows


def _inverse_transform(chain: ChainModel, scores: Array) -> Array:
    """Map rows back through all models."""
    return chain._by_slabs(scores, lambda slab: _back(chain, chain.last.inverse_transform(slab)))


def _denoise(chain: ChainModel, values: Array) -> Array:
    """`denoise` of the last model, mapped back to the features of the chain."""
    return chain._by_slabs(values, lambda slab: _back(chain, chain.last.denoise(chain._before(slab))))


def _impute(chain: ChainModel, values: Array) -> Array:
    """`impute` of the last model, mapped back to the features; values that were observed are unchanged."""

    def impute(slab: Array) -> Array:
        return np.where(np.isnan(slab), _back(chain, chain.last.impute(chain._before(slab))), slab)

    return chain._by_slabs(values, impute)
