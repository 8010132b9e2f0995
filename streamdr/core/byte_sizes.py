"""Amounts of memory as people write them: "500MB", "2GiB"."""

from __future__ import annotations

import re
from fractions import Fraction

from streamdr.core.safe_text import redact_value
from streamdr.errors import ParameterError

SIZE = r"^([0-9]{1,18}(?:\.[0-9]{1,18})?) *(?:([kKmMgGtTpP])([iI]?))?[bB]?$"
"""A number with an optional unit, as a regular expression that Python and JSON Schema share."""


def parse_bytes(size: int | str) -> int:
    """The number of bytes in a size such as 500000000, "500MB", "2GiB" or "1.5 GB"."""
    amount = 0
    if isinstance(size, str) and (match := re.fullmatch(SIZE, size)):
        number, prefix, binary = match.groups(default="")
        amount = int(Fraction(number) * (1024 if binary else 1000) ** " kmgtp".index(prefix.lower() or " "))
    elif isinstance(size, int) and not isinstance(size, bool):
        amount = size
    if amount < 1:
        raise ParameterError(
            "memory_limit",
            f"{redact_value(str(size))[:40]!r} is not an amount of memory; write bytes as a whole number, "
            "or a size such as '500MB', '1.5 GB' or '2GiB'",
        )
    return amount


def format_bytes(amount: float) -> str:
    """A number of bytes for people: "812 MiB", "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:.3g} GiB" if amount < 1000 else f"{amount / 1024:.3g} TiB"


def format_seconds(seconds: float) -> str:
    """An estimated time for people, with two digits at most."""
    if seconds < 1:
        return "under a second"
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return (
                f"about {seconds / length:.2g} {unit}"
                if seconds < 100 * length
                else f"about {seconds / length:.0f} {unit}"
            )
    return f"about {seconds:.2g} s" if seconds < 100 else f"about {seconds:.0f} s"
