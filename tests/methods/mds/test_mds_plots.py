"""Plots of MDS: the Shepard diagram, and the stress by iteration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from streamdr import plots
from streamdr.errors import DataError, StoreError


def pairs(n: int = 50, **more: Any) -> SimpleNamespace:
    rng = np.random.default_rng(0)
    wanted = rng.uniform(1, 9, n)
    found = wanted + rng.normal(0, 0.3, n)
    fields = {"shepard_dissimilarities": wanted, "shepard_distances": found, "stress": 0.01234}
    return SimpleNamespace(**{**fields, **more})


@pytest.mark.parametrize("more", [{}, {"shepard_disparities": None}])
def test_a_shepard_diagram_has_pairs_and_the_diagonal(tmp_path: Path, more: dict[str, Any]) -> None:
    model = pairs(**more)
    (axes,) = plots.shepard(model, tmp_path / "shepard.png").axes
    drawn = np.asarray(axes.collections[0].get_offsets())
    np.testing.assert_array_equal(drawn[:, 0], model.shepard_dissimilarities)
    np.testing.assert_array_equal(drawn[:, 1], model.shepard_distances)
    (line,) = axes.lines
    far = max(model.shepard_dissimilarities.max(), model.shepard_distances.max())
    np.testing.assert_array_equal(line.get_xdata(), [0, far])
    np.testing.assert_array_equal(line.get_ydata(), [0, far])
    assert axes.get_title(loc="left") == "50 pairs: stress 0.01234"
    assert image.imread(tmp_path / "shepard.png").std() > 0


def test_disparities_are_drawn_as_steps() -> None:
    order = np.argsort(pairs().shepard_dissimilarities)
    fitted = np.empty(50)
    fitted[order] = np.repeat(np.arange(5.0), 10)
    (axes,) = plots.shepard(pairs(shepard_disparities=fitted)).axes
    (line,) = axes.lines
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(line.get_ydata(), np.sort(fitted))
    np.testing.assert_array_equal(line.get_xdata(), np.sort(pairs().shepard_dissimilarities))


def test_some_of_many_pairs_are_drawn_with_all_steps() -> None:
    n = 3 * plots.MOST_POINTS
    model = pairs(n)
    (axes,) = plots.shepard(model).axes
    assert len(axes.collections[0].get_offsets()) == plots.MOST_POINTS
    model.shepard_disparities = np.sort(model.shepard_distances)[
        np.argsort(np.argsort(model.shepard_dissimilarities))
    ]
    (axes,) = plots.shepard(model).axes
    assert len(axes.lines[0].get_xdata()) == n


def test_missing_pairs_are_left_out() -> None:
    model = pairs()
    model.shepard_dissimilarities[3] = np.nan
    (axes,) = plots.shepard(model).axes
    assert len(axes.collections[0].get_offsets()) == 49
    assert axes.get_title(loc="left").startswith("49 pairs")


@pytest.mark.parametrize("n", [1, 30, 200])
def test_the_stress_curve_has_every_iteration_and_marks_the_last(tmp_path: Path, n: int) -> None:
    history = 0.5 * 0.97 ** np.arange(n)
    (axes,) = plots.stress(SimpleNamespace(stress_history=history), tmp_path / "stress.svg").axes
    assert axes.get_yscale() == "log"
    curve, across, last = axes.lines
    np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, n + 1))
    np.testing.assert_array_equal(curve.get_ydata(), history)
    assert list(last.get_xdata()) == [n]
    assert list(last.get_ydata()) == [history[-1]] == [across.get_ydata()[0]]
    assert f"stress {history[-1]:.4g}" in axes.get_title(loc="left")
    assert (tmp_path / "stress.svg").stat().st_size > 0


def test_a_stress_of_zero_is_left_out_of_the_log_scale() -> None:
    (axes,) = plots.stress(SimpleNamespace(stress_history=np.array([0.1, 0.01, 0.0]))).axes
    (curve,) = axes.lines
    np.testing.assert_array_equal(curve.get_ydata(), [0.1, 0.01])
    assert axes.get_title(loc="left") == "3 iterations: stress 0"


def test_models_without_pairs_or_stress_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pair of rows"):
        plots.shepard(pairs(0))
    for history in ([], [0.0]):
        with pytest.raises(DataError, match="no stress above zero"):
            plots.stress(SimpleNamespace(stress_history=np.array(history)))
    with pytest.raises(StoreError, match=r"picture\.abc: cannot be written"):
        plots.shepard(pairs(), tmp_path / "picture.abc")
    assert list(tmp_path.iterdir()) == []
