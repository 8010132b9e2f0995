"""From moments of folds to what judges subsets of columns: every fold held out once, the others merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from streamdr.accumulators import ClassMoments, JointMoments
from streamdr.accumulators.class_sums import require_few
from streamdr.blocks import Array
from streamdr.errors import DataError
from streamdr.methods.select_common import which_constant
from streamdr.methods.select_discriminant import DiscriminantFold
from streamdr.methods.select_forms import Form
from streamdr.methods.select_linear import LinearFold, Scoring

_NARROW = 1e-10

T = TypeVar("T")


@dataclass(frozen=True)
class Numbers:
    """Columns and a target of numbers (the last), in some rows."""

    weight: float
    mean: Array
    """From an origin that all folds share."""
    scatter: Form


@dataclass(frozen=True)
class Classes:
    """Columns in some rows that belong to classes."""

    weights: Array
    means: Array
    within: Form

    @property
    def mean(self) -> Array:
        """That of all rows, from an origin that all folds share."""
        mean: Array = self.weights @ self.means / self.weights.sum()
        return mean

    @property
    def between(self) -> Array:
        """A basis of the differences between means: as many rows as there are classes, less one.

        Its rows' squares add up to those of the means about the mean of all rows, by weight.
        """
        roots = np.sqrt(self.weights)
        others = np.linalg.qr(np.column_stack([roots, np.eye(len(roots))[:, 1:]]))[0][:, 1:]
        basis: Array = others.T @ ((self.means - self.mean) * roots[:, None])
        return basis


class NumberFolds:
    """Folds of rows with a target of numbers."""

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

    def together(self, folds: Sequence[int]) -> Numbers:
        """Some folds as one."""
        chosen = list(folds)
        weights = self._weights[chosen]
        mean = weights @ self._means[chosen] / weights.sum()
        vectors = np.sqrt(weights)[:, None] * (self._means[chosen] - mean)
        scatter = Form([self._parts[fold].scatter for fold in chosen], vectors)
        return Numbers(float(weights.sum()), mean, scatter)

    def held_out(
        self, tolerance: float = 1e-11, scoring: Scoring = "r2", alpha: float = 0.0
    ) -> list[LinearFold]:
        """Each fold, judging what a (ridge) regression learns from the others."""
        found = []
        for fold, part in enumerate(self._parts):
            train = self.together([other for other in range(len(self)) if other != fold])
            useless = _is_constant(train, self.origin)[:-1]
            spread, variance = part.scatter, float(part.scatter[-1, -1]) / part.weight
            if scoring == "r2" and not variance > _rounding(self.origin[-1]) ** 2:
                raise DataError(
                    f"the target does not vary in fold {fold} of {len(self)} ({part.count:,} rows): its "
                    "share of variance explained is not defined; ask for fewer folds, or another random_state"
                )
            vector = np.sqrt(part.weight) * (self._means[fold] - train.mean)
            ridge = np.append(np.full(len(useless), alpha), 0.0) if alpha else np.zeros(0)
            found.append(
                LinearFold(
                    train=Form(train.scatter.matrices, train.scatter.vectors, ridge),
                    test=Form([spread], vector[None]),
                    useless=useless,
                    unit=float(spread[-1, -1]) if scoring == "r2" else part.weight,
                    scoring=scoring,
                    tolerance=tolerance,
                )
            )
        return found


class ClassFolds:
    """Folds of rows that belong to classes."""

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

    def together(self, folds: Sequence[int]) -> Classes:
        """Some folds as one."""
        chosen = list(folds)
        weights, means = self._weights[chosen], self._means[chosen]
        totals = weights.sum(axis=0)
        if not (totals > 0).all():
            (fold,) = {*range(len(self))} - {*chosen}
            name = _shown(self.classes[totals == 0][0])
            raise DataError(
                f"class {name} has no rows outside fold {fold} of {len(self)}: nothing can be learnt of it "
                "from the others; ask for fewer folds or another random_state, or leave the class out"
            )
        middle = np.einsum("fc,fcj->cj", weights, means) / totals[:, None]
        vectors = (np.sqrt(weights)[:, :, None] * (means - middle)).reshape(-1, len(self.origin))
        within = Form([self._parts[fold].scatters[0] for fold in chosen], vectors)
        return Classes(totals, middle, within)

    def held_out(self, tolerance: float = 1e-11) -> list[DiscriminantFold]:
        """Each fold, judging the discriminants of the others."""
        found = []
        for fold, part in enumerate(self._parts):
            train = self.together([other for other in range(len(self)) if other != fold])
            within, useless = _within_classes(train, self.origin)
            roots, means = np.sqrt(self._weights[fold])[:, None], self._means[fold]
            found.append(
                DiscriminantFold(
                    within=within,
                    means=train.between,
                    errors=Form(part.scatters, roots * (means - train.means)),
                    spread=Form(part.scatters, roots * (means - train.mean)),
                    useless=useless,
                    tolerance=tolerance,
                )
            )
        return found


def require_classes(classes: Array) -> None:
    """Refuse a single class."""
    if len(classes) < 2:
        name = f" ({_shown(classes[0])})" if len(classes) else ""
        raise DataError(f"all labels are the same{name}: there are no classes to tell apart")


def _shown(label: Any) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def no_variance() -> DataError:
    """For a target with one value only."""
    return DataError("the target does not vary: there is nothing to predict")


def _with_rows(parts: Sequence[T], weights: Sequence[float]) -> list[T]:
    """Without folds in which no rows are, as there may be where rows are few."""
    kept = [part for part, weight in zip(parts, weights, strict=True) if weight > 0]
    if len(kept) < 2:
        raise DataError(
            f"all rows are in one of {len(parts)} folds: there must be rows in two at least, to learn "
            "from one and be judged by the other"
        )
    return kept


def _rounding(mean: float) -> float:
    return 4 * float(np.finfo(np.float64).eps) * abs(mean)


def _is_constant(rows: Numbers, origin: Array) -> Array:
    return which_constant(rows.scatter.diagonal() / rows.weight, origin + rows.mean)


def _within_classes(rows: Classes, origin: Array) -> tuple[Form, Array]:
    """The scatter within classes, and which columns are constant.

    A column that is constant within each class, and differs between them, would have an infinite
    discriminant: it is given a spread that is small beside its differences.
    """
    weight, mean = float(rows.weights.sum()), origin + rows.mean
    between = np.square(rows.between).sum(axis=0)
    narrow, same = (which_constant(sums / weight, mean) for sums in (rows.within.diagonal(), between))
    if not (narrow & ~same).any():
        return rows.within, narrow & same
    added = np.where(narrow & ~same, _NARROW * between, 0.0)
    return Form(rows.within.matrices, rows.within.vectors, added), narrow & same
