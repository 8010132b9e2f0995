"""The arrays of models that are drawn as maps: over all features, with the axes of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Array
from streamdr.core.figures import count, percent, plain, shortened
from streamdr.errors import DataError, ParameterError
from streamdr.plots.map_axes import MapGrid

MOST_MAPS = 12
"""The number of maps that are drawn by default."""
MOST_COLUMNS = 3
"""The number of components that are drawn by default, where there are several maps for each."""


def mapped_field(model: object) -> str | None:
    """Return the array of a model that is drawn as maps, if it has one."""
    declared = getattr(model, "__dataclass_fields__", {}).values()
    names = (one.name for one in declared if one.metadata.get("mapped"))
    return next((name for name in names if getattr(model, name) is not None), None)


def model_and_axes(given: Any) -> tuple[Any, FeatureAxes | None]:
    """Return the model and the axes of its features, from a saved model, an estimator or a model."""
    for model, axes in (("model", "axes"), ("model_", "feature_axes_")):
        inner = getattr(given, model, None)
        if inner is not None:
            return inner, getattr(given, axes, None)
    return given, None


def is_labelled(axes: FeatureAxes | None) -> bool:
    """Return whether features are more than numbered columns: with several dimensions, or coordinates."""
    return axes is not None and (len(axes.dims) > 1 or bool(axes.coords))


def has_maps(model: Any, axes: FeatureAxes | None) -> bool:
    """Return whether a model has maps: its features are labelled, and a field of it is drawn as maps."""
    return is_labelled(axes) and mapped_field(model) is not None


@dataclass(frozen=True, eq=False)
class MappedField:
    """An array of a model over all features, part of which is drawn."""

    name: str
    axes: FeatureAxes
    values: Array
    """Maps x features: NaN where a feature is left out."""
    titles: list[str]
    n_maps: int
    """The number of maps that the model has."""
    noun: str
    """What there is a map of."""
    is_data: bool
    """Whether values are in the units of the data."""
    grid: MapGrid | None
    """The cells of a map; None for features along one dimension."""

    @classmethod
    def of(
        cls,
        given: Any,
        axes: FeatureAxes | None,
        name: str | None,
        wanted: Sequence[int] | None,
        most: int,
    ) -> MappedField:
        """Return what is drawn of a model or an estimator."""
        model, own = model_and_axes(given)
        axes = own if axes is None else axes
        name = mapped_field(model) if name is None else name
        if axes is None:
            raise DataError(
                "the features of the model have no axes, so there is no map; fit it to labelled data, or "
                "give axes"
            )
        about = {one.name: one for one in fields(model)}.get(name or "")
        dims = () if about is None else tuple(about.metadata.get("dims", ()))
        values = None if about is None else getattr(model, about.name)
        if name is None or values is None or dims.count("feature") != 1 or "feature_too" in dims:
            what = "no array of components" if name is None else f"no array {name!r}"
            raise ParameterError(
                "field", f"{type(model).__name__} has {what} over its features to draw as maps"
            )
        values = np.moveaxis(np.asarray(values), dims.index("feature"), -1)
        if values.shape[-1] != axes.n_kept:
            raise DataError(f"{name} has {values.shape[-1]:,} features, but the axes have {axes.n_kept:,}")
        is_data = bool(about is not None and about.metadata.get("data_units"))
        outer = values.shape[:-1]
        flat = values.reshape(-1, values.shape[-1])
        grid = MapGrid.of(axes)
        if grid is not None and grid.n_positions > 1:
            most = min(most, MOST_COLUMNS)
        chosen = _chosen(len(flat), wanted, most)
        flat = axes.expanded(axes.unweighted(flat[chosen]) if is_data else flat[chosen])
        kinds = [dim for dim in dims if dim != "feature"]
        shares = np.asarray(getattr(model, "explained_variance_ratio", ()))
        titles = []
        for number in chosen:
            position = np.unravel_index(number, outer)
            title = ", ".join(f"{kind} {at + 1}" for kind, at in zip(kinds, position, strict=True)) or name
            if kinds == ["component"] and shares.shape == outer:
                title += f": {percent(shares[number])}"
            titles.append(title)
        return cls(name, axes, flat, titles, int(np.prod(outer)), kinds[-1] if kinds else name, is_data, grid)

    @property
    def heading(self) -> str:
        """The variable, and how much of it is drawn."""
        about = self.axes.attributes
        variable = next(
            (one for one in (about.get("long_name"), self.axes.name) if isinstance(one, str)), None
        )
        some = len(self.titles) < self.n_maps
        parts = [] if variable is None else [plain(shortened(variable, 60))]
        parts += [f"{len(self.titles)} of {count(self.n_maps, self.noun)}"] if some else []
        return ": ".join(parts)

    @property
    def scale_label(self) -> str:
        """What the values are, with their units where these are those of the data."""
        units = self.axes.attributes.get("units") if self.is_data else None
        label = self.name.replace("_", " ")
        return label + (f" ({plain(shortened(units))})" if isinstance(units, str) and units else "")


def _chosen(length: int, wanted: Sequence[int] | None, most: int) -> list[int]:
    """Return the numbers of the maps to draw: by default the first ones, `most` at most."""
    if most < 1:
        raise ParameterError("most", f"most is {most}, but must be at least 1")
    if wanted is None:
        return list(range(min(length, most)))
    chosen = [int(number) for number in wanted]
    if not chosen:
        raise ParameterError("components", "there are no components to draw")
    for number in chosen:
        if not 0 <= number < length:
            raise ParameterError(
                "components", f"there is no component {number}; the model has 0 to {length - 1}"
            )
    return chosen
