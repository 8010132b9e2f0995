"""The other programs, each used as its documentation says, with both cores."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.contender import CORES, Fit, Solution

CHUNKS_PER_BATCH = 4
"""Batches of one chunk made both incremental peers slower."""

SECONDS_PER_ROW = "seconds per row"


def pca_solution(covariance: np.ndarray, k: int) -> Solution:
    """Return the principal directions of a covariance matrix."""
    from scipy.linalg import eigh

    d = len(covariance)
    variances, vectors = eigh(covariance, subset_by_index=[d - k, d - 1])
    return Solution(variances[::-1], vectors.T[::-1])


def dask_moments(store: str, k: int) -> Fit:
    """Sums and products in one graph: X'X - n mean mean'."""
    import dask
    import dask.array as da
    import scipy.linalg  # noqa: F401

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            x = da.from_zarr(store)
            n = x.shape[0]
            products, total = dask.compute(x.T @ x, x.sum(axis=0))
        return pca_solution((products - np.outer(total, total) / n) / (n - 1), k)

    return fit


def dask_cov(store: str, k: int) -> Fit:
    """dask's own covariance function, which centres first."""
    import dask
    import dask.array as da
    import scipy.linalg  # noqa: F401

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            return pca_solution(da.cov(da.from_zarr(store), rowvar=False).compute(), k)

    return fit


def dask_gram(store: str, k: int) -> Fit:
    """AA' as a graph, and a second graph for the components."""
    import dask
    import dask.array as da
    import scipy.linalg  # noqa: F401

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            x = da.from_zarr(store)
            n = x.shape[0]
            centred = x - x.mean(axis=0)
            scores = pca_solution((centred @ centred.T).compute() / (n - 1), k)
            loadings = (centred.T @ scores.components.T).compute()
        return Solution(scores.variances, loadings.T / np.sqrt(scores.variances * (n - 1))[:, None])

    return fit


def dask_svd_compressed(store: str, k: int, iterations: int, oversamples: int, reread: bool) -> Fit:
    """dask's randomised decomposition; `reread` computes each step at once instead of keeping the data."""
    import dask
    import dask.array as da

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            x = da.from_zarr(store)
            mean = x.mean(axis=0)
            centred = x - (mean.compute() if reread else mean)
            _, s, v = da.linalg.svd_compressed(
                centred,
                k,
                iterator="QR",
                n_power_iter=iterations,
                n_oversamples=oversamples,
                compute=reread,
                seed=0,
            )
            singular, components = dask.compute(s, v)
        return Solution(singular.astype(np.float64) ** 2 / (x.shape[0] - 1), components)

    return fit


def dask_ml(store: str, k: int) -> Fit:
    """dask-ml's PCA with its defaults."""
    import dask
    import dask.array as da
    from dask_ml.decomposition import PCA

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            model = PCA(n_components=k, random_state=0).fit(da.from_zarr(store))
        return Solution(model.explained_variance_, model.components_)

    return fit


def sklearn_in_memory(store: str, k: int, solver: str) -> Fit:
    """scikit-learn's PCA of the whole array."""
    import zarr
    from sklearn.decomposition import PCA

    def fit() -> Solution:
        model = PCA(n_components=k, svd_solver=solver, copy=False, random_state=0)
        model.fit(zarr.open_array(store, mode="r")[:])
        return Solution(model.explained_variance_, model.components_)

    return fit


def sklearn_incremental(store: str, k: int, larger_batches: bool = False) -> Fit:
    """scikit-learn's IncrementalPCA in the batches of its `fit` (five times the columns) or larger ones."""
    from sklearn.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), store, None if larger_batches else 5)


def intelex_incremental(store: str, k: int) -> Fit:
    """The same from scikit-learn-intelex."""
    from sklearnex.preview.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), store)


def incremental(model: Any, store: str, times_columns: int | None = None) -> Fit:
    """Feed a model batch by batch: of `times_columns` times the columns, or of a few chunks."""
    import zarr

    def fit() -> Solution:
        array = zarr.open_array(store, mode="r")
        height = times_columns * array.shape[1] if times_columns else CHUNKS_PER_BATCH * array.chunks[0]
        for first in range(0, array.shape[0], height):
            model.partial_fit(array[first : first + height])
        return Solution(np.asarray(model.explained_variance_), np.asarray(model.components_))

    return fit


def sklearn_nystroem(store: str, k: int, m: int, gamma: float) -> Fit:
    """scikit-learn's Nystroem and PCA of the whole array."""
    import zarr
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem

    def fit() -> Solution:
        features = Nystroem(kernel="rbf", gamma=gamma, n_components=m, random_state=0)
        model = PCA(n_components=k, svd_solver="covariance_eigh", copy=False)
        model.fit(features.fit_transform(zarr.open_array(store, mode="r")[:]))
        return nystroem_solution(features, model)

    return fit


def sklearn_nystroem_incremental(
    store: str, k: int, m: int, gamma: float, rows: int, larger_batches: bool = False
) -> Fit:
    """Nystroem with landmarks of the first rows, and IncrementalPCA, over some of the rows.

    The batches are those of IncrementalPCA's own `fit` (five times its features) or larger ones.
    """
    import zarr
    from sklearn.decomposition import IncrementalPCA
    from sklearn.kernel_approximation import Nystroem

    def fit() -> Solution:
        array = zarr.open_array(store, mode="r")
        features = Nystroem(kernel="rbf", gamma=gamma, n_components=m, random_state=0)
        features.fit(array[: 5 * m])
        chosen = time.perf_counter()
        model = IncrementalPCA(n_components=k)
        height = (20 if larger_batches else 5) * m
        for first in range(0, rows, height):
            model.partial_fit(features.transform(array[first : min(first + height, rows)]))
        batches = time.perf_counter() - chosen
        return nystroem_solution(features, model, {"rows": rows, SECONDS_PER_ROW: batches / rows})

    return fit


def nystroem_solution(features: Any, model: Any, notes: Mapping[str, float | str] | None = None) -> Solution:
    """Return the components of a PCA of Nystroem's features, as weights of its landmarks."""
    weights = model.components_ @ features.normalization_
    return Solution(model.explained_variance_, weights, notes or {}, landmarks=features.components_)


def sklearn_kernel_pca(store: str, k: int, gamma: float) -> Fit:
    """scikit-learn's KernelPCA of the whole array, the solver chosen by itself."""
    import zarr
    from sklearn.decomposition import KernelPCA

    def fit() -> Solution:
        rows = np.asarray(zarr.open_array(store, mode="r")[:])
        model = KernelPCA(n_components=k, kernel="rbf", gamma=gamma, eigen_solver="auto", random_state=0)
        model.fit(rows)
        weights = model.eigenvectors_ / np.sqrt(model.eigenvalues_)
        return Solution(model.eigenvalues_ / len(rows), weights.T, landmarks=rows)

    return fit


def ppca_rs(store: str, k: int, goal: float, within: float, iterations: int) -> Fit:
    """ppca_rs on the whole array, until the mean log-likelihood is `goal` (nats), or for all `iterations`."""
    import zarr
    from ppca_rs import Dataset, PPCAModel

    def fit() -> Solution:
        dataset = Dataset(zarr.open_array(store, mode="r")[:])
        model = PPCAModel.init(k, dataset)
        iterating = monitoring = 0.0
        for done in range(1, iterations + 1):  # noqa: B007
            start = time.perf_counter()
            model = model.iterate(dataset)
            iterated = time.perf_counter()
            nats = model.llk(dataset) / len(dataset)
            iterating, monitoring = iterating + iterated - start, monitoring + time.perf_counter() - iterated
            if nats >= goal - within * abs(goal):
                break
        noise = model.isotropic_noise**2
        axes, lengths, _ = np.linalg.svd(model.transform, full_matrices=False)
        notes = {
            "iterations": done,
            "seconds per iteration": iterating / done,
            "below the goal, nats per row": max(0.0, goal - nats),
        }
        return Solution(lengths**2 + noise, axes.T, notes, np.ravel(model.mean), noise, aside=monitoring)

    return fit


def minisom(store: str, height: int, width: int, epochs: int, batch: bool, sigma: float | None = None) -> Fit:
    """minisom on the whole array, initialised by PCA: row by row in random order, or in batches.

    The radius shrinks from `sigma` to about a third of it. None is minisom's own choice.
    """
    import zarr
    from minisom import MiniSom

    chosen = {} if sigma is None else {"sigma": sigma}

    def fit() -> Solution:
        rows: Any = zarr.open_array(store, mode="r")[:]
        model = MiniSom(height, width, rows.shape[1], random_seed=0, **chosen)
        model.pca_weights_init(rows)
        if batch:
            model.train_batch_offline(rows, epochs)
        else:
            model.train(rows, epochs, random_order=True, use_epochs=True)
        return Solution(np.empty(0), model.get_weights().reshape(height * width, -1))

    return fit
