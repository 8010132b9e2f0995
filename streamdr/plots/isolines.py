"""The contour plot of the components of a model of two features: lines of equal score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array, Span
from streamdr.core.figures import new_figure, save
from streamdr.errors import DataError, ParameterError
from streamdr.plots.classes import Labels
from streamdr.plots.decay import KernelSpectrum
from streamdr.plots.plane import Extent, Points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COMPONENTS = 12
"""The number of components that are drawn by default."""

_BLOCK_ROWS = 4_096
"""Bounds the memory of a kernel model, which evaluates one kernel per row and landmark."""
_LEVELS = 8
"""The number of lines on each side of zero."""
_MOST_COLUMNS = 4
_INCHES = 2.4
_LEGEND = 0.6
_MOST_ELONGATED = 5.0
"""Up to this ratio of height to width, both features have the same scale, so that circles stay circles."""
_DARK = "#333333"
_SOFT = ("#7ea6cf", "#dbe6f1", "#ffffff", "#f6e3d3", "#dfa276")


@runtime_checkable
class Maps(Protocol):
    """A model that maps rows to scores."""

    @property
    def n_features(self) -> int:
        """The number of columns of the input."""

    def transform(self, values: Array, /) -> Any:
        """Return the scores of rows."""


@runtime_checkable
class Estimates(Protocol):
    """A fitted estimator, by the conventions of scikit-learn."""

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the input."""

    def transform(self, values: Array, /) -> Any:
        """Return the scores of rows."""


@runtime_checkable
class Landmarks(Protocol):
    """A model that may keep rows of its data."""

    @property
    def landmarks(self) -> Array | None:
        """The rows, as rows x features."""


@runtime_checkable
class _Holder(Protocol):
    """An estimator of streamdr, whose fitted state is one model."""

    @property
    def model_(self) -> Maps: ...


def contours(
    model: Maps | Estimates,
    path: Path | str | None = None,
    *,
    points: Any = None,
    labels: Labels | None = None,
    extent: Extent | None = None,
    components: Sequence[int] | None = None,
    resolution: int = 200,
) -> Figure:
    """Draw isolines of each component of a model of two features, one panel per component.

    Lines are evenly spaced over the range of the scores of the points. The line of zero is thick.

    Parameters
    ----------
    model : model or fitted estimator
        Any object with `transform` for rows of two features.
    path : path
        The file to save the plot to. Its suffix is the format.
    points : data
        Rows to show as points: an array, a path or a store, which is read in blocks. By default the
        landmarks of the model, if it has any.
    labels : sequence
        The class of each point, shown by colour.
    extent : (left, right, bottom, top)
        The part of the plane to draw; by default the range of the points and a margin.
    components : sequence of int
        The components, counted from 0; by default the first twelve.
    resolution : int
        The number of nodes along each side of the grid on which the model is evaluated.

    Returns
    -------
    figure : Figure
        A figure of matplotlib.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0], [0, 1], [4, 1], [6, 3], [1, 5]])
    >>> figure = streamdr.plots.contours(streamdr.PCA(2).fit(X), points=X, resolution=20)
    >>> len(figure.axes) > 0
    True
    """
    model = model.model_ if isinstance(model, _Holder) else model
    _require_two_features(model)
    if points is None:
        points = landmarks_of(model)
    if points is None and labels is not None:
        raise ParameterError("labels", "labels were given without points; give the points they belong to")
    shown = None if points is None else Points.read(points, labels)
    grid = _Grid.over(_extent(extent, shown), resolution)
    wanted = _wanted(components, np.shape(model.transform(grid.nodes[:1]))[1])
    figure = _draw(_evaluated(model, grid, wanted, shown), shown)
    save(figure, path)
    return figure


def landmarks_of(model: Any) -> Array | None:
    """Return the rows of the data that a model keeps, if any.

    Parameters
    ----------
    model : model
        A fitted model.

    Returns
    -------
    landmarks : ndarray (landmark, feature) or None
        The rows; None if the model keeps none.

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> streamdr.plots.landmarks_of(streamdr.LandmarkMDS(2, n_landmarks=4).fit(X).model_).shape
    (4, 3)
    """
    return model.landmarks if isinstance(model, Landmarks) else None


@dataclass(frozen=True)
class _Grid:
    """A grid over a part of the plane."""

    first: Array
    second: Array

    @classmethod
    def over(cls, extent: Extent, resolution: int) -> _Grid:
        """Return a grid over the extent."""
        if resolution < 2:
            raise ParameterError("resolution", f"resolution is {resolution}, but must be at least 2")
        left, right, bottom, top = extent
        if not (np.isfinite(extent).all() and left < right and bottom < top):
            raise ParameterError(
                "extent", f"the extent {extent} is not a part of the plane; give (left, right, bottom, top)"
            )
        return cls(np.linspace(left, right, resolution), np.linspace(bottom, top, resolution))

    @property
    def nodes(self) -> Array:
        """All nodes as rows; the first feature varies fastest."""
        return np.stack(np.meshgrid(self.first, self.second), axis=-1).reshape(-1, 2)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of nodes along each feature, the second feature first, as in images."""
        return len(self.second), len(self.first)

    @property
    def height(self) -> float:
        """The ratio of height to width."""
        return float(np.ptp(self.second) / np.ptp(self.first))


@dataclass(frozen=True)
class _Surface:
    """The scores of one component over the grid, and the largest magnitude to draw lines for."""

    title: str
    grid: _Grid
    values: Array
    reach: float


def _require_two_features(model: Any) -> None:
    """Refuse a model that does not map two features."""
    if isinstance(model, Maps):
        n_features = model.n_features
    elif isinstance(model, Estimates):
        n_features = model.n_features_in_
    else:
        raise ParameterError(
            "model",
            f"{type(model).__name__} is neither a model nor a fitted estimator; fit it first",
        )
    if n_features != 2:
        raise DataError(
            f"contours need a model of two features, and this one takes {n_features:,}; "
            "fit it to two of them, or draw its scores"
        )


def _extent(given: Extent | None, shown: Points | None) -> Extent:
    if given is not None:
        return given
    if shown is None:
        raise ParameterError("points", "the model keeps no rows of its data; give points, or an extent")
    return shown.surroundings()


def _wanted(components: Sequence[int] | None, n_outputs: int) -> list[int]:
    """Return the components to draw."""
    wanted = list(range(min(n_outputs, MOST_COMPONENTS)) if components is None else components)
    if not wanted:
        raise ParameterError("components", "there are no components to draw")
    for number in wanted:
        if not 0 <= number < n_outputs:
            raise ParameterError(
                "components", f"there is no component {number}; the model has 0 to {n_outputs - 1}"
            )
    return wanted


def _evaluated(
    model: Maps | Estimates, grid: _Grid, wanted: list[int], shown: Points | None
) -> list[_Surface]:
    values = _scores(model, grid.nodes, wanted)
    reach = _reach(values)
    if shown is not None:
        # A polynomial kernel grows without bound far from the data: lines up to there would miss the data.
        at_points = _reach(_scores(model, shown.values, wanted))
        reach = np.where(at_points > 0, np.minimum(at_points, reach), reach)
    names = [f"component {number + 1}" for number in wanted]
    if isinstance(model, KernelSpectrum):
        found = np.asarray(model.eigenvalues)[wanted]
        names = [f"{name}: eigenvalue {value:.4g}" for name, value in zip(names, found, strict=True)]
    return [
        _Surface(name, grid, values[:, i].reshape(grid.shape), float(reach[i]))
        for i, name in enumerate(names)
    ]


def _scores(model: Maps | Estimates, rows: Array, wanted: list[int]) -> Array:
    """Return the scores of rows, computed in blocks."""
    blocks = (rows[span.slice] for span in Span(0, len(rows)).split(_BLOCK_ROWS))
    return np.concatenate([np.asarray(model.transform(block))[:, wanted] for block in blocks])


def _reach(values: Array) -> Array:
    """Return the largest finite magnitude of each column."""
    reach: Array = np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=0, initial=0.0)
    return reach


def _draw(surfaces: list[_Surface], shown: Points | None) -> Figure:
    n_cols = min(len(surfaces), _MOST_COLUMNS)
    n_rows = math.ceil(len(surfaces) / n_cols)
    height = surfaces[0].grid.height
    alike = 1 / _MOST_ELONGATED <= height <= _MOST_ELONGATED
    beside = _LEGEND if shown is not None and len(shown.classes) > 1 else 0.0
    figure = new_figure(
        (n_cols * _INCHES + beside, n_rows * (0.86 * _INCHES * (height if alike else 1.0) + 0.4))
    )
    for place, surface in enumerate(surfaces, 1):
        axes: Any = figure.add_subplot(n_rows, n_cols, place)
        _draw_isolines(axes, surface)
        if shown is not None:
            colour = shown.classes.palette(_DARK)[shown.classes.number(shown.labels)]
            size = float(np.clip(900 / len(shown.values), 9, 36))
            axes.scatter(*shown.values.T, s=size, color=colour, edgecolors="white", linewidths=0.4, zorder=3)
        axes.set_xlim(surface.grid.first[[0, -1]])
        axes.set_ylim(surface.grid.second[[0, -1]])
        axes.set_aspect("equal" if alike else "auto")
        axes.set_title(surface.title, loc="left", fontsize=8)
        axes.tick_params(labelsize=6, length=2)
    if shown is not None:
        shown.classes.draw_legend(figure)
    return figure


def _draw_isolines(axes: Any, surface: _Surface) -> None:
    """Draw filled contours by sign and size, with evenly spaced lines and a thick one at zero."""
    from matplotlib.colors import LinearSegmentedColormap

    grid, values = surface.grid, np.ma.masked_invalid(surface.values)
    reach = surface.reach or 1.0  # a component that is zero everywhere has no lines
    levels = np.linspace(-reach, reach, 2 * _LEVELS + 1)
    soft = LinearSegmentedColormap.from_list("soft", _SOFT)
    axes.contourf(grid.first, grid.second, values, levels, cmap=soft, extend="both")
    thick = np.where(np.arange(len(levels)) == _LEVELS, 1.4, 0.5)
    axes.contour(
        grid.first, grid.second, values, levels, colors=_DARK, linewidths=thick, linestyles="solid", alpha=0.8
    )
