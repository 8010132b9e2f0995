"""Appended rows of a sparse matrix: only they are read, and the bits are those of a fit to everything."""

from __future__ import annotations

import threading

import anndata.experimental
import numpy as np
import pytest
import scipy.sparse
import sparse_stores as stores
import zarr
from fits import StopAfter, bits, fit
from narrowing import checked, present
from nightly import arrays_of, assert_same_bits

from streamdr import config
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.data.zarr.stores import Directory
from streamdr.engine import fitting
from streamdr.errors import DataError, Interrupted
from streamdr.methods.lda import LDA
from streamdr.methods.lda.model import LDAModel
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.workflow import pipeline

N, D = 4000, 30
METHOD = PCA(3, solver="covariance")


def rows_of(n=N, d=D, seed=0):
    """Counts with a few strong directions, so that more rows hardly change a model."""
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) - 1)
    return scipy.sparse.csr_array(np.log1p(rng.poisson(rates)))


ROWS = rows_of()


@pytest.fixture
def read(monkeypatch, tmp_path):
    """The bytes of chunks of the input that were read since the list was cleared."""
    found: list[int] = []
    read_scratch = Directory.read_scratch

    def counting(self, key, limit):
        data = read_scratch(self, key, limit)
        if data is not None and tmp_path / "x.zarr" in (self.root, *self.root.parents):
            found.append(len(data))
        return data

    monkeypatch.setattr(Directory, "read_scratch", counting)
    return found


def run(directory):
    given = {
        "input": {"path": str(directory / "x.zarr")},
        "method": {"name": "pca", "n_components": 3, "solver": "covariance"},
        "output": {
            "model": str(directory / "model.zarr"),
            "embedding": str(directory / "e.zarr"),
            "refresh_tolerance": 0.2,
        },
    }
    return pipeline.run_all(pipeline.RunContext(config.read(given), Silent(), threading.Event()))


@pytest.mark.parametrize("chunk", [37, 1000, 10**6])
def test_only_new_rows_are_read_and_the_bits_are_those_of_everything(tmp_path, read, chunk, small_blocks):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS[:2500], chunk=chunk)
    ledger = Execution(ledger=tmp_path / "ledger", workers=2)
    fitting.fit(METHOD, open_source(path), ledger)
    done = 2500
    for n in (2501, 2501, 3300, 4000):
        stores.append(path, ROWS[:n], done)
        before = done
        read.clear()
        found = fitting.fit(METHOD, open_source(path), ledger).model
        stored = open_source(path).stored_bytes([Span(0, n)])
        share = sum(read) / stored  # whole chunks are read
        assert share <= (n - before) / n + 0.25 or chunk > 2000
        assert bits(found) == bits(fit(METHOD, path).model)
        done = n


def test_the_digest_of_the_first_rows_stays_when_rows_are_appended(tmp_path):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS[:300], chunk=64)
    source = open_source(path)
    whole = source.complete_rows
    ends = ROWS.indptr[: whole + 1]
    assert ends[-1] <= ROWS.indptr[300] // 64 * 64 < ROWS.indptr[whole + 1]
    before = [source.snapshot().digest(rows) for rows in range(whole + 1)]
    stores.append(path, ROWS[:700], 300)
    after = open_source(path).snapshot()
    assert [after.digest(rows) for rows in range(whole + 1)] == before
    assert len(set(before)) == len(before)


@pytest.mark.parametrize("array", ["data", "indices", "indptr"])
def test_a_value_that_changes_in_place_is_noticed(tmp_path, array):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS[:300], chunk=64)
    before = open_source(path).snapshot()
    values = zarr.open_array(path / "X" / array, mode="r+")
    values[70] = values[70]  # the same value, in a chunk that is written again
    after = open_source(path).snapshot()
    assert before.digest(300) != after.digest(300)
    assert before.digest(1) == after.digest(1) or array == "indptr"


@pytest.mark.parametrize("array", ["data", "indices", "indptr"])
def test_a_store_that_changes_while_it_is_read_is_an_error(tmp_path, array, small_blocks):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=100)

    class Writes(Silent):
        def advance(self, rows: int) -> None:
            values = zarr.open_array(path / "X" / array, mode="r+")
            values[0] = values[0]

    with pytest.raises(DataError, match="changed while it was being read; nothing was kept"):
        fit(METHOD, path, progress=Writes(), ledger=tmp_path / "ledger")


def test_a_run_after_an_append_reads_the_new_rows_only(tmp_path, read, small_blocks):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS[:3500], chunk=200)
    run(tmp_path)
    assert run(tmp_path).fit.reused
    stores.append(path, ROWS, 3500)
    read.clear()
    report = run(tmp_path)
    assert report.fit.n_rows == N
    assert sum(read) < 0.6 * open_source(path).stored_bytes([Span(0, N)])
    found = arrays_of(tmp_path / "model.zarr")
    other = tmp_path / "other"
    other.mkdir()
    stores.write_csr(other / "x.zarr", ROWS, chunk=200)
    run(other)
    assert_same_bits(found, arrays_of(other / "model.zarr"))


def test_a_store_that_anndata_joined_is_that_of_its_parts(tmp_path):
    """`concat_on_disk` of anndata writes the rows of several stores to one."""
    parts = []
    for number, rows in enumerate((ROWS[:200], ROWS[200:500])):
        data = stores.annotated(rows)
        data.raw = None
        del data.layers["by columns"]
        directory = tmp_path / str(number)
        directory.mkdir()
        parts.append(stores.written(data, directory, "v3.zarr"))
    with stores.plain_text():
        anndata.experimental.concat_on_disk(parts, tmp_path / "joined.zarr", index_unique="-")
    source = open_source(tmp_path / "joined.zarr")
    assert np.array_equal(source.read(Span(0, 500), Span(0, D)), ROWS[:500].toarray())
    several = open_source([str(part) for part in parts])
    assert np.array_equal(several.read(Span(0, 500), Span(0, D)), ROWS[:500].toarray())
    assert several.feature_names == source.feature_names
    assert several.spec.density == pytest.approx(source.spec.density)


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("kind", ["x.zarr", "x.h5ad"])
def test_any_number_of_workers_gives_the_same_bits(tmp_path, workers, kind, small_blocks):
    path = stores.write_csr(tmp_path / kind, ROWS, chunk=333)
    assert bits(fit(METHOD, path, workers=workers).model) == bits(fit(METHOD, path, workers=1).model)


def test_processes_give_the_same_bits(tmp_path, small_blocks):
    path = stores.write_csr(tmp_path / "x.zarr", ROWS, chunk=333)
    found = fit(METHOD, path, scheduler="processes", workers=2).model
    assert bits(found) == bits(fit(METHOD, path).model)


@pytest.mark.parametrize("array", ["X", "layers/by columns"])
def test_a_fit_that_was_stopped_is_resumed_to_the_same_bits(tmp_path, array, small_blocks):
    data = stores.annotated(ROWS)
    path = stores.written(data, tmp_path, "v3.zarr")
    stopper = StopAfter(1800)
    ledger = Execution(workers=2, ledger=tmp_path / "ledger", checkpoint_seconds=0.0)
    with pytest.raises(Interrupted):
        fitting.fit(METHOD, open_source(path, array=array), ledger, progress=stopper, stop=stopper.stop)
    stopper = StopAfter(1e9)
    found = fitting.fit(METHOD, open_source(path, array=array), ledger, progress=stopper, stop=stopper.stop)
    assert stopper.left > 1e9 - N  # the rows of the checkpoint were not read again
    assert bits(found.model) == bits(fit(METHOD, open_source(path, array=array)).model)


def test_a_matrix_by_columns_gives_the_bits_of_the_same_matrix_by_rows(tmp_path, small_blocks):
    path = stores.written(stores.annotated(ROWS), tmp_path, "v3.zarr")
    by_columns = fit(METHOD, open_source(path, array="layers/by columns")).model
    assert bits(by_columns) == bits(fit(METHOD, path).model)


def test_categories_are_labels_of_classes(tmp_path, small_blocks):
    path = stores.written(stores.annotated(ROWS), tmp_path, "v3.zarr")
    words = np.array(["B", "NK", "T"])[np.arange(N) % 3]
    wanted = checked(LDAModel, fit(LDA(2), open_source(ROWS.toarray(), labels=words)).model)
    for source in (
        open_source(path, label_column="cell_type"),
        open_source(path, labels=str(path / "obs/cell_type")),
    ):
        model = checked(LDAModel, fit(LDA(2), source).model)
        assert list(model.classes) == ["B", "NK", "T"]
        np.testing.assert_allclose(model.means, wanted.means, rtol=1e-12, atol=1e-14)


def test_an_address_is_read_as_a_path(tmp_path, bucket, small_blocks):
    path = stores.written(stores.annotated(ROWS[:500]), tmp_path, "v3.zarr")
    url = bucket.upload(path)
    source = open_source(url, labels=f"{url}/obs/cell_type")
    assert source.feature_names == open_source(path).feature_names
    assert labels_of(source, 0, 3) == ["B", "NK", "T"]
    assert bits(fit(METHOD, source.unlabelled(), workers=2).model) == bits(fit(METHOD, path).model)


def labels_of(source, start, stop):
    return present(source.block(Span(start, stop)).labels).tolist()


def genes_in_another_order(path):
    names = zarr.open_array(path / "var/_index", mode="r+")
    names[[0, 1]] = np.array(names[:2])[::-1]


def test_several_stores_are_one_and_a_new_one_is_appended_rows(tmp_path, read, small_blocks):
    ends = [0, 900, 1700, 2500]
    (tmp_path / "x.zarr").mkdir()
    for number in range(2):
        part = stores.annotated(ROWS[ends[number] : ends[number + 1]])
        stores.written(part, tmp_path / "x.zarr", "v3.zarr").rename(tmp_path / f"x.zarr/part{number}.zarr")
    pattern = str(tmp_path / "x.zarr/part*.zarr")
    ledger = Execution(ledger=tmp_path / "ledger", workers=2)
    first = open_source(pattern, label_column="cell_type")
    assert labels_of(first, 899, 902) == ["T", "B", "NK"]
    names = first.sample_coords[0].values.read(Span(899, 901), Span(0, 1))[:, 0]
    assert names.tolist() == ["cell 899", "cell 0"]
    fitting.fit(METHOD, open_source(pattern), ledger)
    part = stores.annotated(ROWS[ends[2] : ends[3]])
    stores.written(part, tmp_path / "x.zarr", "v3.zarr").rename(tmp_path / "x.zarr/part2.zarr")
    read.clear()
    source = open_source(pattern)
    found = checked(PCAModel, fitting.fit(METHOD, source, ledger).model)
    assert sum(read) < 0.7 * source.stored_bytes([Span(0, 2500)])
    assert bits(found) == bits(fit(METHOD, open_source(pattern)).model)
    sums = checked(PCAModel, fit(METHOD, open_source(ROWS[:2500].toarray())).model)
    np.testing.assert_allclose(found.explained_variance, sums.explained_variance, rtol=1e-10)
    genes_in_another_order(tmp_path / "x.zarr/part1.zarr")
    with pytest.raises(DataError, match=r"part1.zarr.*column 0 is 'GENE1', and 'GENE0' in .*part0.zarr"):
        open_source(pattern)
