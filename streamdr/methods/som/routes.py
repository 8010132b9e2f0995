"""The memory and the arithmetic of training a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import Phase, Route, cost_factor
from streamdr.core.work import Work, exactly, products
from streamdr.methods.som.grid import TILE_BYTES
from streamdr.methods.som.nearest import search_bytes, search_work
from streamdr.statistics.sampling import sample_phases

if TYPE_CHECKING:
    from streamdr.methods.som.som import SOM

_SAMPLE_ROWS, _SAMPLE_BYTES = 5_000, 64 << 20
_COMPARED = 4
"""The cost of finding the least of some products, in columns of a product."""
_WORK = 4
"""The work for a row, in units of its products with all units: they are compared, and its sums are taken."""


def sample_rows(som: SOM, data: MatrixSpec) -> int:
    """The number of rows of the sample that the map starts from."""
    affordable = min(max(_SAMPLE_ROWS, som.grid.n_units), _SAMPLE_BYTES // (8 * data.n_cols))
    return min(max(affordable, 2), data.n_rows)


def sample_parts(som: SOM, data: MatrixSpec) -> int:
    """The number of parts of the data, of which one is read for the sample."""
    return data.n_rows // (2 * sample_rows(som, data))


def product_dtype(som: SOM, data: MatrixSpec) -> np.dtype[np.floating]:
    """The type in which distances are computed."""
    return np.dtype(np.float64) if som.precision == "double" else data.working


def work_factor(som: SOM, data: MatrixSpec) -> int:
    """The cost factor of a pass."""
    return cost_factor(_WORK * som.grid.n_units, data.n_cols)


def batch(som: SOM, data: MatrixSpec) -> Route:
    """A sample to start from, one pass per epoch, and a last pass that measures the map."""
    n, d, units = data.n_rows, data.n_cols, som.grid.n_units
    rows, item = sample_rows(som, data), product_dtype(som, data).itemsize
    codebook = 8 * units * d
    # Centred and weighted rows, and the smaller of their two Gram matrices.
    beginning = 4 * 8 * rows * d + 4 * 8 * min(rows, d) ** 2 + 3 * codebook
    distances = 8 * units * min(units, max(1, TILE_BYTES // (8 * units)))
    passes = som.n_epochs + 2
    return Route(
        method=som,
        name="batch",
        exact=True,
        passes=passes,
        sampling_passes=1,
        continuing_passes=2,
        flops=2.0 * n * units * (d + _COMPARED) * (som.n_epochs + 1) * (item / 4),
        phases=(
            *sample_phases(data, rows, sample_parts(som, data), solve_bytes=beginning),
            Phase(
                codebook + 8 * units + 24,
                # The sums of a block, and of one of its tiles.
                scratch_bytes=2 * codebook + 2 * item * units * d + search_bytes(units, d, item),
                held_bytes=2 * codebook + 8 * d,
                solve_bytes=5 * codebook + 4 * distances,
                cost_factor=work_factor(som, data),
                # The sums of the rows of each unit are taken besides.
                work=search_work(data, units, product_dtype(som, data))
                + products(float(n) * units * d, product_dtype(som, data), "product")
                + Work(moved=4.0 * n * data.line_bytes("rows")),
                solve_work=products(float(units) * units * d, np.dtype(np.float64), "product")
                + Work(functions=float(units) * units),
                count=exactly(som.n_epochs + 1),
            ),
        ),
    )
