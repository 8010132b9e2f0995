"""Example data of biology: counts of single cells as AnnData, and genotypes of populations."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import sparse_stores as stores
import zarr
from narrowing import values_of

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.examples.datasets import Example, ensure
from streamdr.data.examples.genotypes import Genotypes
from streamdr.data.examples.single_cells import SingleCells
from streamdr.errors import DataError, ParameterError


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.zarr"
    ensure(path, Example("single_cells", rows=700))
    return path


@pytest.fixture(scope="module")
def genotypes(tmp_path_factory):
    path = tmp_path_factory.mktemp("genotypes") / "genotypes.zarr"
    ensure(path, Example("genotypes", rows=600))
    return path


def test_anndata_reads_the_counts_with_their_names_and_types(cells):
    with stores.plain_text():
        data = anndata.read_zarr(cells)
    assert data.shape == (700, 1200)
    counts = data.X.toarray()
    assert counts.dtype == np.int32
    assert 0.05 < np.mean(counts > 0) < 0.4
    assert data.obs["n_counts"].tolist() == counts.sum(axis=1).tolist()
    assert data.obs["n_genes"].tolist() == (counts > 0).sum(axis=1).tolist()
    mitochondrial = data.var_names.str.startswith("MT-")
    share = 100 * counts[:, mitochondrial].sum(axis=1) / counts.sum(axis=1)
    np.testing.assert_allclose(data.obs["pct_counts_mt"], share)
    assert set(data.obs["cell_type"].cat.categories) == set(SingleCells.types)
    assert data.obs_names[0] == "cell 1"
    assert data.var_names.is_unique
    source = open_source(cells)
    assert np.array_equal(source.read(Span(0, 700), Span(0, 1200)), counts)
    assert source.feature_names == tuple(data.var_names)


def test_counts_vary_more_than_poisson_and_by_the_type(cells):
    made = SingleCells()
    counts, types = made.cells(700)
    scaled = counts.toarray() / np.asarray(counts.sum(axis=1))[:, None]
    means = np.stack([scaled[types == number].mean(axis=0) for number in range(len(made.types))])
    correlations = np.corrcoef(means, made.rates)[: len(made.types), len(made.types) :]
    assert (np.argmax(correlations, axis=1) == np.arange(len(made.types))).all()
    gene = np.argmax(made.rates[1])
    own = counts.toarray()[types == 1][:, gene].astype(float)
    assert own.var() > 2 * own.mean()


def test_genotypes_are_counts_of_alleles_with_known_frequencies(genotypes):
    values = values_of(zarr.open_array(genotypes / "X", mode="r"))
    assert (values.dtype, values.shape) == (np.dtype(np.int8), (600, 3000))
    assert set(np.unique(values)) == {-1, 0, 1, 2}
    assert np.mean(values == -1) == pytest.approx(Genotypes.missing, rel=0.02)
    made = Genotypes()
    names = values_of(zarr.open_array(genotypes / "population", mode="r"))
    for number, name in enumerate(made.populations):
        mine = np.where(values == -1, np.nan, values)[names == name]
        known = ~np.isnan(mine).all(axis=0)
        found = np.nanmean(mine[:, known], axis=0) / 2
        spread = np.sqrt(made.frequencies[number][known] / (2 * len(mine)))
        assert np.mean(np.abs(found - made.frequencies[number][known]) <= 4 * spread + 1e-12) > 0.99
    source = open_source(genotypes, missing_value=-1, labels=str(genotypes / "population"))
    assert source.feature_names == made.variants
    assert np.isnan(source.block(Span(0, 600), allow_nan=True).values).sum() == np.sum(values == -1)


@pytest.mark.parametrize("dataset", ["single_cells", "genotypes"])
def test_data_depends_on_the_seed_only_and_more_rows_follow(tmp_path, dataset):
    def first(name, rows, seed=0):
        ensure(tmp_path / name, Example(dataset, rows=rows, seed=seed))
        source = open_source(tmp_path / name)
        return source.read(Span(0, 520), Span(0, source.spec.n_cols))

    values = first("a.zarr", 520)
    assert np.array_equal(first("b.zarr", 1010), values)
    assert not np.array_equal(first("c.zarr", 520, seed=1), values)
    ensure(tmp_path / "a.zarr", Example(dataset, rows=520))
    with pytest.raises(DataError, match="is not this example"):
        ensure(tmp_path / "a.zarr", Example(dataset, rows=521))


@pytest.mark.parametrize("dataset", ["single_cells", "genotypes"])
@pytest.mark.parametrize(
    "option", [{"missing": 0.1}, {"noise": 1.0}, {"distances": "euclidean"}, {"days": 3}]
)
def test_options_of_other_data_sets_are_refused(dataset, option):
    with pytest.raises(ParameterError, match=next(iter(option))):
        Example(dataset, **option)


def test_only_data_that_is_made_has_a_number_of_rows():
    with pytest.raises(ParameterError, match="rows: are those of single_cells and genotypes"):
        Example("digits", rows=5)
