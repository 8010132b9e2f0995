"""Outputs of sparse rows are those of the dense rows; rows stay sparse where a model takes them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import zarr
from sparse_rows import SparseArray, counts, hostile

from streamdr.core.execution import Execution
from streamdr.core.method import Supervised
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.data.in_memory import ArraySource
from streamdr.engine import fitting
from streamdr.methods.kernel_pca import KernelPCA
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.selection import SelectFScore

pytestmark = pytest.mark.usefixtures("small_blocks")

N, D = 260, 24
KINDS = {kind.name: kind for kind in ROW_OUTPUTS}
LABELS = np.random.default_rng(3).integers(0, 3, N).astype(float)
CASES = [
    (PCA(4), "embedding"),
    (PCA(4, whiten="pca"), "embedding"),
    (PCA(4, whiten="zca"), "embedding"),
    (PCA(4, center=False), "embedding"),
    (PCA(4), "denoised"),
    (PCA(4), "log_likelihood"),
    (PPCA(3), "embedding"),
    (PPCA(3), "log_likelihood"),
    (LDA(), "embedding"),
    (LDA(), "predicted"),
    (LDA(), "probabilities"),
    (SelectFScore(k=7), "embedding"),
    (KernelPCA(3, kernel="rbf", approximation="nystrom", n_landmarks=12), "embedding"),
    (KernelPCA(3, kernel="linear", approximation="nystrom", n_landmarks=12), "embedding"),
    (KernelPCA(3, kernel="laplacian", approximation="nystrom", n_landmarks=12), "embedding"),
    (KernelPCA(3, kernel="rbf", approximation="random_features", n_landmarks=40), "embedding"),
    (KernelPCA(3, kernel="poly", approximation="nystrom", n_landmarks=12), "embedding"),
    (KernelPCA(3, kernel="sigmoid", gamma=1e-3, approximation="nystrom", n_landmarks=12), "embedding"),
    (KernelPCA(3, kernel="cosine", approximation="nystrom", n_landmarks=12), "embedding"),
]
MADE_DENSE = ("denoised", "log_likelihood")


class DenseArray(SparseArray):
    """The same rows as a dense source."""

    def __init__(self, rows, **companions):
        super().__init__(rows, **companions)
        self.spec = replace(self.spec, density=None)


class SparseOnly(SparseArray):
    """A source that refuses to make rows dense."""

    def read(self, rows, cols):
        raise AssertionError("rows are made dense")


def written(model, source, kind, path, **settings):
    fitting.transform(
        model, source, path, Execution(**settings), kind=KINDS[kind], attributes={}, overwrite=True
    )
    return zarr.open_group(path, mode="r")[kind][...]


def name_of(case):
    method, kind = case
    return "-".join(str(value) for value in (method.name, getattr(method, "kernel", ""), kind) if value)


@pytest.mark.parametrize(
    ("case", "make"),
    [*product(CASES, [counts]), *product(CASES[:-3], [hostile])],
    ids=lambda value: name_of(value) if isinstance(value, tuple) else value.__name__,
)
def test_outputs_of_sparse_rows_are_those_of_dense_rows(case, make, tmp_path):
    method, kind = case
    rows = make(np.random.default_rng(0), N, D)
    dense = DenseArray(rows, labels=LABELS if isinstance(method, Supervised) else None)
    model = fitting.fit(method, dense, Execution()).model
    want = written(model, ArraySource(rows.toarray()), kind, tmp_path / "dense.zarr")
    got = written(model, SparseOnly(rows), kind, tmp_path / "sparse.zarr")
    if want.dtype.kind == "f":
        scale = np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-9 * scale)
    else:
        np.testing.assert_array_equal(got, want)
