"""A dataclass read as a section of a configuration: its keys, their types, defaults and descriptions."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, cached_property
from inspect import getdoc
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from streamdr.core.docstrings import entries, sections


@dataclass(frozen=True)
class Key:
    """One key of a section."""

    name: str
    annotation: Any
    required: bool
    default: Any
    description: str

    @property
    def section(self) -> type | None:
        """The dataclass to which this key's own keys belong, where it is a section (or null)."""
        choices = get_args(self.annotation) or (self.annotation,)
        return next((choice for choice in choices if isinstance(choice, type) and is_dataclass(choice)), None)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What pydantic makes of the annotation, taking no text for a number and no number for a boolean."""
        return TypeAdapter(self.annotation, config=ConfigDict(strict=True, allow_inf_nan=False))

    def accept(self, value: Any) -> Any:
        """The value as the dataclass wants it, or pydantic's ValidationError."""
        # As JSON, which has no tuples: a list serves as one.
        return self.adapter.validate_json(json.dumps(value))


@cache
def keys_of(section: type) -> dict[str, Key]:
    """The keys of a section by name, in order."""
    annotations = get_type_hints(section, include_extras=True)
    descriptions = entries(sections(getdoc(section) or "").get("Parameters", ""))
    return {
        field.name: Key(
            name=field.name,
            annotation=annotations[field.name],
            required=field.default is MISSING and field.default_factory is MISSING,
            default=field.default,
            description=descriptions.get(field.name, ""),
        )
        for field in fields(section)
    }


def summary(section: type) -> str:
    """The first paragraph of a section's docstring, on one line."""
    return " ".join((getdoc(section) or "").split("\n\n")[0].split())
