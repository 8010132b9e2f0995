"""The maps of a model whose features have axes: one map for each component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.figures import BLUE, leave_margins, new_figure, plain, save, shortened
from streamdr.plots.map_axes import MapAxis, MapGrid, label_positions
from streamdr.plots.mapped import MOST_COLUMNS, MOST_MAPS, MappedField

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ROWS = 4
_MOST_CELLS = 1_000
"""More cells along an axis of a map are averaged: a map has fewer pixels."""
_LAND = "#c9c9c9"
"""The colour of features that were left out: neither end of the scale, nor its middle."""
_WIDTH = 3.1
_SHAPES = (0.3, 1.6)
"""The smallest and the largest height of a map, divided by its width."""


def maps(
    model: Any,
    path: Path | str | None = None,
    *,
    axes: FeatureAxes | None = None,
    field: str | None = None,
    components: Sequence[int] | None = None,
    most: int = MOST_MAPS,
) -> Figure:
    """Draw the components of a model as maps, over the coordinates of the features.

    All maps have one colour scale. Features that were left out, such as land, are grey. Of features with
    three or more dimensions, such as several variables, there is a row of maps for each. Features along one
    dimension are drawn as lines. Rows of features without coordinates are drawn downwards, like those of an
    image.

    Parameters
    ----------
    model : model or estimator
        A fitted estimator, or what `streamdr.store.load_model` returns.
    path : str, Path or None
        The file to save the plot to, if any.
    axes : FeatureAxes or None
        The axes of the features, if the model is given without them.
    field : str or None
        The array to draw, such as `"mean"`; by default the components.
    components : sequence of int or None
        The components to draw, from 0; by default the first ones.
    most : int
        The largest number of components that are drawn by default. With several maps for each, three are.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> from streamdr.core.axes import Coordinate, FeatureAxes
    >>> X = np.random.default_rng(0).random((20, 6))
    >>> lat, lon = (Coordinate(name, (name,), np.arange(n) * 10.0) for name, n in (("lat", 2), ("lon", 3)))
    >>> axes = FeatureAxes(("lat", "lon"), (2, 3), (lat, lon))
    >>> figure = streamdr.plots.maps(streamdr.PCA(2).fit(X).model_, axes=axes)
    >>> len(figure.axes)
    3
    """
    drawn = MappedField.of(model, axes, field, components, most)
    figure = _draw_lines(drawn) if drawn.grid is None else _draw_maps(drawn, drawn.grid)
    save(figure, path)
    return figure


def _draw_maps(drawn: MappedField, grid: MapGrid) -> Figure:
    planes = grid.planes(drawn.axes, drawn.values)
    n_maps, n_positions = planes.shape[:2]
    n_drawn = min(n_positions, _MOST_ROWS)
    if n_positions > 1:
        n_rows, n_columns = n_drawn, n_maps
        panels = planes[:, :n_drawn].swapaxes(0, 1).reshape(-1, *planes.shape[2:])
    else:
        n_columns = n_maps if n_maps <= MOST_COLUMNS else 2 if n_maps == 4 else MOST_COLUMNS
        n_rows, panels = ceil(n_maps / n_columns), planes[:, 0]
    left, right, bottom, top = grid.extent
    shape = float(np.clip((top - bottom) / (right - left), *_SHAPES)) if grid.has_square_units else 0.6
    width = _WIDTH * (1.9 if n_columns == 1 else 1.4 if n_columns == 2 else 1.0) / max(1.0, shape)
    figure = new_figure((width * n_columns + 0.9, (width * shape + 0.45) * n_rows + 1.3))
    leave_margins(figure)
    grid, panels = _coarse(grid, panels)
    colours = _Colours.of(panels, drawn.is_data)
    every = []
    for number, values in enumerate(panels):
        axes = figure.add_subplot(n_rows, n_columns, number + 1)
        mesh = _draw_cells(axes, grid, values, colours)
        row, column = divmod(number, n_columns)
        axes.set_title(
            drawn.titles[column if grid.n_positions > 1 else number], loc="left", fontsize="medium"
        )
        _label(axes, grid, is_left=column == 0, is_lowest=number + n_columns >= len(panels))
        if n_positions > 1 and column == 0:
            lines = [_position(drawn.axes, grid, row), axes.get_ylabel()]
            axes.set_ylabel("\n".join(filter(None, lines)))
        every.append(axes)
    height = figure.get_figheight()
    figure.colorbar(
        mesh,
        ax=every,
        label=drawn.scale_label,
        location="bottom",
        shrink=min(1.0, 5.0 / figure.get_figwidth()),
        aspect=35,
        pad=0.12 / height,
    )
    places = ""
    if n_drawn < n_positions:
        places = f"{plain(' x '.join(map(shortened, grid.leading)))}: {n_drawn} of {n_positions:,}"
    if heading := "; ".join(filter(None, [drawn.heading, places])):
        figure.suptitle(heading, x=0.01, ha="left")
    return figure


@dataclass(frozen=True)
class _Colours:
    """A common colour scale: about zero for components, from the least to the greatest value of the data."""

    low: float
    high: float
    name: str

    @classmethod
    def of(cls, values: Array, is_data: bool) -> _Colours:
        finite = values[np.isfinite(values)]
        if is_data:
            low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
            room = 0.5 if low == high else 0.0
            return cls(low - room, high + room, "viridis")
        limit = (float(np.abs(finite).max()) if finite.size else 0.0) or 1.0
        return cls(-limit, limit, "RdBu_r")


def _coarse(grid: MapGrid, panels: Array) -> tuple[MapGrid, Array]:
    """Return the means of neighbouring cells where there are more cells than pixels."""
    for axis in (-2, -1):
        factor = ceil(panels.shape[axis] / _MOST_CELLS)
        if factor > 1:
            starts = np.arange(0, panels.shape[axis], factor)
            known = np.isfinite(panels)
            number = np.add.reduceat(known, starts, axis=axis, dtype=np.int64)
            total = np.add.reduceat(np.where(known, panels, 0.0), starts, axis=axis)
            panels = np.where(number > 0, total / np.maximum(number, 1), np.nan)
            grid = grid.coarse(axis, factor)
    return grid, panels


def _draw_cells(axes: Any, grid: MapGrid, values: Array, colours: _Colours) -> Any:
    from matplotlib import colormaps

    x, y = grid.corners or (grid.x.edges, grid.y.edges)
    mesh = axes.pcolormesh(
        x,
        y,
        np.ma.masked_invalid(values),
        cmap=colormaps[colours.name].with_extremes(bad=_LAND),
        vmin=colours.low,
        vmax=colours.high,
        rasterized=True,
    )
    left, right, bottom, top = grid.extent
    axes.set_xlim(left, right)
    axes.set_ylim(*((top, bottom) if grid.corners is None and grid.y.points_down else (bottom, top)))
    if grid.has_square_units and _SHAPES[0] <= (top - bottom) / (right - left) <= _SHAPES[1]:
        axes.set_aspect("equal")
    return mesh


def _label(axes: Any, grid: MapGrid, is_left: bool, is_lowest: bool) -> None:
    """Label the axes of a map: positions on the left and below the lowest maps."""
    left, right, bottom, top = grid.extent
    label_positions(axes.xaxis, grid.shown_x, left, right)
    label_positions(axes.yaxis, grid.shown_y, bottom, top)
    axes.tick_params(labelsize="small", labelleft=is_left, labelbottom=is_lowest, length=2.5, color="0.4")
    if is_left:
        axes.set_ylabel(plain(grid.shown_y.label))
    if is_lowest:
        axes.set_xlabel(plain(grid.shown_x.label))
    for spine in axes.spines.values():
        spine.set_color("0.4")
        spine.set_linewidth(0.6)


def _position(axes: FeatureAxes, grid: MapGrid, row: int) -> str:
    """Return the position of a row of maps along the other dimensions, each on a line: `level 500 hPa`."""
    lengths = [axes.shape[axes.dims.index(dim)] for dim in grid.leading]
    parts = []
    for dim, at in zip(grid.leading, np.unravel_index(row, lengths), strict=True):
        found = axes.coordinate(dim)
        if found is None:
            parts.append(f"{shortened(dim, 20)} {at + 1}")
        elif found.values.dtype.kind == "U":
            parts.append(shortened(found.values[at], 20))
        else:
            units = found.attributes.get("units")
            ending = f" {shortened(units, 12)}" if isinstance(units, str) else ""
            parts.append(f"{shortened(dim, 20)} {found.values[at]:g}{ending}")
    return "\n".join(map(plain, parts))


def _draw_lines(drawn: MappedField) -> Figure:
    """Draw features along one dimension: a line for each component."""
    long = [dim for dim, length in zip(drawn.axes.dims, drawn.axes.shape, strict=True) if length > 1]
    axis = MapAxis.of(drawn.axes, (long or list(drawn.axes.dims))[-1])
    n_columns = 1 if len(drawn.values) <= 3 else 2
    n_rows = ceil(len(drawn.values) / n_columns)
    figure = new_figure((6.4 if n_columns == 1 else 8.4, 1.9 * n_rows + 0.9))
    leave_margins(figure)
    colours = _Colours.of(drawn.values, drawn.is_data)
    room = 0.05 * (colours.high - colours.low)
    few = len(axis.centres) <= 60
    for number, values in enumerate(drawn.values):
        axes = figure.add_subplot(n_rows, n_columns, number + 1)
        axes.plot(
            axis.centres,
            values[axis.order],
            color=BLUE,
            linewidth=1.2,
            marker="o" if few else "",
            markersize=3,
        )
        if not drawn.is_data:
            axes.axhline(0, color="0.7", linewidth=0.8, zorder=0)
        axes.set_xlim(axis.edges[0], axis.edges[-1])
        axes.set_ylim(colours.low - room, colours.high + room)
        axes.set_title(drawn.titles[number], loc="left", fontsize="medium")
        label_positions(axes.xaxis, axis, float(axis.edges[0]), float(axis.edges[-1]))
        is_lowest = number + n_columns >= len(drawn.values)
        axes.tick_params(labelsize="small", labelleft=number % n_columns == 0, labelbottom=is_lowest)
        if is_lowest:
            axes.set_xlabel(plain(axis.label))
        if axis.names is not None:
            axes.tick_params(axis="x", labelrotation=90)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel(drawn.scale_label, fontsize="medium")
    if drawn.heading:
        figure.suptitle(drawn.heading, x=0.01, ha="left")
    return figure
