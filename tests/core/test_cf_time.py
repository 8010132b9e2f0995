"""Times are those of xarray and cftime, in every calendar, and conversions are exact."""

from __future__ import annotations

import pickle
from datetime import timedelta
from fractions import Fraction

import cftime
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from streamdr.core.cf_time import TimeAxis
from streamdr.errors import DataError

CALENDARS = (
    *("standard", "gregorian", "proleptic_gregorian", "julian", "noleap", "365_day", "all_leap", "366_day"),
    "360_day",
)
REFERENCES = (
    "1990-01-01",
    "0001-01-01",
    "1582-10-15",
    "1582-10-04 18:30:00",
    "2000-02-28T23:59:59.5",
    "-45-3-15",
)
NANOSECONDS = {
    "days": 86_400 * 10**9,
    "hours": 3600 * 10**9,
    "minutes": 60 * 10**9,
    "seconds": 10**9,
    "milliseconds": 10**6,
    "microseconds": 10**3,
    "nanoseconds": 1,
}
TO_MICROSECONDS = list(NANOSECONDS)[:-1]
"""The units that cftime has."""
pytestmark = pytest.mark.filterwarnings("ignore::cftime.CFWarning", "ignore::xarray.SerializationWarning")
NAT = np.iinfo(np.int64).min

calendars = st.sampled_from(CALENDARS)
references = st.sampled_from(REFERENCES)
units_of_time = st.sampled_from(list(NANOSECONDS))


def decoded(values, axis):
    """Return the dates of cftime, which xarray uses too for calendars that numpy lacks."""
    return xr.coding.times.decode_cf_datetime(values, axis.units, axis.calendar, use_cftime=True)


def iso(date):
    """Return a date of cftime as ISO text, without zeros at the end."""
    text = f"{date.year:05d}" if date.year < 0 else f"{date.year:04d}"
    text += date.strftime("-%m-%d")
    if date.microsecond:
        return f"{text}T{date:%H:%M:%S}.{date.microsecond:06d}".removesuffix("000")
    if date.second:
        return f"{text}T{date:%H:%M:%S}"
    return f"{text}T{date:%H:%M}" if date.hour or date.minute else text


@given(
    calendars,
    references,
    st.sampled_from(TO_MICROSECONDS),
    st.integers(-800_000, 800_000),
    st.integers(0, 86399),
)
def test_the_text_of_a_time_is_the_date_of_cftime(calendar, reference, unit, days, seconds):
    value = (days * 86400 + seconds) * 10**9 // NANOSECONDS[unit]
    axis = TimeAxis(f"{unit} since {reference}", calendar)
    assert axis.text(value) == iso(decoded(np.array([value]), axis)[0])


@given(st.sampled_from(["standard", "proleptic_gregorian"]), units_of_time, st.integers(-(10**9), 10**9))
def test_the_text_of_a_time_is_the_date_that_xarray_decodes_with_numpy(calendar, unit, value):
    axis = TimeAxis(f"{unit} since 1990-01-01T06:00:00.123456789", calendar)
    value //= 86400 if unit in ("days", "hours", "minutes") else 1  # numpy has 292 years of nanoseconds
    expected = xr.coding.times.decode_cf_datetime(np.array([value]), axis.units, calendar)[0]
    assert np.datetime64(axis.text(value), "ns") == expected.astype("M8[ns]")


@pytest.mark.parametrize("calendar", CALENDARS)
def test_every_day_of_the_years_around_a_reform_or_a_century_is_that_of_cftime(calendar):
    for year in (-2, 3, 1500, 1581, 1899, 1999):
        axis = TimeAxis(f"days since {year}-01-01", calendar)
        values = np.arange(3 * 366)
        dates = decoded(values, axis)
        assert [axis.text(value) for value in values] == [iso(date) for date in dates]
        for value, date in zip(values[::7], dates[::7], strict=True):
            assert axis.interval(iso(date)) == (value, value + 1)


@given(calendars, references, units_of_time, st.integers(1, 2500), st.integers(1, 12))
def test_a_year_and_a_month_go_from_their_first_day_to_the_first_day_of_the_next(
    calendar, reference, unit, year, month
):
    axis = TimeAxis(f"{unit} since {reference}", calendar)
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    first, then, new_year, next_year = (
        axis.interval(text)[0]
        for text in (
            f"{year:04d}-{month:02d}-01",
            f"{following[0]:04d}-{following[1]:02d}-01",
            f"{year:04d}-01-01",
            f"{year + 1:04d}-01-01",
        )
    )
    assert axis.interval(f"{year:04d}-{month:02d}") == (first, then)
    assert axis.interval(f"{year:04d}") == (new_year, next_year)


@given(
    calendars, references, units_of_time, st.integers(1583, 2500), st.integers(1, 28), st.integers(0, 86399)
)
def test_a_second_starts_at_its_number_rounded_once(calendar, reference, unit, year, day, seconds):
    axis = TimeAxis(f"{unit} since {reference}", calendar)
    label = f"{year:04d}-02-{day:02d}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    origin, date = (
        cftime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S", calendar=calendar)
        for text in (f"{year:04d}-01-01T00:00:00", label)
    )
    exact = TimeAxis(f"nanoseconds since {reference}", calendar)
    start = exact.interval(f"{year:04d}")[0] + (date - origin) // timedelta(seconds=1) * 10**9
    length = NANOSECONDS[unit]
    for found, nanoseconds in zip(axis.interval(label), (start, start + 10**9), strict=True):
        assert float(found) == nanoseconds / length
        assert isinstance(found, int) == (nanoseconds % length == 0)


@pytest.mark.parametrize(
    ("label", "start", "stop"),
    [
        ("1990", 0, 365 * 24),
        ("1990-03", 59 * 24, 90 * 24),
        ("1990-03-05", 63 * 24, 64 * 24),
        ("1990-03-05T12", 63 * 24 + 12, 63 * 24 + 13),
        ("1990-03-05 12", 63 * 24 + 12, 63 * 24 + 13),
        ("1990-03-05T12:30", 63 * 24 + 12.5, 63 * 24 + 12 + 31 / 60),
        ("1990-03-05T12:30:15", 63 * 24 + 12.5 + 15 / 3600, 63 * 24 + 12.5 + 16 / 3600),
    ],
)
def test_a_label_is_an_interval(label, start, stop):
    assert TimeAxis("hours since 1990-01-01", "standard").interval(label) == (start, stop)


def test_the_month_of_the_reform_is_ten_days_shorter():
    axis = TimeAxis("days since 1582-01-01", "standard")
    assert axis.interval("1582") == (0, 355)
    assert np.diff(axis.interval("1582-10")) == 21
    assert axis.interval("1582-10-04")[1] == axis.interval("1582-10-15")[0]


def test_integers_next_to_an_interval_compare_exactly():
    axis = TimeAxis("nanoseconds since 1970-01-01", "standard")
    start, stop = axis.interval("2020-01-01T00:00:01")
    values = np.array([start - 1, start, stop - 1, stop])
    assert ((values >= start) & (values < stop)).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("calendar", "label", "message"),
    [
        ("noleap", "1992-02-29", "'1992-02-29' is not a date: the calendar noleap has no such day"),
        ("standard", "1990-02-29", "the calendar standard has no such day"),
        ("proleptic_gregorian", "1900-02-29", "has no such day"),
        ("360_day", "1990-01-31", "the calendar 360_day has no such day"),
        ("standard", "1582-10-10", "the calendar standard goes from 1582-10-04 to 1582-10-15"),
        ("standard", "0000-01-01", "the calendar standard has no year 0"),
        ("julian", "0000", "the calendar julian has no year 0"),
        ("standard", "1990-13", "has no such day"),
        ("standard", "1990-00-01", "has no such day"),
        ("standard", "1990-01-01T24", "24:00:00 is not a time of day"),
        ("standard", "1990-01-01T23:60", "23:60:00 is not a time of day"),
        ("standard", "1990-3", "'1990-3' is not a date; write it as 1990, 1990-03, 1990-03-05 or"),
        ("standard", "90", "is not a date; write it as"),
        ("standard", "yesterday", "is not a date; write it as"),
        ("standard", "", "is not a date; write it as"),
        ("standard", "1990-01-01T00:00:00Z", "is not a date; write it as"),
        ("standard", "١٩٩٠", "is not a date; write it as"),
    ],
)
def test_a_label_that_is_no_date_is_refused(calendar, label, message):
    with pytest.raises(ValueError, match=message):
        TimeAxis("days since 1990-01-01", calendar).interval(label)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("1990-01-01", "1990-01-01"),
        ("1990-1-1 0:0:0", "1990-01-01"),
        ("1990-01-01 06:00", "1990-01-01T06:00"),
        ("1990-01-01T06:00:00", "1990-01-01T06:00"),
        ("1990-01-01T06:00:00Z", "1990-01-01T06:00"),
        ("1990-01-01 06:00:00 UTC", "1990-01-01T06:00"),
        ("1990-01-01T06Z", "1990-01-01T06:00"),
        ("1990-01-01 06", "1990-01-01T06:00"),
        ("1990-01-01 06:00:00.0", "1990-01-01T06:00"),
        ("1990-01-01 06:00:00.25", "1990-01-01T06:00:00.250"),
        ("1990-01-01 00:00:00.000000001", "1990-01-01T00:00:00.000000001"),
        ("1990-01-01 06:00+01:00", "1990-01-01T05:00"),
        ("1990-01-01 06:00 +1:00", "1990-01-01T05:00"),
        ("1990-01-01T06:00-0330", "1990-01-01T09:30"),
        ("1990-01-01 06:00 -7", "1990-01-01T13:00"),
        ("1992-10-8 15:15:42.5 -6:00", "1992-10-08T21:15:42.500"),
        ("1990-01-01 00:30+01:00", "1989-12-31T23:30"),
        ("1990-03", "1990-03-01"),
        ("1990", "1990-01-01"),
        ("  1990-01-01  ", "1990-01-01"),
    ],
)
def test_reference_dates_are_read_as_xarray_reads_them(date, expected):
    axis = TimeAxis.of({"units": f"seconds since {date}", "calendar": "proleptic_gregorian"})
    assert axis is not None
    assert axis.text(0) == expected
    theirs = xr.coding.times.decode_cf_datetime(np.array([0]), axis.units, "proleptic_gregorian")[0]
    assert np.datetime64(axis.text(0), "ns") == theirs.astype("M8[ns]")


@pytest.mark.parametrize("date", ["1-1-1", "0001-01-01 00:00:00", "1-1-1 0:0:0.0", "850-01-01", "12345-6-7"])
def test_early_and_late_reference_dates_are_those_of_cftime(date):
    axis = TimeAxis(f"days since {date}", "standard")
    assert axis.text(100) == iso(cftime.num2date(100, axis.units, "standard"))


@pytest.mark.parametrize(
    ("unit", "nanoseconds"),
    [
        *((name, 86_400 * 10**9) for name in ("days", "day", "d", "Days")),
        *((name, 3600 * 10**9) for name in ("hours", "hour", "hr", "hrs", "h", "H")),
        *((name, 60 * 10**9) for name in ("minutes", "minute", "min", "mins")),
        *((name, 10**9) for name in ("seconds", "second", "sec", "secs", "s")),
        *((name, 10**6) for name in ("milliseconds", "millisecond", "millisec", "msec", "msecs", "ms")),
        *((name, 10**3) for name in ("microseconds", "microsecond", "microsec", "microsecs")),
        *((name, 1) for name in ("nanoseconds", "nanosecond")),
    ],
)
def test_units_may_be_abbreviated_as_in_cftime(unit, nanoseconds):
    axis = TimeAxis(f"{unit} since 1990-01-01", "standard")
    assert (
        axis.convert(np.array([3]), TimeAxis("nanoseconds since 1990-01-01", "standard")) == 3 * nanoseconds
    )
    theirs = xr.coding.times.decode_cf_datetime(np.array([3]), axis.units, "standard")[0]
    assert theirs.astype("M8[ns]") - np.datetime64("1990-01-01", "ns") == np.timedelta64(
        3 * nanoseconds, "ns"
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"units": "K"},
        {"units": "days"},
        {"units": "since"},
        {"units": None},
        {"units": 5},
        {"units": "1"},
        {"units": ["days since 1990-01-01", "days since 1990-01-01"]},
        {"units": "counts since launch"},
        {"units": "days SINCE 1990-01-01"},
        {"calendar": "noleap"},
    ],
)
def test_other_attributes_describe_no_times(attributes):
    assert TimeAxis.of(attributes) is None


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"units": "months since 1990-01-01"},
            "months differ in length; store the times in days or hours instead",
        ),
        ({"units": "years since 1990-01-01"}, "years differ in length"),
        ({"units": "common_year since 1990-01-01", "calendar": "noleap"}, "common_year differ in length"),
        ({"units": "m since 1990-01-01"}, "'m' is not a unit of time; use one of days, hours, minutes"),
        ({"units": "fortnights since 1990-01-01"}, "'fortnights' is not a unit of time"),
        ({"units": "days since launch"}, "'launch' is not a date of the form 1990-01-01"),
        ({"units": "days since 01-01-1990"}, "'01-01-1990' is not a date"),
        ({"units": "days since 1990/01/01"}, "'1990/01/01' is not a date"),
        ({"units": "days since 1990-01-32"}, "the calendar standard has no such day"),
        ({"units": "days since 1990-02-29", "calendar": "noleap"}, "the calendar noleap has no such day"),
        ({"units": "days since 0000-01-01"}, "the calendar standard has no year 0"),
        ({"units": "days since 1990-01-01 25:00"}, "25:00:00 is not a time of day"),
        (
            {"units": "days since 1990-01-01", "calendar": "lunar"},
            "the calendar 'lunar' is unknown; known calendars",
        ),
        ({"units": "days since 1990-01-01", "calendar": ""}, "the calendar '' is unknown"),
        ({"units": "days since 1990-01-01", "calendar": 360}, "calendar 360 is not text"),
    ],
)
def test_times_that_cannot_be_used_are_refused(attributes, message):
    with pytest.raises(DataError, match=message):
        TimeAxis.of(attributes)


@pytest.mark.parametrize(
    "text",
    [np.bytes_(b"days since 1990-01-01"), b"days since 1990-01-01", np.array(["days since 1990-01-01"])],
)
def test_attributes_of_hdf5_are_text_too(text):
    assert TimeAxis.of({"units": text, "calendar": np.str_("NoLeap")}) == TimeAxis(
        "days since 1990-01-01", "noleap"
    )


numbers = st.one_of(
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1), max_size=5).map(lambda values: np.array(values, np.int64)),
    st.lists(st.integers(-(2**15), 2**15 - 1), max_size=5).map(lambda values: np.array(values, np.int16)),
    st.lists(st.integers(0, 2**64 - 1), max_size=5).map(lambda values: np.array(values, np.uint64)),
    st.lists(st.floats(-1e12, 1e12), max_size=5).map(lambda values: np.array(values, np.float64)),
    st.lists(st.floats(-1e6, 1e6, width=32), max_size=5).map(lambda values: np.array(values, np.float32)),
)


@given(numbers, st.sampled_from(["noleap", "julian"]), references, references, units_of_time, units_of_time)
def test_conversion_is_exact_or_rounded_once(values, calendar, old, new, unit, new_unit):
    one, other = TimeAxis(f"{unit} since {old}", calendar), TimeAxis(f"{new_unit} since {new}", calendar)
    origins = [cftime.num2date(0, f"microseconds since {date}", calendar) for date in (old, new)]
    shift = (origins[0] - origins[1]) // timedelta(microseconds=1) * 1000
    exact = [
        (Fraction(value) * NANOSECONDS[unit] + shift) / NANOSECONDS[new_unit] for value in values.tolist()
    ]
    found = one.convert(values, other)
    whole = all(value.denominator == 1 and abs(value) < 2**63 for value in exact)
    if values.dtype.kind in "iu" and whole:
        assert found.dtype == np.int64
        assert found.tolist() == exact
    else:
        assert found.dtype == np.float64
        assert found.tolist() == [float(value) for value in exact]


@given(st.lists(st.integers(-50_000, 50_000), min_size=1, max_size=5), st.sampled_from(TO_MICROSECONDS))
def test_converted_times_are_decoded_by_xarray_as_the_same_dates(days, new_unit):
    one = TimeAxis("days since 1900-01-01 12:00", "standard")
    other = TimeAxis(f"{new_unit} since 1850-01-01", "standard")
    values = np.array(days)
    converted = other.convert(one.convert(values, other), one)
    np.testing.assert_array_equal(converted, values)
    first, second = (
        xr.coding.times.decode_cf_datetime(numbers, axis.units, "standard", time_unit="us").astype("M8[us]")
        for numbers, axis in ((values, one), (one.convert(values, other), other))
    )
    np.testing.assert_array_equal(first, second)


def test_missing_times_stay_missing():
    days, hours = (
        TimeAxis("days since 1990-01-01", "standard"),
        TimeAxis("hours since 1990-01-01", "standard"),
    )
    np.testing.assert_array_equal(days.convert(np.array([NAT, 1]), hours), [NAT, 24])
    np.testing.assert_array_equal(hours.convert(np.array([NAT, 1]), days), [np.nan, 1 / 24])
    np.testing.assert_array_equal(
        hours.convert(np.array([np.nan, np.inf, 12.0]), days), [np.nan, np.nan, 0.5]
    )
    assert days.text(NAT) == days.text(float("nan")) == days.text(float("inf")) == "NaT"
    np.testing.assert_array_equal(days.years(np.array([NAT, 365])), [np.nan, 1991])
    np.testing.assert_array_equal(
        days.years(np.array([np.nan, np.inf, 9.96921e36, 0.0])), [np.nan] * 3 + [1990]
    )


def test_a_fill_value_is_shown_as_it_is():
    assert (
        TimeAxis("days since 1990-01-01", "standard").text(9.96921e36) == "9.96921e+36 days since 1990-01-01"
    )


def test_times_without_another_unit_are_the_same_array():
    axis = TimeAxis("days since 1990-01-01", "standard")
    values = np.array([0.1, np.nan])
    assert axis.convert(values, TimeAxis("day since 1990-1-1 0:0", "gregorian")) is values
    assert axis.convert(np.array([], np.int32), axis).dtype == np.int64


def test_gregorian_calendars_agree_since_the_reform_only():
    standard = TimeAxis("days since 1582-10-15", "gregorian")
    proleptic = TimeAxis("days since 0001-01-01", "proleptic_gregorian")
    assert proleptic.text(standard.convert(np.array([0]), proleptic)[0]) == "1582-10-15"
    assert standard.convert(proleptic.convert(np.array([577735]), standard), proleptic) == 577735
    with pytest.raises(
        DataError, match="times before 1582-10-15, such as 1582-10-04, differ between the calendars"
    ):
        standard.convert(np.array([5, -1]), proleptic)
    with pytest.raises(DataError, match="such as 1582-10-14"):
        proleptic.convert(np.array([577734.0, np.nan]), standard)


def test_other_calendars_are_not_converted():
    noleap, standard = (
        TimeAxis("days since 1990-01-01", "noleap"),
        TimeAxis("days since 1990-01-01", "standard"),
    )
    with pytest.raises(
        DataError, match="times of the calendars noleap and standard differ; store both in one calendar"
    ):
        noleap.convert(np.array([0]), standard)
    same = TimeAxis("days since 1990-01-01", "365_day")
    assert noleap.convert(np.array([5]), same) == 5


def test_a_conversion_beyond_floats_is_refused():
    with pytest.raises(DataError, match="are too large for 'nanoseconds since"):
        TimeAxis("days since 1990-01-01", "standard").convert(
            np.array([1e300]), TimeAxis("nanoseconds since 1990-01-01", "standard")
        )


@pytest.mark.parametrize("values", [np.array(["1990-01-01"]), np.array([True]), np.array(["1990"], "M8[D]")])
def test_times_that_are_not_numbers_are_refused(values):
    axis = TimeAxis("days since 1990-01-01", "standard")
    with pytest.raises(DataError, match=r"times of type .* are not numbers; store them as integers"):
        axis.convert(values, TimeAxis("hours since 1990-01-01", "standard"))
    with pytest.raises(DataError, match="are not numbers"):
        axis.years(values)


@given(calendars, references, st.lists(st.floats(-800_000, 800_000), min_size=1, max_size=5))
def test_decimal_years_are_the_part_of_the_year_that_has_passed(calendar, reference, days):
    axis = TimeAxis(f"days since {reference}", calendar)
    for value, year in zip(days, axis.years(np.array(days)), strict=True):
        whole = int(np.floor(year + 1e-9))
        written = whole if whole > 0 or calendar not in ("standard", "gregorian", "julian") else whole - 1
        start, stop = axis.interval(f"{written:05d}" if written < 0 else f"{written:04d}")
        # Day numbers of up to a million have errors of 1e-10 days.
        assert abs(whole + (value - start) / (stop - start) - year) < 1e-9


@pytest.mark.parametrize("calendar", CALENDARS)
def test_decimal_years_far_away_are_in_order(calendar):
    years = TimeAxis("days since 2000-01-01", calendar).years(np.arange(-90_000_000, 90_000_000, 1_234_567))
    assert (np.diff(years) > 0).all()
    assert years[0] == pytest.approx(2000 - 90_000_000 / 365, rel=0.02)


def test_thirds_of_a_day_are_whole_hours_in_text():
    axis = TimeAxis("days since 1800-01-01", "standard")
    day = axis.interval("1990-01-01")[0]
    assert axis.text(day + 1 / 3) == "1990-01-01T08:00"
    assert TimeAxis("seconds since 1990-01-01", "standard").text(0.25) == "1990-01-01T00:00:00.250"
    assert axis.text(np.float64(day + 0.5)) == "1990-01-01T12:00"
    assert axis.text(np.int32(day)) == "1990-01-01"


def test_a_time_axis_is_a_value():
    axis = TimeAxis("days since 1990-01-01", "noleap")
    assert pickle.loads(pickle.dumps(axis)) == axis
    assert len({axis, TimeAxis("days since 1990-01-01", "noleap")}) == 1
