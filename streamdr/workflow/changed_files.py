"""Which of several files of an input has changed, was added or has vanished since an output was made."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from streamdr.data import Source
from streamdr.data.snapshot import Snapshot

_SHOWN = 12
"""The characters of a digest that are recorded for each file."""


def recorded_files(source: Source, snapshot: Snapshot) -> dict[str, Any]:
    """Return what is recorded of the files of an input: their names, and a digest up to the end of each."""
    if not source.part_ends:
        return {}
    return {"files": [[name, end, snapshot.digest(end)[:_SHOWN]] for name, end in source.part_ends]}


def changed_file(facts: Mapping[str, Any], source: Source, snapshot: Snapshot) -> str | None:
    """Return the first change of the recorded files, in words; None if there is none."""
    before, now = facts.get("files"), source.part_ends
    if not isinstance(before, list) or not all(_is_valid(file) for file in before) or not now:
        return None
    names = {name for name, _ in now}
    gone = [name for name, _, _ in before if name not in names]
    if gone:
        more = f", and {len(gone) - 1} more" if len(gone) > 1 else ""
        return f"{gone[0]} is gone{more}"
    recorded = {name for name, _, _ in before}
    for was, found in zip_longest(before, now):
        if was is None or found is None:
            return None
        name, end = found
        if name not in recorded:
            return f"{name} was added before {was[0]}"
        if name != was[0] or end != was[1] or snapshot.digest(end)[:_SHOWN] != was[2]:
            return f"{name} has changed" if name == was[0] else f"{name} has moved before {was[0]}"
    return None


def _is_valid(file: Any) -> bool:
    """Whether a recorded file is a name, the row where it ends, and a digest."""
    return isinstance(file, list) and [type(value) for value in file] == [str, int, str]
