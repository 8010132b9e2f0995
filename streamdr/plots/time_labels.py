"""The labels of an axis of time: years, months, days or hours, in the calendar of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from streamdr.core.cf_time import TimeAxis

_FEWEST, _MOST = 3, 8
"""How many labels an axis has. With fewer, they are those of a finer unit."""
_YEARS = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]


def time_labels(axis: TimeAxis, low: float, high: float) -> tuple[list[float], list[str]]:
    """Return positions between two times, and their texts: starts of years, months, days or hours."""
    for level in _levels(axis, low, high):
        for dates in level:
            found = [(start, date) for date in dates for start in _start(axis, date) if low <= start <= high]
            if len(found) <= _MOST:
                break
        if len(found) >= _FEWEST:
            return [start for start, _ in found], [date.replace("T", "\n") for _, date in found]
    ends = [low, high] if low < high else [low]
    return ends, [axis.text(end).replace("T", "\n") for end in ends]


def _levels(axis: TimeAxis, low: float, high: float) -> Iterator[Iterator[Iterable[str]]]:
    """Yield dates near two times: for each unit, the longest first, those at growing distances."""
    first, last = np.floor(axis.years(np.array([low, high]))).astype(int)
    yield ([_year(year) for year in range(-(-first // step) * step, last + 1, step)] for step in _YEARS)
    if last - first > 5:
        return
    years = [_year(year) for year in range(first, last + 1)]
    yield ([f"{year}-{month:02d}" for year in years for month in range(1, 13, step)] for step in (1, 2, 3, 6))
    months = [f"{year}-{month:02d}" for year in years for month in range(1, 13)]
    months = [
        month for month in months if any(low <= end and start <= high for start, end in _span(axis, month))
    ]
    yield (
        [f"{month}-{day:02d}" for month in months for day in range(1, 32 if step == 1 else 30, step)]
        for step in (1, 2, 5, 10, 15)
    )
    days = [f"{month}-{day:02d}" for month in months for day in range(1, 32)]
    days = [day for day in days if any(low <= end and start <= high for start, end in _span(axis, day))]
    yield (
        [f"{day}T{hour:02d}:00" for day in days for hour in range(0, 24, step)] for step in (1, 2, 3, 6, 12)
    )


def _year(year: int) -> str:
    return f"{year:04d}" if year >= 0 else f"-{-year:04d}"


def _start(axis: TimeAxis, date: str) -> list[float]:
    return [start for start, _ in _span(axis, date)]


def _span(axis: TimeAxis, date: str) -> list[tuple[float, float]]:
    """Return the start and the end of a date; nothing if the calendar has no such date."""
    try:
        return [axis.interval(date)]
    except ValueError:
        return []
