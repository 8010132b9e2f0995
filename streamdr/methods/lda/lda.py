"""Fisher's linear discriminants: the largest ratio of variance between classes to variance within."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.core.blocks import BLOCK_BYTES, Array, MatrixSpec
from streamdr.core.linalg import constant_columns
from streamdr.core.method import Model, Pass, Passes, Phase, Route, Tags
from streamdr.core.parameters import require_types
from streamdr.core.work import Work, exactly
from streamdr.errors import DataError, ParameterError
from streamdr.methods.lda.model import LDAModel, lda_outline, rank_deficiency_note
from streamdr.methods.lda.scatter import (
    ClassCentres,
    class_covariances,
    ledoit_wolf,
    lengths,
    shrunk,
    total_covariance,
    within_covariance,
)
from streamdr.methods.lda.solve import solved, whitened
from streamdr.statistics.by_class.classes import MOST_CLASSES, class_labels
from streamdr.statistics.by_class.lengths import ClassLengths
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.by_class.sparse_grouping import grouped_bytes
from streamdr.statistics.sparse_products import product_scratch, product_work, square_work
from streamdr.statistics.validation import require, require_products

_MAX_SCATTERS = 100
"""The default of max_classes where each class has its own scatter."""
_CLASS_PRODUCTS = 1.2
"""The time of products of the few rows of a class in a block, relative to those of all rows at once."""


@dataclass(eq=False)
class LDA:
    """Linear discriminant analysis of data of any length: discriminants, and a classifier.

    Parameters
    ----------
    n_components : int or None
        The number of discriminants: at most the number of features, and one less than the number of classes.
        None for this maximum.
    shrinkage : float, "auto" or None
        Shrinkage of the covariance within classes towards a multiple of the identity, from 0 to 1: for many
        or collinear features. `"auto"` estimates it for each class (Ledoit and Wolf), in a second pass.
    priors : list of float or None
        The prior probabilities of the classes, in the order of the sorted labels; None for the class
        frequencies.
    precision : "mixed" or "double"
        `"mixed"` computes products of float32 data in float32 and sums them in float64; `"double"` computes
        them in float64.
    max_classes : int or None
        The largest number of classes, for which memory is planned. None for 1,000, or for 100 where each
        class needs its own covariance (`shrinkage="auto"`), or for as many as there are priors.

    References
    ----------
    Ledoit and Wolf, Honey, I shrunk the sample covariance matrix, Journal of Portfolio Management 30 (2004).

    Examples
    --------
    >>> import numpy as np, streamdr
    >>> X = np.array([[2.0, 0, 1], [0, 1, 3], [4, 1, 0], [6, 3, 2], [1, 5, 4], [3, 2, 6]])
    >>> y = [0, 0, 1, 1, 2, 2]
    >>> lda = streamdr.LDA().fit(X, y)
    >>> lda.predict(X)
    array([0, 0, 1, 1, 2, 2])
    >>> lda.transform(X).shape
    (6, 2)
    """

    name: ClassVar[str] = "lda"
    model: ClassVar[type] = LDAModel
    tags: ClassVar[Tags] = Tags(inexact_on=("drifting", "uneven scales", "rank one"), feature_subset=True)
    gallery: ClassVar[Sequence[Mapping[str, Any]]] = ({"n_components": 2, "shrinkage": "auto"},)
    target: ClassVar[Literal["classes"]] = "classes"

    n_components: int | None = None
    _: KW_ONLY
    shrinkage: float | Literal["auto"] | None = None
    priors: list[float] | None = None
    precision: Literal["mixed", "double"] = "mixed"
    max_classes: int | None = None

    @classmethod
    def examples(cls) -> Sequence[Self]:
        """Small examples, for the laws."""
        return [
            cls(),
            cls(1, precision="double"),
            cls(priors=[0.2, 0.5, 0.3]),
            cls(shrinkage=0.1),
            cls(1, shrinkage="auto"),
        ]

    def check(self) -> None:
        """Refuse impossible parameter values."""
        require_types(self)
        for name in ("n_components", "max_classes"):
            number: Any = getattr(self, name)
            whole = isinstance(number, Integral) and not isinstance(number, bool)
            least = 1 if name == "n_components" else 2
            require(
                number is None or (whole and number >= least),
                name,
                f"{number!r} is not a whole number of at least {least}",
            )
        shrinkage: Any = self.shrinkage
        if isinstance(shrinkage, str):
            require(shrinkage == "auto", "shrinkage", f"{shrinkage!r} is not 'auto', the only text allowed")
        elif shrinkage is not None:
            real = isinstance(shrinkage, Real) and not isinstance(shrinkage, bool)
            require(real and 0 <= shrinkage <= 1, "shrinkage", f"{shrinkage!r} is not a number from 0 to 1")
        if self.priors is not None:
            _require_priors(self.priors)
        require(
            self.precision in ("mixed", "double"),
            "precision",
            f"{self.precision!r} is neither 'mixed' nor 'double'",
        )

    def using(self, route: str) -> Self:
        """The method itself: there is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass for class means and the scatter within classes; a second one for automatic shrinkage."""
        self.check()
        n, d, number = data.n_rows, data.n_cols, min(self._max_n_classes, data.n_rows)
        if n < 2:
            raise DataError(f"LDA needs rows of at least 2 classes, not one sample: n_samples = {n}")
        if self.n_components is not None and self.n_components > d:
            raise ParameterError(
                "n_components", f"{self.n_components} discriminants of {d} features: set it to {d} or fewer"
            )
        item = self._product_dtype(data).itemsize
        square, means = 8 * d * d, number * (16 * d + 1024)
        scatters = square if self._pooled else number * square
        reads = 2 if self.shrinkage == "auto" else 1
        return [
            Route(
                method=self,
                name="class moments",
                exact=True,
                passes=reads,
                flops=float(reads) * n * d * d * product_work(data) + 12.0 * float(d) ** 3,
                phases=(
                    Phase(
                        scatters + means,
                        scratch_bytes=d * d * item + 5 * means,
                        # Rows sorted by class, and for each row its label, class index and position.
                        scratch_per_block=(1.0 if item == data.working.itemsize else 4.0)
                        + 64.0 / data.line_bytes("rows"),
                        solve_bytes=9 * square + 8 * means,
                        takes_sparse=True,
                        # A few rows are made dense for the lengths of automatic shrinkage.
                        sparse_scratch_bytes=product_scratch(d, self._product_dtype(data))
                        + grouped_bytes(d, number)
                        + (3 * BLOCK_BYTES if reads > 1 else 0),
                        # Rows are sorted by class as well.
                        work=square_work(data, self._product_dtype(data)) * _CLASS_PRODUCTS
                        + Work(moved=4.0 * n * data.line_bytes("rows") * (data.density or 1.0)),
                        solve_work=Work(eigen=1.2 * float(d) ** 3 / reads),
                        count=exactly(reads),
                    ),
                ),
                advice="" if self._pooled else "or set max_classes to the number of classes",
            )
        ]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """An outline of the largest possible model: with the largest number of classes."""
        number = min(self._max_n_classes, data.n_rows)
        return [lda_outline(data, number, self.n_components or min(number - 1, data.n_cols))]

    def passes(self, data: MatrixSpec, start: LDAModel | None = None) -> Passes:
        """One pass for the class moments; a second one for automatic shrinkage."""
        empty = ClassMoments(
            data.n_cols, pooled=self._pooled, double=self._double, max_classes=self._max_n_classes
        )
        moments = cast(ClassMoments, (yield Pass(empty, label="class moments")))
        self._require_classes(class_labels(moments.classes, data))
        class_centres = ClassCentres.of(moments)
        priors = class_centres.shares if self.priors is None else _normalised(self.priors)
        if self.shrinkage == "auto":
            request = Pass(
                lengths(moments, class_centres, double=self._double), label="Ledoit-Wolf shrinkage"
            )
            sums = cast(ClassLengths, (yield request))
            return self._ledoit_wolf_model(data, moments, class_centres, priors, sums)
        within = within_covariance(moments, priors)
        require_products(within)
        if self.shrinkage is None and self.priors is None:
            return self._model(data, moments, class_centres, priors, within, None, None)
        between = class_centres.between()
        if self.priors is not None:  # total covariance minus the within covariance under the given priors
            between += within_covariance(moments, class_centres.shares)
            between -= within
        if self.shrinkage is None:
            return self._model(data, moments, class_centres, priors, within, between, None)
        shrinkage = float(self.shrinkage)
        within = shrunk(within, shrinkage)
        if shrinkage < 1:  # with shrinkage 1, only the means define directions
            between = shrunk(between, shrinkage)
        return self._model(
            data, moments, class_centres, priors, within, between, np.full(len(priors), shrinkage)
        )

    def stream(self, n_cols: int, start: LDAModel | None = None, n_rows: int = 0) -> None:
        """None: the statistics of one pass are enough. Automatic shrinkage takes two, and is refused."""
        if self.shrinkage == "auto":
            raise ParameterError("shrinkage", "'auto' takes two passes: partial_fit needs a number, or None")

    @property
    def _double(self) -> bool:
        """Whether products are computed in float64 whatever the data's type."""
        return self.precision == "double"

    @property
    def _pooled(self) -> bool:
        """Whether one scatter for all classes is enough."""
        return self.priors is None and self.shrinkage != "auto"

    @property
    def _max_n_classes(self) -> int:
        """The largest number of classes."""
        if self.priors is not None:
            return len(self.priors)
        return self.max_classes or (MOST_CLASSES if self._pooled else _MAX_SCATTERS)

    def _product_dtype(self, data: MatrixSpec) -> np.dtype[Any]:
        """The type in which products are computed."""
        return np.dtype(np.float64) if self._double else data.working

    def _ledoit_wolf_model(
        self,
        data: MatrixSpec,
        moments: ClassMoments,
        class_centres: ClassCentres,
        priors: Array,
        sums: ClassLengths,
    ) -> LDAModel:
        """The model with automatic shrinkage."""
        within, shrinkage = np.zeros((data.n_cols, data.n_cols)), np.zeros(len(priors))
        for number, covariance in enumerate(class_covariances(moments)):
            found, shrinkage[number] = ledoit_wolf(
                covariance, sums.deviations[number], sums.sums[number], class_centres.weights[number]
            )
            within += priors[number] * found
        total = total_covariance(moments, class_centres)
        require_products(total)
        total, _ = ledoit_wolf(total, sums.deviations[-1], sums.sums[-1], class_centres.overall.weight)
        return self._model(data, moments, class_centres, priors, within, total - within, shrinkage)

    def _model(
        self,
        data: MatrixSpec,
        moments: ClassMoments,
        class_centres: ClassCentres,
        priors: Array,
        within: Array,
        between: Array | None,
        shrinkage: Array | None,
    ) -> LDAModel:
        """The model for covariances within and between classes; None for that of the class means."""
        constant = constant_columns(np.diag(within), class_centres.overall.mean)
        if len(constant) == data.n_cols:
            raise DataError(
                f"no column varies within any class{_single_row_note(moments, data)}: there is no "
                "covariance within classes to scale by"
            )
        whitening = whitened(within, constant, self._product_dtype(data))
        rank = whitening.shape[1]
        if rank < data.n_cols:
            warnings.warn(
                rank_deficiency_note(rank, data.n_cols) + _single_row_note(moments, data), stacklevel=2
            )
        kept = self._kept(min(len(priors) - 1, rank))
        found = solved(whitening, between, class_centres.apart, priors, kept)
        return LDAModel(
            classes=class_labels(moments.classes, data),
            priors=priors,
            class_weight=class_centres.weights,
            means=np.array([centre.mean for centre in class_centres.centres]),
            xbar=class_centres.overall.mean + priors @ class_centres.apart,
            covariance=within,
            scalings=found.scalings,
            eigenvalues=found.eigenvalues,
            explained_variance_ratio=np.clip(found.eigenvalues / found.separation, 0.0, 1.0),
            separation=found.separation,
            axes=found.axes,
            centroids=found.centroids,
            rank=rank,
            shrinkage=shrinkage,
        )

    def _kept(self, limit: int) -> int:
        """The number of discriminants; refused if it is above the limit."""
        if self.n_components is not None and self.n_components > limit:
            raise ParameterError(
                "n_components",
                f"{self.n_components} discriminants need one more class than that, and as many features that "
                f"vary within classes: set it to {limit} or fewer",
            )
        return self.n_components or limit

    def _require_classes(self, classes: Array | list[str]) -> None:
        """Refuse fewer than two classes, and priors for another number of classes."""
        found = ", ".join(str(label) for label in classes[:5]) + (", ..." if len(classes) > 5 else "")
        if len(classes) < 2:
            reason = (
                f"labels have one class only, {found}" if len(classes) else "no row has a positive weight"
            )
            raise DataError(f"there are no classes to separate: {reason}")
        if self.priors is not None and len(self.priors) != len(classes):
            raise ParameterError(
                "priors", f"there are {len(self.priors)} priors for {len(classes)} classes ({found})"
            )


def _require_priors(priors: Any) -> None:
    """Refuse priors that are not probabilities up to a factor."""
    numbers = np.asarray(priors)
    is_list = numbers.ndim == 1 and len(numbers) >= 2 and numbers.dtype.kind in "iuf"
    require(is_list, "priors", f"{priors!r} is not a list of numbers, one for each class")
    valid = np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.sum() > 0
    message = f"{priors!r}: priors must be finite and not negative, and must not all be 0"
    require(valid, "priors", message)


def _normalised(priors: Sequence[float]) -> Array:
    """The priors divided by their sum."""
    numbers: Array = np.asarray(priors, np.float64)
    numbers /= numbers.sum()
    return numbers


def _single_row_note(moments: ClassMoments, data: MatrixSpec) -> str:
    """A note in brackets on the first class that has only one row; empty if there is none."""
    counts = [centre.count for centre in moments.centres]
    if 1 not in counts:
        return ""
    label = class_labels(moments.classes, data)[counts.index(1)]
    return f" (class {label} has one row, and so no variance)"
