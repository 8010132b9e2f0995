"""Training and test moments of each fold: every fold is held out once, the others are merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import DataError
from streamdr.methods.selection.discriminant import DiscriminantFold
from streamdr.methods.selection.linear import LinearFold, Scoring
from streamdr.methods.selection.parameters import constant_mask
from streamdr.methods.selection.quadratic_forms import QuadraticForm
from streamdr.statistics.by_class.classes import require_few
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.joint import JointMoments

_NARROW = 1e-10
"""The variance within classes, relative to that between, of a column that is constant within classes."""

T = TypeVar("T")


@dataclass(frozen=True)
class RegressionMoments:
    """The moments of columns and a numeric target (the last) over some folds."""

    weight: float
    mean: Array
    """Relative to an origin that all folds share."""
    scatter: QuadraticForm


@dataclass(frozen=True)
class ClassificationMoments:
    """The moments of columns by class over some folds."""

    weights: Array
    means: Array
    within: QuadraticForm

    @property
    def mean(self) -> Array:
        """The mean of all rows, relative to an origin that all folds share."""
        mean: Array = self.weights @ self.means / self.weights.sum()
        return mean

    @property
    def between(self) -> Array:
        """A basis of the differences between class means, with one row less than there are classes.

        The sum of squares of its rows is the weighted sum of squares of the means about the overall mean.
        """
        roots = np.sqrt(self.weights)
        others = np.linalg.qr(np.column_stack([roots, np.eye(len(roots))[:, 1:]]))[0][:, 1:]
        basis: Array = others.T @ ((self.means - self.mean) * roots[:, None])
        return basis


class RegressionFolds:
    """The moments of each fold, with a numeric target."""

    def __init__(self, parts: Sequence[JointMoments]) -> None:
        self._parts = parts = _with_rows(parts, [part.weight for part in parts])
        origin = parts[0].centre.origin
        self._means = np.array([part.centre.origin - origin + part.centre.offset for part in parts])
        self.origin = origin
        self._weights = np.array([part.weight for part in parts])
        self.weight = float(self._weights.sum())
        if _is_constant(self.together(range(len(parts))), origin)[-1]:
            raise no_variance()

    def __len__(self) -> int:
        return len(self._parts)

    def together(self, folds: Sequence[int]) -> RegressionMoments:
        """The merged moments of some folds."""
        chosen = list(folds)
        weights = self._weights[chosen]
        mean = weights @ self._means[chosen] / weights.sum()
        vectors = np.sqrt(weights)[:, None] * (self._means[chosen] - mean)
        scatter = QuadraticForm([self._parts[fold].scatter for fold in chosen], vectors)
        return RegressionMoments(float(weights.sum()), mean, scatter)

    def held_out(
        self, tolerance: float = 1e-11, scoring: Scoring = "r2", alpha: float = 0.0
    ) -> list[LinearFold]:
        """For each fold, the evaluation of a (ridge) regression that is trained on the other folds."""
        found = []
        for fold, part in enumerate(self._parts):
            train = self.together([other for other in range(len(self)) if other != fold])
            useless = _is_constant(train, self.origin)[:-1]
            scatter, variance = part.scatter, float(part.scatter[-1, -1]) / part.weight
            if scoring == "r2" and not variance > _rounding(self.origin[-1]) ** 2:
                raise DataError(
                    f"the target is constant in fold {fold} of {len(self)} ({part.count:,} rows): r2 is not "
                    "defined; set n_folds to less, or choose another random_state"
                )
            vector = np.sqrt(part.weight) * (self._means[fold] - train.mean)
            ridge = np.append(np.full(len(useless), alpha), 0.0) if alpha else np.zeros(0)
            found.append(
                LinearFold(
                    train=QuadraticForm(train.scatter.matrices, train.scatter.vectors, ridge),
                    test=QuadraticForm([scatter], vector[None]),
                    useless=useless,
                    unit=float(scatter[-1, -1]) if scoring == "r2" else part.weight,
                    scoring=scoring,
                    tolerance=tolerance,
                )
            )
        return found


class ClassificationFolds:
    """The moments of each fold, by class."""

    def __init__(self, parts: Sequence[ClassMoments]) -> None:
        self._parts = parts = _with_rows(parts, [float(part.weights.sum()) for part in parts])
        self.classes = np.unique(np.concatenate([part.classes for part in parts]))
        require_classes(self.classes)
        require_few(self.classes, parts[0].max_classes)
        self.origin = parts[0].centres[0].origin
        shape = (len(parts), len(self.classes))
        self._weights, self._means = np.zeros(shape), np.zeros((*shape, len(self.origin)))
        for fold, part in enumerate(parts):
            for place, centre in zip(np.searchsorted(self.classes, part.classes), part.centres, strict=True):
                self._weights[fold, place] = centre.weight
                self._means[fold, place] = centre.origin - self.origin + centre.offset
        self.weight = float(self._weights.sum())

    def __len__(self) -> int:
        return len(self._parts)

    def together(self, folds: Sequence[int]) -> ClassificationMoments:
        """The merged moments of some folds."""
        chosen = list(folds)
        weights, means = self._weights[chosen], self._means[chosen]
        totals = weights.sum(axis=0)
        if not (totals > 0).all():
            (fold,) = {*range(len(self))} - {*chosen}
            name = _shown(self.classes[totals == 0][0])
            raise DataError(
                f"class {name} has no rows outside fold {fold} of {len(self)}: the other folds cannot train "
                "a learner for it; set n_folds to less, choose another random_state, or leave the class out"
            )
        middle = np.einsum("fc,fcj->cj", weights, means) / totals[:, None]
        vectors = (np.sqrt(weights)[:, :, None] * (means - middle)).reshape(-1, len(self.origin))
        within = QuadraticForm([self._parts[fold].scatters[0] for fold in chosen], vectors)
        return ClassificationMoments(totals, middle, within)

    def held_out(self, tolerance: float = 1e-11) -> list[DiscriminantFold]:
        """For each fold, the evaluation of the discriminants of the other folds."""
        found = []
        for fold, part in enumerate(self._parts):
            train = self.together([other for other in range(len(self)) if other != fold])
            within, useless = _within_classes(train, self.origin)
            roots, means = np.sqrt(self._weights[fold])[:, None], self._means[fold]
            found.append(
                DiscriminantFold(
                    within=within,
                    means=train.between,
                    errors=QuadraticForm(part.scatters, roots * (means - train.means)),
                    total=QuadraticForm(part.scatters, roots * (means - train.mean)),
                    useless=useless,
                    tolerance=tolerance,
                )
            )
        return found


def require_classes(classes: Array) -> None:
    """Refuse a single class."""
    if len(classes) < 2:
        name = f" ({_shown(classes[0])})" if len(classes) else ""
        raise DataError(f"all labels are the same{name}: there are no classes to separate")


def _shown(label: Any) -> str:
    """A label as text, for messages."""
    return f"{label:g}" if isinstance(label, float) else str(label)


def no_variance() -> DataError:
    """The error for a constant target."""
    return DataError("the target is constant: there is nothing to predict")


def _with_rows(parts: Sequence[T], weights: Sequence[float]) -> list[T]:
    """The folds that have rows: with few rows, some may be empty."""
    kept = [part for part, weight in zip(parts, weights, strict=True) if weight > 0]
    if len(kept) < 2:
        raise DataError(
            f"all rows are in one of {len(parts)} folds: at least two folds must have rows, one to train and "
            "one to test; use more rows, or another random_state"
        )
    return kept


def _rounding(mean: float) -> float:
    """The rounding error of values near a mean."""
    return 4 * float(np.finfo(np.float64).eps) * abs(mean)


def _is_constant(rows: RegressionMoments, origin: Array) -> Array:
    """The mask of constant columns."""
    return constant_mask(rows.scatter.diagonal() / rows.weight, origin + rows.mean)


def _within_classes(rows: ClassificationMoments, origin: Array) -> tuple[QuadraticForm, Array]:
    """The scatter within classes, and which columns are constant.

    A column that is constant within each class, and differs between them, would have an infinite
    discriminant: it gets a variance that is small relative to its differences.
    """
    weight, mean = float(rows.weights.sum()), origin + rows.mean
    between = np.square(rows.between).sum(axis=0)
    narrow, same = (constant_mask(sums / weight, mean) for sums in (rows.within.diagonal(), between))
    if not (narrow & ~same).any():
        return rows.within, narrow & same
    added = np.where(narrow & ~same, _NARROW * between, 0.0)
    return QuadraticForm(rows.within.matrices, rows.within.vectors, added), narrow & same
