"""Synthetic data has a known covariance, is reproducible, and is created only once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from streamdr.core.progress import Silent
from streamdr.data.examples.synthetic import Synthetic, create, ensure
from streamdr.errors import DataError, ParameterError, StoreError
from streamdr.store.arrays import ArrayLayout

quiet = Silent()
SMALL: dict[str, Any] = {"n_rows": 60, "n_cols": 8, "rank": 3, "noise": 0.1}


def stored(path: Path) -> np.ndarray:
    return np.asarray(zarr.open_array(path / "X", mode="r")[:])


def chunk_files(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted((path / "X").rglob("*")) if f.is_file()}


def cosines(rank: int, n_cols: int) -> np.ndarray:
    """Return samples of the functions cos(k pi x), normalised."""
    x = (np.arange(n_cols) + 0.5) / n_cols
    waves = np.cos(np.pi * x[:, None] * (np.arange(1, rank + 1) % n_cols))
    return waves / np.linalg.norm(waves, axis=0)


@pytest.mark.parametrize("rank", [1, 4, 12])
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_covariance_is_that_of_the_recipe(tmp_path, rank, offset, dtype):
    n, d, noise = 40_000, 12, 0.3
    create(tmp_path / "x.zarr", Synthetic(n, d, rank, noise, offset, dtype), progress=quiet)
    values = stored(tmp_path / "x.zarr")
    assert values.dtype == dtype
    weights = 0.01 ** (np.arange(rank) / max(1, rank - 1))
    waves = cosines(rank, d)
    expected = waves * (d * weights / weights.sum()) @ waves.T + noise**2 * np.eye(d)
    variances = np.diag(expected)
    # The standard error of an entry of a sample covariance, if tails are no longer than those of a normal.
    error = np.sqrt((np.outer(variances, variances) + expected**2) / n)
    assert (abs(np.cov(values.T.astype(np.float64)) - expected) < 5 * error).all()
    assert (abs(values.mean(axis=0, dtype=np.float64) - offset) < 5 * np.sqrt(variances / n)).all()


def test_the_spectrum_is_well_separated():
    ratios = np.divide(*np.lib.stride_tricks.sliding_window_view(Synthetic(100, 50, 10, 0.1).variances, 2).T)
    np.testing.assert_allclose(ratios, ratios[0])
    assert ratios[0] > 1.5


def test_a_scatter_plot_shows_four_clusters(tmp_path):
    create(tmp_path / "x.zarr", Synthetic(n_rows=4000, n_cols=30, rank=5, noise=0.05), progress=quiet)
    first_two = stored(tmp_path / "x.zarr") @ cosines(2, 30)
    standardised = first_two / first_two.std(axis=0)
    assert np.quantile(abs(standardised), 0.02) > 0.1  # the gaps between clusters are almost empty
    counts = np.unique(np.sign(standardised), axis=0, return_counts=True)[1]
    assert len(counts) == 4
    assert counts.min() > 800


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_two_runs_create_the_same_bits(tmp_path, dtype):
    for name in ("a", "b"):
        create(tmp_path / name, Synthetic(**SMALL, dtype=dtype), progress=quiet)
    assert chunk_files(tmp_path / "a") == chunk_files(tmp_path / "b")


@pytest.mark.parametrize("change", [{"seed": 1}, {"noise": 0.2}, {"rank": 2}, {"offset": 1.0}])
def test_another_recipe_creates_other_data(tmp_path, change):
    create(tmp_path / "a", Synthetic(**SMALL), progress=quiet)
    create(tmp_path / "b", Synthetic(**(SMALL | change)), progress=quiet)
    assert (stored(tmp_path / "a") != stored(tmp_path / "b")).any()


def test_chunks_share_rows_and_columns_but_not_noise():
    recipe = Synthetic(n_rows=6, n_cols=8, rank=2, noise=0.0, dtype="float64")
    layout = ArrayLayout((6, 8), (4, 3), np.dtype(np.float64), ("sample", "feature"))
    values, noisy = np.empty((6, 8)), np.empty((6, 8))
    for _, region in layout.files():
        values[region] = recipe.values(region, layout.chunks)
        noisy[region] = replace(recipe, noise=1.0).values(region, layout.chunks)
    assert np.linalg.matrix_rank(values) == 2
    assert np.unique(noisy - values).size == 48


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "chunks"),
    [(5_000_000, 1, (2**22, 1)), (2, 3_000_000, (2, 2**21)), (300, 40, (300, 40))],
)
def test_tall_data_is_chunked_by_rows_and_wide_data_by_columns(tmp_path, n_rows, n_cols, chunks):
    create(tmp_path / "x.zarr", Synthetic(n_rows=n_rows, n_cols=n_cols, rank=1, noise=0.1), progress=quiet)
    array = zarr.open_array(tmp_path / "x.zarr/X", mode="r")
    assert (array.shape, array.chunks) == ((n_rows, n_cols), chunks)
    assert np.isfinite(array[:]).all()


def test_ensure_creates_the_store_once(tmp_path):
    ensure(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)
    before = (tmp_path / "x.zarr").stat().st_mtime_ns
    ensure(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)
    assert (tmp_path / "x.zarr").stat().st_mtime_ns == before


def test_ensure_refuses_another_recipe(tmp_path):
    ensure(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)
    with pytest.raises(
        DataError, match=r"x\.zarr: exists, .* another recipe \(noise 0\.1, seed 0\); delete it"
    ):
        ensure(tmp_path / "x.zarr", Synthetic(**(SMALL | {"noise": 0.5, "seed": 3})), progress=quiet)


def test_ensure_refuses_other_data(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(2, 2), dtype="f4")
    with pytest.raises(DataError, match="is not synthetic data; choose another path"):
        ensure(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)


def test_create_does_not_replace_a_store(tmp_path):
    create(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)
    with pytest.raises(StoreError, match="exists"):
        create(tmp_path / "x.zarr", Synthetic(**SMALL), progress=quiet)


class Interrupting(Silent):
    """Interrupts at the first progress."""

    def advance(self, rows):
        raise KeyboardInterrupt


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "x.zarr", Synthetic(**SMALL), progress=Interrupting())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "parameter"),
    [({"rank": 9}, "rank"), ({"rank": 0}, "rank"), ({"noise": -1.0}, "noise"), ({"noise": np.nan}, "noise"),
     ({"dtype": "int8"}, "dtype"), ({"n_rows": 0}, "rank")],
)  # fmt: skip
def test_invalid_recipes_are_refused(tmp_path, change, parameter):
    with pytest.raises(ParameterError) as caught:
        create(tmp_path / "x.zarr", Synthetic(**(SMALL | change)), progress=quiet)
    assert caught.value.parameter == parameter


def test_data_larger_than_the_disk_is_refused(tmp_path):
    recipe = Synthetic(n_rows=10**12, n_cols=10**3)
    with pytest.raises(DataError, match="its disk has"):
        create(tmp_path / "x.zarr", recipe, progress=Silent())
    assert not list(tmp_path.iterdir())
