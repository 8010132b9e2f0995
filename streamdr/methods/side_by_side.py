"""Several computations over the same data, which is read once for all of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import cast

from streamdr.accumulators import Accumulator, Several
from streamdr.methods.base import Model, Pass, Passes


def side_by_side(runs: Sequence[Passes]) -> Generator[Pass, Accumulator, list[Model]]:
    """What each run returns, in order. Passes that ask for the same rows at the same time become one."""
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
        alike = [n for n, one in waiting.items() if _same_rows(one, first)]
        requests = [waiting.pop(number) for number in alike]
        if len(requests) == 1:
            resume(alike[0], (yield requests[0]))
            continue
        label = f"{requests[0].label}, {len(requests)} side by side"
        both = Several([request.empty for request in requests])
        full = cast(Several, (yield replace(first, empty=both, label=label)))
        for number, part in zip(alike, full.parts, strict=True):
            resume(number, part)
    return [results[number] for number in range(len(runs))]


def _same_rows(one: Pass, other: Pass) -> bool:
    same = (one.axis, one.part) == (other.axis, other.part)
    return same and one.at_hand is other.at_hand
