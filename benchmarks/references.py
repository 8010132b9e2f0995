"""Variances in float64 after a separate pass for the mean: slow, accurate, and cached beside the store."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import zarr
from rich.progress import track
from scipy.linalg import eigvalsh

from benchmarks.data import chunk_slices
from benchmarks.harness import Judge


def variances(store: Path, k: int) -> np.ndarray:
    """Return the largest variances of a store along its principal directions."""
    cache = store.with_name(f"{store.stem}.reference-{k}.npy")
    if not cache.exists():
        array = zarr.open_array(store, mode="r")
        rows, cols = array.shape
        product = column_products(array) if rows < cols else row_products(array)
        order = len(product)
        largest = eigvalsh(product / (rows - 1), subset_by_index=[order - k, order - 1])[::-1]
        partial = cache.with_suffix(".partial.npy")
        np.save(partial, largest)
        os.rename(partial, cache)
    return np.load(cache)


def row_products(array: zarr.Array) -> np.ndarray:
    """Return (X - mean)'(X - mean) of a tall store, blocks of rows at a time."""
    spans = chunk_slices(array.shape, (array.chunks[0], array.shape[1]))
    total = np.zeros(array.shape[1])
    for span in track(spans, description="reference: mean"):
        total += np.asarray(array[span], np.float64).sum(axis=0)
    mean = total / array.shape[0]
    product = np.zeros((array.shape[1],) * 2)
    for span in track(spans, description="reference: products"):
        block = np.asarray(array[span]) - mean
        product += block.T @ block
    return product


def column_products(array: zarr.Array) -> np.ndarray:
    """Return (X - mean)(X - mean)' of a wide store, blocks of columns at a time."""
    product = np.zeros((array.shape[0],) * 2)
    spans = chunk_slices(array.shape, (array.shape[0], array.chunks[1]))
    for span in track(spans, description="reference: products"):
        block = np.asarray(array[span], np.float64)
        block -= block.mean(axis=0)
        product += block @ block.T
    return product


def variance_error(truth: np.ndarray) -> Judge:
    """Return the judge that says how far off the worst variance is, relative to its true value."""
    return lambda found: {"variance error": float(np.abs(found.variances[: len(truth)] / truth - 1).max())}
