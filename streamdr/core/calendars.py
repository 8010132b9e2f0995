"""Calendars and clocks: the dates that a calendar has, the numbers of days, and times of day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamdr.core.blocks import Array

SECOND = 1_000_000_000  # nanoseconds
DAY = 86_400 * SECOND


def _gregorian(year: Any) -> Any:
    """The days from 0001-01-01 to the first day of a year of the proleptic Gregorian calendar."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400


def _julian(year: Any) -> Any:
    """The days from the Gregorian 0001-01-01 to the first day of a year of the Julian calendar."""
    before = year - 1
    return 365 * before + before // 4 - 2


def _standard(year: Any) -> Any:
    """The same for the calendar that changed from Julian to Gregorian in October 1582."""
    return np.where(np.asarray(year) > 1582, _gregorian(year), _julian(year))


def _equal(length: int, year: Any) -> Any:
    """The days to the first day of a year, where all years have the same length."""
    return length * (year - 1)


_BEFORE_REFORM, _REFORM = (1582, 10, 4), (1582, 10, 15)  # two days in a row of the standard calendar
REFORM_DAY = _gregorian(1582) + 287
"""The number of the first Gregorian day of the standard calendar, 1582-10-15."""


@dataclass(frozen=True, eq=False)
class Calendar:
    """A calendar, by the day numbers at which its years start. Year 0 is the year before year 1."""

    name: str
    starts: Callable[[Any], Any]
    mean_year: float
    has_year_zero: bool = True

    def start(self, year: int) -> int:
        """The number of the first day of a year."""
        return int(self.starts(year))

    def years(self, days: Array) -> Array:
        """The year of each day number."""
        years: Array = np.floor(days / self.mean_year).astype(np.int64) + 1
        while np.any(late := days < self.starts(years)):
            years = years - late
        while np.any(early := days >= self.starts(years + 1)):
            years = years + early
        return years

    def months(self, year: int) -> list[int]:
        """The lengths of the months; of October 1582 as if no day had been skipped."""
        if self.name == "360_day":
            return [30] * 12
        february = 29 if self.start(year + 1) - self.start(year) == 366 else 28
        return [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

    def number(self, year: int, month: int, day: int) -> int:
        """The number of a day. Raises ValueError if the calendar has no such day."""
        reformed = self.name == "standard" and year == 1582
        if not 1 <= month <= 12 or not 1 <= day <= self.months(year)[month - 1]:
            raise ValueError(f"the calendar {self.name} has no such day")
        if reformed and _BEFORE_REFORM < (year, month, day) < _REFORM:
            raise ValueError(f"the calendar {self.name} goes from 1582-10-04 to 1582-10-15")
        skipped = 10 if reformed and (year, month, day) >= _REFORM else 0
        return self.start(year) + sum(self.months(year)[: month - 1]) + day - 1 - skipped

    def date(self, number: int) -> tuple[int, int, int]:
        """The year, month and day of a day number."""
        year = int(self.years(np.array(number)))
        left = number - self.start(year)
        if self.name == "standard" and year == 1582 and number >= REFORM_DAY:
            left += 10
        month = 1
        for length in self.months(year):
            if left < length:
                break
            left, month = left - length, month + 1
        return year, month, left + 1

    def year_written(self, text: str) -> int:
        """The year that is written so. In a calendar without a year 0, -1 is the year before 1."""
        year = int(text)
        if self.has_year_zero:
            return year
        if year == 0:
            raise ValueError(f"the calendar {self.name} has no year 0")
        return year if year > 0 else year + 1

    def written(self, year: int) -> str:
        """How a year is written."""
        shown = year if self.has_year_zero or year > 0 else year - 1
        return f"{shown:04d}" if shown >= 0 else f"-{-shown:04d}"


CALENDARS = {
    "standard": Calendar("standard", _standard, 365.2425, has_year_zero=False),
    "proleptic_gregorian": Calendar("proleptic_gregorian", _gregorian, 365.2425),
    "julian": Calendar("julian", _julian, 365.25, has_year_zero=False),
    "noleap": Calendar("noleap", partial(_equal, 365), 365.0),
    "all_leap": Calendar("all_leap", partial(_equal, 366), 366.0),
    "360_day": Calendar("360_day", partial(_equal, 360), 360.0),
}
SYNONYMS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}


def time_of_day(hour: str | None, minute: str | None, second: str | None) -> int:
    """The nanoseconds since midnight."""
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{hours:02d}:{minutes:02d}:{seconds:02d} is not a time of day")
    return (3600 * hours + 60 * minutes + seconds) * SECOND


def utc_offset(zone: str | None) -> int:
    """The nanoseconds by which local time is ahead of UTC: of `+01:00`, `-6`, `+0530`, `Z`."""
    if zone is None or zone[0] not in "+-":
        return 0
    hours, minutes = zone[1:].split(":") if ":" in zone else (zone[1:], "0")
    if len(hours) > 2:
        hours, minutes = hours[:-2], hours[-2:]
    return (-1 if zone[0] == "-" else 1) * (3600 * int(hours) + 60 * int(minutes)) * SECOND


def clock_text(nanoseconds: int) -> str:
    """A time of day, with as many digits as it needs."""
    seconds, rest = divmod(nanoseconds, SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if seconds % 60 or rest:
        text += f":{seconds % 60:02d}"
    if rest:
        digits = f"{rest:09d}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += f".{digits}"
    return text
