"""The pictures people look at: what components explain, how EM went, and where the samples fall."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamdr.addresses import Address, parse_place
from streamdr.blocks import Array, Span
from streamdr.errors import DataError, ParameterError, StoreError
from streamdr.store import open_embedding, read_group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 5_000
"""Up to here every sample is a point. Beyond, samples are counted in bins: pictures do not grow with data."""

MOST_CLASSES = 20
_BLOCK_ROWS = 65_536
_BLOCK_BYTES = 32 * 2**20
_BLUE, _ORANGE = "#3b6ea5", "#c8702a"


class Variances(Protocol):
    """A model whose components explain parts of a variance."""

    @property
    def explained_variance_ratio(self) -> Array:
        """Each component's share of the total."""


@runtime_checkable
class Likelihoods(Protocol):
    """A model that was found step by step, each of which made the data more likely."""

    @property
    def log_likelihoods(self) -> Array:
        """Of a row, on average, at the beginning of each iteration."""


class Rows(Protocol):
    """What scores are read from, some rows at a time: a zarr, numpy or dask array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples x components."""

    @property
    def dtype(self) -> Any:
        """The type of one value."""

    def __getitem__(self, region: tuple[slice, slice], /) -> Any: ...


def explained_variance(model: Variances, path: Path | str | None = None) -> Figure:
    """Draw the share of the variance that each component explains, and the cumulative share."""
    figure = _new_figure()
    from matplotlib.ticker import MaxNLocator

    ratio = np.asarray(model.explained_variance_ratio)
    number = np.arange(1, len(ratio) + 1)
    cumulative = np.cumsum(ratio)

    each = figure.add_subplot()
    each.bar(number, 100 * ratio, width=0.8 if len(ratio) <= 60 else 1.0, color=_BLUE)
    each.set_xlabel("component")
    each.set_ylabel("explained variance (%)", color=_BLUE)
    each.set_xlim(0.4, len(ratio) + 0.6)
    each.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))

    together = each.twinx()
    marker = "o" if len(ratio) <= 60 else ""
    together.plot(number, 100 * cumulative, color=_ORANGE, marker=marker, markersize=4, linewidth=1.5)
    together.set_ylabel("cumulative (%)", color=_ORANGE)
    together.set_ylim(0, 105)
    each.set_title(
        f"{_count(len(ratio), 'component')}: {100 * cumulative[-1]:.1f} % of the variance", loc="left"
    )
    for axes in (each, together):
        axes.spines["top"].set_visible(False)
    _save(figure, path)
    return figure


def log_likelihood(model: Likelihoods, path: Path | str | None = None) -> Figure:
    """Draw how likely the data is after each iteration, and on a second scale what is left to gain."""
    history = np.asarray(model.log_likelihoods)
    if not len(history):
        raise DataError("the model was found without iterations: there is nothing to draw")
    figure = _new_figure()
    from matplotlib.ticker import MaxNLocator

    number = np.arange(1, len(history) + 1)
    reached = figure.add_subplot()
    reached.plot(number, history, color=_BLUE, marker="o", markersize=4, linewidth=1.5)
    reached.set_xlabel("iteration")
    reached.set_ylabel("log-likelihood (nats a row)", color=_BLUE)
    reached.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    left = history[-1] - history[:-1]
    some = left > 0
    axes = [reached]
    if some.any():
        missing = reached.twinx()
        missing.semilogy(number[:-1][some], left[some], color=_ORANGE, marker="o", markersize=3, linewidth=1)
        missing.set_ylabel("below the last", color=_ORANGE)
        axes.append(missing)
    reached.set_title(f"{_count(len(history), 'iteration')}: {history[-1]:.6g} nats a row", loc="left")
    for one in axes:
        one.spines["top"].set_visible(False)
    _save(figure, path)
    return figure


def scores(
    embedding: Rows | Path | Address | str,
    labels: Sequence[Any] | Array | None = None,
    path: Path | str | None = None,
    bins: int = 200,
) -> Figure:
    """Draw the first two components: points when there are few samples, else how many fall in each bin.

    The embedding is read twice, some rows at a time, and never held. With labels, a point has its
    class's colour, and a bin that of its most frequent class.
    """
    if bins < 1:
        raise ParameterError("bins", f"bins is {bins}, but must be at least 1")
    figure = _new_figure()
    cloud = _Cloud.of(embedding, labels)
    extent = cloud.survey()

    axes = figure.add_subplot()
    if cloud.n_rows <= MOST_POINTS:
        _draw_points(axes, cloud, extent)
    else:
        _draw_bins(axes, cloud, extent, bins)
    if extent.classes is not None:
        _draw_legend(figure, extent, extent.classes)
    axes.set_xlabel(_plain(cloud.names[0]))
    axes.set_ylabel(_plain(cloud.names[1]))
    axes.set_title(extent.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)
    return figure


@dataclass(frozen=True)
class _Extent:
    """What one look at all samples tells: where they lie, how many, of which classes."""

    low: Array
    high: Array
    n_finite: int
    n_rows: int
    classes: Array | None

    @property
    def title(self) -> str:
        """How many samples are shown, and how many cannot be."""
        lost = self.n_rows - self.n_finite
        return _count(self.n_finite, "sample") + (f" ({lost:,} not finite, left out)" if lost else "")

    def number(self, labels: Array | None) -> Array | int:
        """The place of each label among the classes. Without labels all samples are of one class."""
        if labels is None or self.classes is None:
            return 0
        return np.searchsorted(self.classes, labels)

    def palette(self) -> Array:
        """A colour (RGBA) for each class."""
        from matplotlib import colormaps
        from matplotlib.colors import to_rgba

        if self.classes is None:
            return np.array([to_rgba(_BLUE)])
        colours = colormaps["tab10" if len(self.classes) <= 10 else "tab20"]
        return np.array([colours(i) for i in range(len(self.classes))])


@dataclass(frozen=True)
class _Cloud:
    """The samples' first two components, with their labels."""

    rows: Rows
    labels: Sequence[Any] | Array | None
    name: str
    names: tuple[str, str]

    @classmethod
    def of(cls, embedding: Rows | Path | Address | str, labels: Sequence[Any] | Array | None) -> _Cloud:
        names = None
        if isinstance(embedding, Path | Address | str):
            place = parse_place(embedding)
            name, rows = str(place), open_embedding(place)
            names = read_group(place).record["output_names"]
        else:
            name, rows = "embedding", embedding
        if len(rows.shape) != 2 or rows.shape[1] < 2:
            raise DataError(
                f"{name}: has the shape {rows.shape}; scores need samples x at least two components"
            )
        if labels is not None and len(labels) != rows.shape[0]:
            raise DataError(f"{len(labels):,} labels for {rows.shape[0]:,} samples; give one label a sample")
        first, second = names[:2] if names else ("component 1", "component 2")
        return cls(rows, labels, name, (first, second))

    @property
    def n_rows(self) -> int:
        return self.rows.shape[0]

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """The finite samples (n x 2) with their labels, in whole chunks as far as these are known."""
        chunk = getattr(self.rows, "chunks", None)
        grain = chunk[0] if chunk is not None and isinstance(chunk[0], int) else 1
        # Two columns are kept, but whole rows are decoded.
        wanted = min(_BLOCK_ROWS, _BLOCK_BYTES // (self.rows.shape[1] * self.rows.dtype.itemsize))
        for span in Span(0, self.n_rows).split(max(grain, wanted // grain * grain)):
            try:
                points = np.asarray(self.rows[span.slice, :2]).astype(np.float64)
            except ValueError as error:
                raise StoreError(f"{self.name}: rows {span.start}-{span.stop - 1}: {error}") from error
            finite = np.isfinite(points).all(axis=1)
            labels = None if self.labels is None else np.asarray(self.labels[span.slice])[finite]
            yield points[finite], labels

    def survey(self) -> _Extent:
        low, high, n_finite = np.full(2, np.inf), np.full(2, -np.inf), 0
        classes = None
        for points, labels in self.blocks():
            low = np.minimum(low, points.min(axis=0, initial=np.inf))
            high = np.maximum(high, points.max(axis=0, initial=-np.inf))
            n_finite += len(points)
            if labels is not None:
                classes = np.unique(labels) if classes is None else np.union1d(classes, labels)
            if classes is not None and len(classes) > MOST_CLASSES:
                raise ParameterError(
                    "labels",
                    f"more than {MOST_CLASSES} distinct labels cannot be told apart by colour; group them",
                )
        if not n_finite:
            raise DataError(
                f"{self.name}: none of its {self.n_rows:,} samples is finite; there is nothing to draw"
            )
        # A constant component is drawn in the middle of some room.
        room = np.where(low == high, np.maximum(0.5, np.abs(low) / 1000), 0.0)
        return _Extent(low - room, high + room, n_finite, self.n_rows, classes)


def _draw_points(axes: Any, cloud: _Cloud, extent: _Extent) -> None:
    for points, labels in cloud.blocks():
        axes.scatter(*points.T, s=12, color=extent.palette()[extent.number(labels)], alpha=0.7, linewidths=0)


def _draw_bins(axes: Any, cloud: _Cloud, extent: _Extent, bins: int) -> None:
    from matplotlib.colors import LogNorm

    counts = _binned(cloud, extent, bins)
    total = counts.sum(axis=0)
    place = {
        "extent": (extent.low[0], extent.high[0], extent.low[1], extent.high[1]),
        "origin": "lower",
        "aspect": "auto",
        "interpolation": "nearest",
    }
    if extent.classes is None:
        image = axes.imshow(np.ma.masked_equal(total, 0), norm=LogNorm(1, max(2, total.max())), **place)
        axes.figure.colorbar(image, label="samples per bin", pad=0.02)
        return
    colour = extent.palette()[counts.argmax(axis=0)]
    depth = np.log1p(total) / np.log1p(total.max())
    colour[..., 3] = np.where(total > 0, 0.25 + 0.75 * depth, 0.0)
    axes.imshow(colour, **place)


def _binned(cloud: _Cloud, extent: _Extent, bins: int) -> Array:
    """How many samples of each class (one, without labels) fall in each bin: classes x second x first."""
    n_classes = 1 if extent.classes is None else len(extent.classes)
    counts = np.zeros(n_classes * bins * bins, dtype=np.int64)
    for points, labels in cloud.blocks():
        place = (points - extent.low) / (extent.high - extent.low) * bins
        first, second = np.minimum(place.astype(np.int64), bins - 1).T
        counts += np.bincount((extent.number(labels) * bins + second) * bins + first, minlength=counts.size)
    return counts.reshape(n_classes, bins, bins)


def _draw_legend(figure: Figure, extent: _Extent, classes: Array) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour) for colour in extent.palette()]
    figure.legend(
        handles,
        [_plain(label) for label in classes],
        loc="outside right upper",
        frameon=False,
        handlelength=1,
    )


def _new_figure() -> Figure:
    """A figure of its own: nothing here touches pyplot, its backends or its list of open figures."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'streamdr[plots]'") from error
    figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path | str | None) -> None:
    """Write the picture, if it is wanted, in one step, in the format that the name ends in."""
    if path is None:
        return
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format=target.suffix[1:] or "png")
        os.replace(beside, target)
    except (OSError, ValueError) as error:
        raise StoreError(f"{target}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _plain(text: Any) -> str:
    """Words from the data as they are: matplotlib would set what is between dollars as mathematics."""
    return str(text).replace("$", r"\$")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
