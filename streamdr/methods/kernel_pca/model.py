"""The fitted kernel PCA: scores from kernel values between rows and landmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, Span, SparseRows, widen
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table, explained_variances, notes
from streamdr.core.outline import unallocated
from streamdr.core.row_functions import RowFunction
from streamdr.core.work import Work, products
from streamdr.errors import ParameterError
from streamdr.methods.kernel_pca.features import (
    Features,
    FourierFeatures,
    FunctionColumns,
    KernelColumns,
    StoredColumns,
)
from streamdr.methods.kernel_pca.kernels import Kernel, kernel_work
from streamdr.methods.kernel_pca.moments import TILE_BYTES
from streamdr.methods.kernel_pca.preimages import Ridge, fixed_point

if TYPE_CHECKING:
    from streamdr.core.scikit_learn import Step

_COMPONENT = {"dims": ("component",)}
_LANDMARK = {"dims": ("landmark",)}
_FEATURE = {"dims": ("feature",)}


@dataclass(frozen=True, eq=False)
class KernelPCAModel(AlignedArrays):
    """Axes in feature space, each a combination of the landmarks' images. New rows need the landmarks only.

    The score of a row is (k(x, landmarks) - kernel_means) @ coefficients, whether the landmarks are all rows
    (exact), some rows (Nystrom) or one row per component (sparse). Random features replace kernel values.
    """

    allow_nan: ClassVar[bool] = False

    kernel: str
    """The name of the kernel."""
    approximation: Literal["exact", "nystrom", "random_features", "sparse"]
    """The approximation of the kernel matrix."""
    origin: Array = field(metadata={**_FEATURE, "data_units": True})
    """A point near the mean of the rows, from which distances are computed."""
    coefficients: Array = field(metadata={"dims": ("landmark", "component")})
    """Each component as a combination of the landmarks' images, or of the random features."""
    kernel_means: Array = field(metadata=_LANDMARK)
    """The mean of k(x, landmark) over all rows, or its projection on the span of the landmarks."""
    eigenvalues: Array = field(metadata=_COMPONENT)
    """The eigenvalues of the centred kernel matrix of all rows."""
    n_samples: float
    """The number of rows, or the sum of their weights."""
    total_variance: float
    """The mean squared distance of the rows' images from their mean."""
    gamma: float | None = None
    """The coefficient of the kernel; None where it has none."""
    degree: int = 3
    """The power of the polynomial kernel."""
    coef0: float = 1.0
    """The constant that polynomial and sigmoid kernels add to products."""
    captured_trace: float | None = None
    """The share of sum k(x, x), over all rows, in the span of the landmarks; None for random features."""
    trace_error: float | None = None
    """sum k(x, x) minus the captured part: the nuclear norm of the approximation error."""
    wanted: int | None = None
    """The requested number of components."""
    asked_landmarks: int | None = None
    """The requested number of landmarks; None where the method chose it."""
    negative_eigenvalues: int = 0
    """The number of negative eigenvalues, for a kernel that is not positive semidefinite."""
    negative_share: float = 0.0
    """The sum of the absolute values of negative eigenvalues, as a share of that of all eigenvalues."""
    alpha: float = 1.0
    """The ridge parameter of the regression from scores to rows."""
    double: bool = False
    """Whether rows in single precision are transformed in double precision."""
    mean_coefficients: Array | None = field(default=None, metadata=_LANDMARK)
    """The mean image of all rows as a combination of the landmarks' images."""
    landmarks: Array | None = field(default=None, metadata={"dims": ("landmark", "feature")})
    """The landmarks: kernels are evaluated between them and new rows."""
    landmark_rows: Array | None = field(default=None, metadata=_LANDMARK)
    """The row numbers of the landmarks; -1 where they are not rows of the data."""
    kernel_origin: Array | None = field(default=None, metadata=_LANDMARK)
    """Values near `kernel_means`, about which kernels were summed."""
    pool: Array | None = field(default=None, metadata={"dims": ("candidate_row", "feature")})
    """The candidate rows of a sparse fit."""
    pool_origin: Array | None = field(default=None, metadata={"dims": ("candidate_row",)})
    """Values near the means of the kernel with the candidate rows, about which kernels were summed."""
    frequencies: Array | None = field(default=None, metadata={"dims": ("feature", "landmark")})
    """The frequencies of the random features."""
    phases: Array | None = field(default=None, metadata=_LANDMARK)
    """The phases of the random features."""
    dual_coefficients: Array | None = field(default=None, metadata={"dims": ("landmark", "feature")})
    """The dual coefficients of the kernel ridge regression from scores to rows."""
    candidate_kernels: list[str] | None = None
    """The kernels that a search tried."""
    candidate_errors: Array | None = field(default=None, metadata={"dims": ("candidate", "fold")})
    """The share of the held-out variance that each kernel leaves unexplained, in each fold."""
    function: RowFunction | None = None
    """The kernel, where it is a user's function."""

    @property
    def n_features(self) -> int:
        """How many columns `transform` takes."""
        return len(self.origin)

    @property
    def n_components(self) -> int:
        """The number of axes."""
        return len(self.eigenvalues)

    @property
    def n_outputs(self) -> int:
        """How many columns `transform` returns."""
        return self.n_components

    @property
    def outputs_are_features(self) -> bool:
        """False: components are not features."""
        return False

    @property
    def n_landmarks(self) -> int:
        """The number of landmarks, and of kernel values that a row needs."""
        return len(self.coefficients)

    @property
    def eigenvectors(self) -> Array:
        """The coefficients, scaled: for an exact fit the unit eigenvectors of the centred kernel matrix."""
        return self.coefficients * np.sqrt(self.eigenvalues)

    @property
    def explained_variance(self) -> Array:
        """The variance of each score."""
        return self.eigenvalues / self.n_samples

    @property
    def explained_variance_ratio(self) -> Array:
        """Each component's share of the variance in the kernel's space."""
        return np.clip(self.explained_variance / self.total_variance, 0.0, 1.0)

    @property
    def described(self) -> str:
        """The kernel with its parameters, as text."""
        return str(self.named) if self.gamma is not None else self.kernel

    def summary(self) -> dict[str, Any]:
        """The kernel, the number of landmarks, the trace that they capture, and notes."""
        entries: dict[str, Any] = {
            "solver": self.approximation,
            "n_components": self.n_components,
            "explained_variance_ratio": [float(ratio) for ratio in self.explained_variance_ratio[:1000]],
            "total_variance": self.total_variance,
            "kernel": self.described,
            "n_landmarks": self.n_landmarks,
        }
        if self.captured_trace is not None:
            entries |= {"captured_trace": self.captured_trace, "trace_error": self.trace_error}
        if self.candidate_kernels is not None and self.candidate_errors is not None:
            entries["kernels"] = _table(self.candidate_kernels, self.candidate_errors)
        return entries | {"notes": list(self._notes())}

    def facts(self) -> tuple[Fact, ...]:
        """The kernel, the number of landmarks, the trace that they capture, and notes."""
        found = [
            Fact("solver", self.approximation),
            Fact("components", self.n_components),
            Fact("explained", float(self.explained_variance_ratio.sum()), "% of the variance"),
            Fact("total variance", self.total_variance),
            Fact("kernel", self.described),
            Fact("landmarks", self.n_landmarks),
        ]
        if self.captured_trace is not None:
            found.append(Fact("captured", self.captured_trace, "% of the trace of the kernel matrix"))
        if self.trace_error is not None:
            found.append(Fact("trace error", self.trace_error))
        return (*found, *notes(self._notes()))

    def tables(self) -> tuple[Table, ...]:
        """The kernels that were tried, from the best to the worst, and what each component explains."""
        explained = explained_variances(self.explained_variance_ratio, self.total_variance)
        if self.candidate_kernels is None or self.candidate_errors is None:
            return explained
        tried = _table(self.candidate_kernels, self.candidate_errors)
        kernels = Table(
            "kernels",
            (Column("kernel"), Column("unexplained", "%", bars=True), Column("spread", "%")),
            tuple((each["kernel"], each["error"], each["spread"]) for each in tried[:MOST_ROWS]),
            about="The share of the held-out variance that each kernel leaves unexplained.",
            left_out=max(0, len(tried) - MOST_ROWS),
        )
        return (kernels, *explained)

    def _notes(self) -> list[str]:
        notes = []
        if self.negative_eigenvalues:
            meaning = (
                "variances then do not add up to a total: use kernel_pca"
                if self.approximation == "sparse"
                else "they were dropped"
            )
            notes.append(
                f"the kernel is not positive semidefinite on these rows: {self.negative_eigenvalues:,} "
                f"negative eigenvalues, {self.negative_share:.2%} of all in size; {meaning}"
            )
        if self.wanted is not None and self.n_components < self.wanted:
            notes.append(
                f"{self.wanted} components were requested, and {self.n_components} have a positive eigenvalue"
            )
        if self.asked_landmarks is not None and self.n_landmarks < self.asked_landmarks:
            notes.append(
                f"{self.n_landmarks} landmarks capture all of the kernel's trace in the sample; "
                f"{self.asked_landmarks} were requested"
            )
        return notes

    keeps_zeros: ClassVar[bool] = False

    def transform_sparse(self, rows: SparseRows) -> Array:
        """Map sparse rows to their scores."""
        return self._scores(rows)

    def transform(self, values: Array) -> Array:
        """Map rows to their scores, in the floating type of the rows."""
        return self._scores(widen(values))

    def _scores(self, rows: Array | SparseRows) -> Array:
        """The scores of rows, tile by tile."""
        scores = np.empty((rows.shape[0], self.n_components), rows.dtype)
        precision = np.dtype(np.float64) if self.double else rows.dtype
        means, coefficients = self.kernel_means.astype(precision), self.coefficients.astype(precision)
        for span in self._tiles(rows.shape[0]):
            columns = np.empty((len(span), self.n_landmarks), precision)
            self._features.fill(rows[span.slice].astype(precision, copy=False), [columns])
            columns -= means
            scores[span.slice] = columns @ coefficients
        return scores

    def _tiles(self, n_rows: int) -> Iterator[Span]:
        """Runs of rows whose kernels with all landmarks fill a tile."""
        return Span(0, n_rows).split(self._tile_rows)

    @property
    def _tile_rows(self) -> int:
        return max(1, TILE_BYTES // (8 * max(self.n_landmarks, self.n_features)))

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of kernel values with all landmarks, and of their products with the coefficients."""
        dtype = np.dtype(np.float64) if self.double else data.working
        n, m = float(data.n_rows), self.n_landmarks
        return kernel_work(data, m, dtype, self.kernel) + products(n * m * self.n_components, dtype, "thin")

    def scratch_bytes(self, n_rows: int) -> int:
        """Bytes that `transform` and `inverse_transform` allocate besides the result."""
        rows = min(n_rows, self._tile_rows)
        tiles = 6 * 8 * rows * self.n_landmarks + 8 * 8 * rows * self.n_features
        return tiles + 24 * self.n_landmarks * (self.n_features + self.n_components + 2)

    def sklearn_steps(self) -> list[Step]:
        """The model as estimators of scikit-learn."""
        from streamdr.methods.kernel_pca.scikit_learn import kernel_pca_steps

        return kernel_pca_steps(self)

    def scores_by_columns(self, n_rows: int) -> Accumulator | None:
        """None: kernels need whole rows."""
        return None

    def inverse_transform(self, scores: Array) -> Array:
        """Pre-images: rows whose images are as near as possible to the points with these scores."""
        values = widen(scores)
        rows = np.empty((len(values), self.n_features), values.dtype)
        for span in self._tiles(len(values)):
            rows[span.slice] = self._preimages(values[span.slice].astype(np.float64), None)
        return rows

    def denoise(self, values: Array) -> Array:
        """The pre-images of the rows' projections on the components."""
        given = widen(values)
        rows = np.empty_like(given)
        for span in self._tiles(len(given)):
            start = given[span.slice].astype(np.float64)
            scores = self.transform(given[span.slice]).astype(np.float64)
            rows[span.slice] = self._preimages(scores, start)
        return rows

    def _preimages(self, scores: Array, start: Array | None) -> Array:
        if self.dual_coefficients is not None:
            return Ridge(self.named, self.landmark_scores, self.dual_coefficients).predict(scores)
        if self.landmarks is None or self.mean_coefficients is None or self.kernel not in ("rbf", "linear"):
            raise ParameterError("fit_inverse_transform", self._no_inverse())
        parts = scores @ self.coefficients.T + self.mean_coefficients
        if self.kernel == "linear":
            rows: Array = self.origin + parts @ (self.landmarks - self.origin)
            return rows
        if start is None:
            start = self.landmarks[self._nearest(scores)]
        return fixed_point(self._columns, parts, start)

    def _no_inverse(self) -> str:
        if self.landmarks is None:
            return f"{self._without_rows} have no inverse transform: pre-images need a kernel between rows"
        return (
            f"the fixed point finds pre-images for the rbf kernel only, and this one is {self.kernel}: fit "
            "with fit_inverse_transform, which fits an inverse transform by kernel ridge regression"
        )

    @property
    def _without_rows(self) -> str:
        """The name of an approximation that stores no landmark rows, for messages."""
        return "random features" if self.frequencies is not None else "precomputed kernels"

    def _nearest(self, scores: Array) -> Array:
        """The landmark with the nearest scores."""
        candidates = self.landmark_scores
        distances = np.sum(candidates**2, axis=1) - 2 * (scores @ candidates.T)
        nearest: Array = np.argmin(distances, axis=1)
        return nearest

    @cached_property
    def landmark_scores(self) -> Array:
        """The scores of the landmarks."""
        assert self.landmarks is not None
        return self.transform(self.landmarks)

    @cached_property
    def named(self) -> Kernel:
        """The kernel, if it has a name."""
        assert self.gamma is not None
        return Kernel(self.kernel, self.gamma, self.degree, self.coef0)  # type: ignore[arg-type]  # a name

    @cached_property
    def _features(self) -> Features:
        if self.frequencies is not None and self.phases is not None:
            return FourierFeatures(self.frequencies, self.phases, self.origin)
        if self.landmarks is None:
            assert self.landmark_rows is not None
            return StoredColumns(self.landmark_rows.astype(np.int64))
        if self.function is not None:
            return FunctionColumns(self.function, self.landmarks)
        return self._columns

    @cached_property
    def _columns(self) -> KernelColumns:
        assert self.landmarks is not None
        return KernelColumns([self.named], self.landmarks, self.origin)


def _table(kernels: list[str], errors: Array) -> list[dict[str, Any]]:
    """The kernels from the best to the worst, with mean and standard deviation of their errors over folds."""
    order = np.argsort(errors.mean(axis=1), kind="stable")
    return [
        {
            "kernel": kernels[number],
            "error": float(errors[number].mean()),
            "spread": float(errors[number].std(ddof=1)),
        }
        for number in order
    ]


def kernel_outline(
    data: MatrixSpec, approximation: Any, n_landmarks: int, k: int, *, pool: int = 0, inverse: bool = False
) -> KernelPCAModel:
    """An outline of a model with this many landmarks and axes; a sparse model also keeps its pool."""
    m, d = n_landmarks, data.n_cols
    return KernelPCAModel(
        kernel="rbf",
        approximation=approximation,
        origin=unallocated(d),
        coefficients=unallocated(m, k),
        kernel_means=unallocated(m),
        eigenvalues=unallocated(k),
        n_samples=float(data.n_rows),
        total_variance=1.0,
        mean_coefficients=unallocated(m),
        landmarks=unallocated(m, d),
        landmark_rows=unallocated(m),
        kernel_origin=unallocated(m),
        pool=unallocated(pool, d) if pool else None,
        dual_coefficients=unallocated(m, d) if inverse else None,
    )
