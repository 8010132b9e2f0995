"""A stored matrix of distances: looked at once before anything is made of it, and refused by pairs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import cast

import numpy as np

from streamdr.accumulators import Accumulator, Several, Submatrix, Survey
from streamdr.accumulators.survey import symmetry_tolerance
from streamdr.accumulators.tiles import TILE_BYTES
from streamdr.blocks import Array, MatrixSpec
from streamdr.errors import DataError
from streamdr.methods.base import Pass, Phase
from streamdr.methods.mds_parameters import N_PAIRS

_TILES = 8
"""How often a few rows of distances exist while they are looked at."""
_AT_ONCE = 40
"""No plan has more accumulators than that filling, or waiting to merge, beside what they hold of rows."""


def surveyed(
    data: MatrixSpec, pairs: Array, seed: int, besides: Accumulator | None = None, *, holes: bool = False
) -> Generator[Pass, Accumulator, tuple[Survey, Accumulator | None]]:
    """Look at all distances, and let another accumulator look at them too, in one pass."""
    survey = Survey(data.n_rows, pairs, seed, single=data.working == np.float32, holes=holes)
    both = Several([survey] if besides is None else [survey, besides])
    full = cast(Several, (yield Pass(both, label="distances")))
    survey = cast(Survey, full.parts[0])
    row = survey.lopsided()
    if row is not None:
        yield from _name_the_pair(data, row)
    _require_connected(survey)
    return survey, None if besides is None else full.parts[1]


def with_survey(phase: Phase, data: MatrixSpec) -> Phase:
    """What a phase takes whose pass looks at all distances besides (`surveyed`)."""
    tiles, survey = _TILES * max(TILE_BYTES, 8 * data.n_rows), 64 * data.n_rows + 8 * N_PAIRS
    most, empty, together = phase.most_scratch_bytes, phase.empty_bytes, phase.together_bytes
    return replace(
        phase,
        accumulator_bytes=phase.accumulator_bytes + survey,
        empty_bytes=None if empty is None else empty + survey,
        together_bytes=None if together is None else together + _AT_ONCE * survey,
        scratch_bytes=phase.scratch_bytes + tiles,
        most_scratch_bytes=None if most is None else most + tiles,
    )


def _name_the_pair(data: MatrixSpec, row: int) -> Generator[Pass, Accumulator, None]:
    """Read once more, to tell which pair it is that has two distances."""
    one, every = np.array([row]), np.arange(data.n_rows)
    both = Several([Submatrix(one, every, holes=True), Submatrix(every, one, holes=True)])
    full = cast(Several, (yield Pass(both, label=f"row {row} and its column")))
    across, along = (cast(Submatrix, part).found.ravel() for part in full.parts)
    require_alike(across, along, row)
    raise DataError(f"row {row} of the matrix of distances is not its column {row}")


def require_alike(across: Array, along: Array, row: int) -> None:
    """Refuse a row of distances that is not its own column, by the pair that differs most."""
    gap = np.where(np.isnan(across) != np.isnan(along), np.inf, np.abs(across - along))
    other = int(np.argmax(np.where(np.isnan(gap), -1.0, gap)))
    if gap[other] > 0:
        raise DataError(
            f"the distance from point {row} to point {other} is {across[other]:g}, and from {other} to "
            f"{row} it is {along[other]:g}: a matrix of distances is symmetric"
        )


def require_symmetric(distances: Array) -> None:
    """Refuse distances by a function that is not symmetric."""
    gap = np.abs(distances - distances.T).max(axis=1)
    row = int(np.argmax(gap))
    if gap[row] > symmetry_tolerance(single=False) * distances.max():
        require_alike(distances[row], distances[:, row], row)


def _require_connected(survey: Survey) -> None:
    """Refuse points that no chain of known distances connects: how far apart they are is anybody's guess."""
    apart = np.flatnonzero(survey.parts != survey.parts[0])
    if len(apart):
        raise DataError(
            f"no chain of known distances leads from point {survey.parts[0]} to point {apart[0]}: "
            f"{len(apart)} of {survey.n_points} points are cut off by missing pairs; leave them out, or fill "
            "some pairs in"
        )
