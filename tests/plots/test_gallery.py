"""The gallery's pictures are drawn by what is here, and small exercises come out as they do by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gallery
import numpy as np
import pytest
from matplotlib import image
from sklearn.metrics.pairwise import pairwise_kernels

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "KERNEL_PCA_GALLERY.md").read_text()
LARGEST = 120_000


EXHIBITS: dict[str, Any] = gallery.exhibits()
GRID = np.random.default_rng(0).uniform(-2, 2, (50, 2))


def kernel(name: str) -> Any:
    """The kernel of an exhibit of few points, as scikit-learn has it."""
    if name.endswith("rbf"):
        return lambda left, right: pairwise_kernels(left, right, "rbf", gamma=1.0)
    return lambda left, right: (left @ right.T) ** int(name[-1])


def same_up_to_sign(found: np.ndarray, expected: np.ndarray) -> None:
    sign = np.sign(found @ expected)
    np.testing.assert_allclose(found, sign * expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_is_drawn_small_enough_to_keep(name: str, tmp_path: Path) -> None:
    for title, figure in EXHIBITS[name].figures(name).items():
        gallery.write(figure, tmp_path / f"{title}.png")
        assert (tmp_path / f"{title}.png").stat().st_size < LARGEST
        assert image.imread(tmp_path / f"{title}.png").std() > 0


def test_the_page_shows_every_picture_that_there_is() -> None:
    shown = re.findall(r"\]\(images/kernel_pca/(\w+)\.png\)", PAGE)
    there = {path.stem for path in gallery.HERE.glob("*.png")}
    extra = {f"{name}_scores" for name, one in EXHIBITS.items() if getattr(one, "with_scores", False)}
    assert set(shown) == there == EXHIBITS.keys() | extra
    assert len(shown) == len(there)
    assert all((gallery.HERE / f"{name}.png").stat().st_size < LARGEST for name in there)


def test_the_code_on_the_page_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    assert len(found["figure"].axes) == 4


@pytest.mark.parametrize("name", ["two_points_rbf", "two_points_poly1", "two_points_poly2"])
def test_two_points_have_one_component_which_is_a_difference_of_two_kernels(name: str) -> None:
    x, y = gallery.TWO_POINTS
    k = kernel(name)
    (xx, xy), (_, yy) = k(gallery.TWO_POINTS, gallery.TWO_POINTS)
    eigenvalue = (xx + yy) / 2 - xy
    model = EXHIBITS[name].fitted().model_
    assert model.eigenvalues == pytest.approx([eigenvalue], rel=1e-12)
    same_up_to_sign(model.eigenvectors[:, 0], np.array([1, -1]) / np.sqrt(2))
    difference = (k(GRID, x[None]) - k(GRID, y[None]))[:, 0] - (xx - yy) / 2
    same_up_to_sign(model.transform(GRID)[:, 0], difference / np.sqrt(2 * eigenvalue))


@pytest.mark.parametrize("name", [name for name in EXHIBITS if re.match("three_points_(rbf|poly)", name)])
def test_three_equidistant_points_have_one_eigenvalue_twice_and_its_plane_is_what_sums_to_zero(
    name: str,
) -> None:
    points, k = gallery.THREE_POINTS, kernel(name)
    one, other = k(points, points)[0, :2]
    model = EXHIBITS[name].fitted().model_
    np.testing.assert_allclose(model.eigenvalues, [one - other] * 2, rtol=1e-12)
    # Which two vectors of the plane are found is chance; the plane is not.
    projector = np.eye(3) - np.full((3, 3), 1 / 3)
    np.testing.assert_allclose(model.eigenvectors @ model.eigenvectors.T, projector, atol=1e-12)
    dual = np.array([[0, 1, -1] / np.sqrt(2), [1, -0.5, -0.5] / np.sqrt(1.5)]).T
    expected = k(GRID, points) @ dual / np.sqrt(one - other)
    turned = dual.T @ model.eigenvectors
    np.testing.assert_allclose(turned @ turned.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(model.transform(GRID), expected @ turned, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["two_points_by_hand", "three_points_by_hand"])
def test_what_is_done_by_hand_are_eigenvectors_of_the_kernel_matrix(name: str) -> None:
    exhibit = EXHIBITS[name]
    matrix = gallery.rbf(exhibit.points, exhibit.points)
    np.testing.assert_allclose(matrix, pairwise_kernels(exhibit.points, metric="rbf", gamma=1.0), atol=1e-15)
    np.testing.assert_allclose(exhibit.dual.T @ exhibit.dual, np.eye(len(matrix)), atol=1e-15)
    turned = exhibit.dual.T @ matrix @ exhibit.dual
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-15)


def test_quadratic_and_quartic_sums_over_three_points_are_circles_and_the_cubic_is_not() -> None:
    angle = np.linspace(0, 2 * np.pi, 30)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1) * 0.7
    spread = {p: np.ptp(((circle @ gallery.THREE_POINTS.T) ** p).sum(axis=1)) for p in (2, 3, 4)}
    assert spread[2] == pytest.approx(0, abs=1e-12)
    assert spread[4] == pytest.approx(0, abs=1e-12)
    assert spread[3] > 0.1


@pytest.mark.parametrize("name", ["clusters_rbf", "clusters_tanh"])
def test_two_components_separate_the_three_clusters(name: str) -> None:
    exhibit = EXHIBITS[name]
    scores = exhibit.fitted().transform(exhibit.points)[:, :2]
    centres = np.array([scores[exhibit.labels == label].mean(axis=0) for label in range(3)])
    nearest = ((scores[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest, exhibit.labels)


def test_tanh_is_no_kernel_of_a_space_and_the_model_says_so() -> None:
    model = EXHIBITS["clusters_tanh"].fitted().model_
    assert model.negative_eigenvalues > 0
    assert (model.eigenvalues > 0).all()


@pytest.mark.parametrize(("name", "component"), [("circles_rbf", 0), ("circles_poly20", 4)])
def test_one_component_tells_the_circles_apart(name: str, component: int) -> None:
    exhibit = EXHIBITS[name]
    scores = exhibit.fitted().transform(exhibit.points)
    for number in range(component + 1):
        inner, outer = (scores[exhibit.labels == label, number] for label in (0, 1))
        apart = inner.min() > outer.max() or inner.max() < outer.min()
        assert apart == (number == component)


def test_the_pair_of_glasses_is_unfolded_into_a_bow() -> None:
    exhibit = EXHIBITS["glasses_rbf"]
    first, second = exhibit.fitted().transform(exhibit.points)[:, :2].T
    left, right, bridge = (exhibit.labels == label for label in range(3))
    assert abs(first[bridge].mean()) > max(abs(first[left].mean()), abs(first[right].mean()))
    assert second[left].mean() * second[right].mean() < 0
    sides = np.sign(exhibit.points[:, 0])
    assert abs(np.corrcoef(second, exhibit.points[:, 0])[0, 1]) > 0.85
    far = np.abs(exhibit.points[:, 0]) > 1
    assert len(set((np.sign(second) * sides)[far])) == 1
