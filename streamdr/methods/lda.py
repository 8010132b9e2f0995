"""Fisher's linear discriminants: where classes lie furthest apart, for how wide they are."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from streamdr.accumulators import ClassLengths, ClassMoments
from streamdr.accumulators.class_moments import MOST_CLASSES
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError, ParameterError
from streamdr.linalg import constant_columns
from streamdr.methods.base import Model, Pass, Passes, Phase, Route
from streamdr.methods.checks import require, require_products
from streamdr.methods.lda_model import LDAModel, singular
from streamdr.methods.lda_solve import solved, whitened
from streamdr.methods.lda_spread import (
    Classes,
    class_covariances,
    ledoit_wolf,
    lengths,
    shrunk,
    total_covariance,
    within_covariance,
)
from streamdr.methods.outlines import lda_outline
from streamdr.methods.parameters import require_types

_CLASSES_APART = 100
"""How many classes are planned for where each has a scatter of its own."""


@dataclass(eq=False)
class LDA:
    """Linear discriminant analysis of data of any length: discriminants, and a classifier.

    Parameters
    ----------
    n_components : int or None
        How many discriminants to keep: at most one less than there are classes, and as many as there are
        features, which is what None keeps.
    shrinkage : float, "auto" or None
        How far the covariance within classes is moved towards a sphere, from 0 to 1: for features that are
        many or depend on each other. `"auto"` finds out, class by class, as Ledoit and Wolf do, in a second
        pass.
    priors : list of float or None
        How probable each class is, in the order of the sorted labels; None for how frequent they are.
    precision : "mixed" or "double"
        `"mixed"` takes products of float32 data in float32 and sums them in float64; `"double"` takes
        them in float64.
    max_classes : int or None
        The most classes there may be: memory is planned for so many. None for 1,000, or for 100 where each
        class needs a covariance of its own (`shrinkage="auto"`), or for as many as there are priors.
    """

    name: ClassVar[str] = "lda"
    model: ClassVar[type] = LDAModel
    target: ClassVar[Literal["classes"]] = "classes"

    n_components: int | None = None
    _: KW_ONLY
    shrinkage: float | Literal["auto"] | None = None
    priors: list[float] | None = None
    precision: Literal["mixed", "double"] = "mixed"
    max_classes: int | None = None

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
        given: Any = self.shrinkage
        if isinstance(given, str):
            require(given == "auto", "shrinkage", f"{given!r} is not 'auto', the only word it takes")
        elif given is not None:
            real = isinstance(given, Real) and not isinstance(given, bool)
            require(real and 0 <= given <= 1, "shrinkage", f"{given!r} is not a number from 0 to 1")
        if self.priors is not None:
            _require_priors(self.priors)
        require(self.precision in ("mixed", "double"), "precision", f"{self.precision!r} is no precision")

    def using(self, route: str) -> Self:
        """There is one route only."""
        return self

    def routes(self, data: MatrixSpec) -> Sequence[Route]:
        """One pass for the means of classes and the scatter within; a second one where shrinkage is found."""
        self.check()
        n, d, number = data.n_rows, data.n_cols, min(self._most, data.n_rows)
        if n < 2:
            raise DataError(f"LDA needs rows of at least 2 classes, not one sample: n_samples = {n}")
        if self.n_components is not None and self.n_components > d:
            raise ParameterError(
                "n_components", f"{self.n_components} discriminants of {d} features: ask for {d} or fewer"
            )
        item = self._product_dtype(data).itemsize
        square, means = 8 * d * d, number * (16 * d + 1024)
        scatters = square if self._pooled else number * square
        reads = 2 if self.shrinkage == "auto" else 1
        apart = "" if self._pooled else ", or set max_classes to how many classes there are"
        return [
            Route(
                method=self,
                name="class moments",
                exact=True,
                passes=reads,
                flops=float(reads) * n * d * d + 12.0 * float(d) ** 3,
                phases=(
                    Phase(
                        scatters + means,
                        scratch_bytes=d * d * item + 5 * means,
                        # Rows by classes, and of each row its label, its class's number, and its place.
                        scratch_per_block=(1.0 if item == data.working.itemsize else 4.0)
                        + 64.0 / data.line_bytes("rows"),
                        solve_bytes=9 * square + 8 * means,
                    ),
                ),
                advice=apart.removeprefix(", "),
            )
        ]

    def outlines(self, data: MatrixSpec) -> Sequence[Model]:
        """A model of as many classes as there may be."""
        number = min(self._most, data.n_rows)
        return [lda_outline(data, number, self.n_components or min(number - 1, data.n_cols))]

    def passes(self, data: MatrixSpec, start: LDAModel | None = None) -> Passes:
        """One pass, or two."""
        empty = ClassMoments(data.n_cols, pooled=self._pooled, double=self._double, max_classes=self._most)
        moments = cast(ClassMoments, (yield Pass(empty, label="class moments")))
        self._require_classes(_shown(moments, data))
        places = Classes.of(moments)
        priors = places.shares if self.priors is None else _normalised(self.priors)
        if self.shrinkage == "auto":
            request = Pass(lengths(moments, places, double=self._double), label="Ledoit-Wolf shrinkage")
            sums = cast(ClassLengths, (yield request))
            return self._shrunk_by_itself(data, moments, places, priors, sums)
        within = within_covariance(moments, priors)
        require_products(within)
        if self.shrinkage is None and self.priors is None:
            return self._model(data, moments, places, priors, within, None, None)
        between = places.between()
        if self.priors is not None:  # of all that rows vary, what classes do not, as weighed
            between += within_covariance(moments, places.shares)
            between -= within
        if self.shrinkage is None:
            return self._model(data, moments, places, priors, within, between, None)
        shrinkage = float(self.shrinkage)
        within = shrunk(within, shrinkage)
        if shrinkage < 1:  # two spheres would have no directions: a sphere and the means do
            between = shrunk(between, shrinkage)
        return self._model(data, moments, places, priors, within, between, np.full(len(priors), shrinkage))

    def stream(self, n_cols: int, start: LDAModel | None = None, n_rows: int = 0) -> None:
        """Nothing but the statistics of one pass will do."""
        if self.shrinkage == "auto":
            raise ParameterError("shrinkage", "'auto' takes two passes: partial_fit needs a number, or None")

    @property
    def _double(self) -> bool:
        return self.precision == "double"

    @property
    def _pooled(self) -> bool:
        return self.priors is None and self.shrinkage != "auto"

    @property
    def _most(self) -> int:
        """How many classes there may be."""
        if self.priors is not None:
            return len(self.priors)
        return self.max_classes or (MOST_CLASSES if self._pooled else _CLASSES_APART)

    def _product_dtype(self, data: MatrixSpec) -> np.dtype[Any]:
        return np.dtype(np.float64) if self._double else data.working

    def _shrunk_by_itself(
        self, data: MatrixSpec, moments: ClassMoments, places: Classes, priors: Array, sums: ClassLengths
    ) -> LDAModel:
        within, shrinkage = np.zeros((data.n_cols, data.n_cols)), np.zeros(len(priors))
        for number, covariance in enumerate(class_covariances(moments)):
            found, shrinkage[number] = ledoit_wolf(
                covariance, sums.deviations[number], sums.sums[number], places.weights[number]
            )
            within += priors[number] * found
        total = total_covariance(moments, places)
        require_products(total)
        total, _ = ledoit_wolf(total, sums.deviations[-1], sums.sums[-1], places.overall.weight)
        return self._model(data, moments, places, priors, within, total - within, shrinkage)

    def _model(
        self,
        data: MatrixSpec,
        moments: ClassMoments,
        places: Classes,
        priors: Array,
        within: Array,
        between: Array | None,
        shrinkage: Array | None,
    ) -> LDAModel:
        constant = constant_columns(np.diag(within), places.overall.mean)
        if len(constant) == data.n_cols:
            raise DataError(
                f"all rows of a class are the same, in every class{_alone(moments, data)}: nothing says how "
                "wide classes are"
            )
        whitening = whitened(within, constant, self._product_dtype(data))
        rank = whitening.shape[1]
        if rank < data.n_cols:
            warnings.warn(singular(rank, data.n_cols) + _alone(moments, data), stacklevel=2)
        kept = self._kept(min(len(priors) - 1, rank))
        found = solved(whitening, between, places.apart, priors, kept)
        return LDAModel(
            classes=_shown(moments, data),
            priors=priors,
            class_weight=places.weights,
            means=np.array([centre.mean for centre in places.centres]),
            xbar=places.overall.mean + priors @ places.apart,
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
        if self.n_components is not None and self.n_components > limit:
            raise ParameterError(
                "n_components",
                f"{self.n_components} discriminants need one more class than that, and as many features that "
                f"vary within classes: ask for {limit} or fewer",
            )
        return self.n_components or limit

    def _require_classes(self, classes: Array | list[str]) -> None:
        found = ", ".join(str(label) for label in classes[:5]) + (", ..." if len(classes) > 5 else "")
        if len(classes) < 2:
            only = f"one class only, {found}" if len(classes) else "no rows of any weight"
            raise DataError(f"there is nothing to tell apart: labels have {only}")
        if self.priors is not None and len(self.priors) != len(classes):
            raise ParameterError(
                "priors", f"there are {len(self.priors)} priors for {len(classes)} classes ({found})"
            )


def _require_priors(priors: Any) -> None:
    numbers = np.asarray(priors)
    listed = numbers.ndim == 1 and len(numbers) >= 2 and numbers.dtype.kind in "iuf"
    require(listed, "priors", f"{priors!r} is not a list of numbers, one a class")
    sound = np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.sum() > 0
    require(sound, "priors", f"{priors!r} must not be negative, nor all be 0")


def _normalised(priors: Sequence[float]) -> Array:
    numbers: Array = np.asarray(priors, np.float64)
    numbers /= numbers.sum()
    return numbers


def _shown(moments: ClassMoments, data: MatrixSpec) -> Array | list[str]:
    """Classes in the type in which labels were given."""
    dtype = moments.classes.dtype if data.labels is None else data.labels
    return [str(label) for label in moments.classes] if dtype.kind == "U" else moments.classes.astype(dtype)


def _alone(moments: ClassMoments, data: MatrixSpec) -> str:
    """Which class has one row, in brackets, where one has."""
    counts = [centre.count for centre in moments.centres]
    if 1 not in counts:
        return ""
    label = _shown(moments, data)[counts.index(1)]
    return f" (class {label} has one row, which says nothing of how wide it is)"
