"""Pictures of a map: the U-matrix, component planes, hits, and the quantisation error by epoch."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.core.figures import BLUE, ORANGE, count, new_figure, save
from streamdr.core.pictures import Picture
from streamdr.methods.som.grid import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PLANES = 16
_COLUMNS = 4
_MOST_OUTLINED = 900
"""On larger maps the cells have no outlines."""
_FLAT = 0.35
"""The colour bar is below maps that are flatter than this, and beside others."""


@runtime_checkable
class Mapped(Protocol):
    """A model of units on a grid."""

    codebook: Array
    hits: Array
    quantization_error: float
    topographic_error: float
    quantization_errors: Array

    @property
    def grid(self) -> Grid:
        """The grid of the units."""


def mean_neighbour_distances(model: Mapped) -> Array:
    """The mean distance between the codebook vectors of each unit and its neighbours; 0 if none."""
    grid, codebook = model.grid, np.asarray(model.codebook)
    distances = np.zeros(grid.n_units)
    for unit in range(grid.n_units):
        squares = grid.squared_distances(Span(unit, unit + 1))[0]
        near = np.flatnonzero((squares <= grid.reach**2 + 1e-9) & (squares > 0))
        if len(near):
            apart = codebook[near] - codebook[unit]
            distances[unit] = float(np.sqrt(np.einsum("ij,ij->i", apart, apart)).mean())
    return distances


def u_matrix(model: Mapped, path: Path | str | None = None) -> Figure:
    """Draw the U-matrix: the mean distance of each codebook vector from those of the neighbours.

    Parameters
    ----------
    model : model or estimator
        A self-organising map.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).random((100, 3))
    >>> figure = streamdr.plots.u_matrix(streamdr.SOM(3, 4).fit(X).model_)
    >>> len(figure.axes)
    2
    """
    figure = new_figure(_size(model.grid))
    axes = figure.add_subplot()
    drawn = _draw_cells(axes, model.grid, mean_neighbour_distances(model), "bone_r")
    _add_scale(figure, axes, model.grid, drawn, "mean distance from neighbours")
    axes.set_title(f"U-matrix: {count(model.grid.n_units, 'unit')}", loc="left")
    save(figure, path)
    return figure


def hits(model: Mapped, path: Path | str | None = None) -> Figure:
    """Draw the hits: the weight of the rows of each unit.

    Parameters
    ----------
    model : model or estimator
        A self-organising map.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).random((100, 3))
    >>> figure = streamdr.plots.hits(streamdr.SOM(3, 4).fit(X).model_)
    >>> len(figure.axes)
    2
    """
    figure = new_figure(_size(model.grid))
    axes = figure.add_subplot()
    drawn = _draw_cells(axes, model.grid, np.asarray(model.hits), "Blues")
    _add_scale(figure, axes, model.grid, drawn, "weight of rows")
    empty = int(np.count_nonzero(model.hits == 0))
    axes.set_title(f"hits: {count(empty, 'unit')} without rows", loc="left")
    save(figure, path)
    return figure


def component_planes(model: Mapped, path: Path | str | None = None) -> Figure:
    """Draw the value of each feature over the map; of many features, the 16 that vary most between units.

    Parameters
    ----------
    model : model or estimator
        A self-organising map.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).random((100, 3))
    >>> figure = streamdr.plots.component_planes(streamdr.SOM(3, 4).fit(X).model_)
    >>> len(figure.axes)
    6
    """
    codebook = np.asarray(model.codebook)
    variances = codebook.var(axis=0)
    shown = np.sort(np.argsort(-variances, kind="stable")[:_MOST_PLANES])
    columns = min(_COLUMNS, len(shown))
    rows = ceil(len(shown) / columns)
    width, height = _size(model.grid)
    figure = new_figure((0.45 * width * columns, 0.45 * height * rows + 0.4))
    for place, feature in enumerate(shown, 1):
        axes = figure.add_subplot(rows, columns, place)
        drawn = _draw_cells(axes, model.grid, codebook[:, feature], "viridis")
        _add_scale(figure, axes, model.grid, drawn)
        axes.set_title(f"feature {feature}", loc="left", fontsize="small")
    left = codebook.shape[1] - len(shown)
    also = f", of {codebook.shape[1]:,}: those that vary most" if left else ""
    figure.suptitle(f"{count(len(shown), 'component plane')}{also}", x=0.01, ha="left")
    save(figure, path)
    return figure


def quantization(model: Mapped, path: Path | str | None = None) -> Figure:
    """Draw the quantisation error before each epoch, and after the last one, which is marked.

    Parameters
    ----------
    model : model or estimator
        A self-organising map.
    path : str, Path or None
        Where to save the picture, if anywhere.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.random.default_rng(0).random((100, 3))
    >>> figure = streamdr.plots.quantization(streamdr.SOM(3, 4).fit(X).model_)
    >>> len(figure.axes)
    1
    """
    errors = np.asarray(model.quantization_errors)
    figure = new_figure()
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    marker = "o" if len(errors) <= 60 else ""
    axes.plot(range(len(errors)), errors, color=BLUE, marker=marker, markersize=4, linewidth=1.5)
    axes.plot([len(errors) - 1], errors[-1:], color=ORANGE, marker="o", markersize=7)
    axes.set_xlabel("epochs")
    axes.set_ylabel("quantisation error")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(
        f"quantisation error {errors[-1]:.4g}, topographic error {model.topographic_error:.1%}", loc="left"
    )
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
    return figure


def _add_scale(figure: Figure, axes: Any, grid: Grid, drawn: Any, label: str = "") -> None:
    """Draw the colour bar beside a map, or below a flat one."""
    side = "bottom" if _shape(grid) < _FLAT else "right"
    figure.colorbar(drawn, ax=axes, label=label, location=side)


def _shape(grid: Grid) -> float:
    """The height of a map divided by its width."""
    extent = np.ptp(grid.coordinates, axis=0) + 1.0
    return float(extent[1] / extent[0])


def _size(grid: Grid) -> tuple[float, float]:
    """The size of a figure in inches, for the shape of a map."""
    shape = float(np.clip(_shape(grid), 0.3, 2.5))
    width = 5.0 if shape <= 1 else 5.0 / shape**0.5
    return width + 1.4, width * shape + 0.8


def _draw_cells(axes: Any, grid: Grid, values: Array, colours: str) -> Any:
    """Draw a cell for each unit, a square or a hexagon, coloured by its value."""
    from matplotlib.collections import PolyCollection

    if grid.topology == "hexagonal":
        turns = np.pi / 6 + np.pi / 3 * np.arange(6)
        corners = np.stack([np.cos(turns), np.sin(turns)], axis=1) / np.sqrt(3.0)
    else:
        corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    # Outlines of many small cells would hide them. In the colour of the cell, they close gaps between cells.
    edges = "0.8" if grid.n_units <= _MOST_OUTLINED else "face"
    cells = PolyCollection(
        grid.coordinates[:, None] + corners, cmap=colours, edgecolors=edges, linewidths=0.4
    )
    cells.set_array(values)
    axes.add_collection(cells)
    low, high = grid.coordinates.min(axis=0), grid.coordinates.max(axis=0)
    axes.set_xlim(low[0] - 0.6, high[0] + 0.6)
    axes.set_ylim(high[1] + 0.6, low[1] - 0.6)  # the first row of units is on top
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return cells


def _is_map(model: Any) -> bool:
    return isinstance(model, Mapped)


U_MATRIX = Picture("u_matrix", "U-matrix", u_matrix, "units on a grid", _is_map)
COMPONENT_PLANES = Picture(
    "component_planes", "component planes", component_planes, "units on a grid", _is_map
)
HITS = Picture("hits", "hits", hits, "units on a grid", _is_map)
QUANTIZATION = Picture(
    "quantization", "quantisation error", quantization, "quantisation errors of epochs", _is_map
)
