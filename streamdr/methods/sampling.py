"""A sample of the rows, read from a part of the data where that has enough of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from streamdr.accumulators import Accumulator, Sample
from streamdr.blocks import MatrixSpec, Part
from streamdr.methods.base import Pass, Phase
from streamdr.methods.checks import no_weight


def sampled(
    empty: Sample, data: MatrixSpec, label: str, parts: int = 1
) -> Generator[Pass, Accumulator, Sample]:
    """Rows of one of so many parts; of all the data where rows that count are too few in that part.

    Rows of weight zero do not count, and a part may hold hardly any others.
    """
    if parts > 1:
        sample = cast(Sample, (yield Pass(empty, label=label, part=Part(0, parts))))
        if has_enough(sample, data, parts):
            return sample
    sample = cast(Sample, (yield Pass(empty, label=label)))
    if not len(sample.rows):
        raise no_weight()
    return sample


def has_enough(sample: Sample, data: MatrixSpec, parts: int) -> bool:
    """Whether a part has at least half of the rows that a sample of it should have."""
    return len(sample.rows) >= max(1, min(sample.size, data.n_rows // parts) // 2)


def gathering(
    data: MatrixSpec, size: int, *, part: Part | None = None, labelled: bool = False, solve_bytes: int = 0
) -> Phase:
    """What a pass takes that collects rows (`Sample`) in double precision: so many of them, or all."""
    row = 8 * (data.n_cols + labelled) + 32
    read = data.n_rows if part is None else part.n_rows(data.n_rows)
    kept = row * min(size, read)
    return Phase(
        kept,
        empty_bytes=0,
        together_bytes=row * read,  # however many hold rows
        part=part,
        # What is new of a block, and what it becomes together with the blocks before it in its segment.
        scratch_per_block=4 * 8 / data.working.itemsize,
        most_scratch_bytes=2 * kept + (2 << 20),
        gathered_bytes=kept,
        solve_bytes=solve_bytes,
    )


def sampling(
    data: MatrixSpec, size: int, parts: int, *, labelled: bool = False, solve_bytes: int = 0
) -> tuple[Phase, ...]:
    """What `sampled` takes: a part, and all rows in case it has too few that count."""
    whole = gathering(data, size, labelled=labelled, solve_bytes=solve_bytes)
    if parts <= 1:
        return (whole,)
    part = gathering(data, size, part=Part(0, parts), labelled=labelled, solve_bytes=solve_bytes)
    return part, whole
