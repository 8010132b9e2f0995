"""The statistics of passes over columns: shifted and squared by slabs, and joined by several threads."""

from __future__ import annotations

import numpy as np
import pytest

import streamdr
from streamdr.core.blocks import Block, Span
from streamdr.core.solving import solving_with
from streamdr.statistics.gram import Loadings, shift_columns


def hostile(n_rows: int, n_cols: int, dtype: str) -> np.ndarray:
    """Columns with large offsets, tiny variances, and some that are constant or copies of others."""
    rng = np.random.default_rng(n_rows)
    scales = 10.0 ** rng.integers(-3, 3, n_cols)
    values = rng.normal(size=(n_rows, n_cols)) * scales + rng.choice([0.0, 50.0, -2e3], n_cols)
    values[:, ::9] = 3.5
    values[:, 1::9] = values[:, 2:3]
    return values.astype(dtype)


@pytest.mark.parametrize("shape", [(3, 500), (700, 900), (37, 20_001)])
@pytest.mark.parametrize("weighted", [False, True])
def test_means_and_variances_of_columns_are_those_of_two_passes(shape, weighted):
    values = hostile(shape[0], shape[1], "f8")
    weights = np.random.default_rng(1).choice([0.0, 0.5, 3.0], shape[0]) if weighted else np.ones(shape[0])
    weights[0] = 1.0
    block = Block(Span(0, shape[1]), values.copy(), weights=weights if weighted else None)
    found = shift_columns(block, scale=True, ddof=0, double=False, variance=True)
    mean = weights @ values / weights.sum()
    variance = weights @ (values - mean) ** 2 / weights.sum()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10, atol=1e-18)
    assert set(range(0, shape[1], 9)) <= set(found.constant.tolist())
    assert np.array_equal(block.values, values)  # a block that is not disposable is left alone


@pytest.mark.parametrize("n_pieces", [0, 1, 2, 41])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_threads_join_the_loadings_like_one(n_pieces, dtype):
    def filled() -> Loadings:
        loadings = Loadings(np.linalg.qr(np.random.default_rng(0).normal(size=(6, 3)))[0])
        for number in range(n_pieces):
            rows = hostile(6, 1 + 7 * number, dtype)
            loadings.update(Block(Span(0, rows.shape[1]), rows))
        return loadings

    expected = filled().value()
    for workers in (1, 3):
        with solving_with(workers):
            levels, joined = filled().take()
        assert np.array_equal(levels, expected["levels"])
        assert np.array_equal(joined, expected["loadings"])
        assert joined.dtype == np.float64


@pytest.mark.parametrize("dtype", ["i1", "u1", "f2", "f4"])
def test_wide_data_in_chunks_of_few_rows_gives_the_same_bits_on_any_number_of_workers(dtype, tmp_path):
    import zarr

    values = np.random.default_rng(2).integers(0, 100, (30, 5000)).astype(dtype)
    array = zarr.create_array(tmp_path / "x.zarr", shape=values.shape, chunks=(7, 300), dtype=dtype)
    array[:] = values
    models = []
    for workers in (1, 2, 4):
        with streamdr.execution(workers=workers):
            models.append(streamdr.PCA(4, solver="gram").fit(str(tmp_path / "x.zarr")).model_)
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    expected = np.linalg.svd(centred, compute_uv=False)[:4] ** 2 / 29
    np.testing.assert_allclose(models[0].explained_variance, expected, rtol=1e-5)
    for other in models[1:]:
        assert np.array_equal(models[0].components, other.components)
        assert np.array_equal(models[0].explained_variance, other.explained_variance)
