"""Principal component analysis by the covariance, the Gram matrix or block Krylov iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Model, Passes, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca import solvers
from streamdr.methods.pca.bootstrap import (
    check_bootstrap,
    require_blocks,
)
from streamdr.methods.pca.model import PCAModel, pca_outline
from streamdr.methods.pca.rotation import check_rotation
from streamdr.methods.pca.routes import ROUTES
from streamdr.methods.pca.significance import CRITERIA
from streamdr.statistics.validation import require


@dataclass(eq=False)
class PCA:
    """Principal component analysis of data of any length, and of any width.

    Parameters
    ----------
    n_components : int, float, "mle", "parallel", "broken_stick" or None
        How many components to keep: a number, the fraction of variance to explain (more than 0 and less
        than 1), `"mle"` for Minka's evidence, `"parallel"` for those that explain more than noise of the
        same shape does, `"broken_stick"` for those that explain more than the pieces of a stick broken at
        random, or None (or 1.0) for all that have any variance.
    whiten : "pca", "zca", bool or None
        Scale scores to unit variance; `"zca"` also rotates them back to the features, the whitening closest
        to the data. True means `"pca"`, False means None.
    scale : bool
        Divide each column by its standard deviation first: PCA of the correlation matrix. Without centring,
        columns are divided by their root mean squares.
    center : bool
        Subtract the mean of each column first. False gives the singular vectors of the data itself:
        variances are then mean squares about zero.
    solver : "auto", "covariance", "gram" or "krylov"
        `"covariance"` is exact in one pass for up to some ten thousand columns, `"gram"` exact in two for
        few rows, `"krylov"` iterative when both dimensions are large. `"auto"` picks by shape, cost and
        memory limit.
    ddof : int
        The covariance divides by n - ddof.
    random_state : int
        Seeds the start of `"krylov"`.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    n_oversamples : int
        Extra vectors that `"krylov"` iterates, and that a bootstrap follows, in addition to `n_components`.
    max_passes : int
        The largest number of passes of `"krylov"` over the data; 2 at least where it reads by columns.
    tol : float
        `"krylov"` stops early when each residual |S u - lambda u| is below tol times its lambda.
    rotation : "varimax", "promax" or None
        Rotate the components towards few large loadings each, by an orthogonal matrix or an oblique one.
        Nothing more is read.
    n_rotated : int or None
        How many of the leading components to rotate; None for all of them.
    rotation_power : float
        The power of `"promax"`, more than 1: components are more correlated the larger it is.
    n_effective : float or None
        The number of independent rows, for the errors of variances and for `"parallel"`, where successive
        rows are similar; None for the number of rows, or the sum of their weights.
    n_bootstrap : int
        How many times blocks of rows are drawn, to estimate the errors of variances and how stable components
        are; 0 for no bootstrap. It takes one more pass, with `"gram"` none.
    bootstrap_rows : int or None
        The number of consecutive rows in a block, longer than rows are similar; None for about 64 blocks.

    See Also
    --------
    PPCA : With missing values.
    KernelPCA : Along curves.

    References
    ----------
    Halko, Martinsson and Tropp, Finding structure with randomness, SIAM Review 53 (2011).
    Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000).
    Horn, A rationale and test for the number of factors in factor analysis, Psychometrika 30 (1965).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> pca = streamdr.PCA(n_components=2).fit(X)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.517, 0.348])
    >>> pca.transform(X).shape
    (6, 2)
    """

    name: ClassVar[str] = "pca"
    model: ClassVar[type] = PCAModel
    tags: ClassVar[Tags] = Tags(
        inexact_on=("rank one", "constant column"), feature_subset=True, weighs_features=True
    )
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"n_components": 2},
        {"as": "pca_whitened", "n_components": 2, "whiten": "pca"},
    )
    added_parameters: ClassVar[Mapping[str, Any]] = {
        "center": True,
        "rotation": None,
        "n_rotated": None,
        "rotation_power": 4.0,
        "n_effective": None,
        "n_bootstrap": 0,
        "bootstrap_rows": None,
    }
    """Parameters that earlier versions lacked, with the equivalent values: their outputs stay up to date."""

    n_components: int | float | Literal["mle", "parallel", "broken_stick"] | None = None
    _: KW_ONLY
    whiten: Literal["pca", "zca"] | bool | None = None
    scale: bool = False
    center: bool = True
    solver: Literal["auto", "covariance", "gram", "krylov"] = "auto"
    ddof: int = 1
    random_state: int = 0
    precision: Literal["mixed", "double"] = "mixed"
    n_oversamples: int = 10
    max_passes: int = 5
    tol: float = 1e-4
    rotation: Literal["varimax", "promax"] | None = None
    n_rotated: int | None = None
    rotation_power: float = 4.0
    n_effective: float | None = None
    n_bootstrap: int = 0
    bootstrap_rows: int | None = None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(3),
            cls(0.9),
            cls("mle"),
            cls("parallel"),
            cls("broken_stick"),
            cls(3, scale=True),
            cls(3, n_bootstrap=20),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        wanted: object = self.n_components
        if isinstance(wanted, str):
            known = wanted in ("mle", *CRITERIA)
            require(known, "n_components", f"{wanted!r} is not 'mle', 'parallel' or 'broken_stick'")
        elif self.wanted is not None:
            require(self.wanted >= 1, "n_components", f"{wanted} is not at least 1")
        elif wanted is not None:
            fraction = isinstance(wanted, float | np.floating) and 0 < wanted <= 1
            require(fraction, "n_components", f"{wanted!r} is not a whole number or a fraction of one")
        whitens = isinstance(self.whiten, bool | np.bool_) or self.whiten in (None, "pca", "zca")
        require(whitens, "whiten", f"{self.whiten!r} is not 'pca', 'zca', true or false")
        names = ("auto", *ROUTES)
        require(self.solver in names, "solver", f"{self.solver!r} is not one of {', '.join(names)}")
        require(
            self.solver != "krylov" or self.wanted is not None,
            "n_components",
            f"the krylov solver finds a given number of components, not {wanted!r}: give a whole number, "
            "or choose another solver",
        )
        require(
            self.solver != "gram" or wanted != "mle",
            "n_components",
            "'mle' needs the covariance solver, which computes every eigenvalue",
        )
        require(
            self.precision in ("mixed", "double"),
            "precision",
            f"{self.precision!r} is neither 'mixed' nor 'double'",
        )
        require(self.ddof in (0, 1), "ddof", f"{self.ddof} is not 0 or 1")
        require(self.n_oversamples >= 0, "n_oversamples", f"{self.n_oversamples} is negative")
        require(self.max_passes >= 1, "max_passes", f"{self.max_passes} is not at least 1")
        require(self.tol >= 0, "tol", f"{self.tol} is negative")
        effective = self.n_effective
        require(effective is None or effective > 1, "n_effective", f"{effective} is not more than 1")
        check_rotation(self)
        check_bootstrap(self)

    def using(self, route: str) -> Self:
        """The same PCA with its solver fixed."""
        return replace(self, solver=route)  # type: ignore[arg-type]  # one of ROUTES

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """The possible solvers, with their costs."""
        self.check()
        if data.n_rows < 2:
            raise DataError(
                f"PCA needs at least 2 rows to see variance, not one sample: n_samples = {data.n_rows}"
            )
        limit = min(data.n_rows, data.n_cols)
        if self.wanted is not None and self.wanted > limit:
            raise ParameterError(
                "n_components",
                f"{self.wanted} components need at least as many rows and columns, and the data is "
                f"{data.n_rows} x {data.n_cols}: set it to {limit} or fewer",
            )
        require_blocks(self, data.n_rows)
        if self.solver != "auto":
            return [ROUTES[self.solver](self, data)]
        if self.n_components == "mle":
            return [ROUTES["covariance"](self, data)]
        if self.wanted is None:
            return [ROUTES["covariance"](self, data), ROUTES["gram"](self, data)]
        return [route(self, data) for route in ROUTES.values()]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model with the largest possible number of components."""
        k = min(self.wanted or data.n_rows, data.n_rows, data.n_cols)
        scaled = self.scale or data.feature_weights is not None
        rotated = 0 if self.rotation is None else min(self.n_rotated or k, k)
        return [pca_outline(data, k, self.whitening, scale=scaled, rotated=rotated)]

    def passes(self, data: MatrixSpec, start: PCAModel | None = None) -> Passes:
        """The passes of the chosen solver, and one of the bootstrap where it needs one."""
        if self.solver == "covariance":
            return solvers.with_bootstrap(self, data, solvers.covariance(self, data))
        if self.solver == "gram":
            return solvers.gram(self, data)
        if self.solver == "krylov":
            return solvers.krylov(self, data)
        raise ParameterError("solver", "'auto' is not a route: choose one with `using` first")

    @property
    def wanted(self) -> int | None:
        """The number of components, if it is given as a number."""
        number: object = self.n_components
        return int(number) if isinstance(number, Integral) and not isinstance(number, bool) else None

    @property
    def whitening(self) -> str | None:
        """How scores are whitened: "pca" or "zca", or not at all."""
        return self.whiten if isinstance(self.whiten, str) else "pca" if self.whiten else None

    @property
    def double(self) -> bool:
        """Whether products are taken in float64 whatever the data's type."""
        return self.precision == "double"

    def product_dtype(self, data: MatrixSpec) -> np.dtype[Any]:
        """The type in which products of blocks are taken."""
        return np.dtype(np.float64) if self.double else data.working

    def krylov_width(self, data: MatrixSpec) -> int:
        """The number of vectors of a block Krylov step."""
        return min(cast(int, self.wanted) + self.n_oversamples, data.n_rows, data.n_cols)
