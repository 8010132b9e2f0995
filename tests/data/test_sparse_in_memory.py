"""Sparse matrices of scipy: in memory, in files of scipy, as chunks of dask, and in AnnData objects."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sparse
from fits import bits

import streamdr
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.engine import fitting
from streamdr.errors import DataError, MemoryLimitError, ParameterError
from streamdr.methods.pca import PCA

N, D = 120, 9
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def matrix(dtype: str = "f8", n: int = N, d: int = D) -> np.ndarray:
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((n, d)) < 0.3, rng.integers(1, 90, (n, d)), 0)
    dense[n // 2] = 0
    dense[:, d // 2] = 0
    return dense.astype(dtype)


def everything(source: Source) -> tuple[np.ndarray, np.ndarray]:
    """All rows, as dense blocks and as sparse pieces."""
    dense = source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))
    pieces = [source.read_sparse(piece) for piece in source.sparse_pieces(Span(0, source.spec.n_rows))]
    assert all(piece.has_canonical_format for piece in pieces)
    return dense, np.concatenate([piece.toarray() for piece in pieces])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("family", ["matrix", "array"])
def test_every_format_is_read(kind, family):
    dense = matrix()
    given = getattr(sp, f"{kind}_{family}")(dense)
    source = open_source(given)
    assert source.spec.density == pytest.approx((dense != 0).mean(), abs=0.35)
    for found in everything(source):
        np.testing.assert_array_equal(found, dense)
    np.testing.assert_array_equal(source.read(Span(5, 40), Span(2, 7)), dense[5:40, 2:7])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u1", "u2", "i8", "?"])
def test_every_type_is_read(dtype):
    dense = matrix(dtype)
    for found in everything(open_source(sp.csr_array(dense))):
        assert found.dtype == dense.dtype
        np.testing.assert_array_equal(found, dense)


def tangled() -> tuple[sp.csr_array, np.ndarray]:
    """Rows whose columns are in no order, some of them twice, and some values beyond the last row."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 8, N)
    lengths[-1] = 0
    ends = np.concatenate([[0], np.cumsum(lengths)])
    columns, values = rng.integers(0, D, ends[-1] + 3), rng.normal(size=ends[-1] + 3)
    dense = np.zeros((N, D))
    np.add.at(dense, (np.repeat(np.arange(N), lengths), columns[:-3]), values[:-3])
    return sp.csr_array((values, columns, ends), shape=(N, D)), dense


def test_unsorted_and_repeated_columns_are_added_up():
    given, dense = tangled()
    before = given.indices.copy()
    for found in everything(open_source(given)):
        np.testing.assert_allclose(found, dense, atol=1e-14)
    np.testing.assert_array_equal(given.indices, before)


def test_damaged_matrices_are_refused():
    backwards = sp.csr_array(matrix())
    backwards.indptr = backwards.indptr.copy()
    backwards.indptr[3] = backwards.indptr[4] + 2
    beyond = sp.csr_array(matrix())
    beyond.indices[5] = D + 3
    for given in (backwards, beyond):
        with pytest.raises(DataError, match=r"damaged|runs backwards|has the index"):
            everything(open_source(given))
    with pytest.raises(DataError, match="complex128"):
        open_source(sp.csr_array(matrix("c16")))
    with pytest.raises(DataError, match="is empty"):
        open_source(sp.csr_array((0, 4)))
    with pytest.raises(ParameterError, match="sample_axis"):
        open_source(sp.csr_array(matrix()), sample_axis=1)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("family", ["matrix", "array"])
def test_files_of_scipy_are_read(kind, compressed, family, tmp_path):
    dense = matrix("f4")
    sp.save_npz(tmp_path / "x.npz", getattr(sp, f"{kind}_{family}")(dense), compressed=compressed)
    source = open_source(tmp_path / "x.npz")
    assert source.name == str(tmp_path / "x.npz")
    assert (source.held_bytes > 0) == (compressed and kind == "csr")
    for found in everything(source):
        np.testing.assert_array_equal(found, dense)
    assert source.held_bytes == 0  # once it is loaded, it is in the memory of the process
    for found in everything(pickle.loads(pickle.dumps(source))):
        np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_gives_the_bits_of_the_matrix(compressed, tmp_path):
    given, _ = tangled()
    given.sum_duplicates()
    sp.save_npz(tmp_path / "x.npz", given, compressed=compressed)
    for solver in ("covariance", "krylov"):
        expected = fitting.fit(PCA(3, solver=solver), open_source(given), Execution()).model
        found = fitting.fit(
            PCA(3, solver=solver), open_source(tmp_path / "x.npz"), Execution(workers=2)
        ).model
        assert bits(found) == bits(expected)


def test_unsorted_rows_of_a_file_are_sorted(tmp_path):
    columns = sp.csr_array(matrix()).tocsc()
    columns.has_sorted_indices = False
    unsorted = sp.csr_array(matrix())
    for row in range(N):
        part = slice(unsorted.indptr[row], unsorted.indptr[row + 1])
        unsorted.indices[part], unsorted.data[part] = unsorted.indices[part][::-1], unsorted.data[part][::-1]
    sp.save_npz(tmp_path / "x.npz", unsorted)
    for found in everything(open_source(tmp_path / "x.npz")):
        np.testing.assert_array_equal(found, matrix())


def rewritten(path: Path, **changed: np.ndarray | None) -> Path:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, value in changed.items():
        if value is None:
            del arrays[name]
        else:
            arrays[name] = value
    np.savez(path, **arrays)
    return path


def test_damaged_files_are_refused(tmp_path):
    def saved(name: str) -> Path:
        sp.save_npz(tmp_path / name, sp.csr_array(matrix()))
        return tmp_path / name

    with pytest.raises(DataError, match=r"no\.npz: no such file"):
        open_source(tmp_path / "no.npz")
    with pytest.raises(DataError, match=r"a\.npz: has no array 'data'.*it holds"):
        open_source(rewritten(saved("a.npz"), data=None))
    with pytest.raises(DataError, match=r"b\.npz: 120 rows do not have arrays of the shapes indptr \(120,\)"):
        open_source(rewritten(saved("b.npz"), indptr=np.zeros(120, int)))
    with pytest.raises(DataError, match=r"c\.npz: data has 5 values, and indices has"):
        open_source(rewritten(saved("c.npz"), data=np.zeros(5)))
    with pytest.raises(DataError, match=r"d\.npz: values of type complex128"):
        open_source(rewritten(saved("d.npz"), data=np.zeros(5, complex)))
    with pytest.raises(DataError, match=r"e\.npz: a sparse matrix of format 'xyz'"):
        open_source(rewritten(saved("e.npz"), format=np.array(b"xyz")))
    with pytest.raises(DataError, match=r"f\.npz: .*object|f\.npz: data is no plain array"):
        open_source(rewritten(saved("f.npz"), data=np.array([None, 1], dtype=object)))
    cut = saved("g.npz")
    cut.write_bytes(cut.read_bytes()[:-90])
    with pytest.raises(DataError, match=r"g\.npz: cannot be read as a \.npz file"):
        open_source(cut)
    np.savez(tmp_path / "h.npz", rows=matrix())
    with pytest.raises(DataError, match=r"h\.npz: has no array 'format'.*it holds rows.*numpy\.save"):
        open_source(tmp_path / "h.npz")
    source = open_source(saved("i.npz"))
    saved("i.npz").write_bytes(saved("a.npz").read_bytes() + b" ")
    with pytest.raises(DataError, match=r"i\.npz: has changed since it was opened"):
        everything(source)


def test_a_few_values_of_a_vast_matrix_are_refused(tmp_path):
    vast = sp.coo_array(([1.0], ([7], [3])), shape=(10**13, 5))
    with pytest.raises(MemoryLimitError, match=r"the ends of its 10000000000000 rows take 72\.8 TiB"):
        open_source(vast)
    sp.save_npz(tmp_path / "vast.npz", vast)
    with pytest.raises(MemoryLimitError, match=r"vast\.npz: the ends of its"):
        open_source(tmp_path / "vast.npz")
    fractions = rewritten(tmp_path / "vast.npz", row=np.array([0.5]))
    with pytest.raises(DataError, match=r"vast\.npz: row is of type float64; write it as integers"):
        open_source(fractions)
    for flat in (sp.coo_array(np.ones(3)), sp.coo_array(np.ones((2, 2, 2)))):
        with pytest.raises(DataError, match=f"a sparse array of {flat.ndim} dimensions"):
            open_source(flat)


def test_a_flipped_bit_in_a_compressed_file_is_found(tmp_path):
    path = tmp_path / "x.npz"
    sp.save_npz(path, sp.csr_array(matrix()))
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("data.npy")
    raw = bytearray(path.read_bytes())
    raw[info.header_offset + 60 + info.compress_size // 2] ^= 16
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"x\.npz: cannot be read as a \.npz file"):
        everything(open_source(path))


def test_a_small_file_of_large_arrays_is_refused(tmp_path):
    path = tmp_path / "zeros.npz"
    n = 1 << 21
    sp.save_npz(path, sp.csr_array((np.zeros(n, "f4"), np.zeros(n, "i4"), np.array([0, n])), shape=(1, 4)))
    assert path.stat().st_size < 100_000
    with (
        streamdr.execution(memory_limit="8MiB"),
        pytest.raises(MemoryLimitError, match="takes 24 MiB"),
    ):
        open_source(path)
    with zipfile.ZipFile(path) as archive:
        header = archive.read("data.npy")[:128].replace(b"(2097152,)", b"(9999999,)")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("data.npy", header)
    with pytest.raises(DataError, match=r"data has 128 bytes where \(9999999,\) of float32 take 40000124"):
        open_source(path)


@pytest.mark.parametrize("chunks", [(50, D), (37, 4), (N, 2)])
@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_chunks_of_dask_are_sparse_rows(chunks, make, small_blocks):
    dense = matrix()
    array = da.from_array(dense, chunks=chunks).map_blocks(make)
    source = open_source(array)
    for found in everything(source):
        np.testing.assert_array_equal(found, dense)
    for solver in ("covariance", "krylov"):
        model: Any = fitting.fit(PCA(3, solver=solver), source, Execution(workers=2)).model
        expected: Any = fitting.fit(
            PCA(3, solver=solver), open_source(sp.csr_array(dense)), Execution()
        ).model
        np.testing.assert_allclose(model.explained_variance, expected.explained_variance, rtol=1e-10)


@pytest.mark.parametrize("make", [sparse.COO, sparse.GCXS])
def test_arrays_of_the_package_sparse_are_read(make, small_blocks):
    dense = matrix()
    lazy = da.from_array(dense, chunks=(37, 4)).map_blocks(make)
    for given in (lazy, make(dense)):
        source = open_source(given)
        assert source.spec.density is not None
        for found in everything(source):
            np.testing.assert_array_equal(found, dense)
    expected = streamdr.PCA(3, solver="covariance").fit(dense)
    found = streamdr.PCA(3, solver="covariance").fit(lazy)
    np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(
        np.abs(np.asarray(found.transform(lazy))), np.abs(expected.transform(dense)), atol=1e-10
    )


def test_arrays_of_the_package_sparse_that_scipy_has_not_are_made_dense():
    filled = sparse.COO(matrix() + 2, fill_value=2.0)
    cube = sparse.COO(matrix().reshape(N, 3, 3))
    for given, dense in ((filled, matrix() + 2), (cube, matrix())):
        for hold in (lambda each: each, lambda each: da.from_array(each, chunks=40, asarray=False)):
            source = open_source(hold(given))
            np.testing.assert_array_equal(source.read(Span(0, N), Span(0, D)), dense)


def test_sparse_chunks_are_computed_once_a_pass(small_blocks):
    calls = []

    def counted(chunk: np.ndarray, block_info=None) -> sp.csr_array:
        if block_info is not None:
            calls.append(block_info[0]["chunk-location"])
        return sp.csr_array(chunk)

    array = da.from_array(matrix(), chunks=(30, D)).map_blocks(counted, meta=sp.csr_array((0, 0), dtype="f8"))
    source = open_source(array)
    calls.clear()
    fitting.fit(PCA(3, solver="covariance"), source, Execution(workers=1))
    assert len(calls) == 4


def test_chunks_that_are_not_as_dask_says_are_refused():
    short = da.from_array(matrix(), chunks=(30, D)).map_blocks(
        lambda chunk: sp.csr_array(chunk[1:]), meta=sp.csr_array((0, 0))
    )
    with pytest.raises(DataError, match=r"chunk \(0, 0\) is float64 of shape"):
        everything(open_source(short))
    dense_after_all = da.from_array(matrix(), chunks=(30, D)).map_blocks(np.copy, meta=sp.csr_array((0, 0)))
    np.testing.assert_array_equal(everything(open_source(dense_after_all))[1], matrix())
    sparse_after_all = da.from_array(matrix(), chunks=(30, D)).map_blocks(sp.csr_array, meta=np.empty((0, 0)))
    source = open_source(sparse_after_all)
    np.testing.assert_array_equal(source.read(Span(0, N), Span(0, D)), matrix())


def observed(x: object) -> anndata.AnnData:
    names = ([f"c{i}" for i in range(N)], [f"g{i}" for i in range(D)])
    return anndata.AnnData(x, *(pd.DataFrame(index=pd.Index(each, dtype=object)) for each in names))


@pytest.mark.parametrize("hold", [np.asarray, sp.csr_matrix, sp.csc_array, da.from_array])
def test_anndata_objects_bring_their_names(hold):
    source = open_source(observed(hold(matrix())))
    assert source.feature_names == tuple(f"g{i}" for i in range(D))
    assert source.sample_coords[0].name == "obs_names"
    assert source.sample_coords[0].values.read(Span(7, 8), Span(0, 1)).item() == "c7"
    np.testing.assert_array_equal(source.read(Span(0, N), Span(0, D)), matrix())
    view = observed(hold(matrix()))[10:30, 2:5]
    part = open_source(view)
    assert part.feature_names == ("g2", "g3", "g4")
    np.testing.assert_array_equal(part.read(Span(0, 20), Span(0, 3)), matrix()[10:30, 2:5])


def test_backed_anndata_objects_are_read_from_their_files(tmp_path):
    observed(sp.csr_matrix(matrix())).write_h5ad(tmp_path / "x.h5ad")
    backed = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
    source = open_source(backed)
    assert source.name.startswith(str(tmp_path / "x.h5ad"))
    assert source.spec.density is not None
    assert source.feature_names == tuple(f"g{i}" for i in range(D))
    np.testing.assert_array_equal(everything(source)[1], matrix())
    with pytest.raises(DataError, match="has no matrix X"):
        open_source(observed(None))


@pytest.mark.parametrize("hold", [np.asarray, sp.csr_matrix])
def test_a_view_of_a_file_is_read_where_anndata_can_and_refused_elsewhere(hold, tmp_path):
    observed(hold(matrix())).write_h5ad(tmp_path / "x.h5ad")
    view = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")[5:30]
    try:
        expected = view.X
    except AttributeError:  # anndata 0.12 calls internals that scipy 1.17 has renamed
        with pytest.raises(DataError, match=r"view of .*x\.h5ad, which anndata cannot read .*row_mask"):
            open_source(view)
        return
    values = expected.toarray() if sp.issparse(expected) else np.asarray(expected)
    np.testing.assert_array_equal(open_source(view).read(Span(0, 25), Span(0, D)), values)
