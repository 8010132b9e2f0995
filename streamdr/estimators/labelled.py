"""Rows of xarray: a DataArray or a Dataset as rows x features, and results with its coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from streamdr.core.axes import VARIABLE, FeatureAxes
from streamdr.data.labelled.container import XarrayDataset
from streamdr.data.labelled.opening import Labelled, windows_of


@dataclass(frozen=True)
class Arranged:
    """A DataArray with its sample dimensions first."""

    data: Any
    sample_dims: tuple[str, ...]

    @property
    def feature_dims(self) -> tuple[str, ...]:
        """The dimensions of the features."""
        return tuple(self.data.dims[len(self.sample_dims) :])

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns."""
        number = len(self.sample_dims)
        return prod(self.data.shape[:number]), prod(self.data.shape[number:])

    def result(
        self, values: Any, outputs: Sequence[str], *, keep_features: bool, axes: FeatureAxes | None
    ) -> Any:
        """Return mapped rows as a DataArray with the coordinates of the samples.

        If the columns of the result are features, it has their dimensions and coordinates too: those of these
        rows, or `axes`.
        """
        import xarray

        samples = self.data.shape[: len(self.sample_dims)]
        coords = self._coords(self.sample_dims)
        if axes is not None:
            dims, shape, attributes = axes.dims, axes.shape, dict(axes.attributes)
            coords |= feature_coords(axes)
        elif keep_features:
            dims, shape = self.feature_dims, self.data.shape[len(samples) :]
            coords |= self._coords(self.feature_dims)
            attributes = dict(self.data.attrs)
        else:
            dims, shape, attributes = ("component",), (len(outputs),), {}
            coords["component"] = list(outputs)
        return xarray.DataArray(
            values.reshape(*samples, *shape),
            dims=(*self.sample_dims, *dims),
            coords=coords,
            name=self.data.name,
            attrs=attributes,
        )

    def _coords(self, dims: Sequence[str]) -> dict[str, Any]:
        """Return the coordinates that have some of these dimensions, and no others."""
        return {
            str(name): coord
            for name, coord in self.data.coords.items()
            if coord.dims and set(coord.dims) <= set(dims)
        }


def is_labelled(data: Any) -> bool:
    """Whether data is a DataArray or a Dataset."""
    kind = type(data)
    return kind.__module__.startswith("xarray") and kind.__name__ in ("DataArray", "Dataset")


def arranged(data: Any, how: Labelled) -> Arranged:
    """Return a DataArray, or variables of a Dataset, with the sample dimensions first, lazily."""
    container = XarrayDataset.of(data)
    windows = windows_of(container, how)
    parts = {
        dim: window.start if window.is_single else slice(window.start, window.stop)
        for dim, window in windows.windows.items()
    }
    if type(data).__name__ == "Dataset":
        several = not isinstance(how.variable, str | None)
        names = list(how.variable or ()) if several else [windows.names[0]]
        data = data[names].to_dataarray(VARIABLE) if several else data[names[0]]
    found = data.isel(parts)
    first = [VARIABLE] if VARIABLE in found.dims and VARIABLE not in windows.windows else []
    features = [dim for dim in windows.windows if dim in found.dims and dim not in windows.sample_dims]
    return Arranged(found.transpose(*windows.sample_dims, *first, *features), windows.sample_dims)


def in_order_of(data: Any, axes: FeatureAxes | None) -> Any:
    """Return data with the feature dimensions in the order of a model, lazily: xarray matches by name."""
    if axes is None or not is_labelled(data):
        return data
    return data.transpose(..., *axes.dims, missing_dims="ignore")


def feature_coords(axes: FeatureAxes) -> dict[str, Any]:
    """Return the coordinates of features as variables of xarray, decoded."""
    import xarray

    return {
        one.name: xarray.conventions.decode_cf_variable(
            one.name, xarray.Variable(one.dims, one.values, dict(one.attributes))
        )
        for one in axes.coords
    }
