"""A plain reference for selection: loops over learners of scikit-learn, for every subset and fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import get_scorer

import streamdr

Score = Callable[[Sequence[int]], np.ndarray]
"""A function that returns the scores of a subset of columns, one per fold."""


def regression(rows, target, n_folds, seed=0, alpha=None, scoring="r2") -> Score:
    """Held-out scores of linear or ridge regressions."""
    learner = LinearRegression() if alpha is None else Ridge(alpha)
    scorer = get_scorer(scoring)

    def score(columns: Sequence[int]) -> np.ndarray:
        found = []
        for fold in range(n_folds):
            held = streamdr.folds(len(rows), n_folds, seed) == fold
            fitted = clone(learner).fit(rows[~held][:, columns], target[~held])
            found.append(scorer(fitted, rows[held][:, columns], target[held]))
        return np.array(found)

    return score


def discriminant(rows, labels, n_folds, seed=0) -> Score:
    """The share of the variance of held-out rows along the discriminants that is between classes."""

    def score(columns: Sequence[int]) -> np.ndarray:
        found = []
        for fold in range(n_folds):
            held = streamdr.folds(len(rows), n_folds, seed) == fold
            lda = LinearDiscriminantAnalysis(solver="eigen").fit(rows[~held][:, columns], labels[~held])
            train, test = lda.transform(rows[~held][:, columns]), lda.transform(rows[held][:, columns])
            means = np.array([train[labels[~held] == name].mean(axis=0) for name in lda.classes_])
            errors = test - means[np.searchsorted(lda.classes_, labels[held])]
            found.append(1 - (errors**2).sum() / ((test - train.mean(axis=0)) ** 2).sum())
        return np.array(found)

    return score


def forward(score: Score, n_columns: int, k: int) -> tuple[list[int], np.ndarray]:
    """Columns in the order of their choice, and the scores of each step."""
    chosen: list[int] = []
    scores = []
    for _ in range(k):
        tried = {j: score([*chosen, j]) for j in range(n_columns) if j not in chosen}
        best = max(tried, key=lambda j: tried[j].mean())
        chosen.append(best)
        scores.append(tried[best])
    return chosen, np.array(scores)


def backward(score: Score, n_columns: int, k: int) -> tuple[list[int], np.ndarray]:
    """The remaining columns, and the scores of each step, starting with all columns."""
    chosen = list(range(n_columns))
    scores = [score(chosen)]
    while len(chosen) > k:
        tried = {j: score([i for i in chosen if i != j]) for j in chosen}
        worst = max(tried, key=lambda j: tried[j].mean())
        chosen.remove(worst)
        scores.append(tried[worst])
    return chosen, np.array(scores)


def floating(score: Score, n_columns: int, k: int) -> tuple[list[int], list[int]]:
    """The best subset of k columns, and the column that each step added or removed."""
    chosen: list[int] = []
    steps: list[int] = []
    best: dict[int, tuple[float, list[int]]] = {}

    def note(column: int, mean: float) -> None:
        steps.append(column)
        if mean > best.get(len(chosen), (-np.inf, []))[0] + 1e-10:
            best[len(chosen)] = mean, list(chosen)

    while len(chosen) < k:
        tried = {j: score([*chosen, j]).mean() for j in range(n_columns) if j not in chosen}
        added = max(tried, key=tried.__getitem__)
        chosen.append(added)
        note(added, tried[added])
        while len(chosen) > 2:
            tried = {j: score([i for i in chosen if i != j]).mean() for j in chosen}
            worst = max(tried, key=tried.__getitem__)
            if tried[worst] <= best[len(chosen) - 1][0] + 1e-10:
                break
            chosen.remove(worst)
            note(worst, tried[worst])
    return best[k][1], steps
