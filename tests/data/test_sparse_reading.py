"""Stored sparse matrices are read to the bit, whatever their types, chunks and layout, with their names."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import scanpy
import scipy.sparse
import sparse_stores as stores
import zarr
from fits import fit

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.sparse import pieces
from streamdr.data.sparse import source as sparse_source
from streamdr.data.sparse.kept_chunks import kept_chunks
from streamdr.errors import DataError, InputError, MemoryLimitError, ParameterError
from streamdr.methods.pca import PCA

MATRICES = {"X": "X", "raw/X": "raw", "layers/counts": "counts", "layers/by columns": "by columns"}
TYPES = ["f4", "f8", "i1", "u1", "u2", "i8", "?", "f2", ">f4"]


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


def require_equal(source, wanted):
    """The source has these values, by every way to read it, in any region."""
    n, d = wanted.shape
    assert (source.spec.n_rows, source.spec.n_cols) == (n, d)
    assert source.spec.dtype == wanted.dtype.newbyteorder("=")
    source.validate()
    assert np.array_equal(everything(source), wanted)
    rng = np.random.default_rng(1)
    for _ in range(12):
        a, b = sorted(rng.choice(n + 1, 2, replace=False).tolist())
        c, e = sorted(rng.choice(d + 1, 2, replace=False).tolist())
        for read in (source.read, source.read_scratch):
            assert np.array_equal(read(Span(a, b), Span(c, e)), wanted[a:b, c:e])
        found = source.read_sparse(Span(a, b))
        assert found.shape == (b - a, d)
        assert found.has_canonical_format
        assert np.array_equal(found.toarray(), wanted[a:b])


@pytest.fixture(scope="module", params=stores.KINDS)
def cells(request, tmp_path_factory):
    """A store that anndata wrote, and what anndata reads from it."""
    path = stores.written(stores.annotated(stores.counts()), tmp_path_factory.mktemp("cells"), request.param)
    return path, stores.read(path)


@pytest.mark.parametrize("array", [*MATRICES, "layers/dense", None])
def test_every_matrix_of_a_store_is_what_anndata_reads(cells, array):
    path, data = cells
    layer = data.raw.X if array == "raw/X" else data.X if array in ("X", None) else data.layers[array[7:]]
    wanted = layer.toarray() if scipy.sparse.issparse(layer) else layer
    source = open_source(path, array=array)
    assert np.array_equal(everything(source), wanted)
    assert source.spec.dtype == wanted.dtype
    assert (source.spec.density is None) == (array == "layers/dense")
    assert source.feature_names == tuple(data.var_names)
    (names,) = source.sample_coords
    assert (names.name, source.sample_dims) == ("obs_names", ("obs",))
    assert names.values.read(Span(0, len(wanted)), Span(0, 1))[:, 0].tolist() == data.obs_names.tolist()


@pytest.mark.parametrize("array", MATRICES)
def test_any_region_is_read(cells, array):
    path, data = cells
    layer = data.raw.X if array == "raw/X" else data.X if array == "X" else data.layers[array[7:]]
    require_equal(open_source(path, array=array), layer.toarray())


@pytest.mark.parametrize("name", ["x.zarr", "x.h5"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", ["i4", "i8", "u4"])
def test_values_and_indices_of_every_type_are_read(tmp_path, name, dtype, index):
    rows = stores.counts(dtype=dtype)
    source = open_source(stores.write_csr(tmp_path / name, rows, index=index, chunk=7))
    wanted = stores.dense(rows)
    require_equal(source, wanted.astype("f4") if dtype == "f2" else wanted)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunk", [1, 3, 16, 1000])
def test_chunks_may_cut_rows_anywhere(tmp_path, chunk, zarr_format):
    rows = stores.counts()
    source = open_source(stores.write_csr(tmp_path / "x.zarr", rows, chunk=chunk, zarr_format=zarr_format))
    require_equal(source, rows.toarray())


def test_the_three_arrays_may_have_chunks_of_different_lengths(tmp_path):
    rows, chunk = stores.counts(), {"data": 4, "indices": 9, "indptr": 5}
    require_equal(open_source(stores.write_csr(tmp_path / "x.zarr", rows, chunk=chunk)), rows.toarray())


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (1, 1), (5, 4000), (4000, 3)])
def test_any_shape_is_read(tmp_path, shape):
    rows = scipy.sparse.random_array(shape, density=0.4, format="csr", rng=np.random.default_rng(2))
    source = open_source(stores.write_csr(tmp_path / "x.zarr", rows))
    require_equal(source, rows.toarray())


@pytest.mark.parametrize("kind", ["x.zarr", "x.h5"])
def test_a_matrix_of_zeros_is_read(tmp_path, kind):
    source = open_source(stores.write_csr(tmp_path / kind, scipy.sparse.csr_array((7, 4), dtype=np.float32)))
    require_equal(source, np.zeros((7, 4), "f4"))
    assert source.spec.density == 0.0


def test_rows_without_values_at_either_end_are_read(tmp_path):
    values = np.zeros((30, 6))
    values[10:15, ::2] = np.arange(15).reshape(5, 3)
    rows = scipy.sparse.csr_array(values)
    require_equal(open_source(stores.write_csr(tmp_path / "x.zarr", rows, chunk=4)), values)


def test_a_group_that_is_a_matrix_is_opened_itself(tmp_path):
    rows = stores.counts()
    path = stores.write_csr(tmp_path / "x.zarr", rows)
    for data in (path / "X", zarr.open_group(path / "X"), zarr.open_group(path)["X"]):
        require_equal(open_source(data), rows.toarray())


@pytest.mark.parametrize("name", ["x.zarr", "x.h5ad"])
def test_stores_of_older_anndata_are_read(tmp_path, name):
    rows = stores.counts()
    attributes = {"h5sparse_format": "csr", "h5sparse_shape": list(rows.shape)}
    path = stores.write_arrays(tmp_path / name, stores.arrays_of(rows), attributes, zarr_format=2)
    require_equal(open_source(path), rows.toarray())
    require_equal(open_source(path, array="X"), rows.toarray())


def test_pieces_have_whole_rows_and_a_bounded_number_of_values(tmp_path, monkeypatch):
    rows = stores.counts(n=300)
    for module in (pieces, sparse_source):
        monkeypatch.setattr(module, "SPARSE_PIECE", 40)
    monkeypatch.setattr(sparse_source, "_WINDOW", 16)  # the ends of rows are read in windows
    source = open_source(stores.write_csr(tmp_path / "x.zarr", rows, chunk=11))
    found = list(source.sparse_pieces(Span(3, 290)))
    assert [found[0].start, found[-1].stop] == [3, 290]
    for piece, following in zip(found, [*found[1:], None], strict=True):
        stored = int(rows.indptr[piece.stop] - rows.indptr[piece.start])
        assert stored <= 40 or len(piece) == 1
        if following is not None:  # a piece is as long as it may be
            assert piece.stop == following.start
            assert rows.indptr[following.start + 1] - rows.indptr[piece.start] > 40 or len(piece) == 40
    require_equal(source, rows.toarray())


def test_many_threads_read_one_source(tmp_path):
    rows = stores.counts(n=400)
    source = open_source(stores.write_csr(tmp_path / "x.zarr", rows, chunk=17))
    wanted = rows.toarray()
    spans = [Span(start, min(start + 23, 400)) for start in range(0, 400, 19)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            found = list(pool.map(lambda span: source.read_sparse(span).toarray(), spans))
            assert all(np.array_equal(x, wanted[s.slice]) for x, s in zip(found, spans, strict=True))


def test_a_source_is_pickled_without_its_values(cells):
    path, _ = cells
    for array in MATRICES:
        source = open_source(path, array=array)
        everything(source)
        sent = pickle.dumps(source)
        assert len(sent) < 20_000
        assert np.array_equal(everything(pickle.loads(sent)), everything(source))


def test_an_index_of_categories_names_observations_and_variables(tmp_path):
    """Anndata writes an index of pandas categories as a group of codes and categories."""
    data = stores.annotated(stores.counts())
    path = stores.written(data, tmp_path, "v3.zarr")
    for name, names in (("obs", data.obs_names), ("var", data.var_names)):
        table = zarr.open_group(path / name, mode="r+")
        del table["_index"]
        codes = np.arange(len(names), dtype="i2")
        column = table.create_group("_index", attributes={"encoding-type": "categorical"})
        column.create_array("codes", data=codes, config={"write_empty_chunks": True})
        column.create_array("categories", data=np.array(names, dtype="T"))
    source = open_source(path)
    assert source.feature_names == tuple(data.var_names)
    values = source.sample_coords[0].values
    assert values.read(Span(3, 5), Span(0, 1))[:, 0].tolist() == ["cell 3", "cell 4"]


def test_names_of_another_length_are_left_out(tmp_path):
    path = stores.written(stores.annotated(stores.counts()), tmp_path, "v3.zarr")
    for table in ("obs", "var"):
        zarr.open_array(path / table / "_index", mode="r+").resize((5,))
    source = open_source(path)
    assert source.feature_names is None
    assert (source.sample_dims, source.sample_coords, source.sample_columns) == ((), (), None)


def ten_x(path, rows, *, shuffled=False, names=None):
    """Write counts as Cell Ranger does: genes x cells by columns."""
    data, indices = rows.data.astype("i4"), rows.indices.astype("i8")
    if shuffled:
        rng = np.random.default_rng(3)
        for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            order = start + rng.permutation(stop - start)
            data[start:stop], indices[start:stop] = data[order], indices[order]
    n, d = rows.shape
    with h5py.File(path, "w") as file:
        matrix = file.create_group("matrix")
        matrix["data"], matrix["indices"], matrix["indptr"] = data, indices, rows.indptr.astype("i8")
        matrix["shape"] = np.array([d, n], "i4")
        matrix["barcodes"] = np.array([f"AAC{row}-1" for row in range(n)], "S")
        features = matrix.create_group("features")
        features["id"] = np.array([f"ENSG{column}" for column in range(d)], "S")
        features["name"] = np.array(names or [f"GENE{column}" for column in range(d)], "S")
        features["feature_type"] = np.array(["Gene Expression"] * d, "S")
        features["genome"] = np.array(["GRCh38"] * d, "S")
    return path


@pytest.mark.parametrize("shuffled", [False, True])
def test_counts_of_10x_are_what_scanpy_reads(tmp_path, shuffled):
    path = ten_x(tmp_path / "filtered.h5", stores.counts(dtype="i4"), shuffled=shuffled)
    with stores.plain_text():
        wanted = scanpy.read_10x_h5(path)
    source = open_source(path)
    require_equal(source, wanted.X.toarray().astype("i4"))
    assert source.feature_names == tuple(wanted.var_names)
    (barcodes,) = source.sample_coords
    assert barcodes.values.read(Span(0, 60), Span(0, 1))[:, 0].tolist() == wanted.obs_names.tolist()


def older_ten_x(path, matrices):
    """Write counts as Cell Ranger 2 does: a group for each genome."""
    with h5py.File(path, "w") as file:
        for genome, rows in matrices.items():
            n, d = rows.shape
            group = file.create_group(genome)
            group["data"], group["indices"] = rows.data.astype("i4"), rows.indices.astype("i8")
            group["indptr"], group["shape"] = rows.indptr.astype("i8"), np.array([d, n], "i4")
            group["barcodes"] = np.array([f"AAC{row}-1" for row in range(n)], "S")
            group["genes"] = np.array([f"ENSG{column}" for column in range(d)], "S")
            group["gene_names"] = np.array([f"GENE{column // 2}" for column in range(d)], "S")
    return path


def test_counts_of_older_10x_are_what_scanpy_reads(tmp_path):
    path = older_ten_x(tmp_path / "filtered.h5", {"GRCh38": stores.counts(dtype="i4")})
    with stores.plain_text():
        wanted = scanpy.read_10x_h5(path)
    for array in (None, "GRCh38"):
        source = open_source(path, array=array)
        require_equal(source, wanted.X.toarray().astype("i4"))
        assert source.feature_names is not None
        assert source.feature_names[:2] == ("GENE0_ENSG0", "GENE0_ENSG1")
        (barcodes,) = source.sample_coords
        assert barcodes.values.read(Span(0, 60), Span(0, 1))[:, 0].tolist() == wanted.obs_names.tolist()


def test_one_of_several_genomes_is_named(tmp_path):
    human, mouse = stores.counts(dtype="i4"), stores.counts(n=20, seed=3, dtype="i4")
    path = older_ten_x(tmp_path / "x.h5", {"GRCh38": human, "mm10": mouse})
    with pytest.raises(InputError, match="counts for the genomes GRCh38, mm10; say which with `array`"):
        open_source(path)
    require_equal(open_source(path, array="mm10"), mouse.toarray())


def test_no_chunk_is_kept_after_a_pass(tmp_path):
    path = stores.write_csr(tmp_path / "x.zarr", stores.counts(n=400), chunk=3000)
    found = open_source(path)
    fit(PCA(2), found, workers=2)
    assert not kept_chunks._of
    found.read_sparse(Span(5, 9))
    assert kept_chunks._of


def test_genes_of_one_name_are_told_apart_by_their_identifiers(tmp_path):
    rows = stores.counts(d=4, dtype="i4")
    source = open_source(ten_x(tmp_path / "x.h5", rows, names=["A", "B", "A", "C"]))
    assert source.feature_names == ("A_ENSG0", "B", "A_ENSG2", "C")


def test_a_matrix_by_columns_is_refused_when_it_is_larger_than_the_limit(cells):
    import streamdr

    path, _ = cells
    with streamdr.execution(memory_limit=1000), pytest.raises(MemoryLimitError, match=r"by columns.*\(csr\)"):
        open_source(path, array="layers/by columns")


@pytest.mark.parametrize("array", ["layers/none", "obs", "layers", "uns", "../X", ""])
def test_what_is_no_matrix_is_an_error_that_names_it(cells, array):
    path, _ = cells
    with pytest.raises((InputError, DataError), match="cells"):
        open_source(path, array=array)


def test_samples_along_columns_are_refused(cells):
    path, _ = cells
    with pytest.raises(ParameterError, match="sample_axis"):
        open_source(path, sample_axis=1)
