"""Maps show every value where its coordinates say: north is up, land is blank, one scale holds for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba
from narrowing import present

import streamdr
from streamdr import plots
from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Array
from streamdr.errors import DataError, ParameterError
from streamdr.store import load_model

LAT = np.array([60.0, 30.0, 0.0, -30.0])  # from north to south
LON = np.array([0.0, 90.0, 180.0, 270.0, 300.0])  # not evenly spaced


def along(dim: str, values: Any, **attributes: Any) -> Coordinate:
    return Coordinate(dim, (dim,), np.asarray(values), attributes)


def latitude(values: Any = LAT) -> Coordinate:
    return along("lat", values, units="degrees_north")


def longitude(values: Any = LON) -> Coordinate:
    return along("lon", values, units="degrees_east")


def globe(**about: Any) -> FeatureAxes:
    return FeatureAxes(("lat", "lon"), (4, 5), (latitude(), longitude()), **about)


def fitted(n_features: int, n_components: int = 2) -> Any:
    values = np.random.default_rng(0).normal(size=(50, n_features)) * np.linspace(3, 1, n_features)
    return streamdr.PCA(n_components).fit(values)


def meshes(figure: Any) -> list[QuadMesh]:
    """The maps of a figure, without its colour bar."""
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    return [one for axes in panels for one in axes.collections if isinstance(one, QuadMesh)]


def cells(mesh: QuadMesh) -> Array:
    """The values that are drawn, with NaN where nothing is."""
    values: Any = mesh.get_array()
    return np.ma.filled(np.ma.asarray(values).astype(float), np.nan)


def at(mesh: QuadMesh, x: float, y: float) -> float:
    """The value that is drawn at a position."""
    corners: Any = mesh.get_coordinates()
    inside = (corners[:-1, :-1, 0] < x) & (x < corners[1:, 1:, 0])
    inside &= (corners[:-1, :-1, 1] < y) & (y < corners[1:, 1:, 1])
    return float(cells(mesh)[inside].item())


def titles(figure: Any) -> list[str]:
    found = [axes.get_title(loc="left") for axes in figure.axes]
    return [title for title in found if title]


def heading(figure: Any) -> str:
    return str(figure.get_suptitle())


def test_every_value_is_at_its_latitude_and_longitude() -> None:
    model = fitted(20).model_
    figure = plots.maps(model, axes=globe())
    drawn = meshes(figure)
    assert len(drawn) == 2
    for mesh, component in zip(drawn, model.components, strict=True):
        for row, y in enumerate(LAT):
            for column, x in enumerate(LON):
                assert at(mesh, x, y) == component.reshape(4, 5)[row, column]
    bottom, top = figure.axes[0].get_ylim()
    assert (bottom, top) == (-45, 75)  # north is up
    assert figure.axes[0].get_xlim() == (-45, 315)


def test_the_cells_of_irregular_coordinates_meet_midway() -> None:
    corners: Any = meshes(plots.maps(fitted(20).model_, axes=globe()))[0].get_coordinates()
    np.testing.assert_array_equal(corners[0, :, 0], [-45, 45, 135, 225, 285, 315])


def test_no_cell_reaches_beyond_a_pole() -> None:
    axes = FeatureAxes(("lat", "lon"), (3, 2), (latitude([90.0, 0.0, -90.0]), longitude([0.0, 180.0])))
    corners: Any = meshes(plots.maps(fitted(6).model_, axes=axes))[0].get_coordinates()
    np.testing.assert_array_equal(np.unique(corners[..., 1]), [-90, -45, 45, 90])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([350.0, 0.0, 10.0], [350, 360, 370]),  # over the Greenwich meridian
        ([170.0, -180.0, -170.0], [170, 180, 190]),  # over the date line
        ([20.0, 10.0, 0.0], [0, 10, 20]),
        ([0.0, 200.0, 359.0], [0, 200, 359]),
    ],
)
def test_longitudes_are_in_order_wherever_they_begin(given: list[float], shown: list[float]) -> None:
    model = fitted(6).model_
    axes = FeatureAxes(("lat", "lon"), (2, 3), (latitude([0.0, 10.0]), longitude(given)))
    mesh = meshes(plots.maps(model, axes=axes))[0]
    order = np.argsort(np.unwrap(given, period=360)) if given != shown else np.arange(3)
    for x, column in zip(shown, order, strict=True):
        assert at(mesh, x, 10.0) == model.components[0].reshape(2, 3)[1, column]


def test_degrees_are_written_with_their_direction() -> None:
    axes = plots.maps(fitted(20).model_, axes=globe()).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["30°S", "0°", "30°N", "60°N"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0°", "90°E", "180°", "90°W"]
    assert axes.get_aspect() == 1.0
    assert axes.get_xlabel() == axes.get_ylabel() == ""


def test_one_scale_about_zero_holds_for_all_maps() -> None:
    model = fitted(20, 3).model_
    drawn = meshes(plots.maps(model, axes=globe()))
    largest = np.abs(model.components).max()
    assert {mesh.get_clim() for mesh in drawn} == {(-largest, largest)}


def test_features_that_were_left_out_are_blank() -> None:
    kept = np.ones(20, dtype=bool)
    kept[[0, 7, 19]] = False
    model = fitted(17).model_
    mesh = meshes(plots.maps(model, axes=globe(kept=kept)))[0]
    expected = np.full(20, np.nan)
    expected[kept] = model.components[0]
    np.testing.assert_array_equal(cells(mesh)[::-1], expected.reshape(4, 5))
    np.testing.assert_allclose(mesh.get_cmap().get_bad(), to_rgba("#c9c9c9"))


def test_titles_have_the_share_that_a_component_explains() -> None:
    model = fitted(20).model_
    figure = plots.maps(model, axes=globe(name="sst", attributes={"long_name": "sea surface temperature"}))
    assert titles(figure) == [
        f"component {number + 1}: {100 * model.explained_variance_ratio[number]:.1f} %" for number in range(2)
    ]
    assert heading(figure) == "sea surface temperature"


def test_a_field_in_the_units_of_the_data_has_them_and_its_own_range() -> None:
    model = fitted(20).model_
    figure = plots.maps(model, axes=globe(name="sst", attributes={"units": "K"}), field="mean")
    (mesh,) = meshes(figure)
    assert mesh.get_clim() == (model.mean.min(), model.mean.max())
    assert figure.axes[-1].get_xlabel() == "mean (K)"
    assert plots.maps(model, axes=globe(attributes={"units": "K"})).axes[-1].get_xlabel() == "components"


def test_weights_are_undone_where_values_are_those_of_the_data() -> None:
    model, weights = fitted(20).model_, np.linspace(0.5, 2.0, 20)
    mesh = meshes(plots.maps(model, axes=globe(weights=weights, weighted=True), field="mean"))[0]
    np.testing.assert_allclose(cells(mesh)[::-1], (model.mean / weights).reshape(4, 5), rtol=1e-15)


def test_of_many_components_the_first_are_drawn_and_the_heading_says_so() -> None:
    model = fitted(20, 15).model_
    figure = plots.maps(model, axes=globe(name="t"))
    assert len(meshes(figure)) == plots.MOST_MAPS
    assert heading(figure) == "t: 12 of 15 components"
    assert len(meshes(plots.maps(model, axes=globe(), most=5))) == 5
    chosen = plots.maps(model, axes=globe(), components=[14, 2])
    assert [title.partition(":")[0] for title in titles(chosen)] == ["component 15", "component 3"]
    np.testing.assert_array_equal(cells(meshes(chosen)[0])[::-1], model.components[14].reshape(4, 5))


def test_each_variable_has_a_row_of_maps() -> None:
    coords = (along("variable", ["sst", "slp"]), latitude(), longitude())
    axes = FeatureAxes(("variable", "lat", "lon"), (2, 4, 5), coords)
    model = fitted(40, 5).model_
    figure = plots.maps(model, axes=axes)
    drawn = meshes(figure)
    whole = model.components[:3].reshape(3, 2, 4, 5)
    assert len(drawn) == 6
    for number, mesh in enumerate(drawn):
        row, column = divmod(number, 3)
        np.testing.assert_array_equal(cells(mesh)[::-1], whole[column, row])
    assert [figure.axes[number].get_ylabel() for number in (0, 3)] == ["sst", "slp"]
    assert heading(figure) == "3 of 5 components"


def test_of_many_levels_the_first_are_drawn_and_the_heading_says_so() -> None:
    coords = (along("level", [1000.0, 850, 700, 500, 300, 200], units="hPa"), latitude(), longitude())
    figure = plots.maps(fitted(120).model_, axes=FeatureAxes(("level", "lat", "lon"), (6, 4, 5), coords, "z"))
    assert len(meshes(figure)) == 8
    assert [figure.axes[number].get_ylabel() for number in (0, 6)] == ["level 1000 hPa", "level 500 hPa"]
    assert heading(figure) == "z; level: 4 of 6"


def test_the_map_is_of_latitude_and_longitude_wherever_they_stand() -> None:
    model = fitted(60, 1).model_
    axes = FeatureAxes(("lon", "lat", "level"), (5, 4, 3), (latitude(), longitude()))
    figure = plots.maps(model, axes=axes)
    whole = model.components[0].reshape(5, 4, 3)
    for level, mesh in enumerate(meshes(figure)):
        np.testing.assert_array_equal(cells(mesh)[::-1], whole[:, :, level].T)
    assert figure.axes[0].get_ylabel() == "level 1"


def test_a_section_has_its_heights_upright_and_pressures_grow_downwards() -> None:
    level = along("level", [1000.0, 500.0, 200.0], units="hPa")
    axes = plots.maps(
        fitted(12).model_, axes=FeatureAxes(("lat", "level"), (4, 3), (latitude(), level))
    ).axes[0]
    assert axes.get_ylabel() == "level (hPa)"
    bottom, top = axes.get_ylim()
    assert bottom > top


def test_features_without_coordinates_are_drawn_like_an_image() -> None:
    model = fitted(12).model_
    figure = plots.maps(model, axes=FeatureAxes(("y", "x"), (3, 4)))
    np.testing.assert_array_equal(cells(meshes(figure)[0]), model.components[0].reshape(3, 4))
    axes = figure.axes[0]
    assert axes.get_ylim() == (2.5, -0.5)  # the first row is on top
    assert (axes.get_ylabel(), axes.get_aspect()) == ("y", 1.0)


def test_each_cell_of_a_curvilinear_grid_is_at_its_own_place() -> None:
    row, column = np.meshgrid(np.arange(3.0), np.arange(4.0), indexing="ij")
    places = (
        Coordinate("nav_lat", ("y", "x"), 40 + 10 * row + column),
        Coordinate("nav_lon", ("y", "x"), (170 + 8 * column - row + 180) % 360 - 180),  # over the date line
    )
    model = fitted(12).model_
    figure = plots.maps(model, axes=FeatureAxes(("y", "x"), (3, 4), places))
    mesh = meshes(figure)[0]
    np.testing.assert_array_equal(cells(mesh), model.components[0].reshape(3, 4))
    corners: Any = mesh.get_coordinates()
    centres = (corners[1:, 1:] + corners[:-1, 1:] + corners[1:, :-1] + corners[:-1, :-1]) / 4
    np.testing.assert_allclose(centres[..., 0], 170 + 8 * column - row, rtol=1e-12)
    np.testing.assert_allclose(centres[..., 1], 40 + 10 * row + column, rtol=1e-12)
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert "180°" in labels
    assert "170°W" in labels


def test_cells_without_a_place_are_put_between_their_neighbours() -> None:
    row, column = np.meshgrid(np.arange(4.0), np.arange(6.0), indexing="ij")
    lat, lon = 10 * row, (165 + 10 * column + 180) % 360 - 180
    land = np.zeros((4, 6), dtype=bool)
    land[0] = land[2, 1:3] = land[3, 5] = True
    lat[land] = lon[land] = np.nan
    places = (Coordinate("lat", ("y", "x"), lat), Coordinate("lon", ("y", "x"), lon))
    model = fitted(int((~land).sum())).model_
    axes = FeatureAxes(("y", "x"), (4, 6), places, kept=~land.ravel())
    corners: Any = meshes(plots.maps(model, axes=axes))[0].get_coordinates()
    np.testing.assert_allclose(corners[2, :, 0], 160 + 10 * np.arange(7))
    np.testing.assert_allclose(corners[1:4, 2, 1], [10, 15, 25])


def test_places_that_are_not_numbers_are_not_used() -> None:
    unknown = np.full((3, 4), np.nan)
    places = (Coordinate("lat", ("y", "x"), unknown), Coordinate("lon", ("y", "x"), unknown))
    axes = plots.maps(fitted(12).model_, axes=FeatureAxes(("y", "x"), (3, 4), places)).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")


def test_features_along_one_dimension_are_a_line_over_its_coordinate() -> None:
    depth = along("depth", [30.0, 20.0, 10.0, 5.0], units="m")
    model = fitted(4).model_
    figure = plots.maps(model, axes=FeatureAxes(("depth",), (4,), (depth,), "T"))
    for axes, component in zip(figure.axes, model.components, strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), [5, 10, 20, 30])
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), component[::-1])
    assert figure.axes[1].get_xlabel() == "depth (m)"
    # So is a map of one row.
    thin = FeatureAxes(("lat", "lon"), (1, 5), (latitude([10.0]), longitude()))
    axes = plots.maps(fitted(5).model_, axes=thin).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), LON)


def test_features_with_names_are_labelled_with_them() -> None:
    names = along("gene", ["TP53", "$MYC$", "KRAS"])
    axes = plots.maps(fitted(3).model_, axes=FeatureAxes(("gene",), (3,), (names,))).axes[-1]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["TP53", r"\$MYC\$", "KRAS"]


def test_cells_finer_than_pixels_are_averaged_and_land_stays_blank() -> None:
    lat, lon = np.linspace(-90, 90, 3), np.arange(2500.0) / 10
    values = np.random.default_rng(0).normal(size=(5, 7500))
    kept = np.ones(7500, dtype=bool)
    kept[:5] = False
    model = streamdr.PCA(1).fit(values[:, kept]).model_
    axes = FeatureAxes(("lat", "lon"), (3, 2500), (latitude(lat), longitude(lon)), kept=kept)
    mesh = meshes(plots.maps(model, axes=axes))[0]
    drawn, whole = cells(mesh), axes.expanded(model.components)[0].reshape(3, 2500)
    assert drawn.shape == (3, 834)
    assert np.isnan(drawn[0, 0])
    np.testing.assert_allclose(drawn[0, 1], whole[0, 5], rtol=1e-15)  # of three cells, two are land
    np.testing.assert_allclose(drawn[2, 5], whole[2, 15:18].mean(), rtol=1e-12)
    corners: Any = mesh.get_coordinates()
    assert corners[0, -1, 0] == pytest.approx(249.95)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda X: streamdr.PPCA(2, random_state=0).fit(X), "components"),
        (lambda X: streamdr.LDA(2).fit(X, np.arange(len(X)) % 4), "scalings"),
        (lambda X: streamdr.ClassicalMDS(2).fit(X), "axes"),
        (lambda X: streamdr.PPCAMixture(1, n_mixtures=2, random_state=0).fit(X), "components"),
    ],
)
def test_the_methods_say_what_is_mapped(make: Any, field: str) -> None:
    model = make(np.random.default_rng(0).normal(size=(60, 6))).model_
    figure = plots.maps(model, axes=FeatureAxes(("y", "x"), (2, 3)))
    values = np.asarray(getattr(model, field))
    if field == "scalings":
        values = values.T
    values = values.reshape(-1, 2, 3)
    assert len(meshes(figure)) == len(values) == 2
    for mesh, expected in zip(meshes(figure), values, strict=True):
        np.testing.assert_array_equal(cells(mesh), expected)
    assert titles(figure)[1].startswith(
        "mixture 2, component 1" if field == "components" and model.components.ndim == 3 else "component 2"
    )


def test_saved_models_and_estimators_bring_their_axes(tmp_path: Path) -> None:
    estimator = fitted(20)
    estimator.feature_axes_ = globe(name="sst")
    estimator.save(tmp_path / "model.zarr")
    saved = load_model(tmp_path / "model.zarr")
    for given in (estimator, saved, streamdr.load_model(tmp_path / "model.zarr")):
        figure = plots.maps(given)
        assert heading(figure) == "sst"
        np.testing.assert_array_equal(
            cells(meshes(figure)[0])[::-1], present(estimator.model_).components[0].reshape(4, 5)
        )


@pytest.mark.parametrize(
    ("field", "value", "limits"), [("components", 0.0, (-1, 1)), ("mean", 2.0, (1.5, 2.5))]
)
def test_equal_values_are_drawn(tmp_path: Path, field: str, value: float, limits: Any) -> None:
    model = fitted(20).model_
    model = replace(model, **{field: np.full_like(getattr(model, field), value)})
    figure = plots.maps(model, tmp_path / "map.png", axes=globe(), field=field)
    assert meshes(figure)[0].get_clim() == limits
    plots.maps(model, axes=FeatureAxes(("cell",), (20,)), field=field)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_names_are_text_and_no_formula(tmp_path: Path, suffix: str) -> None:
    hostile = "a$\\frac{x$\n$b^" + "c" * 200
    coords = (along("variable", [hostile, "b"]), latitude(), longitude())
    axes = FeatureAxes(
        ("variable", "lat", "lon"), (2, 4, 5), coords, hostile, {"units": hostile, "long_name": hostile}
    )
    figure = plots.maps(fitted(40).model_, tmp_path / f"map.{suffix}", axes=axes, field="mean")
    shown = heading(figure)
    assert shown.startswith(r"a\$\frac{x\$\n\$b^ccc")
    assert "\n" not in shown
    assert len(shown) < 70
    one = FeatureAxes((hostile,), (3,), (along(hostile, [1.0, 2.0, 3.0], units=hostile),), hostile)
    plots.maps(fitted(3).model_, tmp_path / f"line.{suffix}", axes=one)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, DataError, "the features of the model have no axes.*fit it to labelled data, or give axes"),
        ({"axes": FeatureAxes(("y", "x"), (3, 4))}, DataError, "20 features, but the axes have 12"),
        ({"axes": globe(), "field": "loadings"}, ParameterError, "PCAModel has no array 'loadings'"),
        ({"axes": globe(), "field": "explained_variance"}, ParameterError, "over its features"),
        ({"axes": globe(), "components": [2]}, ParameterError, "no component 2; the model has 0 to 1"),
        ({"axes": globe(), "components": [-1]}, ParameterError, "no component -1"),
        ({"axes": globe(), "components": []}, ParameterError, "no components to draw"),
        ({"axes": globe(), "most": 0}, ParameterError, "most is 0, but must be at least 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.maps(fitted(20).model_, tmp_path / "map.png", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_components_over_features_is_refused() -> None:
    model = streamdr.KernelPCA(2).fit(np.random.default_rng(0).normal(size=(20, 6))).model_
    with pytest.raises(ParameterError, match="KernelPCAModel has no array of components over its features"):
        plots.maps(model, axes=FeatureAxes(("y", "x"), (2, 3)))
