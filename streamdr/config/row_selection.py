"""The first entry of a chain that selects rows. It is no method: it decides which rows all of them see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, WithJsonSchema

from streamdr.config.sections import LocationText
from streamdr.config.wording import show
from streamdr.errors import ParameterError

_VALUES = (str, int, float, bool)
_VALUE = {"type": ["string", "number", "boolean"]}


def _conditions(given: dict[str, Any]) -> dict[str, Any]:
    """Check the form of conditions. Which coordinates there are is known when the data is opened."""
    for name, wanted in given.items():
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values or not all(isinstance(value, _VALUES) for value in values):
            raise ParameterError(
                "where",
                f"{name}: expected a value, a list of values, or a comparison such as '>= 200', "
                f"not {show(wanted)}",
            )
    return given


Conditions = Annotated[
    dict[str, Any],
    AfterValidator(_conditions),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [_VALUE, {"type": "array", "items": _VALUE, "minItems": 1}]},
        }
    ),
]


@dataclass(frozen=True)
class RowSelection:
    """The rows to fit and to map: those that satisfy every condition. It can only be the first of a list.

    Parameters
    ----------
    where : mapping or None
        Conditions on coordinates of the samples, on columns of obs of AnnData, or on columns of the data, by
        their names: a value (kind: T), a list of values of which one must be there (kind: [T, B]), or
        comparisons (n_counts: ">= 200 and < 5000"). A missing value satisfies no condition but !=.
    mask : str or None
        The zarr array with one number or boolean per row, which is zero or false for rows that are left
        out: a path or an address.
    """

    name: ClassVar[str] = "select_rows"

    where: Conditions | None = None
    mask: LocationText | None = None

    def __post_init__(self) -> None:
        if not self.where and self.mask is None:
            raise ParameterError("where", "no condition is given, and no mask: give one of them")
