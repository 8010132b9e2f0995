"""Stores of sparse matrices for tests: as anndata writes them, and with any chunks and types."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse
import zarr

KINDS = ("v2.zarr", "v3.zarr", "h5ad")
"""The suffixes of stores, with the version of zarr."""


def counts(n=60, d=13, density=0.25, dtype: Any = np.float64, seed=0):
    """Counts with an empty row, an empty column, a full row and a stored zero."""
    rng = np.random.default_rng(seed)
    values = rng.poisson(3, (n, d)) * (rng.random((n, d)) < density)
    values[n // 2], values[:, d // 2] = 0, 0
    values[n // 3] = 1 + rng.poisson(2, d)
    rows = scipy.sparse.csr_array(values.astype(np.int64))
    rows.data[len(rows.data) // 2] = 0
    return with_values(rows, rows.data.astype(dtype))


def with_values(rows, values):
    """The matrix with other stored values, also of types that scipy does not compute with."""
    found = scipy.sparse.csr_array(rows.shape, dtype=np.float64)
    found.indptr, found.indices, found.data = rows.indptr, rows.indices, values
    return found


def dense(rows) -> np.ndarray:
    """The matrix as an array of the type of its values."""
    found = np.zeros(rows.shape, rows.data.dtype)
    found[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.indices] = rows.data
    return found


def annotated(rows, **columns: Any) -> anndata.AnnData:
    """A matrix with names, a few columns of observations, and layers of every kind."""
    n, d = rows.shape
    with plain_text():
        obs = pd.DataFrame(
            {
                "n_counts": np.asarray(rows.sum(axis=1)).ravel(),
                "cell_type": pd.Categorical([("B", "NK", "T")[row % 3] for row in range(n)]),
                **columns,
            },
            index=[f"cell {row}" for row in range(n)],
        )
        var = pd.DataFrame(index=[f"GENE{column}" for column in range(d)])
        layers = {"counts": rows.astype(np.int32), "by columns": rows.tocsc(), "dense": rows.toarray()}
        found = anndata.AnnData(rows, obs=obs, var=var, layers=layers)
        found.raw = found
    return found


def written(data: anndata.AnnData, directory: Path, kind: str, **options: Any) -> Path:
    """Write a store with anndata."""
    path = directory / f"cells.{kind}"
    with plain_text():
        if kind == "h5ad":
            data.write_h5ad(path, **options)
        else:
            with anndata.settings.override(zarr_write_format=2 if kind.startswith("v2") else 3):
                data.write_zarr(path, **options)
    return path


@contextmanager
def plain_text() -> Iterator[None]:
    """Text of pandas as objects: anndata does not write the strings of pandas 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the option is for another while
        with pd.option_context("future.infer_string", False):
            yield


def read(path: Path) -> anndata.AnnData:
    """What anndata reads from a store."""
    with plain_text():
        return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


ATTRIBUTES = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}


def write_arrays(
    place: Path,
    arrays: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    *,
    chunk: int | Mapping[str, int] = 50,
    zarr_format: Any = 3,
    inside: str = "X",
) -> Path:
    """Write arrays with these chunks as a group in a new store, a folder of zarr or a file of HDF5."""
    chunks = {name: chunk if isinstance(chunk, int) else chunk[name] for name in arrays}
    if place.suffix in (".h5", ".h5ad"):
        with h5py.File(place, "w") as file:
            group = file.require_group(inside) if inside else file
            for name, values in arrays.items():
                options = {"chunks": (chunks[name],), "maxshape": (None,), "compression": "gzip"}
                group.create_dataset(
                    name, data=values, **(options if values.ndim == 1 and len(values) else {})
                )
            group.attrs.update(attributes)
        return place
    root = zarr.create_group(place, zarr_format=zarr_format, overwrite=True)
    group = root.create_group(inside, attributes=dict(attributes)) if inside else root
    if not inside:
        root.attrs.update(attributes)
    for name, values in arrays.items():
        array = group.create_array(
            name,
            shape=values.shape,
            chunks=(chunks[name],) * values.ndim,
            dtype=values.dtype,
            config={"write_empty_chunks": True},
        )
        array[...] = values
    return place


def write_csr(place: Path, rows, *, index: Any = np.int32, **options: Any) -> Path:
    """Write the three arrays of a matrix by rows."""
    return write_arrays(place, arrays_of(rows, index), {**ATTRIBUTES, "shape": list(rows.shape)}, **options)


def arrays_of(rows, index: Any = np.int32) -> dict[str, np.ndarray]:
    """The three arrays of a matrix by rows."""
    return {
        "data": rows.data,
        "indices": rows.indices.astype(index),
        "indptr": rows.indptr.astype(index),
    }


def append(place: Path, rows, already: int) -> None:
    """Append the rows of a matrix from `already` on to a zarr store that has those before."""
    group = zarr.open_group(place / "X", mode="r+")
    wanted = arrays_of(rows)
    for name, values in wanted.items():
        array = zarr.open_array(place / "X" / name, mode="r+")
        before = array.shape[0]
        array.resize(values.shape)
        array[before:] = values[before:]
    group.attrs["shape"] = list(rows.shape)
