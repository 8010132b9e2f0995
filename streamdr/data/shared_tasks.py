"""What the blocks of a lazy graph share: found by counting, so that it can be computed once.

The graph of `x - x.mean(0)` has the mean in the graph of every block, and all of x behind the mean. Blocks
that are computed one at a time compute it each time. Here the graph is cut where that costs most: at results
that many blocks need and that many tasks lead to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TypeAlias

Key: TypeAlias = "str | int | float | tuple[Key, ...]"
"""The name of a task, as dask has it."""
Dependencies = Mapping[Key, Collection[Key]]

_MOST_STEPS = 3_000_000
"""How many tasks are visited to look at all blocks; of larger graphs a sample of blocks is looked at."""
_SAMPLE = 16
_ROUNDS = 8
_TOLERATED = 4.0
"""How many times data may be read or made, on average, by blocks that share it with few others."""


def keys_to_hold(
    dependencies: Dependencies, bands: Sequence[Sequence[Key]], given: Collection[Key]
) -> set[Key]:
    """The tasks whose results are to be computed once and kept while blocks are computed one after another.

    `bands` are the keys that are computed together, a group for each read; `given` are keys that need no
    computing. Nothing is returned where blocks share nothing, or only what costs little.
    """
    held: set[Key] = set()
    stops = set(given)
    if len(bands) < 2:
        return held
    chance = Random(0)
    all_of_them = len(bands) * len(dependencies) <= _MOST_STEPS
    for _ in range(_ROUNDS):
        chosen = (
            bands if all_of_them else [bands[i] for i in sorted(chance.sample(range(len(bands)), _SAMPLE))]
        )
        needed = [_tasks_behind(dependencies, band, stops) for band in chosen]
        cut = _cut(dependencies, chosen, needed, stops)
        if not cut:
            break
        held |= cut
        stops |= cut
    return held & _reached(dependencies, bands, stops)


def repetition(dependencies: Dependencies, bands: Sequence[Sequence[Key]], given: Collection[Key]) -> float:
    """How many times a first task is carried out, on average, by a few bands that are computed apart."""
    few, stops = bands[:: max(1, len(bands) // _SAMPLE)], set(given)
    return _repetition(dependencies, [_tasks_behind(dependencies, band, stops) for band in few], stops)


def _repetition(dependencies: Dependencies, needed: Sequence[set[Key]], stops: set[Key]) -> float:
    """The same of tasks that are known. First tasks wait for no other: they are what reads or makes data."""
    firsts = [{key for key in tasks if stops.issuperset(dependencies[key])} for tasks in needed]
    return sum(map(len, firsts)) / max(1, len(set().union(*firsts)))


def _cut(
    dependencies: Dependencies, bands: Sequence[Sequence[Key]], needed: Sequence[set[Key]], stops: set[Key]
) -> set[Key]:
    """The shared results, next to what is not shared, that most tasks lead to."""
    counts = Counter(key for tasks in needed for key in tasks)
    often = _repetition(dependencies, needed, stops)
    least = max(2, len(bands) // 2) if often <= _TOLERATED else 2
    shared = {key for key, count in counts.items() if count >= least}
    if not shared:
        return set()
    edge = {key for band in bands for key in band if key in shared}
    for tasks in needed:
        for key in tasks:
            if key not in shared:
                edge.update(other for other in dependencies[key] if other in shared)
    weights = {key: len(_tasks_behind(dependencies, [key], stops)) for key in edge}
    most = max(weights.values(), default=0)
    return {key for key, weight in weights.items() if 2 * weight > most}


def _tasks_behind(dependencies: Dependencies, keys: Collection[Key], stops: set[Key]) -> set[Key]:
    """The tasks that lead to some keys, themselves included, as far as those that need no computing."""
    found = {key for key in keys if key not in stops}
    pending = list(found)
    while pending:
        for key in dependencies[pending.pop()]:
            if key not in found and key not in stops:
                found.add(key)
                pending.append(key)
    return found


def _reached(dependencies: Dependencies, bands: Sequence[Sequence[Key]], stops: set[Key]) -> set[Key]:
    """Those stops that the bands come to first: one that lies behind others is not needed."""
    tasks = _tasks_behind(dependencies, [key for band in bands for key in band], stops)
    firsts = {key for band in bands for key in band if key in stops}
    return firsts.union(*(stops.intersection(dependencies[key]) for key in tasks))
