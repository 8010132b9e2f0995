"""The self-organising map, trained in batches."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Pass, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.methods.som.grid import Grid
from streamdr.methods.som.model import SOMModel, som_outline
from streamdr.methods.som.routes import batch, product_dtype, sample_parts, sample_rows, work_factor
from streamdr.methods.som.statistics import UnitSums
from streamdr.methods.som.training import at_rows, change, in_plane, radii, sample_mean, stepped
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.validation import require, require_products

_CHOICES = {
    "topology": ("rectangular", "hexagonal"),
    "neighborhood": ("gaussian", "bubble"),
    "decay": ("exponential", "linear"),
    "init": ("pca", "random"),
    "precision": ("mixed", "double"),
}

_SIDES = {"pca": 7, "random": 2}
"""The longer side of the map, in initial radii."""


@dataclass(eq=False)
class SOM:
    """Self-organising map (Kohonen map), trained in batches on any number of rows.

    Parameters
    ----------
    height : int
        The number of rows of units.
    width : int
        The number of units in each row of the map.
    topology : "rectangular" or "hexagonal"
        The lattice of the units. On a hexagonal one each unit has six neighbours.
    toroidal : bool
        Whether opposite edges of the map touch. A toroidal hexagonal map needs an even height.
    neighborhood : "gaussian" or "bubble"
        The weight of the rows of a unit at distance d on the map: `exp(-d^2 / (2 sigma^2))`, or 1 up to the
        distance sigma and 0 beyond.
    n_epochs : int
        The number of epochs of training. Each reads the data once.
    sigma : float or None
        The radius of the neighbourhood in the first epoch; neighbours in a row are at distance 1. None means
        a seventh of the longer side of the map (at least 1), or half of it with `init="random"`, which is not
        ordered yet.
    sigma_end : float
        The radius in the last epoch, and in an epoch after an append.
    decay : "exponential" or "linear"
        How the radius shrinks from epoch to epoch.
    init : "pca" or "random"
        Where the units start: in the plane of the first two principal components of a sample, or at rows of
        the sample.
    append_tol : float
        After an append, the map is kept if one more epoch over all rows would move it by at most this
        fraction of the quantisation error (both as root mean squares). Then only the new rows are read.
    precision : "mixed" or "double"
        `"mixed"` computes distances of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    random_state : int
        The seed of the sample that the map starts from.

    References
    ----------
    Kohonen, T. (1982). Self-organized formation of topologically correct feature maps. Biological
    Cybernetics 43, 59-69.

    Kohonen, T. (2013). Essentials of the self-organizing map. Neural Networks 37, 52-65.

    Examples
    --------
    >>> import numpy as np
    >>> from streamdr import SOM
    >>> X = np.random.default_rng(0).random((500, 3))
    >>> som = SOM(4, 5, topology="hexagonal").fit(X)
    >>> som.codebook_.shape, som.predict(X[:3]).shape, som.transform(X[:3]).shape
    ((20, 3), (3,), (3, 2))
    >>> bool(som.hits_.sum() == 500)
    True
    """

    name: ClassVar[str] = "som"
    model: ClassVar[type] = SOMModel
    tags: ClassVar[Tags] = Tags(incremental=False, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"height": 12, "width": 12, "topology": "hexagonal"},)

    height: int = 10
    width: int = 10
    _: KW_ONLY
    topology: Literal["rectangular", "hexagonal"] = "rectangular"
    toroidal: bool = False
    neighborhood: Literal["gaussian", "bubble"] = "gaussian"
    n_epochs: int = 10
    sigma: float | None = None
    sigma_end: float = 0.2
    decay: Literal["exponential", "linear"] = "exponential"
    init: Literal["pca", "random"] = "pca"
    append_tol: float = 0.02
    precision: Literal["mixed", "double"] = "mixed"
    random_state: int = 0

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(3, 4, n_epochs=3),
            cls(4, 3, topology="hexagonal", toroidal=True, n_epochs=2, precision="double"),
            cls(1, 5, neighborhood="bubble", n_epochs=2, sigma=2.0, decay="linear"),
            cls(2, 3, topology="hexagonal", init="random", n_epochs=2, random_state=1),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        for name in ("height", "width", "n_epochs"):
            value = getattr(self, name)
            require(value >= 1, name, f"{value} is not at least 1")
        for name, words in _CHOICES.items():
            value = getattr(self, name)
            require(value in words, name, f"{value!r} is not one of {', '.join(words)}")
        for name in ("sigma", "sigma_end"):
            radius = getattr(self, name)
            require(radius is None or radius > 0, name, f"{radius} is not above 0")
            # Its square must be a number, too.
            require(radius is None or 1e-150 < radius < 1e150, name, f"{radius} is too small or too large")
        require(
            self.sigma is None or self.sigma >= self.sigma_end,
            "sigma",
            f"{self.sigma} is less than sigma_end, {self.sigma_end}: the radius shrinks",
        )
        require(self.append_tol >= 0, "append_tol", f"{self.append_tol} is negative")
        require(
            not (self.toroidal and self.topology == "hexagonal" and self.height % 2),
            "height",
            f"a toroidal map of hexagons has an even number of rows, for its edges to fit, not {self.height}",
        )

    @property
    def grid(self) -> Grid:
        """The grid of the units."""
        return Grid(int(self.height), int(self.width), self.topology, bool(self.toroidal))

    @property
    def schedule(self) -> Array:
        """The radius of each epoch."""
        end, side = float(self.sigma_end), max(self.height, self.width)
        start = max(1.0, side / _SIDES[self.init]) if self.sigma is None else float(self.sigma)
        return radii(max(start, end), end, int(self.n_epochs), self.decay)

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One route: batch training, one pass per epoch."""
        self.check()
        return [batch(self, data)]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """The largest model that a fit can return: all units."""
        return [som_outline(data, self.grid, double=self.precision == "double")]

    def passes(self, data: MatrixSpec, start: SOMModel | None = None) -> Passes:
        """Yield one pass per epoch, and a last one that measures the map as it is saved.

        A fit after an append starts from the model with that same pass. Its sums over the earlier rows are
        in the ledger, so only the new rows are read for it.
        """
        schedule = self.schedule
        if start is not None and start.grid == self.grid:
            return (yield from self._continued(data, start, float(schedule[-1])))
        empty = Sample(data.n_cols, sample_rows(self, data), int(self.random_state), allow_nan=False)
        label = "a sample to begin from"
        sample = yield from draw_sample(empty, data, label, sample_parts(self, data))
        origin = sample_mean(sample.rows, sample.weights).astype(product_dtype(self, data)).astype(np.float64)
        require_products(origin)
        if self.init == "pca":
            codebook = in_plane(sample.rows, sample.weights, self.grid)
        else:
            codebook = at_rows(sample.rows, self.grid, np.random.default_rng(self.random_state))
        del sample
        errors: list[float] = []
        for number, sigma in enumerate(schedule, 1):
            label = f"epoch {number} of {len(schedule)}, radius {sigma:.3g}"
            if errors:
                label += f", quantisation error {errors[-1]:.4g}"
            full = yield from self._pass(data, codebook, origin, label)
            errors.append(full.quantization_error)
            codebook = stepped(full, self.neighborhood, float(sigma))
        full = yield from self._pass(data, codebook, origin, "errors of the map", topographic=True)
        return self._fitted(full, errors, schedule)

    def _continued(self, data: MatrixSpec, start: SOMModel, sigma: float) -> Passes:
        """Continue from a map of the first rows, at the last radius, with at most one epoch."""
        label = "errors of the earlier map"
        full = yield from self._pass(data, start.codebook, start.origin, label, topographic=True)
        codebook = stepped(full, self.neighborhood, sigma)
        errors = [*start.quantization_errors[:-1].tolist(), full.quantization_error]
        if change(start.codebook, full, codebook) <= self.append_tol:
            return self._fitted(full, errors[:-1], start.radii)
        measured = yield from self._pass(data, codebook, start.origin, "errors of the map", topographic=True)
        return self._fitted(measured, errors, np.append(start.radii, sigma))

    def _pass(
        self, data: MatrixSpec, codebook: Array, origin: Array, label: str, *, topographic: bool = False
    ) -> Generator[Pass, Accumulator, UnitSums]:
        """Sum all rows by their best matching units in a codebook."""
        empty = UnitSums(
            codebook, origin, self.grid, double=self.precision == "double", topographic=topographic
        )
        request = Pass(empty, label=label, cost_factor=work_factor(self, data))
        full = cast(UnitSums, (yield request))
        empty.forget_searches()
        full.forget_searches()
        require_products(full.errors, full.sums)
        return full

    def _fitted(self, full: UnitSums, errors: Sequence[float], schedule: Array) -> SOMModel:
        return SOMModel(
            codebook=full.codebook,
            coordinates=full.grid.coordinates,
            hits=full.weights,
            origin=full.origin,
            quantization_error=full.quantization_error,
            topographic_error=full.topographic_error,
            quantization_errors=np.array([*errors, full.quantization_error]),
            radii=np.asarray(schedule, np.float64),
            height=int(self.height),
            width=int(self.width),
            topology=self.topology,
            toroidal=bool(self.toroidal),
            neighborhood=self.neighborhood,
            double=self.precision == "double",
        )
