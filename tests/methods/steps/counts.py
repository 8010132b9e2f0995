"""Counts of genes in cells, and values that break careless steps."""

from __future__ import annotations

import numpy as np
import scipy.sparse

N, D = 240, 300


def counts(n=N, d=D, seed=0, dtype=np.float64):
    """Counts with many zeros, whose means spread over three decades. No cell is empty, and one gene is."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(0.5, 2.0, d) + 0.1
    cells = rng.negative_binomial(1, 1 / (1 + means), (n, d))
    cells[:, 0] += 1
    cells[:, 5] = 0
    return cells.astype(dtype)


def logged(n=N, d=D, seed=0, dtype=np.float64):
    """The logarithms of counts that were scaled to the same total."""
    cells = counts(n, d, seed)
    totals = cells.sum(axis=1)
    return np.log1p(cells / (totals / np.median(totals))[:, None]).astype(dtype)


def odd_rows():
    """Rows for every type: an empty row, negative zeros, large and small values, a repeated row."""
    rng = np.random.default_rng(1)
    plain = rng.poisson(1.5, (30, 8))
    plain[3], plain[4], plain[29] = 0, 120, plain[0]
    kinds = {kind: plain.astype(kind) for kind in ("f8", "f4", "f2", "u1", "i1", "u2", "u8", "i8", ">f8")}
    kinds["bool"] = plain > 1
    signed = plain.astype(float)
    signed[signed == 0] = -0.0
    kinds["negative zeros"] = signed
    kinds["one row"] = plain[:1].astype(float)
    kinds["large"] = plain * 1e300
    kinds["small"] = plain * 1e-300
    return kinds


def sparse(rows):
    """The rows as sparse rows, with a stored zero if there is a zero."""
    return scipy.sparse.csr_array(rows)
