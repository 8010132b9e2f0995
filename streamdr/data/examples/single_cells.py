"""Counts of genes in single cells, as an AnnData store: cell types that differ in some genes.

The counts of a cell are Poisson with rates s f(type) g, where s is the size of the cell and g a gamma
variable for each gene and cell (so they are negative binomial). Marker genes of a type have larger rates f in
it. A twelfth of the cells are damaged: they have few counts, as in real data, and are to be left out. A cell
follows from its number, so more cells can be made later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, vstack

from streamdr.core.blocks import Array
from streamdr.store.anndata.elements import (
    DICT,
    Rows,
    encoding,
    names_as_rows,
    write_element,
    write_table,
)
from streamdr.store.anndata.zarr_nodes import ZarrWriter
from streamdr.store.publish import Staging
from streamdr.store.record import write_record

NAME = "single_cells"
CELLS = 2_000

_BAND = 500
"""The cells that are made with one stream of random numbers."""
_CHUNK_VALUES = 1 << 16
_MARKERS = 40
_DAMAGED = 1 / 12


@dataclass(frozen=True)
class SingleCells:
    """Counts of 1,200 genes in cells of six types.

    Parameters
    ----------
    seed : int
        The seed of all random numbers.
    """

    seed: int = 0

    types: ClassVar[tuple[str, ...]] = ("B", "CD4 T", "CD8 T", "NK", "dendritic", "monocyte")
    shares: ClassVar[Array] = np.array([0.15, 0.35, 0.15, 0.1, 0.05, 0.2])
    n_genes: ClassVar[int] = 1_200
    n_mitochondrial: ClassVar[int] = 13
    """The last genes are mitochondrial. Damaged cells have more of them."""

    @property
    def genes(self) -> tuple[str, ...]:
        """The names of the genes."""
        nuclear = self.n_genes - self.n_mitochondrial
        names = [f"GENE{number:04}" for number in range(1, nuclear + 1)]
        return (*names, *(f"MT-{number}" for number in range(1, self.n_mitochondrial + 1)))

    @cached_property
    def rates(self) -> Array:
        """The share of each gene in the counts of each type (types x genes)."""
        rng = np.random.default_rng([self.seed, 0])
        rates = np.tile(rng.lognormal(0.0, 1.8, self.n_genes), (len(self.types), 1))
        markers = rng.permutation(self.n_genes - self.n_mitochondrial)
        for number, row in enumerate(rates):
            row[markers[number * _MARKERS : (number + 1) * _MARKERS]] *= rng.uniform(3.0, 12.0, _MARKERS)
        # Two types share some of their markers, as relatives do.
        rates[2, markers[_MARKERS : _MARKERS + _MARKERS // 2]] *= 4.0
        return np.asarray(rates / rates.sum(axis=1, keepdims=True))

    def cells(self, n: int) -> tuple[csr_array, Array]:
        """Return the counts of the first cells, and the number of the type of each."""
        bands = [self._band(number) for number in range(-(-n // _BAND))]
        counts = csr_array(vstack([rows for rows, _ in bands], "csr"))[:n]
        return csr_array(counts), np.concatenate([types for _, types in bands])[:n]

    def _band(self, number: int) -> tuple[csr_array, Array]:
        """Return the counts and types of a band of cells."""
        rng = np.random.default_rng([self.seed, 1, number])
        types = rng.choice(len(self.types), _BAND, p=self.shares)
        sizes = rng.lognormal(np.log(1_200.0), 0.35, _BAND)
        shares = self.rates[types]
        damaged = rng.random(_BAND) < _DAMAGED
        sizes[damaged] *= 0.08
        shares[damaged, -self.n_mitochondrial :] *= 20.0
        spread = rng.gamma(4.0, 0.25, shares.shape)  # of mean 1
        counts = rng.poisson(sizes[:, None] * shares * spread)
        return csr_array(counts.astype(np.int32)), types.astype(np.int8)


def write(path: Path, made: SingleCells, recipe: Mapping[str, Any], n_cells: int) -> None:
    """Write cells to a new store, as anndata would write them. It appears completely or not at all."""
    counts, types = made.cells(n_cells)
    totals = np.asarray(counts.sum(axis=1))
    mitochondrial = np.asarray(counts[:, -made.n_mitochondrial :].sum(axis=1))
    columns = {
        "n_counts": totals.astype(np.int64),
        "n_genes": np.diff(counts.indptr).astype(np.int64),
        "pct_counts_mt": 100.0 * mitochondrial / np.maximum(totals, 1),
    }
    with Staging(path, kind="example", overwrite=False) as staging:
        writer = ZarrWriter(staging.path, 3)
        writer.group("X", encoding("csr_matrix", "0.1.0", shape=list(counts.shape)))
        for name in ("data", "indices", "indptr"):
            write_element(writer, f"X/{name}", _in_chunks(getattr(counts, name)))
        names = names_as_rows([f"cell {number}" for number in range(1, n_cells + 1)])
        write_table(writer, "obs", names, ["cell_type", *columns])
        for name, values in columns.items():
            write_element(writer, f"obs/{name}", values)
        writer.group("obs/cell_type", encoding("categorical", "0.2.0", ordered=False))
        write_element(writer, "obs/cell_type/codes", types)
        write_element(writer, "obs/cell_type/categories", np.array(made.types, dtype=np.str_))
        write_table(writer, "var", names_as_rows(made.genes), [])
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            writer.group(name, DICT)
        write_record(
            staging.path,
            "example",
            {"recipe": dict(recipe)},
            complete=True,
            attributes=encoding("anndata", "0.1.0"),
        )
        staging.publish()


def _in_chunks(values: Array) -> Rows:
    starts = range(0, len(values), _CHUNK_VALUES)
    return Rows(values.shape, values.dtype, _CHUNK_VALUES, (values[at : at + _CHUNK_VALUES] for at in starts))
