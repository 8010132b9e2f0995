"""Several computations over the same data, with shared passes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import cast

from streamdr.core.accumulator import Accumulator
from streamdr.core.method import Model, Pass, Passes
from streamdr.statistics.composite import Composite


def with_shared_passes(runs: Sequence[Passes]) -> Generator[Pass, Accumulator, list[Model]]:
    """Run several generators of passes together, and return their models in order.

    Passes over the same rows that are requested at the same time become one pass.
    """
    results: dict[int, Model] = {}
    waiting: dict[int, Pass] = {}

    def resume(number: int, full: Accumulator | None) -> None:
        try:
            waiting[number] = next(runs[number]) if full is None else runs[number].send(full)
        except StopIteration as finished:
            results[number] = finished.value

    for number in range(len(runs)):
        resume(number, None)
    while waiting:
        first = next(iter(waiting.values()))
        same_rows = [n for n, one in waiting.items() if _reads_same_rows(one, first)]
        requests = [waiting.pop(number) for number in same_rows]
        if len(requests) == 1:
            resume(same_rows[0], (yield requests[0]))
            continue
        label = f"{requests[0].label}, {len(requests)} side by side"
        combined = Composite([request.empty for request in requests])
        full = cast(Composite, (yield replace(first, empty=combined, label=label)))
        for number, part in zip(same_rows, full.parts, strict=True):
            resume(number, part)
    return [results[number] for number in range(len(runs))]


def _reads_same_rows(one: Pass, other: Pass) -> bool:
    """Whether two passes can be combined."""
    same = (one.axis, one.part) == (other.axis, other.part)
    return same and one.in_memory is other.in_memory
