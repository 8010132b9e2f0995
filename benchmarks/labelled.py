"""The contenders of supervised methods: streamdr as a user calls it, and scikit-learn with both cores."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.contender import CORES, Fit, Solution
from benchmarks.ours import OPENINGS, chunks_opened
from benchmarks.passes import timed_passes

FITS, SECONDS_PER_FIT, AT_BEST = "fits", "seconds per fit", "seconds of all steps, at best"


def pca(store: str, k: int, memory_limit: str) -> Fit:
    """PCA on a thread pool, to measure the time of its pass."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA
    notes = timed_passes()

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            PCA(n_components=k).fit(store)
        return Solution.nothing(**notes)

    return fit


def lda(store: str, labels: str, memory_limit: str, **parameters: Any) -> Fit:
    """Discriminants on a thread pool."""
    import streamdr

    execution, LDA = streamdr.execution, streamdr.LDA
    notes = timed_passes()

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = LDA(**parameters).fit(store, labels).model_
        return Solution(model.explained_variance_ratio, model.scalings.T, notes)

    return fit


def sklearn_lda(store: str, labels: str, solver: str) -> Fit:
    """scikit-learn's discriminants of the whole array."""
    import zarr
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    def fit() -> Solution:
        model = LinearDiscriminantAnalysis(solver=solver)
        model.fit(zarr.open_array(store, mode="r")[:], zarr.open_array(labels, mode="r")[:])
        ratios = model.explained_variance_ratio_
        return Solution(ratios, model.scalings_.T[: len(ratios)])

    return fit


def select_forward(store: str, labels: str, memory_limit: str, **parameters: Any) -> Fit:
    """Forward selection on a thread pool."""
    import streamdr

    execution, SelectForward = streamdr.execution, streamdr.SelectForward
    opened, notes = chunks_opened(store), timed_passes()

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = SelectForward(**parameters).fit(store, labels).model_
        scores = model.path_fold_scores.mean(axis=1)
        return Solution(
            scores, np.empty((0, 0)), {OPENINGS: max(opened.values()), **notes}, columns=model.selected
        )

    return fit


def sklearn_forward(
    store: str, labels: str, k: int, n_folds: int, random_state: int, n_jobs: int | None = None
) -> Fit:
    """scikit-learn's forward selection with linear regression of the whole array, over the same folds."""
    import zarr
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import PredefinedSplit

    import streamdr

    folds = streamdr.folds

    def fit() -> Solution:
        rows, target = (np.asarray(zarr.open_array(path, mode="r")[:]) for path in (store, labels))
        split = PredefinedSplit(folds(len(rows), n_folds, random_state))
        search = SequentialFeatureSelector(
            LinearRegression(), n_features_to_select=k, scoring="r2", cv=split, n_jobs=n_jobs
        )
        start = time.perf_counter()
        search.fit(rows, target)
        fits = number_of_fits(rows.shape[1], k, n_folds)
        notes = {FITS: fits, SECONDS_PER_FIT: (time.perf_counter() - start) / fits}
        return Solution(np.empty(0), np.empty((0, 0)), notes, columns=search.get_support(indices=True))

    return fit


def sklearn_steps(store: str, labels: str, k: int, n_folds: int, random_state: int) -> Fit:
    """One candidate of every step of such a search, to estimate the time of all on fully used cores."""
    import zarr
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_score

    import streamdr

    folds = streamdr.folds

    def fit() -> Solution:
        rows, target = (np.asarray(zarr.open_array(path, mode="r")[:]) for path in (store, labels))
        split = PredefinedSplit(folds(len(rows), n_folds, random_state))
        total, cols = 0.0, rows.shape[1]
        for size in range(1, k + 1):
            start = time.perf_counter()
            cross_val_score(LinearRegression(), rows[:, :size], target, cv=split, scoring="r2")
            total += (cols - size + 1) * (time.perf_counter() - start) / CORES
        return Solution.nothing(**{AT_BEST: total})

    return fit


def number_of_fits(cols: int, k: int, n_folds: int) -> int:
    """Return the number of fits of a forward search for k columns."""
    return n_folds * sum(cols - done for done in range(k))


def filtered(store: str, labels: str, name: str, memory_limit: str, **parameters: Any) -> Fit:
    """One of the filters on a thread pool."""
    import streamdr

    execution, kind = streamdr.execution, getattr(streamdr, name)
    notes = timed_passes()

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = kind(**parameters).fit(store, labels).model_
        return Solution(model.scores, np.empty((0, 0)), notes, columns=model.selected)

    return fit


def sklearn_filter(store: str, labels: str, name: str, k: int, **parameters: Any) -> Fit:
    """One of the functions of scikit-learn that score columns of the whole array."""
    import zarr
    from sklearn import feature_selection

    function = getattr(feature_selection, name)

    def fit() -> Solution:
        rows, target = (np.asarray(zarr.open_array(path, mode="r")[:]) for path in (store, labels))
        found = function(rows, target, **parameters)
        scores = np.asarray(found[0] if isinstance(found, tuple) else found)
        return Solution(scores, np.empty((0, 0)), columns=np.argsort(-np.abs(scores), kind="stable")[:k])

    return fit
