"""The number of injected faults of each kind: a few by default, hundreds with `pytest -m faults`.

`STREAMDR_FAULTS_WORKER_KILLS=10` sets the number of one kind, and `STREAMDR_FAULTS_SEED=7` sets the seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

_PREFIX = "fault: "


def pieces(kind: str, *, few: Sequence[int], full: int, size: int) -> pytest.MarkDecorator:
    """Parametrize a test by `count` and `seed`: `few` by default, and with -m faults `full` in pieces."""
    name = f"STREAMDR_FAULTS_{kind.upper().replace(' ', '_')}"
    wanted, first = int(os.environ.get(name, full)), int(os.environ.get("STREAMDR_FAULTS_SEED", 0))
    cases = [pytest.param(count, first + i, id=f"{count}-seed{first + i}") for i, count in enumerate(few)]
    for i, done in enumerate(range(0, wanted, size)):
        count, seed = min(size, wanted - done), first + 1000 + i
        cases.append(pytest.param(count, seed, id=f"{count}-seed{seed}", marks=pytest.mark.faults))
    return pytest.mark.parametrize(("count", "seed"), cases)


class Tally:
    """Counts faults for the summary. The counts are in the report of the test, whichever process ran it."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def __call__(self, kind: str, count: int = 1) -> None:
        self._record(_PREFIX + kind, count)


def summary(stats: Mapping[str, Sequence[Any]]) -> str:
    """Return a line with the counts of all tests and the number of failed tests, or an empty string."""
    counts, failed = Counter[str](), 0
    for outcome in ("passed", "failed"):
        for report in stats.get(outcome, ()):
            found = [(name, n) for name, n in report.user_properties if name.startswith(_PREFIX)]
            failed += bool(found) and outcome == "failed"
            for name, n in found:
                counts[name.removeprefix(_PREFIX)] += n
    if not counts:
        return ""
    return f"faults: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}; {failed} tests failed"
