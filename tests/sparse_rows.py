"""Sparse rows for tests: in memory, and made of a fixed number of values per piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse

from streamdr.core.blocks import Block, MatrixSpec, Span, SparseBlock
from streamdr.data.in_memory import ArraySource
from streamdr.data.snapshot import WholeSnapshot
from streamdr.data.source import Source


class SparseArray(Source):
    """A scipy matrix as a source of sparse rows."""

    chunks = (7, 1)
    name = "sparse"

    def __init__(self, rows, *, piece_rows=11, weights=None, labels=None):
        self.rows = scipy.sparse.csr_array(rows)
        n_rows, n_cols = self.rows.shape
        self.spec = MatrixSpec(
            n_rows, n_cols, self.rows.dtype, density=self.rows.nnz / max(1, n_rows * n_cols)
        )
        self.piece_rows = piece_rows
        self.weights = None if weights is None else ArraySource(np.asarray(weights)[:, None])
        self.labels = None if labels is None else ArraySource(np.asarray(labels)[:, None])
        if labels is not None:
            self.spec = replace(self.spec, labels=np.asarray(labels).dtype)

    def read(self, rows, cols):
        return self.rows[rows.slice, cols.slice].toarray()

    def read_sparse(self, rows):
        return self.rows[rows.slice]

    def sparse_pieces(self, rows):
        return rows.split(self.piece_rows)

    def sparse_lengths(self, rows):
        yield np.diff(self.rows.indptr[rows.start : rows.stop + 1])

    def _snapshot(self):
        return WholeSnapshot("sparse")


def counts(rng, n, d, density=0.1, dtype=np.float64):
    """Logged counts, many of them zero: an empty row, an empty column, and a stored zero."""
    rows = scipy.sparse.random_array((n, d), density=density, format="csr", rng=rng)
    rows.data = np.log1p(rng.poisson(3, rows.nnz)) + 0.1
    dense = rows.toarray()
    dense[n // 2], dense[:, d // 2] = 0.0, 0.0
    rows = scipy.sparse.csr_array(dense.astype(dtype))
    rows.data[0] = 0.0
    return rows


def hostile(rng, n, d, density=0.1, dtype=np.float64):
    """Counts beside full columns: a large mean, a constant, and one that is mostly full."""
    dense = counts(rng, n, d, density).toarray()
    dense[:, 0] = 1e6 + rng.normal(size=n)
    dense[:, 1] = 7.3
    dense[:, 2] = np.where(rng.random(n) < 0.8, 1e4 + rng.normal(size=n), 0.0)
    return scipy.sparse.csr_array(dense.astype(dtype))


def sparse_block(rows, weights=None, labels=None):
    """All rows as one block of sparse rows."""
    rows = scipy.sparse.csr_array(rows)
    return SparseBlock(Span(0, rows.shape[0]), rows, labels, weights)


def dense_block(rows, weights=None, labels=None):
    """All rows as one dense block."""
    return Block(Span(0, rows.shape[0]), rows.toarray(), labels, weights)
