"""Models of labelled features are maps with coordinates, for xarray and for streamdr."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.errors import StoreError
from streamdr.store import SavedModel, load_model, open_backend, save_model
from streamdr.store.record import seal_of


@dataclass(frozen=True, eq=False)
class Toy:
    mean: Array = field(metadata={"dims": ("feature",), "data_units": True})
    components: Array = field(metadata={"dims": ("component", "feature")})
    covariance: Array = field(metadata={"dims": ("feature", "feature_too")})
    rank: int


MODELS = {"toy": Toy}
KEPT = np.array([True, True, False, True, True, True])
WEIGHTS = np.array([1.0, 2, 3, 4, 5, 6])
AXES = FeatureAxes(
    ("lat", "lon"),
    (2, 3),
    (
        Coordinate("lat", ("lat",), np.array([10.0, 20]), {"units": "degrees_north", "_FillValue": -9.0}),
        Coordinate("lon", ("lon",), np.arange(3, dtype="i2"), {"units": "degrees_east"}),
        Coordinate("month", ("lon",), np.arange(3), {"units": "days since 2000-01-01"}),
        Coordinate("basin", ("lat", "lon"), np.array([["a", "", "ü"], ["b", "b", "cc"]])),
        Coordinate("level", (), np.array(500.0), {"units": "hPa"}),
    ),
    "sst",
    {"units": "K", "long_name": "temperature", "scale_factor": 0.1},
    WEIGHTS,
    KEPT,
)


def toy(n_features: int) -> Toy:
    random = np.random.default_rng(0)
    mean, components, covariance = (
        random.normal(size=shape) for shape in (n_features, (2, n_features), (n_features, n_features))
    )
    return Toy(mean, components, covariance, 2)


def save(place: Path, model: Toy, axes: FeatureAxes | None = None, **changes: Any) -> Path:
    given: dict[str, Any] = {
        "method": "toy",
        "parameters": {},
        "feature_names": None,
        "input_fingerprint": "abc",
        "n_rows": 10,
    }
    save_model(place, model, axes=axes, **(given | changes))
    return place


def load(place: Path) -> SavedModel:
    return load_model(place, models=MODELS)


def opened(place: Path) -> xarray.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(place).load()


def arrays(place: Path) -> set[str]:
    return {path.parent.name for path in place.glob("*/zarr.json")}


def same(one: Toy, other: Toy) -> bool:
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("mean", "components", "covariance")
    )


def test_a_labelled_model_round_trips_to_the_bit(tmp_path):
    model = toy(5)
    saved = load(save(tmp_path / "m", model, AXES))
    assert same(saved.model, model)
    axes = saved.axes
    assert axes is not None
    assert (axes.dims, axes.shape, axes.name, axes.attributes) == (
        AXES.dims,
        AXES.shape,
        "sst",
        AXES.attributes,
    )
    np.testing.assert_array_equal(axes.kept, KEPT)
    np.testing.assert_array_equal(axes.weights, WEIGHTS)
    for one, other in zip(axes.coords, AXES.coords, strict=True):
        assert (one.name, one.dims, one.attributes) == (other.name, other.dims, other.attributes)
        assert one.values.dtype == other.values.dtype
        np.testing.assert_array_equal(one.values, other.values)


def test_xarray_shows_maps_with_coordinates(tmp_path):
    model = toy(5)
    dataset = opened(save(tmp_path / "m", model, AXES))
    assert dataset.components.dims == ("component", "lat", "lon")
    flat = dataset.components.sel(component=1).values.ravel()
    assert np.isnan(flat[2])
    np.testing.assert_array_equal(flat[KEPT], model.components[1])
    assert set(dataset.components.coords) == {
        *("lat", "lon", "month", "basin", "level"),
        *("feature_kept", "feature_weights"),
    }
    assert dataset["mean"].attrs == {"units": "K", "long_name": "temperature"}
    assert dataset.components.attrs == {}
    assert dataset.lat.attrs["units"] == "degrees_north"
    assert dataset.month.dtype.kind == "M"
    assert dataset.basin.values.tolist() == [["a", "", "ü"], ["b", "b", "cc"]]
    assert dataset.covariance.dims == ("kept_feature", "feature_too")


def test_values_in_weighted_units_have_no_units(tmp_path):
    weighted = FeatureAxes(("x",), (5,), attributes={"units": "K"}, weights=np.ones(5), weighted=True)
    assert opened(save(tmp_path / "m", toy(5), weighted))["mean"].attrs == {}


def test_names_of_dimensions_that_the_model_has_get_a_suffix(tmp_path):
    axes = FeatureAxes(("component", "rank"), (5, 1), (Coordinate("rank", ("rank",), np.array([7])),))
    saved = load(save(tmp_path / "m", toy(5), axes))
    assert opened(tmp_path / "m").components.dims == ("component", "component_feature", "rank_feature")
    assert opened(tmp_path / "m").rank_feature.item() == 7
    assert saved.axes is not None
    assert saved.axes.dims == ("component", "rank")


def test_a_labelled_model_is_replaced_by_another(tmp_path, bucket):
    for place in (tmp_path / "m", open_backend(f"{bucket.url}/out/m").place):
        for axes, n_features in ((AXES, 5), (None, 3), (AXES, 5)):
            save_model(
                place,
                toy(n_features),
                method="toy",
                parameters={},
                feature_names=None,
                input_fingerprint="",
                n_rows=1,
                axes=axes,
                overwrite=True,
            )
            assert same(load_model(place, models=MODELS).model, toy(n_features))


def test_an_attribute_that_a_user_adds_to_a_coordinate_is_kept(tmp_path):
    save(tmp_path / "m", toy(5), AXES)
    zarr.open_array(tmp_path / "m/lat").attrs["note"] = "mine"
    with pytest.raises(StoreError, match="it also holds the attribute of 'lat' 'note', which streamdr did"):
        save(tmp_path / "m", toy(5), AXES, overwrite=True)
    assert zarr.open_array(tmp_path / "m/lat").attrs["note"] == "mine"


@pytest.mark.parametrize("name", ["lat/c/0", "basin/c/0/0", "basin/zarr.json", "feature_kept/c/0/0"])
@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_damaged_coordinate_is_an_error_that_names_it(tmp_path, name, how):
    file = save(tmp_path / "m", toy(5), AXES) / name
    content = bytearray(file.read_bytes())
    file.unlink()
    if how == "changed":
        content[3] ^= 1
        file.write_bytes(content)
    with pytest.raises(StoreError, match=str(file)):
        load(tmp_path / "m")


# Names of the columns of a table


def test_the_names_of_features_are_a_coordinate(tmp_path):
    path = save(tmp_path / "m", toy(3), feature_names=["a", "é", "b c"])
    assert load(path).feature_names == ("a", "é", "b c")
    assert load(path).axes is None
    assert same(load(path).model, toy(3))
    dataset = opened(path)
    assert dataset.feature.values.tolist() == ["a", "é", "b c"]
    assert dataset.components.sel(feature="é", component=1).item() == toy(3).components[1, 1]


def test_a_model_without_names_has_no_other_files_than_its_fields(tmp_path):
    assert arrays(save(tmp_path / "m", toy(3))) == {"mean", "components", "covariance"}


@pytest.mark.parametrize("names", [["a", "b", "\udc80"], ["of", "another", "number", "of columns"]])
def test_names_that_cannot_be_a_coordinate_are_only_in_the_record(tmp_path, names):
    path = save(tmp_path / "m", toy(3), feature_names=names)
    assert arrays(path) == {"mean", "components", "covariance"}
    assert load(path).feature_names == tuple(names)


def test_a_model_of_an_earlier_version_with_names_opens(tmp_path):
    """Earlier versions wrote the names into the record only."""
    path = save(tmp_path / "m", toy(3))
    document = json.loads((path / "zarr.json").read_text())
    record = document["attributes"]["streamdr"]
    record["feature_names"] = ["a", "b", "c"]
    record["digest"] = seal_of(document)
    (path / "zarr.json").write_text(json.dumps(document))
    assert load(path).feature_names == ("a", "b", "c")
    assert same(load(path).model, toy(3))


def test_names_may_be_many_and_long(tmp_path):
    names = [f"{number:07d} {'x' * (number % 300)}" for number in range(20_000)]

    @dataclass(frozen=True, eq=False)
    class Wide:
        mean: Array = field(metadata={"dims": ("feature",)})

    save_model(
        tmp_path / "m",
        Wide(np.zeros(20_000)),
        method="wide",
        parameters={},
        feature_names=names,
        input_fingerprint="",
        n_rows=1,
    )
    assert load_model(tmp_path / "m", models={"wide": Wide}).feature_names == tuple(names)
    assert opened(tmp_path / "m").feature.values.tolist() == names
