"""Columns by name, by pattern, by number, by range, or by a mask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Tags
from streamdr.errors import ParameterError
from streamdr.methods.steps.base import ChoiceModel, WithoutPasses
from streamdr.statistics.validation import require

if TYPE_CHECKING:
    Columns = str | Sequence[str | int | bool] | Array
else:  # what a configuration can hold
    Columns = str | list[str | int] | list[bool]

_RANGE = re.compile(r"(-?\d*):(-?\d*)")
_GLOB = re.compile(r"[*?\[]")
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class SelectColumnsModel(ChoiceModel):
    """The columns that are kept."""


@dataclass(eq=False)
class SelectColumns(WithoutPasses):
    """Columns by name, by pattern, by number or by range, in the order of the data.

    Parameters
    ----------
    columns : str, list of str and int, list of bool, array or None
        The columns to keep. A text is a name, a pattern such as `"MT-*"` (with `*`, `?` and `[...]`), or a
        range of numbers such as `"0:200"`, without the last. A number counts from 0, or from the end if it is
        negative. A mask has a value for each column. None for all columns.
    exclude : str, list of str and int, list of bool, array or None
        The columns to leave out of these, given in the same ways. None for none.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.arange(8.0).reshape(2, 4)
    >>> streamdr.SelectColumns(["0:2", -1]).fit_transform(X)
    array([[0., 1., 3.],
           [4., 5., 7.]])
    >>> streamdr.SelectColumns(exclude=np.array([1, 2])).fit_transform(X)
    array([[0., 3.],
           [4., 7.]])
    """

    name: ClassVar[str] = "select_columns"
    model: ClassVar[type] = SelectColumnsModel
    tags: ClassVar[Tags] = Tags(incremental=False, step=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ()

    columns: Columns | None = None
    exclude: Columns | None = None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Examples, for the laws."""
        return [cls(["1:4", -1]), cls(exclude=[0, 5])]

    def check(self) -> None:
        """Refuse what is neither a name, a number nor a mask."""
        super().check()
        for parameter in ("columns", "exclude"):
            given = getattr(self, parameter)
            if given is not None:
                _entries(parameter, given)

    def fitted(self, data: MatrixSpec) -> SelectColumnsModel:
        """The columns of such data; a ParameterError if one of them is not there."""
        support = np.ones(data.n_cols, np.bool_)
        if self.columns is not None:
            support = _chosen("columns", self.columns, data)
        if self.exclude is not None:
            support &= ~_chosen("exclude", self.exclude, data)
        parameter = "columns" if self.exclude is None else "exclude"
        require(support.any(), parameter, f"{self.name} leaves none of the {data.n_cols:,} columns")
        return SelectColumnsModel(support)


def _entries(parameter: str, given: Any) -> list[str | int] | Array:
    """Return names and numbers as a list, or a mask as an array."""
    if hasattr(given, "to_numpy"):  # a column of a data frame, or its index
        given = given.to_numpy()
    if isinstance(given, np.ndarray):
        require(given.ndim == 1, parameter, f"an array of {given.ndim} dimensions is not a list of columns")
        given = given.tolist()
    if isinstance(given, str):
        return [given]
    require(isinstance(given, list | tuple | range), parameter, f"{given!r} is not a list of columns")
    entries = list(given)
    require(entries, parameter, "an empty list leaves nothing to choose from")
    if all(isinstance(entry, bool | np.bool_) for entry in entries):
        return np.array(entries, np.bool_)
    for entry in entries:
        known = isinstance(entry, str | Integral) and not isinstance(entry, bool)
        require(known, parameter, f"{entry!r} is neither the name nor the number of a column")
    return [entry if isinstance(entry, str) else int(entry) for entry in entries]


def _chosen(parameter: str, given: Any, data: MatrixSpec) -> Array:
    """Return the mask of the columns that are meant."""
    entries = _entries(parameter, given)
    if isinstance(entries, np.ndarray):
        require(
            len(entries) == data.n_cols,
            parameter,
            f"the mask has {len(entries):,} values, and there are {data.n_cols:,} columns at this step",
        )
        return entries
    support = np.zeros(data.n_cols, np.bool_)
    found = _Found(parameter, data)
    for entry in entries:
        for columns in found.columns(entry):
            support[columns] = True
    return support


class _Found:
    """Finds columns, by the names that they have in some data.

    While it is not known which columns a step before this one keeps, there are more names than columns: the
    number of columns that are found is then the largest possible one.
    """

    def __init__(self, parameter: str, data: MatrixSpec) -> None:
        self.parameter, self.n_cols = parameter, data.n_cols
        self.names = data.feature_names
        self.known = self.names is None or len(self.names) == data.n_cols
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(self.names or ()):
            self.places.setdefault(name, []).append(place)

    def columns(self, entry: str | int) -> Iterator[list[int] | slice | int]:
        """Yield the columns of one entry; a ParameterError if there are none."""
        if isinstance(entry, int):
            require(
                -self.n_cols <= entry < self.n_cols,
                self.parameter,
                f"there is no column {entry} among the {self.n_cols:,} columns at this step",
            )
            yield entry
        elif entry in self.places:
            yield self._possible(self.places[entry])
        elif matched := _RANGE.fullmatch(entry):
            yield self._range(entry, *(int(end) if end else None for end in matched.groups()))
        elif _GLOB.search(entry) and self.names is not None:
            pattern = re.compile(translate(entry))
            places = [place for name, place in self._each() if pattern.match(name)]
            require(places, self.parameter, f"no column has a name such as {entry!r}{self._about()}")
            yield self._possible(places)
        else:
            raise ParameterError(self.parameter, self._unknown(entry))

    def _each(self) -> Iterator[tuple[str, int]]:
        return ((name, place) for name, places in self.places.items() for place in places)

    def _possible(self, places: list[int]) -> list[int] | slice:
        """Return the places, or as many columns where it is not known which of them are left."""
        return places if self.known else slice(0, len(places))

    def _range(self, entry: str, *ends: int | None) -> slice:
        chosen = range(self.n_cols)[slice(*ends)]
        beyond = any(end is not None and abs(end) > self.n_cols for end in ends)
        require(
            not beyond and len(chosen),
            self.parameter,
            f"the range {entry!r} is not within the {self.n_cols:,} columns at this step",
        )
        return slice(chosen.start, chosen.stop)

    def _unknown(self, name: str) -> str:
        if self.names is None:
            return (
                f"{name!r} is a name, and the columns at this step have none: give numbers, or ranges such "
                "as '0:200'"
            )
        near = get_close_matches(name, self.places, n=_SHOWN)
        meant = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"no column is called {name!r}{meant}{self._about()}"

    def _about(self) -> str:
        some = ", ".join(map(repr, list(self.places)[:_SHOWN]))
        more = ", ..." if len(self.places) > _SHOWN else ""
        return (
            f": it is not in the data, or a step before this one has left it out; there are "
            f"{self.n_cols:,} columns at this step ({some}{more})"
        )
