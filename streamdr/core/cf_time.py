"""Times as numbers with CF units and a calendar, such as `days since 1990-01-01 06:00`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.calendars import (
    CALENDARS,
    DAY,
    REFORM_DAY,
    SECOND,
    SYNONYMS,
    Calendar,
    clock_text,
    time_of_day,
    utc_offset,
)
from streamdr.errors import DataError

_MISSING = np.iinfo(np.int64).min  # NaT, as numpy and xarray store it
_FARTHEST_DAY = 10**9
"""Day numbers beyond this (2.7 million years) are no dates, but fill values."""

_NAMES = {
    DAY: ("days", "day", "d"),
    3600 * SECOND: ("hours", "hour", "hrs", "hr", "h"),
    60 * SECOND: ("minutes", "minute", "mins", "min"),
    SECOND: ("seconds", "second", "secs", "sec", "s"),
    10**6: ("milliseconds", "millisecond", "millisecs", "millisec", "msecs", "msec", "ms"),
    10**3: ("microseconds", "microsecond", "microsecs", "microsec"),
    1: ("nanoseconds", "nanosecond"),
}
_NANOSECONDS = {name: length for length, names in _NAMES.items() for name in names}
_UNEVEN = ("month", "months", "year", "years", "common_year", "common_years")

_AGREE_SINCE_REFORM = {"standard", "proleptic_gregorian"}

_UNITS = re.compile(r"(.+) since (.+)")
_REFERENCE = re.compile(
    r"([+-]?\d{1,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:(?:\s*T\s*|\s+)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?)?)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(
    r"([+-]?\d{4,6})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d))?)?)?)?)?", re.ASCII
)


@dataclass(frozen=True)
class TimeAxis:
    """What numbers mean as times: units since a reference date, in a calendar.

    Calculations are exact: with whole nanoseconds, and with floats as the fractions that they are. A result
    that is a float is rounded once.

    Parameters
    ----------
    units : str
        A unit and a reference date, such as `"hours since 1900-01-01 00:00:00"`. The units are days, hours,
        minutes, seconds, milliseconds, microseconds and nanoseconds. A date without an offset is in UTC.
    calendar : str
        `standard` or `gregorian` (Julian before 1582-10-15), `proleptic_gregorian`, `julian`, `noleap` or
        `365_day`, `all_leap` or `366_day`, `360_day`.

    Raises
    ------
    DataError
        If the units or the calendar cannot be used.

    Examples
    --------
    >>> from streamdr.core.cf_time import TimeAxis
    >>> hours = TimeAxis("hours since 1990-01-01", "noleap")
    >>> hours.text(36)
    '1990-01-02T12:00'
    >>> hours.interval("1990-03")
    (1416, 2160)
    """

    units: str
    calendar: str

    def __post_init__(self) -> None:
        _ = self._calendar, self._unit, self._reference  # parsed now, so that errors are raised here

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> TimeAxis | None:
        """Return the times that CF attributes describe, or None if they do not describe times.

        Parameters
        ----------
        attributes : mapping
            The attributes of an array. Only `units` and `calendar` are used.

        Raises
        ------
        DataError
            If they describe times that cannot be used: months since a date, an unknown calendar.

        Examples
        --------
        >>> from streamdr.core.cf_time import TimeAxis
        >>> TimeAxis.of({"units": "days since 1850-01-01"})
        TimeAxis(units='days since 1850-01-01', calendar='standard')
        >>> TimeAxis.of({"units": "days"}) is None
        True
        """
        units = _text(attributes.get("units"))
        found = None if units is None else _UNITS.fullmatch(units)
        if units is None or found is None:
            return None
        unit = found[1].strip().lower()
        if unit not in _NANOSECONDS and unit not in _UNEVEN and not re.match(r"\s*[+-]?\d", found[2]):
            return None  # "counts since launch"
        given = attributes.get("calendar")
        calendar = "standard" if given is None else _text(given)
        if calendar is None:
            raise DataError(f"calendar {given!r} is not text; give it the name of a calendar")
        return cls(units, calendar.lower())

    @cached_property
    def _calendar(self) -> Calendar:
        name = self.calendar.lower()
        found = CALENDARS.get(SYNONYMS.get(name, name))
        if found is None:
            known = ", ".join((*CALENDARS, *SYNONYMS))
            raise DataError(f"the calendar {self.calendar!r} is unknown; known calendars are {known}")
        return found

    @property
    def _words(self) -> tuple[str, str]:
        """The unit and the reference date."""
        found = _UNITS.fullmatch(self.units.strip())
        if found is None:
            raise DataError(f"units {self.units!r}: not of the form 'days since 1990-01-01'")
        return found[1].strip().lower(), found[2].strip()

    @cached_property
    def _unit(self) -> int:
        """The nanoseconds of a unit."""
        unit, _ = self._words
        if unit in _UNEVEN:
            raise DataError(
                f"units {self.units!r}: {unit} differ in length; store the times in days or hours instead"
            )
        if unit not in _NANOSECONDS:
            known = ", ".join(names[0] for names in _NAMES.values())
            raise DataError(f"units {self.units!r}: {unit!r} is not a unit of time; use one of {known}")
        return _NANOSECONDS[unit]

    @cached_property
    def _reference(self) -> int:
        """The nanoseconds from day number 0 to the reference date."""
        _, date = self._words
        found = _REFERENCE.fullmatch(date)
        if found is None:
            raise DataError(
                f"units {self.units!r}: {date!r} is not a date of the form 1990-01-01 or 1990-01-01 06:00:00"
            )
        year, month, day, hour, minute, second, fraction, zone = found.groups()
        try:
            number = self._calendar.number(self._calendar.year_written(year), int(month or 1), int(day or 1))
            clock = time_of_day(hour, minute, second)
        except ValueError as problem:
            raise DataError(f"units {self.units!r}: {problem}") from None
        return number * DAY + clock + int(((fraction or "") + "0" * 9)[:9]) - utc_offset(zone)

    def interval(self, label: str) -> tuple[float, float]:
        """Return the start and the stop of a partial ISO date, as numbers in these units.

        Parameters
        ----------
        label : str
            A year, month, day, hour, minute or second: `"1990"`, `"1990-03"`, `"1990-03-05T12:30"`.

        Returns
        -------
        start, stop : float
            The first time of it, and the first time after it. Whole numbers are of type int, so that
            comparing them with 64-bit integers is exact.

        Raises
        ------
        ValueError
            If the text is no such date, or the calendar lacks it.

        Examples
        --------
        >>> from streamdr.core.cf_time import TimeAxis
        >>> TimeAxis("days since 1990-01-01", "360_day").interval("1990-02")
        (30, 60)
        >>> TimeAxis("days since 1990-01-01", "standard").interval("1990-01-01T06")
        (0.25, 0.2916666666666667)
        """
        found = _LABEL.fullmatch(label.strip())
        if found is None:
            raise ValueError(
                f"{label!r} is not a date; write it as 1990, 1990-03, 1990-03-05 or 1990-03-05T12:30"
            )
        parts = found.groups()
        calendar = self._calendar
        try:
            year = calendar.year_written(parts[0])
            month, day = int(parts[1] or 1), int(parts[2] or 1)
            start = calendar.number(year, month, day) * DAY + time_of_day(*parts[3:])
        except ValueError as problem:
            raise ValueError(f"{label!r} is not a date: {problem}") from None
        if parts[1] is None:
            stop = calendar.start(year + 1) * DAY
        elif parts[2] is None:
            following = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
            stop = calendar.number(*following) * DAY
        else:
            lengths = (DAY, 3600 * SECOND, 60 * SECOND, SECOND)
            stop = start + lengths[sum(part is not None for part in parts[3:])]
        return self._value(start), self._value(stop)

    def _value(self, nanoseconds: int) -> float:
        """The number of a time: an int if it is whole."""
        whole, rest = divmod(nanoseconds - self._reference, self._unit)
        return (nanoseconds - self._reference) / self._unit if rest else whole

    def convert(self, values: Array, to: TimeAxis) -> Array:
        """Return times as numbers in other units.

        Parameters
        ----------
        values : ndarray
            Times in these units. NaN, and the smallest integer of 64 bits (NaT), stay missing.
        to : TimeAxis
            The other units, with the same calendar. `standard` and `proleptic_gregorian` are the same since
            1582-10-15.

        Returns
        -------
        ndarray of int64 or float64
            Integers if the values are and all results are whole. Otherwise floats, each the nearest one.

        Raises
        ------
        DataError
            If the calendars differ, or the values are not numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from streamdr.core.cf_time import TimeAxis
        >>> days = TimeAxis("days since 1990-01-01", "standard")
        >>> days.convert(np.array([0, 1]), TimeAxis("hours since 1989-12-31", "standard"))
        array([24, 48])
        """
        self._require_calendar_of(to, values)
        shift = self._reference - to._reference
        whole = values.dtype.kind in "iu"
        if self._unit == to._unit and shift == 0 and values.dtype in (np.int64, np.float64):
            return values
        missing = _missing(values)
        ratios = [value.as_integer_ratio() for value in np.where(missing, 0, values).ravel().tolist()]
        # As fractions: numerators in nanoseconds, denominators in the new unit.
        times = [(self._unit * n + shift * d, to._unit * d) for n, d in ratios]
        if whole and all(not n % d and abs(n // d) <= -(_MISSING + 1) for n, d in times):
            integers = np.array([n // d for n, d in times], np.int64).reshape(values.shape)
            return np.where(missing, _MISSING, integers)
        try:
            floats = np.array([n / d for n, d in times], np.float64).reshape(values.shape)
        except OverflowError:
            raise DataError(f"times in {self.units!r} are too large for {to.units!r}") from None
        return np.where(missing, np.nan, floats)

    def _require_calendar_of(self, to: TimeAxis, values: Array) -> None:
        """Raise an error if times of this calendar are others in the calendar of `to`."""
        names = {self._calendar.name, to._calendar.name}
        if len(names) == 1:
            return
        advice = "store both in one calendar"
        if names != _AGREE_SINCE_REFORM:
            raise DataError(f"times of the calendars {self.calendar} and {to.calendar} differ; {advice}")
        known = values[~_missing(values)]
        if known.size and known.min() < self._value(REFORM_DAY * DAY):
            raise DataError(
                f"times before 1582-10-15, such as {self.text(known.min())}, differ between the calendars "
                f"{self.calendar} and {to.calendar}; {advice}"
            )

    def years(self, values: Array) -> Array:
        """Return times as decimal years, such as 1990.5, for axes of plots.

        Parameters
        ----------
        values : ndarray
            Times in these units.

        Returns
        -------
        ndarray of float64
            The year, and the part of it that has passed. The year before year 1 is 0. NaN where a time is
            missing, or millions of years away.

        Examples
        --------
        >>> import numpy as np
        >>> from streamdr.core.cf_time import TimeAxis
        >>> TimeAxis("days since 1990-01-01", "360_day").years(np.array([0, 90, 180]))
        array([1990.  , 1990.25, 1990.5 ])
        """
        unknown = _missing(values)
        days = values.astype(np.float64) / (DAY // self._unit) + self._reference / DAY
        missing = unknown | (np.abs(days) > _FARTHEST_DAY)
        days = np.where(missing, 0.0, days)
        year = self._calendar.years(days)
        start = self._calendar.starts(year)
        decimal = year + (days - start) / (self._calendar.starts(year + 1) - start)
        return np.where(missing, np.nan, decimal)

    def text(self, value: float | np.generic) -> str:
        """Return the ISO date of a time: with the time of day if it is not midnight.

        Parameters
        ----------
        value : float
            A time in these units. Fractions of seconds and of longer units are rounded to milliseconds.

        Examples
        --------
        >>> from streamdr.core.cf_time import TimeAxis
        >>> days = TimeAxis("days since 1990-01-01", "standard")
        >>> days.text(63), days.text(63.5)
        ('1990-03-05', '1990-03-05T12:00')
        """
        value = value.item() if isinstance(value, np.generic) else value  # keeps 64-bit integers exact
        if value == _MISSING or not np.isfinite(value):
            return "NaT"
        n, d = value.as_integer_ratio()
        # The nearest float to a time of day is not exact: 1/3 of a day would be 8 hours but for nanoseconds.
        step = d * (10**6 if d > 1 and self._unit >= SECOND else 1)
        elapsed = (2 * n * self._unit + step) // (2 * step) * (step // d)
        number, clock = divmod(self._reference + elapsed, DAY)
        if abs(number) > _FARTHEST_DAY:
            return f"{value} {self.units}"
        year, month, day = self._calendar.date(number)
        date = f"{self._calendar.written(year)}-{month:02d}-{day:02d}"
        return f"{date}T{clock_text(clock)}" if clock else date


def _text(value: Any) -> str | None:
    """The text of an attribute, which HDF5 may give as bytes or as an array; None if it is no text."""
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.strip() if isinstance(value, str) else None


def _missing(values: Array) -> Array:
    """Which times are missing: not finite, or NaT."""
    if values.dtype.kind not in "iuf":
        raise DataError(f"times of type {values.dtype} are not numbers; store them as integers or floats")
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    return np.equal(values, _MISSING)
