"""A sample of the rows, read from a part of the data where that has enough rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import cast

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import MatrixSpec, Part
from streamdr.core.method import Pass, Phase
from streamdr.core.work import SELDOM, Work
from streamdr.statistics.sample import Sample
from streamdr.statistics.validation import no_weight


def draw_sample(
    empty: Sample, data: MatrixSpec, label: str, parts: int = 1
) -> Generator[Pass, Accumulator, Sample]:
    """Draw a sample from one of `parts` parts of the data; from all data if that part has too few rows.

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
    """Whether a sample of one of `parts` parts has at least half of the expected rows."""
    return len(sample.rows) >= max(1, min(sample.size, data.n_rows // parts) // 2)


def gather_phase(
    data: MatrixSpec, size: int, *, part: Part | None = None, labelled: bool = False, solve_bytes: int = 0
) -> Phase:
    """The memory of a pass that gathers `size` rows (`Sample`) in double precision."""
    row = 8 * (data.n_cols + labelled) + 32
    read = data.n_rows if part is None else part.n_rows(data.n_rows)
    kept = row * min(size, read)
    return Phase(
        kept,
        empty_bytes=0,
        total_accumulator_bytes=row * read,  # whatever the number of accumulators
        part=part,
        # The new rows of a block, these together with those of the blocks before it in its segment, and what
        # the heap keeps of such arrays that were smaller.
        scratch_per_block=5 * 8 / data.working.itemsize,
        max_scratch_bytes=2 * kept + (2 << 20),
        gathered_bytes=kept,
        solve_bytes=solve_bytes,
        takes_sparse=True,
        sparse_scratch_bytes=2 * kept + (4 << 20),
        work=Work(moved=float(data.n_rows) * data.line_bytes("rows")),
        solve_work=Work(moved=4.0 * kept),
    )


def sample_phases(
    data: MatrixSpec, size: int, parts: int, *, labelled: bool = False, solve_bytes: int = 0
) -> tuple[Phase, ...]:
    """The memory of `draw_sample`: a pass over a part, and one over all rows in case that is too small."""
    whole = gather_phase(data, size, labelled=labelled, solve_bytes=solve_bytes)
    if parts <= 1:
        return (whole,)
    part = gather_phase(data, size, part=Part(0, parts), labelled=labelled, solve_bytes=solve_bytes)
    return part, replace(whole, count=SELDOM)
