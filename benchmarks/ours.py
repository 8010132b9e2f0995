"""streamdr, as a user calls it."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import lazy_arrays
from benchmarks.contender import CORES, Fit, Solution

if TYPE_CHECKING:
    from streamdr.methods.kernel_pca.model import KernelPCAModel
    from streamdr.methods.ppca.model import PPCAModel


OPENINGS = "openings of the chunk that was opened most often, also to read it ahead"


def threads(store: str, k: int, memory_limit: str) -> Fit:
    """A thread pool, the solver chosen by shape, cost and memory limit."""
    return fitted(store, k, memory_limit, "threads")


def processes(store: str, k: int, memory_limit: str) -> Fit:
    """A dask cluster of two processes, started and ended by the fit."""
    import distributed  # noqa: F401

    return fitted(store, k, memory_limit, "processes")


def running_processes(store: str, k: int, memory_limit: str) -> Fit:
    """A dask cluster of two processes that is up, with streamdr imported, when the fit begins."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=CORES, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    client.run(warm_up)
    return fitted(store, k, memory_limit, client)


def warm_up() -> None:
    """Import in a worker what is imported here before the clock starts."""
    import_module("streamdr").PCA  # noqa: B018


def lazy(store: str, k: int, memory_limit: str, kind: str, place: str) -> Fit:
    """A dask array, where it is: lazy, or on the cluster of the default client."""
    array, _ = lazy_arrays.placed(store, kind, place)
    return fitted(array, k, memory_limit, None)


def fitted(store: Any, k: int, memory_limit: str, scheduler: object) -> Fit:
    """Return the fit under a scheduler."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit, scheduler=scheduler):
            model = PCA(n_components=k).fit(store)
        return Solution(model.explained_variance_, model.components_, {"solver": model.solver_})

    return fit


def ppca(store: str, k: int, memory_limit: str, workers: int = CORES, **parameters: Any) -> Fit:
    """Probabilistic PCA on a thread pool, by default until it has converged."""
    import streamdr

    execution, PPCA = streamdr.execution, streamdr.PPCA

    def fit() -> Solution:
        start = time.perf_counter()
        with execution(workers=workers, memory_limit=memory_limit):
            model: PPCAModel = PPCA(n_components=k, **parameters).fit(store).model_
        return ppca_solution(model, time.perf_counter() - start)

    return fit


def ppca_mixture(
    store: str, k: int, mixtures: int, memory_limit: str, workers: int, **parameters: Any
) -> Fit:
    """A mixture of probabilistic PCAs on a thread pool."""
    import streamdr

    execution, PPCAMixture = streamdr.execution, streamdr.PPCAMixture

    def fit() -> Solution:
        with execution(workers=workers, memory_limit=memory_limit):
            model = PPCAMixture(k, mixtures, **parameters).fit(store).model_
        return Solution.nothing(iterations=float(model.n_iter))

    return fit


def ppca_pass(store: str, k: int, memory_limit: str) -> Fit:
    """One iteration of EM, from parameters that were fitted to a few rows before the clock starts."""
    import zarr

    from streamdr.core.byte_sizes import parse_bytes
    from streamdr.core.execution import Execution
    from streamdr.data import open_source
    from streamdr.engine.fitting import fit as fit_source
    from streamdr.methods.ppca import PPCA

    method = PPCA(k, method="em", max_iter=1)
    array = zarr.open_array(store, mode="r")
    first: Any = array[: array.chunks[0]]
    execution = Execution(workers=CORES, memory_limit=parse_bytes(memory_limit))
    initial = fit_source(method, open_source(first), execution).model

    def fit() -> Solution:
        start = time.perf_counter()
        found: Any = fit_source(method, open_source(store), execution, start=initial).model
        return ppca_solution(found, time.perf_counter() - start)

    return fit


def ppca_solution(model: PPCAModel, seconds: float) -> Solution:
    """Return the solution of a probabilistic PCA, with the time per iteration, which includes the start."""
    notes = {
        "iterations": model.n_iter,
        "seconds per iteration": seconds / model.n_iter,
        "converged": float(model.converged),
    }
    return Solution(model.explained_variance, model.components, notes, model.mean, model.noise_variance)


def kernel_pca(store: str, k: int, memory_limit: str, **parameters: Any) -> Fit:
    """Kernel PCA on a thread pool."""
    import streamdr

    execution, KernelPCA = streamdr.execution, streamdr.KernelPCA

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            return kernel_solution(KernelPCA(k, **parameters).fit(store).model_)

    return fit


def kernel_landmarks(store: str, m: int, seeds: int, memory_limit: str, **parameters: Any) -> Fit:
    """Several choices of landmarks, each with the fit in which they are used."""
    import streamdr
    from streamdr.core.blocks import MatrixSpec
    from streamdr.methods.kernel_pca import KernelPCA as KernelMethod
    from streamdr.methods.kernel_pca import nystrom
    from streamdr.methods.kernel_pca.evaluators import KernelEvaluator, Pool

    execution, KernelPCA = streamdr.execution, streamdr.KernelPCA
    choose, choosing = nystrom.choose, 0.0

    def timed(
        method: KernelMethod, kind: KernelEvaluator, pool: Pool, data: MatrixSpec
    ) -> tuple[Pool, int | None]:
        nonlocal choosing
        start = time.perf_counter()
        chosen = choose(method, kind, pool, data)
        choosing += time.perf_counter() - start
        return chosen

    nystrom.choose = timed

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            models = [
                KernelPCA(1, n_landmarks=m, approximation="nystrom", random_state=seed, **parameters)
                .fit(store)
                .model_
                for seed in range(seeds)
            ]
        landmarks = np.stack([model.landmarks for model in models])
        reported = np.array([model.captured_trace for model in models])
        notes = {"seconds of a choice": choosing / seeds}
        return Solution(reported, np.empty((0, 0)), notes, landmarks=landmarks)

    return fit


def kernel_search(store: str, k: int, memory_limit: str, **parameters: Any) -> Fit:
    """Cross-validation of many kernels, and the fit of the best of them."""
    import streamdr

    execution, KernelPCA = streamdr.execution, streamdr.KernelPCA
    opened = chunks_opened(store)

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = KernelPCA(k, **parameters).fit(store).model_
        best = int(model.candidate_errors.mean(axis=1).argmin())
        notes = {OPENINGS: max(opened.values()), "kernel": model.candidate_kernels[best]}
        return kernel_solution(model, notes)

    return fit


def kernel_fits(
    store: str, k: int, memory_limit: str, candidates: Sequence[Mapping[str, Any]], **parameters: Any
) -> Fit:
    """One fit for each of several kernels."""
    import streamdr

    execution, KernelPCA = streamdr.execution, streamdr.KernelPCA
    opened = chunks_opened(store)

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            for candidate in candidates:
                KernelPCA(k, **candidate, **parameters).fit(store)
        return Solution.nothing(**{OPENINGS: max(opened.values())})

    return fit


def kernel_transform(store: str, k: int, memory_limit: str, sparse: bool, **parameters: Any) -> Fit:
    """Scores of all rows, by a model that was fitted before the clock starts."""
    import zarr

    import streamdr

    kind: Any = streamdr.SparseKernelPCA if sparse else streamdr.KernelPCA
    start = time.perf_counter()
    with streamdr.execution(workers=CORES, memory_limit=memory_limit):
        fitted = kind(k, **parameters).fit(store)
    notes = {"seconds of the fit": time.perf_counter() - start, "landmarks": fitted.model_.n_landmarks}
    rows = zarr.open_array(store, mode="r")[:]

    def fit() -> Solution:
        fitted.transform(rows)
        return kernel_solution(fitted.model_, notes)

    return fit


def kernel_solution(model: KernelPCAModel, notes: Mapping[str, float | str] | None = None) -> Solution:
    """Return the components of a kernel PCA, as weights of its landmarks."""
    return Solution(
        model.explained_variance, model.coefficients.T, notes or {}, landmarks=np.asarray(model.landmarks)
    )


def som(store: str, height: int, width: int, memory_limit: str, **parameters: Any) -> Fit:
    """A self-organising map on a thread pool."""
    import streamdr

    execution, SOM = streamdr.execution, streamdr.SOM

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            model = SOM(height, width, **parameters).fit(store).model_
        return Solution(np.empty(0), model.codebook, {"reported error": model.quantization_error})

    return fit


def chunks_opened(store: str) -> dict[str, int]:
    """Return a live count of how often this process has opened each chunk of a store."""
    opened: dict[str, int] = {}
    chunks = f"{store}/c/"

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(chunks):
            path = str(arguments[0])
            opened[path] = opened.get(path, 0) + 1

    sys.addaudithook(watch)
    return opened
