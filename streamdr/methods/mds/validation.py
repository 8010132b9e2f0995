"""The check of a stored distance matrix. Errors name the pair of points."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array, MatrixSpec
from streamdr.core.method import Pass, Phase
from streamdr.errors import DataError
from streamdr.methods.mds.distance_check import DistanceCheck, symmetry_tolerance
from streamdr.methods.mds.parameters import N_PAIRS
from streamdr.methods.mds.submatrix import Submatrix
from streamdr.methods.mds.tiles import TILE_BYTES
from streamdr.statistics.composite import Composite
from streamdr.statistics.sampling import gather_phase

_TILES = 8
"""The number of copies of a tile of distances during the check."""
_MAX_ACCUMULATORS = 40
"""An upper bound of the accumulators that exist at a time in any plan."""


def check_distances(
    data: MatrixSpec, pairs: Array, seed: int, other: Accumulator, *, allow_nan: bool = False
) -> Generator[Pass, Accumulator, tuple[DistanceCheck, Accumulator]]:
    """Check all distances, update another accumulator in the same pass, and return both."""
    check = DistanceCheck(data.n_rows, pairs, seed, single=data.working == np.float32, allow_nan=allow_nan)
    both = Composite([check, other])
    full = cast(Composite, (yield Pass(both, label="distances")))
    check = cast(DistanceCheck, full.parts[0])
    row = check.asymmetric_row()
    if row is not None:
        yield from _locate_asymmetry(data, row)
    _require_connected(check)
    return check, full.parts[1]


def with_distance_check(phase: Phase, data: MatrixSpec) -> Phase:
    """A phase with the memory of `check_distances` in the same pass."""
    tiles, check = _TILES * max(TILE_BYTES, 8 * data.n_rows), 64 * data.n_rows + 8 * N_PAIRS
    most, empty, together = phase.max_scratch_bytes, phase.empty_bytes, phase.total_accumulator_bytes
    return replace(
        phase,
        accumulator_bytes=phase.accumulator_bytes + check,
        empty_bytes=None if empty is None else empty + check,
        total_accumulator_bytes=None if together is None else together + _MAX_ACCUMULATORS * check,
        scratch_bytes=phase.scratch_bytes + tiles,
        max_scratch_bytes=None if most is None else most + tiles,
    )


def gathered_phase(data: MatrixSpec, solve_bytes: int, stored: bool) -> Phase:
    """The memory of gathering all rows, with the distance check where they are distances."""
    phase = gather_phase(data, data.n_rows, solve_bytes=solve_bytes)
    return with_distance_check(phase, data) if stored else phase


def _locate_asymmetry(data: MatrixSpec, row: int) -> Generator[Pass, Accumulator, None]:
    """Read once more, to find the pair with two different distances."""
    one, every = np.array([row]), np.arange(data.n_rows)
    both = Composite([Submatrix(one, every, allow_nan=True), Submatrix(every, one, allow_nan=True)])
    full = cast(Composite, (yield Pass(both, label=f"row {row} and its column")))
    across, along = (cast(Submatrix, part).found.ravel() for part in full.parts)
    require_symmetric_row(across, along, row)
    raise DataError(f"row {row} of the distance matrix is not equal to column {row}")


def require_symmetric_row(across: Array, along: Array, row: int) -> None:
    """Refuse a row of distances that differs from its column, with the pair that differs most."""
    gap = np.where(np.isnan(across) != np.isnan(along), np.inf, np.abs(across - along))
    other = int(np.argmax(np.where(np.isnan(gap), -1.0, gap)))
    if gap[other] > 0:
        raise DataError(
            f"the distance from point {row} to point {other} is {across[other]:g}, and from {other} to "
            f"{row} it is {along[other]:g}: a distance matrix must be symmetric"
        )


def require_symmetric(distances: Array) -> None:
    """Refuse distances of a function that is not symmetric."""
    gap = np.abs(distances - distances.T).max(axis=1)
    row = int(np.argmax(gap))
    if gap[row] > symmetry_tolerance(single=False) * distances.max():
        require_symmetric_row(distances[row], distances[:, row], row)


def _require_connected(check: DistanceCheck) -> None:
    """Refuse points that are not connected by observed distances: their distance is undetermined."""
    apart = np.flatnonzero(check.parts != check.parts[0])
    if len(apart):
        raise DataError(
            f"no chain of observed distances connects point {check.parts[0]} with point {apart[0]}: "
            f"{len(apart)} of {check.n_points} points are disconnected by missing pairs; leave them out, or "
            "add distances that connect them"
        )
