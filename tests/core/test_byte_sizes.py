"""Amounts of memory as people write them."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdr.core.byte_sizes import parse_bytes
from streamdr.errors import ParameterError

FACTORS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("500MB", 500_000_000),
        ("2GiB", 2_147_483_648),
        ("1.5 GB", 1_500_000_000),
        ("1.5GiB", 1_610_612_736),
        ("4096", 4096),
        (4096, 4096),
        ("2 gib", 2_147_483_648),
        ("8G", 8_000_000_000),
        ("8Gi", 8_589_934_592),
        ("0.3kB", 300),
    ],
)
def test_a_size_in_bytes(size, expected):
    assert parse_bytes(size) == expected


@given(st.integers(1, 10**17), st.sampled_from(sorted(FACTORS)), st.sampled_from(["", " "]))
def test_whole_amounts_in_any_unit(number, unit, space):
    text = f"{number}{space}{unit}" if unit else str(number)
    assert parse_bytes(text) == number * FACTORS[unit]
    assert parse_bytes(text.lower()) == parse_bytes(text.upper()) == parse_bytes(text)


@given(st.integers(1, 10**6), st.integers(0, 10**9 - 1), st.sampled_from(sorted(FACTORS)))
def test_decimal_fractions_are_exact_to_the_byte(whole, billionths, unit):
    exact = (whole + Fraction(billionths, 10**9)) * FACTORS[unit]
    assert parse_bytes(f"{whole}.{billionths:09}{unit}") == int(exact)


@pytest.mark.parametrize(
    "size",
    ["", "GB", "lots", "2XB", "-1GB", "1e3MB", "1.GB", "2GBs", "0", "0.1B", "9" * 5000, "٣MB", "2GB\n"],
)
def test_invalid_sizes_are_refused_with_examples(size):
    with pytest.raises(ParameterError, match=r"'500MB', '1\.5 GB' or '2GiB'") as caught:
        parse_bytes(size)
    assert caught.value.parameter == "memory_limit"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("size", [0, -5, True, 2.5, None, [1]])
def test_only_positive_whole_numbers_count(size):
    with pytest.raises(ParameterError):
        parse_bytes(size)


@given(st.text())
def test_any_text_is_a_size_or_a_parameter_error(text):
    with suppress(ParameterError):
        assert parse_bytes(text) >= 1
