"""PCA of sparse counts by other programs, each used as its documentation says."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.contender import CORES, Fit, Solution

DASK_ROWS = 20_000
"""The rows of a chunk of a dask array."""


def in_memory(store: str) -> scipy.sparse.csr_matrix:
    """Return the rows, read whole."""
    import zarr

    group: Any = zarr.open_group(store, mode="r")["X"]
    parts = [group[name][:] for name in ("data", "indices", "indptr")]
    return scipy.sparse.csr_matrix(tuple(parts), shape=tuple(group.attrs["shape"]))


def sklearn_pca(store: str, k: int, solver: str) -> Fit:
    """scikit-learn's PCA of a sparse matrix in memory."""
    from sklearn.decomposition import PCA

    def fit() -> Solution:
        model = PCA(n_components=k, svd_solver=solver, random_state=0).fit(in_memory(store))
        return Solution(model.explained_variance_, model.components_)

    return fit


def scanpy_pca(store: str, k: int, solver: str) -> Fit:
    """scanpy's PCA of a sparse matrix in memory. It computes the scores too."""
    import anndata
    import scanpy

    def fit() -> Solution:
        data = anndata.AnnData(in_memory(store))
        scanpy.pp.pca(data, n_comps=k, svd_solver=solver, random_state=0)
        return solution(data)

    return fit


def scanpy_dask(store: str, k: int) -> Fit:
    """scanpy's PCA of a dask array with sparse chunks, which reads the store block by block."""
    import anndata
    import dask
    import dask.array as da
    import scanpy
    import zarr

    group: Any = zarr.open_group(store, mode="r")["X"]
    rows, cols = (int(length) for length in group.attrs["shape"])
    ends = group["indptr"][:]

    def block(block_info: Any = None) -> scipy.sparse.csr_matrix:
        start, stop = block_info[None]["array-location"][0]
        first, last = ends[start], ends[stop]
        parts = (group["data"][first:last], group["indices"][first:last], ends[start : stop + 1] - first)
        return scipy.sparse.csr_matrix(parts, shape=(stop - start, cols))

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            heights = tuple(min(DASK_ROWS, rows - start) for start in range(0, rows, DASK_ROWS))
            meta = scipy.sparse.csr_matrix((0, 0), dtype=np.float32)
            lazy = da.map_blocks(block, chunks=(heights, (cols,)), dtype=np.float32, meta=meta)
            data = anndata.AnnData(lazy)
            scanpy.pp.pca(data, n_comps=k, svd_solver="covariance_eigh")
        return solution(data)

    return fit


def solution(data: Any) -> Solution:
    """Return what scanpy has written into an AnnData."""
    return Solution(np.asarray(data.uns["pca"]["variance"]), np.asarray(data.varm["PCs"]).T)
