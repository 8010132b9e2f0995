"""The tasks that the blocks of a dask graph share. They are found by counting, and computed once.

In the graph of `x - x.mean(0)`, every block depends on the mean, and the mean depends on all of x. Blocks
that are computed one at a time would compute it each time. Here the graph is cut where that costs most: at
results that many blocks need and that depend on many tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TypeAlias

Key: TypeAlias = "str | int | float | tuple[Key, ...]"
"""The key of a task in a dask graph."""
Dependencies = Mapping[Key, Collection[Key]]

_MAX_STEPS = 3_000_000
"""The most tasks that are visited to examine all blocks. In larger graphs a sample of blocks is examined."""
_SAMPLE = 16
_ROUNDS = 8
_TOLERATED = 4.0
"""How often, on average, data that few blocks share may be read or generated."""


def keys_to_hold(
    dependencies: Dependencies, bands: Sequence[Sequence[Key]], given: Collection[Key]
) -> set[Key]:
    """Return the tasks whose results are computed once and kept while blocks are computed one by one.

    `bands` are the keys that are computed together, one group per read. `given` are keys whose results exist
    already. The set is empty if blocks share nothing, or only results that are cheap to compute.
    """
    held: set[Key] = set()
    stops = set(given)
    if len(bands) < 2:
        return held
    rng = Random(0)
    use_all = len(bands) * len(dependencies) <= _MAX_STEPS
    for _ in range(_ROUNDS):
        chosen = bands if use_all else [bands[i] for i in sorted(rng.sample(range(len(bands)), _SAMPLE))]
        needed = [_required_tasks(dependencies, band, stops) for band in chosen]
        cut = _cut(dependencies, chosen, needed, stops)
        if not cut:
            break
        held |= cut
        stops |= cut
    return held & _reached(dependencies, bands, stops)


def repetition(dependencies: Dependencies, bands: Sequence[Sequence[Key]], given: Collection[Key]) -> float:
    """Return how often a first task runs, on average, if a few bands are computed separately."""
    few, stops = bands[:: max(1, len(bands) // _SAMPLE)], set(given)
    return _repetition(dependencies, [_required_tasks(dependencies, band, stops) for band in few], stops)


def _repetition(dependencies: Dependencies, needed: Sequence[set[Key]], stops: set[Key]) -> float:
    """Return the same, given the tasks of each band. First tasks depend on no others: they load the data."""
    firsts = [{key for key in tasks if stops.issuperset(dependencies[key])} for tasks in needed]
    return sum(map(len, firsts)) / max(1, len(set().union(*firsts)))


def _cut(
    dependencies: Dependencies, bands: Sequence[Sequence[Key]], needed: Sequence[set[Key]], stops: set[Key]
) -> set[Key]:
    """Return the shared tasks on the edge to tasks that are not shared, those with the most dependencies."""
    counts = Counter(key for tasks in needed for key in tasks)
    repeated = _repetition(dependencies, needed, stops)
    least = max(2, len(bands) // 2) if repeated <= _TOLERATED else 2
    shared = {key for key, count in counts.items() if count >= least}
    if not shared:
        return set()
    edge = {key for band in bands for key in band if key in shared}
    for tasks in needed:
        for key in tasks:
            if key not in shared:
                edge.update(other for other in dependencies[key] if other in shared)
    weights = {key: len(_required_tasks(dependencies, [key], stops)) for key in edge}
    most = max(weights.values(), default=0)
    return {key for key, weight in weights.items() if 2 * weight > most}


def _required_tasks(dependencies: Dependencies, keys: Collection[Key], stops: set[Key]) -> set[Key]:
    """Return the keys and all tasks that they depend on, except `stops` and what only these depend on."""
    found = {key for key in keys if key not in stops}
    pending = list(found)
    while pending:
        for key in dependencies[pending.pop()]:
            if key not in found and key not in stops:
                found.add(key)
                pending.append(key)
    return found


def _reached(dependencies: Dependencies, bands: Sequence[Sequence[Key]], stops: set[Key]) -> set[Key]:
    """Return the stops that bands reach first. A stop that only other stops depend on is not needed."""
    tasks = _required_tasks(dependencies, [key for band in bands for key in band], stops)
    firsts = {key for band in bands for key in band if key in stops}
    return firsts.union(*(stops.intersection(dependencies[key]) for key in tasks))
