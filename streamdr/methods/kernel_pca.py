"""Kernel PCA: exact for few rows, by landmarks (Nystrom) or random features for any number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from streamdr.accumulators import Sample
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import ParameterError
from streamdr.methods.base import Model, Passes, Route
from streamdr.methods.checks import require
from streamdr.methods.kernel_axes import exact_axes
from streamdr.methods.kernel_kinds import KernelKind, Named, Pool, Stored, symmetric
from streamdr.methods.kernel_parameters import (
    KernelChoice,
    check_kernel,
    check_search,
    grid_size,
    kind_of,
    require_rows,
    require_square,
)
from streamdr.methods.kernel_pca_model import KernelPCAModel
from streamdr.methods.kernel_routes import ROUTES
from streamdr.methods.kernel_search import searched
from streamdr.methods.nystrom import by_landmarks
from streamdr.methods.outlines import kernel_outline
from streamdr.methods.parameters import require_types
from streamdr.methods.preimages import Ridge
from streamdr.methods.random_features import by_random_features
from streamdr.methods.sampling import sampled

if TYPE_CHECKING:
    LandmarkChoice = Literal["rpcholesky", "uniform", "kmeans"] | list[list[float]] | Array
else:
    LandmarkChoice = Literal["rpcholesky", "uniform", "kmeans"] | list[list[float]]

_USUAL_LANDMARKS, _SEARCH_LANDMARKS, _MOST_LANDMARKS = 1000, 200, 2000
_EXACT_ROWS = 5_000
_SAMPLE_ROWS, _SAMPLE_BYTES = 5_000, 64 << 20


@dataclass(eq=False)
class KernelPCA:
    """Kernel principal component analysis of data of any length.

    Parameters
    ----------
    n_components : int or None
        How many components to keep; None for all with an eigenvalue above zero.
    kernel : str, mapping or function
        `"linear"`, `"poly"`, `"rbf"`, `"sigmoid"`, `"laplacian"`, `"cosine"`, or `"precomputed"` for data
        that is the kernel matrix itself; in Python also a function of two arrays of rows, or of two rows.
        `{search: {rbf: {gamma: [0.1, 1]}, linear: {}}, folds: 5}` tries them all by cross-validation in one
        reading of the data, and fits the best.
    gamma : float, "median" or None
        The coefficient of rbf, laplacian, poly and sigmoid; None for 1 / n_features, `"median"` for
        1 / (2 median distance^2).
    sigma : float or None
        The width of the rbf instead: gamma = 1 / (2 sigma^2).
    degree : int
        The power of poly.
    coef0 : float
        What poly and sigmoid add to products: 0 makes poly homogeneous.
    approximation : "auto", "exact", "nystrom" or "random_features"
        `"exact"` takes the kernel between all rows, `"nystrom"` between all rows and landmarks,
        `"random_features"` draws features of an rbf or laplacian. `"auto"` picks by rows and memory limit.
    n_landmarks : int, float or None
        How many landmarks (or random features), or the fraction of the kernel's trace that they must hold;
        None for up to 1000 (200 for a search).
    landmarks : "rpcholesky", "uniform", "kmeans" or list of rows
        How landmarks are chosen: rows by randomly pivoted Cholesky, any rows, centres of clusters, or the
        rows that are given.
    fit_inverse_transform : bool
        Learn the way back to rows by kernel ridge regression. The rbf has one without.
    alpha : float
        The ridge of that regression.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64, unless that would cost
        variances more than a few thousandths of the largest; `"double"` takes them in float64.
    random_state : int
        Seeds the sample of rows that landmarks are chosen from, and their choice.
    """

    name: ClassVar[str] = "kernel_pca"
    model: ClassVar[type] = KernelPCAModel

    n_components: int | None = None
    _: KW_ONLY
    kernel: KernelChoice = "rbf"
    gamma: float | Literal["median"] | None = None
    sigma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    approximation: Literal["auto", "exact", "nystrom", "random_features"] = "auto"
    n_landmarks: int | float | None = None
    landmarks: LandmarkChoice = "rpcholesky"
    fit_inverse_transform: bool = False
    alpha: float = 1.0
    precision: Literal["mixed", "double"] = "mixed"
    random_state: int = 0

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        if self.searches:
            check_search(self)
            counted = self.n_components is not None
            require(
                counted, "n_components", "kernels are compared by what so many components explain: give one"
            )
        else:
            check_kernel(self)
        k = self.n_components
        whole = isinstance(k, Integral) and not isinstance(k, bool)
        require(k is None or (whole and k >= 1), "n_components", f"{k!r} is not a whole number of at least 1")
        approximations = ("auto", *ROUTES)
        require(
            self.approximation in approximations,
            "approximation",
            f"{self.approximation!r} is not one of {', '.join(approximations)}",
        )
        if self.approximation == "random_features":
            able = self.kernel in ("rbf", "laplacian")
            require(able, "approximation", "random features are known for the rbf and laplacian kernels only")
        require(
            not (self.searches and self.approximation not in ("auto", "nystrom")),
            "approximation",
            f"a search for a kernel compares Nystrom approximations, not {self.approximation!r}",
        )
        m = self.n_landmarks
        if m is not None:
            number = isinstance(m, Real) and not isinstance(m, bool)
            require(number, "n_landmarks", f"{m!r} is not a number")
            sound = 0 < m < 1 or (float(m).is_integer() and 1 <= m < 2**63)
            require(sound, "n_landmarks", f"{m!r} is not a whole number, or a fraction between 0 and 1")
        self._check_landmarks()
        back = self.approximation != "random_features" and self.kernel != "precomputed"
        require(
            back or not self.fit_inverse_transform,
            "fit_inverse_transform",
            "there is no way back from random features or a precomputed kernel",
        )
        require(self.alpha > 0, "alpha", f"{self.alpha} is not above 0")
        require(self.precision in ("mixed", "double"), "precision", f"{self.precision!r} is no precision")

    def _check_landmarks(self) -> None:
        ways = ("rpcholesky", "uniform", "kmeans")
        if isinstance(self.landmarks, str):
            require(
                self.landmarks in ways, "landmarks", f"{self.landmarks!r} is not one of {', '.join(ways)}"
            )
            by_trace = self.fraction is None or self.landmarks == "rpcholesky"
            require(by_trace, "n_landmarks", "a fraction of the trace needs landmarks: rpcholesky")
            rows = self.kernel != "precomputed" or self.landmarks != "kmeans"
            require(rows, "landmarks", "kmeans needs rows, and a precomputed kernel has none")
            return
        given = np.asarray(self.landmarks)
        sound = given.ndim == 2 and len(given) and np.isfinite(given).all()
        require(sound, "landmarks", "landmarks that are given are rows of finite numbers: a list of lists")
        require(self.kernel != "precomputed", "landmarks", "a precomputed kernel's landmarks are rows of it")

    @property
    def searches(self) -> bool:
        """Whether the kernel is to be searched for."""
        return isinstance(self.kernel, dict)

    @property
    def n_searched(self) -> tuple[int, int]:
        """How many kernels are tried, in how many folds."""
        return grid_size(self) if self.searches else (1, 1)

    @property
    def fraction(self) -> float | None:
        """The fraction of the trace that landmarks must hold, if that was asked for."""
        m = self.n_landmarks
        return float(m) if m is not None and 0 < m < 1 else None

    def most_landmarks(self, data: MatrixSpec) -> int:
        """How many landmarks there may be."""
        if not isinstance(self.landmarks, str):
            return len(self.landmarks)
        if self.fraction is not None:
            return min(_MOST_LANDMARKS, data.n_rows)
        usual = _SEARCH_LANDMARKS if self.searches else _USUAL_LANDMARKS
        return min(usual, data.n_rows) if self.n_landmarks is None else int(self.n_landmarks)

    def sample_rows(self, data: MatrixSpec) -> int:
        """How many rows landmarks are chosen from."""
        m = self.most_landmarks(data)
        wanted = min(max(_SAMPLE_ROWS, 5 * m), _SAMPLE_BYTES // (8 * data.n_cols))
        return min(max(wanted, m), data.n_rows)

    def whitened(self, data: MatrixSpec) -> bool:
        """Whether features are whitened as they come.

        It takes three times the products, and is safe where landmarks are nearly dependent: done when asked
        for double precision, and where rows are so few that it costs less than the solve.
        """
        return self.precision == "double" or data.n_rows <= 8 * self.most_landmarks(data)

    def lacks(self, what: str) -> str | None:
        """Why models of these parameters do not denoise."""
        if what != "denoise" or self.fit_inverse_transform:
            return None
        if self.searches:
            return "the kernel that a search finds may have no way back: set fit_inverse_transform: true"
        if self.approximation == "random_features" or self.kernel == "precomputed":
            return "there is no way back from random features or a precomputed kernel"
        if self.kernel in ("rbf", "linear"):
            return None
        return "only the rbf and linear kernels have a way back of their own: set fit_inverse_transform: true"

    def using(self, route: str) -> Self:
        """The same with its approximation fixed."""
        return replace(self, approximation=route)  # type: ignore[arg-type]  # one of ROUTES

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The approximations that can do this, with what they would take."""
        self.check()
        require_square(self, data)
        require_rows(self.n_components, data)
        if self.approximation == "exact":
            return [ROUTES["exact"](self, data)]
        if self.approximation != "auto":
            self._require_room(data)
            return [ROUTES[self.approximation](self, data)]
        tiny = data.n_rows <= self.most_landmarks(data)
        ways = ["exact"] if data.n_rows <= _EXACT_ROWS or tiny else []
        if not isinstance(self.landmarks, str) or self.searches:
            ways = []
        if not (ways and tiny):
            self._require_room(data)
            ways.append("nystrom")
        return [ROUTES[way](self, data) for way in ways]

    def _require_room(self, data: MatrixSpec) -> None:
        """Refuse landmarks that are too many for the data, or too few for the components."""
        m, k = self.most_landmarks(data), self.n_components
        asked = self.approximation == "nystrom" or self.searches
        if asked and m > data.n_rows and isinstance(self.landmarks, str):
            raise ParameterError(
                "n_landmarks",
                f"{m} landmarks of {data.n_rows} rows: ask for {data.n_rows} or fewer, or for "
                "approximation: exact",
            )
        if not isinstance(self.landmarks, str) and np.shape(self.landmarks)[1] != data.n_cols:
            raise ParameterError(
                "landmarks",
                f"they have {np.shape(self.landmarks)[1]} features, and the data has {data.n_cols}",
            )
        if k is not None and k > m:
            raise ParameterError("n_components", f"{k} components need as many landmarks, and there are {m}")

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of as many landmarks and components as there may be."""
        m = data.n_rows if self.approximation == "exact" else self.most_landmarks(data)
        inverse = self.fit_inverse_transform
        return [kernel_outline(data, self.approximation, m, self.n_components or m, inverse=inverse)]

    def passes(self, data: MatrixSpec, start: KernelPCAModel | None = None) -> Passes:
        """The passes of the chosen approximation."""
        if self.approximation == "exact":
            return self._exact(data)
        if self.approximation == "nystrom":
            again = self.searches and start is None
            return searched(self, data) if again else by_landmarks(self, data, start)
        if self.approximation == "random_features":
            return by_random_features(self, data, start)
        raise ParameterError("approximation", "'auto' stands for one of the routes: choose one of them first")

    def _exact(self, data: MatrixSpec) -> Passes:
        empty = Sample(data.n_cols, data.n_rows, holes=False)
        pool = Pool.of((yield from sampled(empty, data, "all rows")))
        kind = kind_of(self, data, pool)
        kernel = symmetric(kind, pool)
        axes = exact_axes(kernel, pool.weights, self.n_components, definite=kind.definite)
        return self.assembled(kind, pool, "exact", axes.fields(), double=True)

    def assembled(
        self, kind: KernelKind, landmarks: Pool, way: Any, fields: dict[str, Any], *, double: bool
    ) -> KernelPCAModel:
        """The model of axes that were found by some landmarks. It maps rows in the precision of the fit."""
        model = KernelPCAModel(
            approximation=way,
            **kind.fields(),
            **fields,
            wanted=self.n_components,
            landmarks=None if isinstance(kind, Stored) else landmarks.rows,
            landmark_rows=landmarks.numbers.astype(np.float64),
            alpha=self.alpha,
            double=double,
        )
        if not self.fit_inverse_transform:
            return model
        if not isinstance(kind, Named):
            raise ParameterError(
                "fit_inverse_transform", "the way back is learnt with a kernel that is known by its name"
            )
        ridge = Ridge.fitted(kind.kernel, model.landmark_scores, landmarks.rows, self.alpha)
        return replace(model, dual_coefficients=ridge.dual)
