"""Draws the pictures of KERNEL_PCA_GALLERY.md, into docs/images/kernel_pca or the folder that is named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from streamdr import KernelPCA, plots
from streamdr.core.blocks import Array
from streamdr.plots.plane import Extent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).parent / "images" / "kernel_pca"
DPI = 100
COLOURS = 256
"""In a palette a picture is a third as large."""

TWO_POINTS = np.array([[1.0, 0.2], [0.4, 1.0]])
CORNERS = np.pi / 2 + 2 * np.pi * np.arange(3) / 3
THREE_POINTS = np.stack([np.cos(CORNERS), np.sin(CORNERS)], axis=1)
"""Equally far from each other, and from the origin: polynomial kernels know where that is."""

AROUND_TWO = (-1.5, 2.0, -1.5, 2.0)
AROUND_THREE = (-1.6, 1.6, -1.6, 1.6)


@dataclass(frozen=True)
class Exhibit:
    """Points, and the kernel PCA that is fitted to them."""

    points: Array
    method: KernelPCA
    extent: Extent | None = None
    labels: Array | None = None
    with_scores: bool = False

    def fitted(self) -> KernelPCA:
        """The kernel PCA of the points: exact, since they are few."""
        return self.method.fit(self.points)

    def figures(self, name: str) -> dict[str, Figure]:
        """Its isolines and, where that says more, where the points fall."""
        model = self.fitted()
        isolines = plots.contours(model, points=self.points, labels=self.labels, extent=self.extent)
        if not self.with_scores:
            return {name: isolines}
        return {name: isolines, f"{name}_scores": plots.scores(model.transform(self.points), self.labels)}


@dataclass(frozen=True)
class ByHand:
    """Sums of kernels, before any centring: sum_j alpha_j k(x_j, x) for each column alpha of `dual`."""

    points: Array
    dual: Array
    kernel: Callable[[Array, Array], Array]
    extent: Extent
    n_features = 2

    def transform(self, values: Array) -> Array:
        """The projections of rows, in the words of the exercise."""
        return self.kernel(values, self.points) @ self.dual

    def figures(self, name: str) -> dict[str, Figure]:
        """One small picture a dual eigenvector, which is named up to its length."""
        figure = plots.contours(self, points=self.points, extent=self.extent)
        for axes, alpha in zip(figure.axes, self.dual.T, strict=True):
            shown = ", ".join(f"{weight:g}" for weight in np.round(alpha / np.abs(alpha).max(), 6))
            axes.set_title(f"[{shown}]", loc="left", fontsize=8)
        return {name: figure}


def rbf(left: Array, right: Array) -> Array:
    """exp(-|x - y|^2) between all rows."""
    return np.exp(-((left[:, None] - right) ** 2).sum(axis=2))


def homogeneous(degree: int) -> KernelPCA:
    """The kernel <x, y>^p."""
    return KernelPCA(kernel="poly", gamma=1.0, coef0=0.0, degree=degree)


def ring(centre: tuple[float, float], radius: float, n_points: int, rng: Any) -> Array:
    """Points around a centre, not quite on the circle."""
    angle = 2 * np.pi * np.arange(n_points) / n_points
    circle = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return centre + circle + rng.normal(0, 0.03, circle.shape)


def clusters() -> tuple[Array, Array]:
    """Three Gaussian clusters of standard deviation 0.1, with their numbers."""
    rng = np.random.default_rng(0)
    centres = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
    return np.concatenate([rng.normal(centre, 0.1, (30, 2)) for centre in centres]), np.repeat([0, 1, 2], 30)


def circles() -> tuple[Array, Array]:
    """A small circle within a large one, with their numbers."""
    rng = np.random.default_rng(0)
    both = [ring((0, 0), 0.3, 60, rng), ring((0, 0), 1.0, 120, rng)]
    return np.concatenate(both), np.repeat([0, 1], [60, 120])


def glasses() -> tuple[Array, Array]:
    """Two lenses and the bridge between them, with their numbers."""
    rng = np.random.default_rng(0)
    bridge = np.stack([np.linspace(-0.4, 0.4, 20), np.full(20, 0.15)], axis=1)
    parts = [ring((-1.4, 0), 1.0, 80, rng), ring((1.4, 0), 1.0, 80, rng), bridge]
    return np.concatenate(parts), np.repeat([0, 1, 2], [80, 80, 20])


def exhibits() -> dict[str, Exhibit | ByHand]:
    """Everything in the gallery, by the name of its picture."""
    three, of_three = clusters()
    two, of_two = circles()
    pair, of_pair = glasses()
    sums_of_two = np.array([[1, 1], [1, -1]]).T / np.sqrt(2)
    sums_of_three = np.array([[1, 1, 1], [0, 1, -1], [1, -0.5, -0.5]]).T / np.sqrt([3, 2, 1.5])
    region = (-1.0, 1.0, -0.5, 1.0)
    return {
        "two_points_by_hand": ByHand(TWO_POINTS, sums_of_two, rbf, AROUND_TWO),
        "two_points_rbf": Exhibit(TWO_POINTS, KernelPCA(kernel="rbf", gamma=1.0), AROUND_TWO),
        **{f"two_points_poly{p}": Exhibit(TWO_POINTS, homogeneous(p), AROUND_TWO) for p in (1, 2)},
        "three_points_by_hand": ByHand(THREE_POINTS, sums_of_three, rbf, AROUND_THREE),
        "three_points_rbf": Exhibit(THREE_POINTS, KernelPCA(kernel="rbf", gamma=1.0), AROUND_THREE),
        **{f"three_points_poly{p}": Exhibit(THREE_POINTS, homogeneous(p), AROUND_THREE) for p in (2, 3, 4)},
        "clusters_rbf": Exhibit(three, KernelPCA(8, kernel="rbf", gamma=10.0), region, of_three),
        "clusters_tanh": Exhibit(
            three, KernelPCA(3, kernel="sigmoid", gamma=2.0, coef0=1.0), region, of_three
        ),
        "circles_rbf": Exhibit(two, KernelPCA(4, kernel="rbf", sigma=0.5), None, of_two, True),
        "circles_poly20": Exhibit(
            two, KernelPCA(6, kernel="poly", degree=20, gamma=1 / 20, coef0=1.0), None, of_two, True
        ),
        "glasses_rbf": Exhibit(pair, KernelPCA(4, kernel="rbf", sigma=0.9), None, of_pair, True),
    }


def write(figure: Figure, path: Path) -> None:
    """Write a picture of few colours: it is kept for good, and looked at in a browser."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main(folder: Path = HERE) -> None:
    """Draw everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, exhibit in exhibits().items():
        for title, figure in exhibit.figures(name).items():
            write(figure, folder / f"{title}.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
