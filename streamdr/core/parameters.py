"""Type checks of the parameters of methods, by their annotations."""

from __future__ import annotations

import math
import numbers
import types
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from streamdr.errors import ParameterError

_MOST = 2**63


def require_types(method: Any) -> None:
    """Refuse values that do not have the annotated type, with a ParameterError.

    Numbers must be finite and fit in 64 bits; seeds must not be negative. The method checks the rest.
    """
    kind: Any = type(method)
    for name, kinds in _kinds(kind).items():
        value = getattr(method, name)
        if not _is_one_of(value, kinds):
            raise ParameterError(name, f"{_shortened(value)} is not {_described(kinds)}")
    seed = getattr(method, "random_state", 0)
    if seed < 0:
        raise ParameterError("random_state", f"{seed} is negative; a seed must be at least 0")


@cache
def _kinds(method: type) -> dict[str, tuple[Any, ...]]:
    """The types that each parameter may have, for parameters of plain types."""
    hints = get_type_hints(method)
    plain = {field.name: _members(hints[field.name]) for field in fields(method) if field.init}
    return {name: kinds for name, kinds in plain.items() if all(map(_is_plain, kinds))}


def _members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for part in get_args(hint) for member in _members(part))
    return (hint,)


def _is_plain(kind: Any) -> bool:
    return kind in (int, float, bool, str, type(None)) or get_origin(kind) is Literal


def _is_one_of(value: object, kinds: tuple[Any, ...]) -> bool:
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if value is None:
        return type(None) in kinds
    if callable(value):
        return bool(words)  # a function of the user's may take the place of a name
    if isinstance(value, bool | np.bool_):
        return bool in kinds
    if isinstance(value, str):
        return str in kinds or bool(words)  # the method checks which of them
    if isinstance(value, numbers.Integral):
        return (int in kinds or float in kinds) and -_MOST < int(value) < _MOST
    if isinstance(value, numbers.Real):
        return float in kinds and math.isfinite(value)
    return False


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _described(kinds: tuple[Any, ...]) -> str:
    named = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}
    types = ["None" if kind is type(None) else named.get(kind, "") for kind in kinds]
    words = [repr(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return " or ".join([*filter(None, types), *words])
