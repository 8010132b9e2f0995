"""Greedy searches for subsets of columns by score: forward, backward, floating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from streamdr.core.blocks import Array
from streamdr.methods.selection.quadratic_forms import first_best

_GAIN = 1e-10
"""The smallest relative gain for a removal: above rounding, so that the search ends."""


class SearchState(Protocol):
    """The columns chosen so far, as one fold scores them."""

    @property
    def score(self) -> float:
        """The score of the columns chosen so far."""

    def additions(self) -> Array:
        """The score with each further column."""

    def add(self, column: int) -> None:
        """Choose a column."""


class Fold(Protocol):
    """A held-out fold that scores a learner, trained on the other folds, with some of the columns."""

    @property
    def n_columns(self) -> int:
        """The number of candidate columns."""

    @property
    def scale(self) -> float:
        """The scale of the scores."""

    def start(self, limit: int) -> Any:
        """A state without columns, with room for `limit` columns."""

    def removals(self, columns: Sequence[int]) -> Array:
        """The score without each of `columns`; the last entry is the score with all of them."""


@dataclass
class Path:
    """The steps of a search, and the best subset of each size."""

    scale: float
    """The scale of the scores."""
    features: list[int] = field(default_factory=list)
    """The column of each step; -1 where a search starts with all columns."""
    added: list[bool] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    scores: list[Array] = field(default_factory=list)
    """The scores by fold."""
    best: dict[int, tuple[float, list[int]]] = field(default_factory=dict)
    """The mean score and the columns of the best subset of each size."""

    def note(self, feature: int, chosen: Sequence[int], scores: Array, *, added: bool) -> None:
        """Record a step."""
        self.features.append(feature)
        self.added.append(added)
        self.sizes.append(len(chosen))
        self.scores.append(scores)
        mean = float(scores.mean())
        if len(chosen) not in self.best or mean > self.best[len(chosen)][0] + self.gain:
            self.best[len(chosen)] = mean, list(chosen)

    @property
    def gain(self) -> float:
        """The smallest gain that counts."""
        return _GAIN * self.scale

    def first_best_index(self, scores: Array) -> int:
        """The index of the first best score."""
        return first_best(scores, self.scale)

    def chosen(self, k: int | None) -> list[int]:
        """The best subset of size k; for None, of the best size (the smallest of equals)."""
        if k is None:
            sizes = sorted(self.best)
            k = sizes[self.first_best_index(np.array([self.best[size][0] for size in sizes]))]
        return self.best[k][1]


def alone(folds: Sequence[Fold]) -> Array:
    """The mean score of each column by itself."""
    mean: Array = np.mean([fold.start(0).additions() for fold in folds], axis=0)
    return mean


def forward(folds: Sequence[Fold], k: int) -> Path:
    """Add the column with the largest gain, k times."""
    path = Path(_scale(folds))
    chosen: list[int] = []
    states = [fold.start(k) for fold in folds]
    for _ in range(k):
        column, scores = _best_addition(states, path, chosen)
        chosen.append(column)
        for state in states:
            state.add(column)
        path.note(column, chosen, scores, added=True)
    return path


def backward(folds: Sequence[Fold], k: int) -> Path:
    """Start with all columns, and remove the one with the smallest loss until k are left."""
    path, chosen = Path(_scale(folds)), list(range(folds[0].n_columns))
    scores = np.array([fold.removals(chosen) for fold in folds])
    path.note(-1, chosen, scores[:, -1], added=True)
    while len(chosen) > k:
        index = path.first_best_index(scores[:, :-1].mean(axis=0))
        column = chosen.pop(index)
        path.note(column, chosen, scores[:, index], added=False)
        if len(chosen) > k:
            scores = np.array([fold.removals(chosen) for fold in folds])
    return path


def floating(folds: Sequence[Fold], k: int) -> Path:
    """Forward steps, each followed by removals as long as these improve the best subset of their size.

    The sequential floating search of Pudil, Novovicova and Kittler (1994).
    """
    path = Path(_scale(folds))
    chosen: list[int] = []
    states = [fold.start(k) for fold in folds]
    while len(chosen) < k:
        column, scores = _best_addition(states, path, chosen)
        chosen.append(column)
        for state in states:
            state.add(column)
        path.note(column, chosen, scores, added=True)
        removed = False
        while len(chosen) > 2:
            without = np.array([fold.removals(chosen) for fold in folds])
            index = path.first_best_index(without[:, :-1].mean(axis=0))
            if without[:, index].mean() <= path.best[len(chosen) - 1][0] + path.gain:
                break
            column, removed = chosen.pop(index), True
            path.note(column, chosen, without[:, index], added=False)
        if removed:
            states = [_state_of(fold, chosen, k) for fold in folds]
    return path


def nested(folds: Sequence[Fold], orders: Sequence[Array]) -> Array:
    """The scores of the first column, the first two, and so on; each fold has its own order."""
    scores = np.empty((len(orders[0]), len(folds)))
    for number, (fold, order) in enumerate(zip(folds, orders, strict=True)):
        state = fold.start(len(order))
        for size, column in enumerate(order):
            state.add(column)
            scores[size, number] = state.score
    return scores


def _best_addition(states: Sequence[SearchState], path: Path, chosen: Sequence[int]) -> tuple[int, Array]:
    """The column with the largest mean score when it is added, and its score in each fold."""
    scores = np.array([state.additions() for state in states])
    mean = scores.mean(axis=0)
    mean[list(chosen)] = -np.inf
    column = path.first_best_index(mean)
    return column, scores[:, column]


def _scale(folds: Sequence[Fold]) -> float:
    """The mean scale of the scores of all folds."""
    return float(np.mean([fold.scale for fold in folds]))


def _state_of(fold: Fold, chosen: Sequence[int], limit: int) -> Any:
    """The state of a fold with some columns chosen."""
    state = fold.start(limit)
    for column in chosen:
        state.add(column)
    return state


SEARCHES = {"forward": forward, "backward": backward, "floating": floating}
