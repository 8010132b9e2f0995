"""Which part of each dimension is read: by labels of its coordinate, or by positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.core.cf_time import TimeAxis
from streamdr.data.source import Source
from streamdr.errors import ParameterError

POSITIONS = "positions"
_PIECE = 1 << 16
"""How many values of a coordinate are read at a time."""


class EmptySelectionError(ParameterError):
    """No label of a dimension is in the range that is selected."""


@dataclass(frozen=True)
class Window:
    """The positions along a dimension that are read."""

    start: int
    stop: int
    is_open: bool = False
    """Whether it goes on to the end, whatever the length of the dimension."""
    is_single: bool = False
    """Whether one position was asked for, so that the dimension is dropped."""

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def ends(self) -> tuple[int, int | None]:
        """The first position, and that after the last, if it stays where it is when positions are added."""
        return self.start, None if self.is_open else self.stop


class Selection:
    """The values of `select`: for some dimensions, a label, a range of labels, or positions."""

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = dict(given or {})

    @property
    def dims(self) -> set[str]:
        """The dimensions of which a part is selected."""
        return set(self._given)

    def window(
        self, dim: str, length: int, coordinate: Source | None, attributes: Mapping[str, Any]
    ) -> Window:
        """Return the positions along a dimension.

        Parameters
        ----------
        dim : str
            The name of the dimension.
        length : int
            Its length.
        coordinate : Source or None
            Its coordinate, of numbers or of text. Without one, labels are positions.
        attributes : mapping
            The attributes of the coordinate, from which times are recognised.
        """
        if dim not in self._given:
            return Window(0, length, is_open=True)
        wanted = self._given[dim]
        if isinstance(wanted, slice):
            wanted = [wanted.start, wanted.stop]
        if isinstance(wanted, Mapping):
            if set(wanted) != {POSITIONS}:
                raise _refusal(dim, f"{wanted!r} is neither a label, a range of labels nor positions")
            return _by_position(dim, wanted[POSITIONS], length)
        if coordinate is None:
            _require_no_labels(dim, wanted)
            return _by_position(dim, wanted, length)
        return _by_label(dim, wanted, length, Labels.of(dim, coordinate, attributes))


@dataclass(frozen=True)
class Labels:
    """The labels along a dimension: numbers, text, or times."""

    dim: str
    values: Source
    times: TimeAxis | None

    @classmethod
    def of(cls, dim: str, values: Source, attributes: Mapping[str, Any]) -> Labels:
        """Return the labels in a source; attributes tell whether they are times."""
        is_text = values.spec.dtype.kind == "U"
        return cls(dim, values, None if is_text else TimeAxis.of(attributes))

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """Yield the values, a piece at a time, each with the position of its first."""
        for span in Span(0, self.values.spec.n_rows).split(_PIECE):
            yield span.start, self.values.read(span, Span(0, 1))[:, 0]

    def interval(self, label: Any) -> tuple[Any, Any, bool]:
        """Return the values that a label covers: the least, the greatest, and whether that is beyond."""
        if self.times is not None:
            try:
                return (*self.times.interval(str(label)), True)
            except ValueError as error:
                raise _refusal(self.dim, str(error)) from error
        if self.values.spec.dtype.kind == "U":
            return str(label), str(label), False
        if isinstance(label, bool | str) or not isinstance(label, int | float | np.number):
            raise _refusal(self.dim, f"{label!r} is not a number, as the labels of this dimension are")
        value = self.values.spec.dtype.type(label) if self.values.spec.dtype.kind == "f" else label
        return value, value, False

    def shown(self) -> str:
        """Return the first and the last label, for a message."""
        n = self.values.spec.n_rows
        ends = [self.values.read(Span(i, i + 1), Span(0, 1))[0, 0] for i in (0, n - 1)]
        first, last = (self.times.text(end) if self.times is not None else repr(end.item()) for end in ends)
        return f"it goes from {first} to {last}"

    @property
    def descends(self) -> bool:
        """Whether the first value is above the last."""
        first, last = (
            self.values.read(Span(i, i + 1), Span(0, 1))[0, 0] for i in (0, self.values.spec.n_rows - 1)
        )
        return bool(first > last)


def _require_no_labels(dim: str, wanted: Any) -> None:
    """Refuse what would be labels, such as [-60, 60], of a dimension without a coordinate."""
    ends = wanted if isinstance(wanted, list | tuple) else [wanted]
    if any(isinstance(end, str | float) or (isinstance(end, int) and end < 0) for end in ends):
        raise _refusal(
            dim, f"has no coordinate, so {wanted!r} cannot be labels; give positions, counted from 0"
        )


def _by_position(dim: str, wanted: Any, length: int) -> Window:
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        if not -length <= wanted < length:
            raise _refusal(dim, f"there is no position {wanted} among {length}")
        return Window(wanted % length, wanted % length + 1, is_single=True)
    start, stop = _ends(dim, wanted)
    for end in (start, stop):
        if end is not None and (not isinstance(end, int) or isinstance(end, bool)):
            raise _refusal(dim, f"{end!r} is not a position: a whole number, counted from 0")
    begin, end, _ = slice(start, stop).indices(length)
    if begin >= end:
        raise _refusal(dim, f"positions {start} to {stop} of {length} are empty")
    return Window(begin, end, is_open=stop is None)


def _by_label(dim: str, wanted: Any, length: int, labels: Labels) -> Window:
    """Return the positions whose labels are in a range. They must be next to each other."""
    single = not isinstance(wanted, list | tuple)
    start, stop = (wanted, wanted) if single else _ends(dim, wanted)
    if labels.values.spec.dtype.kind == "U" and not single:
        return _between_texts(dim, start, stop, length, labels)
    low, least_beyond, _ = (-inf, None, False) if start is None else labels.interval(start)
    greatest_low, high, beyond = (None, inf, False) if stop is None else labels.interval(stop)
    if start is not None and stop is not None and low > high:
        if labels.times is not None or not labels.descends:
            raise _refusal(
                dim,
                f"the range from {start} to {stop} is empty, since the labels ascend; a range across the end "
                "of a circle, such as longitudes from 350 to 10, cannot be read in one piece",
            )
        low, high = greatest_low, least_beyond
    first, last, found = -1, -1, 0
    for position, values in labels.pieces():
        inside = (values >= low) & ((values < high) if beyond else (values <= high))
        at = np.flatnonzero(inside)
        if at.size:
            first = position + int(at[0]) if found == 0 else first
            last = position + int(at[-1])
            found += at.size
    if not found:
        raise EmptySelectionError(
            "select", f"{dim}: no label is {_worded(single, start, stop)}; {labels.shown()}"
        )
    if last - first + 1 != found:
        raise _refusal(
            dim,
            f"the {found} labels {_worded(single, start, stop)} are not next to each other: sort the store "
            f"along {dim}, or select positions, as in {{positions: [0, 10]}}",
        )
    if single and found > 1:
        raise _refusal(dim, f"{found} labels are {start!r}; give a range, as in [{start}, {start}]")
    ascending_end = stop is None and last == length - 1
    return Window(first, last + 1, is_open=ascending_end, is_single=single)


def _between_texts(dim: str, start: Any, stop: Any, length: int, labels: Labels) -> Window:
    """Return the positions from one text to another, in the order of the store."""
    places: dict[Any, int] = {}
    for position, values in labels.pieces():
        for wanted in (start, stop):
            at = np.flatnonzero(values == wanted) if wanted is not None else np.empty(0)
            if at.size:
                places.setdefault(wanted, position + int(at[0]))
    for wanted in (start, stop):
        if wanted is not None and wanted not in places:
            raise _refusal(dim, f"no label is {wanted!r}; {labels.shown()}")
    first = 0 if start is None else places[start]
    last = length - 1 if stop is None else places[stop]
    if first > last:
        raise _refusal(dim, f"{start!r} comes after {stop!r}, so the range is empty")
    return Window(first, last + 1, is_open=stop is None)


def _ends(dim: str, wanted: Any) -> tuple[Any, Any]:
    if not isinstance(wanted, list | tuple) or len(wanted) != 2:
        raise _refusal(dim, f"{wanted!r} is neither one label nor a range of two; null is an open end")
    return wanted[0], wanted[1]


def _worded(single: bool, start: Any, stop: Any) -> str:
    if single:
        return f"{start!r}"
    if start is None:
        return f"up to {stop}"
    return f"from {start} on" if stop is None else f"between {start} and {stop}"


def _refusal(dim: str, message: str) -> ParameterError:
    return ParameterError("select", f"{dim}: {message}")
