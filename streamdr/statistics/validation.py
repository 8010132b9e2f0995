"""Checks of parameters and data that several methods share."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.errors import DataError, ParameterError


def whole_numbers(parameter: str, given: Any) -> list[int]:
    """A number, or several to choose from, as a list without repetitions."""
    several = isinstance(given, (list, tuple, range, np.ndarray))
    numbers = list(given) if several else [given]
    require(numbers, parameter, "an empty list leaves nothing to choose from")
    for number in numbers:
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        require(whole, parameter, f"{given!r} is not a whole number, or a list of them")
    return sorted({int(number) for number in numbers})


def require(condition: object, parameter: str, message: str) -> None:
    """Refuse a parameter unless the condition holds."""
    if not condition:
        raise ParameterError(parameter, message)


def no_values() -> DataError:
    """The error for data without any observed value."""
    return DataError("every value is missing: there is nothing to fit")


def no_weight() -> DataError:
    """The error for rows that all have the weight zero."""
    return DataError("no row has a positive weight: there is nothing to fit")


def require_products(*sums: Array | float) -> None:
    """Refuse sums of products that are not finite although all values are."""
    if not all(np.isfinite(each).all() for each in sums):
        raise DataError(
            "the products of the data's values overflow: rescale the data, or use double precision for "
            "float32 data"
        )
