"""Kernel PCA: exact for few rows, by landmarks (Nystrom) or random features for any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Model, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import ParameterError
from streamdr.methods.kernel_pca.eigen import exact_axes
from streamdr.methods.kernel_pca.evaluators import (
    KernelEvaluator,
    NamedKernel,
    Pool,
    PrecomputedKernel,
    symmetric,
)
from streamdr.methods.kernel_pca.model import KernelPCAModel, kernel_outline
from streamdr.methods.kernel_pca.nystrom import by_landmarks
from streamdr.methods.kernel_pca.parameters import (
    KernelChoice,
    check_kernel,
    check_search,
    grid_size,
    kernel_evaluator,
    require_rows,
    require_square,
)
from streamdr.methods.kernel_pca.preimages import Ridge
from streamdr.methods.kernel_pca.random_features import by_random_features
from streamdr.methods.kernel_pca.routes import ROUTES
from streamdr.methods.kernel_pca.search import searched
from streamdr.statistics.sample import Sample
from streamdr.statistics.sampling import draw_sample
from streamdr.statistics.validation import require

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
        The number of components; None for all with a positive eigenvalue.
    kernel : str, mapping or function
        `"linear"`, `"poly"`, `"rbf"`, `"sigmoid"`, `"laplacian"`, `"cosine"`, or `"precomputed"` if the data
        is the kernel matrix; in Python also a function of two arrays of rows, or of two rows. `{search:
        {rbf: {gamma: [0.1, 1]}, linear: {}}, folds: 5}` compares them by cross-validation in one pass, and
        fits the best.
    gamma : float, "median" or None
        The coefficient of rbf, laplacian, poly and sigmoid; None for 1 / n_features, `"median"` for
        1 / (2 median distance^2).
    sigma : float or None
        The width of the rbf instead: gamma = 1 / (2 sigma^2).
    degree : int
        The power of poly.
    coef0 : float
        The constant that poly and sigmoid add to products; with 0 poly is homogeneous.
    approximation : "auto", "exact", "nystrom" or "random_features"
        `"exact"` uses the kernel between all rows, `"nystrom"` between all rows and landmarks,
        `"random_features"` draws random features of an rbf or laplacian kernel. `"auto"` chooses by the
        number of rows and the memory limit.
    n_landmarks : int, float or None
        The number of landmarks (or random features), or the fraction of the kernel's trace that they must
        capture; None for up to 1000 (200 for a search).
    landmarks : "rpcholesky", "uniform", "kmeans" or list of rows
        How landmarks are chosen: randomly pivoted Cholesky, uniformly random rows, centres of clusters, or
        the rows that are given.
    fit_inverse_transform : bool
        Fit a kernel ridge regression for `inverse_transform`. The rbf kernel does not need it.
    alpha : float
        The ridge parameter of that regression.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64, unless that would
        change variances by more than a few thousandths of the largest; `"double"` computes them in float64.
    random_state : int
        Seeds the sample of rows and the choice of landmarks from it.

    References
    ----------
    Schölkopf, Smola and Müller, Nonlinear component analysis as a kernel eigenvalue problem, Neural
    Computation 10 (1998).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> kernel_pca = streamdr.KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    >>> kernel_pca.eigenvalues_.round(2)
    array([1.31, 1.1 ])
    """

    name: ClassVar[str] = "kernel_pca"
    model: ClassVar[type] = KernelPCAModel
    tags: ClassVar[Tags] = Tags(incremental=False, feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"n_components": 2, "gamma": "median", "approximation": "nystrom", "n_landmarks": 200},
    )

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

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(3, gamma="median"),
            cls(3, gamma="median", approximation="nystrom", n_landmarks=20),
            cls(2, gamma="median", approximation="nystrom", n_landmarks=0.8, precision="double"),
            cls(2, gamma="median", approximation="nystrom", n_landmarks=5, landmarks="kmeans"),
            cls(2, gamma="median", approximation="random_features", n_landmarks=30),
            cls(
                2, kernel={"search": {"rbf": {"gamma": ["median"]}, "linear": {}}, "folds": 3}, n_landmarks=9
            ),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        if self.searches:
            check_search(self)
            counted = self.n_components is not None
            require(
                counted,
                "n_components",
                "kernels are compared by the variance that n_components explain: set it to a number",
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
            require(able, "approximation", "random features exist for the rbf and laplacian kernels only")
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
        invertible = self.approximation != "random_features" and self.kernel != "precomputed"
        require(
            invertible or not self.fit_inverse_transform,
            "fit_inverse_transform",
            "random features and precomputed kernels have no inverse transform",
        )
        require(self.alpha > 0, "alpha", f"{self.alpha} is not above 0")
        require(
            self.precision in ("mixed", "double"),
            "precision",
            f"{self.precision!r} is neither 'mixed' nor 'double'",
        )

    def _check_landmarks(self) -> None:
        """Refuse impossible values of `landmarks`."""
        ways = ("rpcholesky", "uniform", "kmeans")
        if isinstance(self.landmarks, str):
            require(
                self.landmarks in ways, "landmarks", f"{self.landmarks!r} is not one of {', '.join(ways)}"
            )
            by_trace = self.fraction is None or self.landmarks == "rpcholesky"
            require(by_trace, "n_landmarks", "a fraction of the trace needs landmarks: rpcholesky")
            has_rows = self.kernel != "precomputed" or self.landmarks != "kmeans"
            require(has_rows, "landmarks", "kmeans needs rows, and a precomputed kernel has none")
            return
        rows = np.asarray(self.landmarks)
        sound = rows.ndim == 2 and len(rows) and np.isfinite(rows).all()
        require(sound, "landmarks", "landmarks must be rows of finite numbers: a list of lists")
        require(
            self.kernel != "precomputed",
            "landmarks",
            "landmarks cannot be given for a precomputed kernel: they are rows of it",
        )

    @property
    def searches(self) -> bool:
        """Whether the parameters ask for a search over kernels."""
        return isinstance(self.kernel, dict)

    @property
    def n_searched(self) -> tuple[int, int]:
        """The numbers of kernels and of folds of a search."""
        return grid_size(self) if self.searches else (1, 1)

    @property
    def fraction(self) -> float | None:
        """The fraction of the trace that landmarks must capture, if requested."""
        m = self.n_landmarks
        return float(m) if m is not None and 0 < m < 1 else None

    def most_landmarks(self, data: MatrixSpec) -> int:
        """The largest number of landmarks."""
        if not isinstance(self.landmarks, str):
            return len(self.landmarks)
        if self.fraction is not None:
            return min(_MOST_LANDMARKS, data.n_rows)
        usual = _SEARCH_LANDMARKS if self.searches else _USUAL_LANDMARKS
        return min(usual, data.n_rows) if self.n_landmarks is None else int(self.n_landmarks)

    def sample_rows(self, data: MatrixSpec) -> int:
        """The number of rows that landmarks are chosen from."""
        m = self.most_landmarks(data)
        wanted = min(max(_SAMPLE_ROWS, 5 * m), _SAMPLE_BYTES // (8 * data.n_cols))
        return min(max(wanted, m), data.n_rows)

    def whitened(self, data: MatrixSpec) -> bool:
        """Whether features are whitened before they are summed.

        It takes three times the products, and is accurate where landmarks are nearly dependent. It is done in
        double precision, and where there are so few rows that it costs less than the solve.
        """
        return self.precision == "double" or data.n_rows <= 8 * self.most_landmarks(data)

    def lacks(self, what: str) -> str | None:
        """Why models of these parameters do not denoise."""
        if what != "denoise" or self.fit_inverse_transform:
            return None
        if self.searches:
            return (
                "the best kernel of a search may have no inverse transform: set fit_inverse_transform: true"
            )
        if self.approximation == "random_features" or self.kernel == "precomputed":
            return "random features and precomputed kernels have no inverse transform"
        if self.kernel in ("rbf", "linear"):
            return None
        return "only rbf and linear have an inverse transform by default: set fit_inverse_transform: true"

    def using(self, route: str) -> Self:
        """The same method with its approximation fixed."""
        return replace(self, approximation=route)  # type: ignore[arg-type]  # one of ROUTES

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible approximations, with their costs."""
        self.check()
        require_square(self, data)
        require_rows(self.n_components, data)
        if self.approximation == "exact":
            return [ROUTES["exact"](self, data)]
        if self.approximation != "auto":
            self._require_room(data)
            return [ROUTES[self.approximation](self, data)]
        tiny = data.n_rows <= self.most_landmarks(data)
        names = ["exact"] if data.n_rows <= _EXACT_ROWS or tiny else []
        if not isinstance(self.landmarks, str) or self.searches:
            names = []
        if not (names and tiny):
            self._require_room(data)
            names.append("nystrom")
        return [ROUTES[name](self, data) for name in names]

    def _require_room(self, data: MatrixSpec) -> None:
        """Refuse landmarks that are too many for the data, or too few for the components."""
        m, k = self.most_landmarks(data), self.n_components
        explicit = self.approximation == "nystrom" or self.searches
        if explicit and m > data.n_rows and isinstance(self.landmarks, str):
            raise ParameterError(
                "n_landmarks",
                f"{m} landmarks of {data.n_rows} rows: set n_landmarks to at most {data.n_rows}, or "
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
        """A model with the largest possible numbers of landmarks and components."""
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
        raise ParameterError("approximation", "'auto' is not a route: choose one with `using` first")

    def _exact(self, data: MatrixSpec) -> Passes:
        """One pass that gathers all rows, and the eigenvectors of their centred kernel matrix."""
        empty = Sample(data.n_cols, data.n_rows, allow_nan=False)
        pool = Pool.from_sample((yield from draw_sample(empty, data, "all rows")))
        kind = kernel_evaluator(self, data, pool)
        kernel = symmetric(kind, pool)
        axes = exact_axes(kernel, pool.weights, self.n_components, definite=kind.definite)
        return self.build_model(kind, pool, "exact", axes.fields(), double=True)

    def build_model(
        self,
        kind: KernelEvaluator,
        landmarks: Pool,
        approximation: Any,
        fields: dict[str, Any],
        *,
        double: bool,
    ) -> KernelPCAModel:
        """The model of axes in the span of landmarks. It transforms rows in the precision of the fit."""
        model = KernelPCAModel(
            approximation=approximation,
            **kind.fields(),
            **fields,
            wanted=self.n_components,
            landmarks=None if isinstance(kind, PrecomputedKernel) else landmarks.rows,
            landmark_rows=landmarks.numbers.astype(np.float64),
            alpha=self.alpha,
            double=double,
        )
        if not self.fit_inverse_transform:
            return model
        if not isinstance(kind, NamedKernel):
            raise ParameterError(
                "fit_inverse_transform", "an inverse transform can be fitted for named kernels only"
            )
        ridge = Ridge.fitted(kind.kernel, model.landmark_scores, landmarks.rows, self.alpha)
        return replace(model, dual_coefficients=ridge.dual)
