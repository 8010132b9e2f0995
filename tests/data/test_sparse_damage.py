"""Damaged sparse matrices are refused with one clear error, which names the file and the row."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
import sparse_stores as stores
import zarr
from fits import fit

from streamdr import config
from streamdr.core.blocks import Span
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.errors import DataError, StreamdrError
from streamdr.methods.pca import PCA
from streamdr.workflow import pipeline

ROWS = stores.counts()
N, D = ROWS.shape
ROW = 7  # has several values
AT = int(ROWS.indptr[ROW])


def changed(name: str, change: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    """The three arrays, one of them changed in place or replaced."""
    arrays = {key: values.copy() for key, values in stores.arrays_of(ROWS).items()}
    replaced = change(arrays[name])
    return arrays if replaced is None else {**arrays, name: replaced}


def unsorted(indices):
    indices[[AT, AT + 1]] = indices[[AT + 1, AT]]


def duplicate(indices):
    indices[AT + 1] = indices[AT]


def beyond(indices):
    indices[ROWS.indptr[ROW + 1] - 1] = D


def negative(indices):
    indices[AT] = -1


def backwards(pointers):
    pointers[ROW] = pointers[ROW + 1] + 1


def before_the_start(pointers):
    pointers[0] = 1


def negative_pointer(pointers):
    pointers[0] = -1


def past_the_end(pointers):
    pointers[ROW:] += ROWS.nnz


ARRAYS = {
    "unsorted": (changed("indices", unsorted), rf"row {ROW} has the index \d+ before \d+.*sort_indices"),
    "duplicate": (changed("indices", duplicate), rf"row {ROW} has the index \d+ twice.*sum_duplicates"),
    "beyond the columns": (changed("indices", beyond), rf"row {ROW} has the index {D}.*the {D} from 0"),
    "negative": (changed("indices", negative), rf"row {ROW} has the index -1"),
    "backwards": (changed("indptr", backwards), rf"indptr runs backwards at row {ROW}, from \d+ to \d+"),
    "late start": (changed("indptr", before_the_start), "indptr begins with 1 where row 0 must begin at 0"),
    "early start": (changed("indptr", negative_pointer), "indptr begins with -1"),
    "past the end": (changed("indptr", past_the_end), rf"row {ROW - 1} ends at value \d+, beyond"),
    "short indptr": (changed("indptr", lambda p: p[:-3]), f"{N - 2} values where {N} rows take {N + 1}"),
    "long indptr": (changed("indptr", lambda p: np.append(p, p[-1])), f"indptr has {N + 2} values"),
    "fewer values": (changed("data", lambda x: x[:-1]), r"data has \d+ values, and indices has \d+"),
    "fewer indices": (changed("indices", lambda x: x[:-1]), r"data has \d+ values, and indices has \d+"),
    "complex": (changed("data", lambda x: x.astype(complex)), "data.*(complex128|not of numbers)"),
    "text": (changed("data", lambda x: np.full(len(x), b"3")), "data.*cannot be used"),
    "indices of floats": (
        changed("indices", lambda x: x.astype(float)),
        "indices.*float64.*write them as integers",
    ),
    "pointers of floats": (
        changed("indptr", lambda x: x.astype(float)),
        "indptr.*float64.*write them as integers",
    ),
    "values of two dimensions": (changed("data", lambda x: x[None]), r"data.*shape \(1, \d+\)"),
    "no values": ({k: v for k, v in stores.arrays_of(ROWS).items() if k != "data"}, "needs the array data"),
}
ATTRIBUTES: dict[str, tuple[dict[str, Any], str]] = {
    "no shape": ({}, "needs the attribute shape, which is missing"),
    "three lengths": ({"shape": [N, D, 1]}, r"shape is \[60, 13, 1\]"),
    "more rows": ({"shape": [N + 5, D]}, f"indptr has {N + 1} values where {N + 5} rows take {N + 6}"),
    "fewer rows": ({"shape": [N - 5, D]}, f"indptr has {N + 1} values where {N - 5} rows take {N - 4}"),
    "fewer columns": ({"shape": [N, 5]}, r"row \d+ has the index \d+.*the 5 from 0"),
    "negative shape": ({"shape": [-1, D]}, "its shape is"),
    "shape of floats": ({"shape": [60.0, 13.0]}, "its shape is"),
    "no rows": ({"shape": [0, D]}, "the matrix is empty"),
    "no columns": ({"shape": [N, 0]}, "the matrix is empty"),
}


def require_refused(path: Path, message: str, array: str | None = None) -> None:
    """A fit fails with this message, which names the store, and says what to do."""
    with pytest.raises(DataError, match=message) as refused:
        fit(PCA(2), open_source(path, array=array), workers=2)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["x.zarr", "x.h5ad"])
@pytest.mark.parametrize("damage", ARRAYS)
def test_arrays_that_are_no_sparse_rows_are_refused(tmp_path, damage, name, small_blocks):
    arrays, message = ARRAYS[damage]
    chunk = dict.fromkeys(arrays, 20)
    attributes = {**stores.ATTRIBUTES, "shape": [N, D]}
    require_refused(stores.write_arrays(tmp_path / name, arrays, attributes, chunk=chunk), message)


@pytest.mark.parametrize("name", ["x.zarr", "x.h5ad"])
@pytest.mark.parametrize("damage", ATTRIBUTES)
def test_a_shape_that_lies_is_refused(tmp_path, damage, name):
    attributes, message = ATTRIBUTES[damage]
    arrays = stores.arrays_of(ROWS)
    require_refused(
        stores.write_arrays(tmp_path / name, arrays, {**stores.ATTRIBUTES, **attributes}), message
    )


@pytest.mark.parametrize("damage", ["unsorted", "duplicate", "beyond the columns", "negative", "backwards"])
def test_damage_of_a_matrix_by_columns_names_the_column(tmp_path, damage):
    arrays, message = ARRAYS[damage]
    attributes = {"encoding-type": "csc_matrix", "shape": [D, N]}
    path = stores.write_arrays(tmp_path / "x.zarr", arrays, attributes)
    require_refused(path, message.replace(f"row {ROW}", f"column {ROW}"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["x.zarr", "x.h5ad"])
def test_a_value_that_is_not_finite_is_named_by_row_and_column(tmp_path, value, name, small_blocks):
    rows = stores.with_values(ROWS, ROWS.data.copy())
    rows.data[AT] = value
    path = stores.write_csr(tmp_path / name, rows)
    require_refused(path, f"{value} at row {ROW}, column {ROWS.indices[AT]} ")


def test_the_name_of_the_column_is_in_the_message(tmp_path):
    rows = scipy.sparse.csr_array(ROWS, copy=True)
    rows.data[AT] = np.nan
    data = stores.annotated(rows)
    path = stores.written(data, tmp_path, "v3.zarr")
    column = ROWS.indices[AT]
    require_refused(path, rf"nan at row {ROW}, column {column} \('GENE{column}'\)")


ENCODINGS: dict[str, tuple[dict[str, Any], str]] = {
    "of another kind": (
        {"encoding-type": "coo_matrix"},
        "of encoding-type 'coo_matrix', where csr_matrix or",
    ),
    "of none": ({}, "arrays of a sparse matrix without encoding-type, where csr_matrix or csc_matrix"),
    "of another version": (
        {"encoding-type": "csr_matrix", "encoding-version": "9.1.0"},
        r"encoding-version '9\.1\.0', and only 0\.1\.0 is known",
    ),
}


@pytest.mark.parametrize("name", ["x.zarr", "x.h5ad"])
@pytest.mark.parametrize("array", [None, "X"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_that_is_not_known_is_refused(tmp_path, encoding, array, name):
    attributes, message = ENCODINGS[encoding]
    path = stores.write_arrays(tmp_path / name, stores.arrays_of(ROWS), {**attributes, "shape": [N, D]})
    require_refused(path, f"/X: .*{message}", array)


def test_a_row_that_claims_terabytes_is_not_read(tmp_path):
    """Metadata may claim any length, and chunks that are left out need no space."""
    huge = 10**13
    arrays = changed("indptr", lambda p: np.where(np.arange(N + 1) > ROW, huge, p.astype("i8")))
    path = stores.write_arrays(tmp_path / "x.zarr", arrays, {**stores.ATTRIBUTES, "shape": [N, D]})
    for name in ("data", "indices"):
        zarr.open_array(path / "X" / name, mode="r+").resize((huge,))
    source = open_source(path, allow_missing_chunks=True)
    with pytest.raises(
        DataError, match=rf"row {ROW} has 9999999999\d+ values by indptr, more than there are"
    ):
        fit(PCA(2), source)


def chunk_of(path: Path, name: str, number: int = 1) -> Path:
    return path / "X" / name / "c" / str(number)


@pytest.mark.parametrize("array", ["data", "indices", "indptr"])
def test_a_missing_chunk_is_an_error_that_names_it(tmp_path, array):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=20)
    chunk_of(path, array).unlink()
    require_refused(path, rf"X/{array}: chunk c/1 is missing, values 20-39; set allow_missing_chunks")


@pytest.mark.parametrize("array", ["data", "indices", "indptr"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_chunk_is_an_error_that_names_it(tmp_path, array, damage):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=20)
    chunk = chunk_of(path, array)
    whole = chunk.read_bytes()
    damaged = {"truncated": whole[: len(whole) // 2], "flipped": b"?" + whole[1:], "empty": b""}
    chunk.write_bytes(damaged[damage])
    require_refused(
        path, rf"rows \d+-\d+ cannot be read: .*X/{array}: chunk c/1 cannot be read, values 20-39"
    )


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_truncated_h5ad_is_an_error(tmp_path, share):
    path = stores.written(stores.annotated(ROWS), tmp_path, "h5ad")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    require_refused(path, "cannot be read as HDF5.*copied whole")


def test_damage_within_an_h5ad_names_the_rows(tmp_path):
    path = stores.write_csr(tmp_path / "x.h5ad", ROWS, chunk=20)
    with h5py.File(path) as file:
        chunk = file["X/data"].id.get_chunk_info(1)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset)
        file.write(b"?" * (chunk.size // 2))
    require_refused(path, r"rows \d+-\d+ cannot be read: .*X/data: chunk \(1,\) cannot be read, values 20-39")


def test_values_of_another_file_are_not_read(tmp_path):
    path = stores.write_csr(tmp_path / "x.h5ad", ROWS)
    with h5py.File(path, "r+") as file:
        del file["X/data"]
        file["X/data"] = h5py.ExternalLink("other.h5", "data")
    require_refused(path, "needs the array data, which is missing")


def run(directory: Path):
    """Run a configuration over the store in a directory."""
    given = config.read(
        {
            "input": {"path": str(directory / "x.zarr")},
            "method": {"name": "pca", "n_components": 2},
            "output": {"model": str(directory / "model.zarr"), "embedding": str(directory / "e.zarr")},
        }
    )
    context = pipeline.RunContext(given, Silent(), threading.Event())
    return pipeline.run_all(context).fit


def files(directory: Path) -> dict[str, bytes]:
    kept = [directory / "model.zarr", directory / "e.zarr"]
    return {str(file): file.read_bytes() for root in kept for file in root.rglob("*") if file.is_file()}


@pytest.mark.parametrize("damage", ["unsorted", "negative", "backwards", "late start", "fewer values"])
def test_a_run_over_a_damaged_store_leaves_earlier_outputs_alone(tmp_path, damage):
    stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=20)
    run(tmp_path)
    before = files(tmp_path)
    shutil.rmtree(tmp_path / "x.zarr")
    attributes = {**stores.ATTRIBUTES, "shape": [N, D]}
    stores.write_arrays(tmp_path / "x.zarr", ARRAYS[damage][0], attributes, chunk=20)
    with pytest.raises(StreamdrError, match=ARRAYS[damage][1]):
        run(tmp_path)
    assert files(tmp_path) == before
    stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=20)
    run(tmp_path)


def test_codes_beyond_the_categories_are_refused(tmp_path):
    path = stores.written(stores.annotated(ROWS), tmp_path, "v3.zarr")
    zarr.open_array(path / "obs/cell_type/codes", mode="r+")[5] = 9
    source = open_source(path, label_column="cell_type")
    with pytest.raises(DataError, match="obs/cell_type: row 5 has the category 9, of 3 from 0 on"):
        source.block(Span(0, 10))
