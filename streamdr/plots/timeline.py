"""The scores of an embedding over time: envelopes of the rows that share a column of pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamdr.core.addresses import Address
from streamdr.core.blocks import Array, Span
from streamdr.core.cf_time import TimeAxis
from streamdr.core.figures import BLUE, count, leave_margins, new_figure, percent, plain, save, shortened
from streamdr.errors import DataError, StoreError
from streamdr.plots.mapped import model_and_axes
from streamdr.plots.scatter import Rows
from streamdr.plots.time_labels import time_labels
from streamdr.store import Backend, open_backend
from streamdr.store.rows import SealedRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SERIES = 6
"""The number of components that are drawn."""

_COLUMNS = 2_000
"""The number of intervals of time. Rows in one of them are drawn as their mean, least and greatest score."""
_INSTANTS = TimeAxis("nanoseconds since 1970-01-01", "proleptic_gregorian")
"""What the numbers of numpy's times mean."""
_MISSING_TIME = float(np.iinfo(np.int64).min)
"""NaT, as numpy and xarray store it."""
_BLOCK_ROWS = 65_536
_BLOCK_BYTES = 32 * 2**20


def series(
    embedding: Rows | Path | Address | str,
    path: Path | str | None = None,
    *,
    model: Any = None,
) -> Figure:
    """Draw the first components over time, or over the row number if the embedding has no times.

    The embedding is read once, in blocks, and never completely in memory. Rows that are closer than pixels
    are drawn as their mean, and as the range of their scores.

    Parameters
    ----------
    embedding : array, path or address
        The rows of an embedding. One that was made from labelled data has the coordinates of its rows.
    path : str, Path or None
        The file to save the plot to, if any.
    model : model, estimator or None
        The model that made it, whose explained variances are added to the titles.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).random((100, 5))
    >>> figure = streamdr.plots.series(streamdr.PCA(2).fit_transform(X))
    >>> len(figure.axes)
    2
    """
    rows = _Series.of(embedding)
    bins = rows.binned()
    figure = new_figure((7.6, 1.35 * rows.n_series + 0.9))
    leave_margins(figure)
    shares = _shares(model, rows.values.shape[1])
    first = None
    for number in range(rows.n_series):
        axes = figure.add_subplot(rows.n_series, 1, number + 1, sharex=first)
        first = axes if first is None else first
        _draw(axes, bins, number)
        share = "" if shares is None else f": {percent(shares[number])}"
        axes.set_title(plain(shortened(rows.names[number])) + share, loc="left", fontsize="medium")
        axes.tick_params(labelsize="small", labelbottom=number == rows.n_series - 1)
        axes.spines[["top", "right"]].set_visible(False)
    _label_positions(axes, rows, bins)
    omitted = rows.n_rows - int(bins.counts.sum())
    heading = count(int(bins.counts.sum()), "sample")
    heading += f" ({omitted:,} not finite, left out)" if omitted else ""
    if rows.n_series < rows.values.shape[1]:
        heading += f": {rows.n_series} of {count(rows.values.shape[1], 'component')}"
    figure.suptitle(heading, x=0.01, ha="left")
    save(figure, path)
    return figure


@dataclass(frozen=True)
class _Position:
    """What rows are drawn over."""

    name: str
    units: str | None
    values: Rows | SealedRows | Array
    times: TimeAxis | None


@dataclass(frozen=True, eq=False)
class _Bins:
    """The rows in each interval of positions. Of these, only intervals that have rows are drawn."""

    counts: Array
    positions: Array
    """The sum of the positions of rows, relative to `low`."""
    sums: Array
    """Series x intervals, as are the following."""
    least: Array
    greatest: Array
    low: float
    high: float

    @classmethod
    def empty(cls, n_series: int, low: float, high: float) -> _Bins:
        """Return intervals without rows."""
        shape = (n_series, _COLUMNS)
        nothing = np.zeros(_COLUMNS)
        return cls(
            nothing.astype(np.int64),
            nothing,
            np.zeros(shape),
            np.full(shape, np.inf),
            np.full(shape, -np.inf),
            low,
            high,
        )

    def add(self, positions: Array, scores: Array) -> None:
        """Add rows."""
        width = (self.high - self.low) or 1.0
        columns = np.clip(((positions - self.low) / width * _COLUMNS).astype(np.int64), 0, _COLUMNS - 1)
        self.counts[:] += np.bincount(columns, minlength=_COLUMNS)
        self.positions[:] += np.bincount(columns, positions - self.low, minlength=_COLUMNS)
        for number, one in enumerate(scores.T):
            self.sums[number] += np.bincount(columns, one, minlength=_COLUMNS)
            np.minimum.at(self.least[number], columns, one)
            np.maximum.at(self.greatest[number], columns, one)


@dataclass(frozen=True, eq=False)
class _Series:
    """The first scores of all rows, and what they are drawn over."""

    name: str
    values: Rows | SealedRows
    names: list[str]
    position: _Position | None

    @classmethod
    def of(cls, embedding: Rows | Path | Address | str) -> _Series:
        values: Rows | SealedRows
        name, position, names = "embedding", None, None
        if isinstance(embedding, Path | Address | str):
            output = open_backend(embedding)
            name, values = str(output), output.open_embedding()
            names = output.read_group().record["output_names"]
            position = _position(output, values)
        else:
            values, position = embedding, _labelled_position(embedding)
        if len(values.shape) != 2 or 0 in values.shape:
            raise DataError(
                f"{name}: has the shape {tuple(values.shape)}; a series needs samples x components"
            )
        names = names or [f"component {number + 1}" for number in range(values.shape[1])]
        return cls(name, values, list(names), position)

    @property
    def n_rows(self) -> int:
        return self.values.shape[0]

    @property
    def n_series(self) -> int:
        return min(MOST_SERIES, self.values.shape[1])

    def binned(self) -> _Bins:
        """Read all rows, and return the intervals of their positions."""
        low, high = 0.0, self.n_rows - 1.0
        if self.position is not None:
            low, high = self._extent(self.position)
        bins = _Bins.empty(self.n_series, low, high)
        for span in self._spans():
            scores = self._read(self.values, span, (span.slice, slice(0, self.n_series)))
            at = np.arange(span.start, span.stop, dtype=np.float64)
            if self.position is not None:
                at = self._positions(self.position, span)
            known = np.isfinite(at) & np.isfinite(scores).all(axis=1)
            bins.add(at[known], scores[known])
        if not bins.counts.any():
            raise DataError(
                f"{self.name}: none of its {self.n_rows:,} samples is finite; there is nothing to draw"
            )
        return bins

    def _extent(self, position: _Position) -> tuple[float, float]:
        low, high = np.inf, -np.inf
        for span in self._spans():
            at = self._positions(position, span)
            at = at[np.isfinite(at)]
            low, high = min(low, float(at.min(initial=np.inf))), max(high, float(at.max(initial=-np.inf)))
        if low > high:
            raise DataError(f"{self.name}: no {position.name} of its {self.n_rows:,} samples is a number")
        return low, high

    def _spans(self) -> Iterator[Span]:
        """Return blocks of rows, in whole chunks if the array has chunks."""
        chunk = getattr(self.values, "chunks", None)
        grain = chunk[0] if chunk is not None and isinstance(chunk[0], int) else 1
        wanted = min(_BLOCK_ROWS, _BLOCK_BYTES // (self.values.shape[1] * self.values.dtype.itemsize))
        return Span(0, self.n_rows).split(max(grain, wanted // grain * grain))

    def _positions(self, position: _Position, span: Span) -> Array:
        """Return the positions of rows: NaN where a time is missing."""
        at = self._read(position.values, span, span.slice)
        return np.where(at == _MISSING_TIME, np.nan, at)

    def _read(self, array: Any, span: Span, part: Any) -> Array:
        try:
            return np.asarray(array[part]).astype(np.float64)
        except ValueError as error:
            raise StoreError(f"{self.name}: rows {span.start}-{span.stop - 1}: {error}") from error


def _position(output: Backend, values: SealedRows) -> _Position | None:
    """Return the coordinate of the rows that they are drawn over: times, or that of their dimension."""
    found = []
    for name, about in output.read_group().arrays.items():
        dims, shape = about.get("dimension_names"), about.get("shape")
        if list(dims or ()) == list(values.dims[:1]) and list(shape or ()) == [len(values)]:
            attributes = about.get("attributes") or {}
            times = _times(attributes)
            if times is not None or name == values.dims[0]:
                units = attributes.get("units")
                found.append((times is None, name != values.dims[0], name, units, times))
    if not found:
        return None
    *_, name, units, times = min(found, key=lambda one: one[:3])
    array = SealedRows(output.place, output.open_array(name))
    return None if array.dtype.kind not in "iuf" else _Position(name, units, array, times)


def _labelled_position(array: Any) -> _Position | None:
    """Return the coordinate of the rows of an array of xarray: times, or that of their dimension."""
    dims, coords = getattr(array, "dims", ()), getattr(array, "coords", None)
    if coords is None or not dims:
        return None
    along = {str(name): one for name, one in coords.items() if one.dims == dims[:1]}
    for name, one in along.items():
        if one.dtype.kind == "M":
            instants = one.values.astype("datetime64[ns]").astype(np.int64)
            return _Position(name, None, instants, _INSTANTS)
    own = along.get(str(dims[0]))
    if own is None or own.dtype.kind not in "iuf":
        return None
    return _Position(str(dims[0]), own.attrs.get("units"), own.values, _times(own.attrs))


def _times(attributes: Mapping[str, Any]) -> TimeAxis | None:
    """Return what the numbers of a coordinate mean as times; None also for months, which differ in length."""
    try:
        return TimeAxis.of(attributes)
    except DataError:
        return None


def _shares(model: Any, n_columns: int) -> Array | None:
    """Return the share of the variance that each column explains, if the model knows it."""
    shares = getattr(model_and_axes(model)[0], "explained_variance_ratio", None)
    return shares if shares is not None and np.shape(shares) == (n_columns,) else None


def _draw(axes: Any, bins: _Bins, number: int) -> None:
    """Draw one component: the mean of each interval that has rows, and the range of their scores."""
    some = bins.counts > 0
    positions = bins.low + bins.positions[some] / bins.counts[some]
    mean = bins.sums[number, some] / bins.counts[some]
    if (bins.counts > 1).any():
        least, greatest = bins.least[number, some], bins.greatest[number, some]
        axes.fill_between(positions, least, greatest, color=BLUE, alpha=0.3, linewidth=0)
    axes.plot(
        positions, mean, color=BLUE, linewidth=0.9, marker="o" if len(mean) <= 60 else "", markersize=2.5
    )
    axes.axhline(0, color="0.7", linewidth=0.8, zorder=0)
    room = 0.01 * (bins.high - bins.low) or 0.5
    axes.set_xlim(bins.low - room, bins.high + room)


def _label_positions(axes: Any, rows: _Series, bins: _Bins) -> None:
    """Label the axis that all components share."""
    from matplotlib.ticker import MaxNLocator

    position = rows.position
    if position is not None and position.times is not None:
        axes.set_xticks(*time_labels(position.times, bins.low, bins.high))
        return
    if position is None:
        axes.set_xlabel("row")
    else:
        units = f" ({shortened(position.units)})" if isinstance(position.units, str) else ""
        axes.set_xlabel(plain(shortened(position.name) + units))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=position is None, min_n_ticks=1))
