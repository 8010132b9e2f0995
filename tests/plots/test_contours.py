"""Isolines lie where the model's scores are equal, over the part of the plane that was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from matplotlib import image
from matplotlib.colors import to_rgba
from sklearn import decomposition
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streamdr
from streamdr import plots
from streamdr.core.blocks import Array
from streamdr.errors import DataError, ParameterError

EXTENT = (-2.0, 3.0, -1.0, 2.0)


def rows(n: int = 40) -> Array:
    return np.random.default_rng(0).normal(size=(n, 2)) * [2, 0.5] + [1, -3]


class Waves:
    """A model of three components that no line and no circle would fit."""

    n_features = 2

    def __init__(self) -> None:
        self.asked: list[Array] = []

    def transform(self, values: Array) -> Array:
        self.asked.append(values)
        x, y = values.T
        return np.stack([np.sin(x) * y, x**2 - y, np.exp(-(x**2)) + 0.1 * y], axis=1)


def drawn(axes: Any) -> tuple[Any, Any, Any]:
    """The areas, the lines and the points of one small picture."""
    areas, lines, *points = axes.collections
    return areas, lines, points[0] if points else None


def isolines(axes: Any) -> list[tuple[float, Array]]:
    """Every vertex of every line, with the level that it stands for."""
    lines = drawn(axes)[1]
    return [
        (level, np.concatenate(pieces))
        for level, pieces in zip(lines.levels, lines.allsegs, strict=True)
        if any(len(piece) for piece in pieces)
    ]


def fitted(kind: str) -> Any:
    if kind == "model":
        return streamdr.PCA(2).fit(rows()).model_
    if kind == "estimator":
        return streamdr.PCA(2).fit(rows())
    if kind == "ppca":
        return streamdr.PPCA(1).fit(rows())
    if kind == "pipeline":
        return make_pipeline(StandardScaler(), decomposition.PCA(2)).fit(rows())
    return decomposition.PCA(2).set_output(transform="pandas").fit(rows())


@pytest.mark.parametrize("kind", ["model", "estimator", "ppca", "pipeline", "scikit-learn"])
def test_a_linear_model_has_straight_lines_at_its_own_scores(kind: str) -> None:
    model = fitted(kind)
    figure = plots.contours(model, points=rows(), resolution=7)
    assert len(figure.axes) == np.shape(model.transform(rows()))[1]
    for number, axes in enumerate(figure.axes):
        lines = isolines(axes)
        assert len(lines) > 10
        for level, vertices in lines:
            scores = np.asarray(model.transform(vertices))[:, number]
            np.testing.assert_allclose(scores, level, rtol=0, atol=1e-9)


def test_lines_of_a_curved_model_are_where_it_says() -> None:
    model = Waves()
    figure = plots.contours(model, extent=EXTENT, resolution=300)
    for number, axes in enumerate(figure.axes):
        for level, vertices in isolines(axes):
            # Between nodes that are h apart lines are straight, which is off by h^2 / 8 times the curvature.
            np.testing.assert_allclose(model.transform(vertices)[:, number], level, atol=2e-4)


def test_of_a_kernel_model_the_landmarks_are_shown_and_the_eigenvalues_named() -> None:
    model = streamdr.KernelPCA(2, kernel="rbf", gamma=1.0, approximation="nystrom", n_landmarks=9).fit(rows())
    figure = plots.contours(model, resolution=200)
    for number, axes in enumerate(figure.axes):
        np.testing.assert_array_equal(drawn(axes)[2].get_offsets(), model.landmarks_)
        assert (
            axes.get_title(loc="left")
            == f"component {number + 1}: eigenvalue {model.eigenvalues_[number]:.4g}"
        )
        for level, vertices in isolines(axes):
            np.testing.assert_allclose(model.transform(vertices)[:, number], level, atol=2e-3)


@pytest.mark.parametrize(
    "method",
    [
        *(
            streamdr.KernelPCA(2, kernel=name)
            for name in ("linear", "poly", "sigmoid", "laplacian", "cosine")
        ),
        streamdr.SparseKernelPCA(2, gamma=1.0),
    ],
    ids=str,
)
def test_every_kernel_has_isolines(method: Any) -> None:
    model = method.fit(rows())
    points = np.random.default_rng(1).normal(size=(10, 2))
    figure = plots.contours(model, points=points, resolution=30)
    for number, axes in enumerate(figure.axes):
        levels = drawn(axes)[1].levels
        assert levels[-1] <= np.abs(model.transform(points)[:, number]).max() * (1 + 1e-12)
        assert isolines(axes)


def test_random_features_keep_no_rows_to_show() -> None:
    model = streamdr.KernelPCA(2, approximation="random_features", n_landmarks=50).fit(rows())
    with pytest.raises(ParameterError, match="keeps no rows of its data; give points, or an extent"):
        plots.contours(model)
    assert len(plots.contours(model, points=rows(), resolution=20).axes) == 2


def test_a_finer_grid_changes_nothing_but_how_smooth_lines_are() -> None:
    coarse, fine = (plots.contours(Waves(), extent=EXTENT, resolution=n) for n in (51, 101))
    for one, other in zip(coarse.axes, fine.axes, strict=True):
        np.testing.assert_allclose(drawn(one)[1].levels, drawn(other)[1].levels, rtol=0.01)


def test_the_grid_is_evaluated_once_and_in_blocks() -> None:
    model = Waves()
    plots.contours(model, extent=EXTENT, resolution=200)
    first, *blocks = model.asked  # the first call gives the number of components
    assert len(first) == 1
    assert max(map(len, blocks)) <= 4096
    nodes = np.concatenate(blocks)
    x, y = np.meshgrid(np.linspace(-2, 3, 200), np.linspace(-1, 2, 200))
    np.testing.assert_array_equal(nodes, np.stack([x.ravel(), y.ravel()], axis=1))


def test_lines_are_at_even_steps_and_that_of_zero_is_thick(tmp_path: Path) -> None:
    figure = plots.contours(Waves(), tmp_path / "waves.png", extent=EXTENT, resolution=50)
    for axes in figure.axes:
        areas, lines, points = drawn(axes)
        np.testing.assert_allclose(np.diff(lines.levels), lines.levels[1] - lines.levels[0])
        np.testing.assert_array_equal(areas.levels, lines.levels)
        thickest = lines.levels[np.argmax(lines.get_linewidths())]
        assert thickest == pytest.approx(0, abs=1e-12)
        assert points is None
        assert (axes.get_xlim(), axes.get_ylim()) == (EXTENT[:2], EXTENT[2:])
    assert image.imread(tmp_path / "waves.png").std() > 0


def test_lines_are_spread_over_the_scores_of_the_points_not_over_what_lies_far_away() -> None:
    model, points = Waves(), np.array([[0.5, 1.0], [-0.2, 0.5]])
    figure = plots.contours(model, points=points, extent=(-100, 100, -100, 100), resolution=20)
    assert drawn(figure.axes[1])[1].levels[-1] == pytest.approx(np.abs(model.transform(points)[:, 1]).max())


def test_some_components_may_be_chosen() -> None:
    figure = plots.contours(Waves(), extent=EXTENT, components=[2, 0], resolution=40)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["component 3", "component 1"]
    everything = plots.contours(Waves(), extent=EXTENT, resolution=40)
    for axes, same in zip(figure.axes, [everything.axes[2], everything.axes[0]], strict=True):
        np.testing.assert_array_equal(drawn(axes)[1].levels, drawn(same)[1].levels)


def test_of_many_components_the_first_are_drawn() -> None:
    class Many(Waves):
        def transform(self, values: Array) -> Array:
            return np.repeat(values[:, :1], 50, axis=1)

    assert len(plots.contours(Many(), extent=EXTENT, resolution=5).axes) == plots.MOST_COMPONENTS


@pytest.mark.parametrize("kind", ["list", "numpy", "zarr", "dask", "path", "npy"])
def test_points_are_on_top_in_the_colour_of_their_class(tmp_path: Path, kind: str) -> None:
    values = rows(4)
    points: Any = values
    if kind == "list":
        points = values.tolist()
    elif kind == "zarr":
        points = zarr.create_array({}, data=values, chunks=(3, 2))
    elif kind == "dask":
        points = da.from_array(values, chunks=(3, 2))
    elif kind == "path":
        points = tmp_path / "x.zarr"
        zarr.create_array(points, data=values, chunks=(3, 2))
    elif kind == "npy":
        points = tmp_path / "x.npy"
        np.save(points, values)
    figure = plots.contours(Waves(), points=points, labels=["b", "a", "b", "c"], resolution=5)
    expected = [to_rgba(f"tab:{name}") for name in ("orange", "blue", "orange", "green")]
    for axes in figure.axes:
        on_top = drawn(axes)[2]
        np.testing.assert_array_equal(on_top.get_offsets(), values)
        np.testing.assert_allclose(on_top.get_facecolors(), np.array(expected))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    left, right, bottom, top = (*figure.axes[0].get_xlim(), *figure.axes[0].get_ylim())
    assert left < values[:, 0].min() < values[:, 0].max() < right
    assert bottom < values[:, 1].min() < values[:, 1].max() < top


def test_of_many_points_every_kth_is_shown_and_all_count_for_the_extent() -> None:
    values = rows(3 * plots.MOST_POINTS)
    values[1] = [50, 70]
    labels = np.arange(len(values)) % 6
    figure = plots.contours(Waves(), points=values, labels=labels, resolution=5)
    on_top = drawn(figure.axes[0])[2]
    np.testing.assert_array_equal(on_top.get_offsets(), values[::3])
    assert len(figure.legends[0].get_texts()) == 6
    assert figure.axes[0].get_xlim()[1] > 50
    assert figure.axes[0].get_ylim()[1] > 70


def test_points_that_are_not_finite_are_left_out() -> None:
    values = rows(5)
    values[1, 0], values[3, 1] = np.nan, -np.inf
    figure = plots.contours(Waves(), points=values, labels=list("abcde"), resolution=5)
    np.testing.assert_array_equal(drawn(figure.axes[0])[2].get_offsets(), values[[0, 2, 4]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "c", "e"]


@pytest.mark.parametrize("points", [[[3.0, 4.0]], [[0.0, 0.0]], [[1.0, 2.0], [5.0, 2.0]]])
def test_points_in_one_place_or_on_a_line_have_room_around_them(points: Any) -> None:
    axes = plots.contours(Waves(), points=points, resolution=5).axes[0]
    for (low, high), values in zip((axes.get_xlim(), axes.get_ylim()), np.transpose(points), strict=True):
        assert low < values.min() <= values.max() < high


def test_scores_that_are_not_finite_leave_a_gap() -> None:
    class Root(Waves):
        def transform(self, values: Array) -> Array:
            with np.errstate(invalid="ignore"):
                return np.sqrt(values[:, :1])

    for _, vertices in isolines(plots.contours(Root(), extent=EXTENT, resolution=51).axes[0]):
        assert (vertices[:, 0] >= 0).all()


def test_a_component_that_is_zero_everywhere_is_drawn(tmp_path: Path) -> None:
    class Nothing(Waves):
        def transform(self, values: Array) -> Array:
            return np.zeros((len(values), 1))

    plots.contours(Nothing(), tmp_path / "nothing.png", points=rows(), resolution=5)
    assert (tmp_path / "nothing.png").stat().st_size > 0


@pytest.mark.parametrize(("extent", "aspect"), [(EXTENT, 1.0), ((0, 1, 0, 1000), "auto")])
def test_circles_are_circles_unless_the_features_are_of_different_sizes(extent: Any, aspect: Any) -> None:
    assert plots.contours(Waves(), extent=extent, resolution=5).axes[0].get_aspect() == aspect


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ParameterError, "keeps no rows of its data; give points, or an extent"),
        ({"extent": EXTENT, "labels": [1, 2]}, ParameterError, "labels were given without points"),
        ({"points": np.zeros((5, 3))}, DataError, "has 3 columns; points of a plane have 2"),
        ({"points": np.full((5, 2), np.nan)}, DataError, "none of its 5 points is finite"),
        ({"points": rows(5), "labels": [1, 2]}, DataError, "2 labels for the 5 points"),
        ({"points": rows(21), "labels": range(21)}, ParameterError, "more than 20 distinct labels"),
        ({"extent": EXTENT, "resolution": 1}, ParameterError, "resolution is 1, but must be at least 2"),
        ({"extent": (1, 0, 0, 1)}, ParameterError, r"give \(left, right, bottom, top\)"),
        ({"extent": (0, np.inf, 0, 1)}, ParameterError, "not a part of the plane"),
        ({"extent": EXTENT, "components": [3]}, ParameterError, "no component 3; the model has 0 to 2"),
        ({"extent": EXTENT, "components": [-1]}, ParameterError, "no component -1"),
        ({"extent": EXTENT, "components": []}, ParameterError, "no components to draw"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.contours(Waves(), tmp_path / "waves.png", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [streamdr.PCA, decomposition.PCA])
def test_models_of_other_than_two_features_are_refused(make: Any) -> None:
    three = make(2).fit(np.random.default_rng(0).normal(size=(20, 3)))
    with pytest.raises(DataError, match="two features, and this one takes 3; fit it to two of them"):
        plots.contours(three, extent=EXTENT)


@pytest.mark.parametrize("make", [streamdr.PCA, decomposition.PCA])
def test_an_estimator_that_was_not_fitted_is_refused(make: Any) -> None:
    with pytest.raises(ParameterError, match="PCA is neither a model nor a fitted estimator"):
        plots.contours(make(2), extent=EXTENT)


def test_pyplot_is_never_imported() -> None:
    code = """if True:
        import sys
        import numpy as np
        import streamdr
        from streamdr import plots
        before = "matplotlib" in sys.modules
        model = streamdr.PCA(2).fit(np.random.default_rng(0).normal(size=(20, 2)))
        plots.contours(model, points=np.eye(2), labels=[1, 2], resolution=5)
        plots.eigenvalues(model.model_)
        print(before, "matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
