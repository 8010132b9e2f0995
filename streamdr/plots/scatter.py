"""The scatter plot of the first two components of an embedding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamdr.core.addresses import Address
from streamdr.core.blocks import Array, Span
from streamdr.core.figures import BLUE, MOST_POINTS, count, new_figure, plain, save
from streamdr.errors import DataError, ParameterError, StoreError
from streamdr.plots.classes import Classes, Labels
from streamdr.store import open_backend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLOCK_ROWS = 65_536
_BLOCK_BYTES = 32 * 2**20


class Rows(Protocol):
    """An array of scores that is read in blocks of rows: of zarr, numpy or dask."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples and of components."""

    @property
    def dtype(self) -> Any:
        """The type of the values."""

    def __getitem__(self, region: tuple[slice, slice], /) -> Any: ...


def scores(
    embedding: Rows | Path | Address | str,
    labels: Labels | None = None,
    path: Path | str | None = None,
    bins: int = 200,
) -> Figure:
    """Draw the first two components: points if there are few samples, otherwise the counts in bins.

    The embedding is read twice, in blocks, and never completely in memory. With labels, a point has the
    colour of its class, and a bin that of its most frequent class.

    Parameters
    ----------
    embedding : array, path or address
        The rows of an embedding.
    labels : sequence or None
        The class of each row.
    path : str, Path or None
        The file to save the plot to, if any.
    bins : int
        The number of bins along each side, if there are too many rows for points.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> figure = streamdr.plots.scores(streamdr.PCA(2).fit_transform(X), labels=[0, 0, 1, 1, 2, 2])
    >>> len(figure.axes) > 0
    True
    """
    if bins < 1:
        raise ParameterError("bins", f"bins is {bins}, but must be at least 1")
    figure = new_figure()
    cloud = _Cloud.of(embedding, labels)
    extent = cloud.extent()

    axes = figure.add_subplot()
    if cloud.n_rows <= MOST_POINTS:
        _draw_points(axes, cloud, extent)
    else:
        _draw_bins(axes, cloud, extent, bins)
    extent.classes.draw_legend(figure)
    axes.set_xlabel(plain(cloud.names[0]))
    axes.set_ylabel(plain(cloud.names[1]))
    axes.set_title(extent.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
    return figure


@dataclass(frozen=True)
class _Extent:
    """The extent, the number and the classes of all samples, found in one pass."""

    low: Array
    high: Array
    n_finite: int
    n_rows: int
    classes: Classes

    @property
    def title(self) -> str:
        """The number of samples that are drawn, and of those that are not finite."""
        omitted = self.n_rows - self.n_finite
        return count(self.n_finite, "sample") + (f" ({omitted:,} not finite, left out)" if omitted else "")


@dataclass(frozen=True)
class _Cloud:
    """The first two components of the samples, with their labels."""

    rows: Rows
    labels: Labels | None
    name: str
    names: tuple[str, str]

    @classmethod
    def of(cls, embedding: Rows | Path | Address | str, labels: Labels | None) -> _Cloud:
        names = None
        rows: Rows
        if isinstance(embedding, Path | Address | str):
            output = open_backend(embedding)
            name, rows = str(output), output.open_embedding()
            names = output.read_group().record["output_names"]
        else:
            name, rows = "embedding", embedding
        if len(rows.shape) != 2 or rows.shape[1] < 2:
            raise DataError(
                f"{name}: has the shape {rows.shape}; scores need samples x at least two components"
            )
        if labels is not None and len(labels) != rows.shape[0]:
            raise DataError(
                f"{len(labels):,} labels for {rows.shape[0]:,} samples; give one label per sample"
            )
        first, second = names[:2] if names else ("component 1", "component 2")
        return cls(rows, labels, name, (first, second))

    @property
    def n_rows(self) -> int:
        return self.rows.shape[0]

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield the finite samples (n x 2) with their labels, in whole chunks if the array has chunks."""
        chunk = getattr(self.rows, "chunks", None)
        grain = chunk[0] if chunk is not None and isinstance(chunk[0], int) else 1
        # Two columns are used, but complete rows are decoded.
        wanted = min(_BLOCK_ROWS, _BLOCK_BYTES // (self.rows.shape[1] * self.rows.dtype.itemsize))
        for span in Span(0, self.n_rows).split(max(grain, wanted // grain * grain)):
            try:
                points = np.asarray(self.rows[span.slice, :2]).astype(np.float64)
            except ValueError as error:
                raise StoreError(f"{self.name}: rows {span.start}-{span.stop - 1}: {error}") from error
            finite = np.isfinite(points).all(axis=1)
            labels = None if self.labels is None else np.asarray(self.labels[span.slice])[finite]
            yield points[finite], labels

    def extent(self) -> _Extent:
        """Read all samples, and return their extent, number and classes."""
        low, high, n_finite = np.full(2, np.inf), np.full(2, -np.inf), 0
        classes = Classes()
        for points, labels in self.blocks():
            low = np.minimum(low, points.min(axis=0, initial=np.inf))
            high = np.maximum(high, points.max(axis=0, initial=-np.inf))
            n_finite += len(points)
            classes = classes.united(labels)
        if not n_finite:
            raise DataError(
                f"{self.name}: none of its {self.n_rows:,} samples is finite; there is nothing to draw"
            )
        # A constant component gets a margin.
        room = np.where(low == high, np.maximum(0.5, np.abs(low) / 1000), 0.0)
        return _Extent(low - room, high + room, n_finite, self.n_rows, classes)


def _draw_points(axes: Any, cloud: _Cloud, extent: _Extent) -> None:
    palette = extent.classes.palette(BLUE)
    for points, labels in cloud.blocks():
        axes.scatter(*points.T, s=12, color=palette[extent.classes.number(labels)], alpha=0.7, linewidths=0)


def _draw_bins(axes: Any, cloud: _Cloud, extent: _Extent, bins: int) -> None:
    from matplotlib.colors import LogNorm

    counts = _binned(cloud, extent, bins)
    total = counts.sum(axis=0)
    layout = {
        "extent": (extent.low[0], extent.high[0], extent.low[1], extent.high[1]),
        "origin": "lower",
        "aspect": "auto",
        "interpolation": "nearest",
    }
    if extent.classes.names is None:
        image = axes.imshow(np.ma.masked_equal(total, 0), norm=LogNorm(1, max(2, total.max())), **layout)
        axes.figure.colorbar(image, label="samples per bin", pad=0.02)
        return
    colour = extent.classes.palette(BLUE)[counts.argmax(axis=0)]
    depth = np.log1p(total) / np.log1p(total.max())
    colour[..., 3] = np.where(total > 0, 0.25 + 0.75 * depth, 0.0)
    axes.imshow(colour, **layout)


def _binned(cloud: _Cloud, extent: _Extent, bins: int) -> Array:
    """Return the counts in bins for each class (one, without labels): classes x second x first component."""
    counts = np.zeros(len(extent.classes) * bins * bins, dtype=np.int64)
    for points, labels in cloud.blocks():
        scaled = (points - extent.low) / (extent.high - extent.low) * bins
        first, second = np.minimum(scaled.astype(np.int64), bins - 1).T
        class_offset = extent.classes.number(labels) * bins
        counts += np.bincount((class_offset + second) * bins + first, minlength=counts.size)
    return counts.reshape(len(extent.classes), bins, bins)
