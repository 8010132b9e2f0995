"""The keys of a section of a configuration, from its dataclass: types, defaults and descriptions."""

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
        """The dataclass of the keys below this one, if it is a section (or null)."""
        choices = get_args(self.annotation) or (self.annotation,)
        return next((choice for choice in choices if isinstance(choice, type) and is_dataclass(choice)), None)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """The validator of the annotation. It is strict: text is no number, and a number is no boolean."""
        return TypeAdapter(self.annotation, config=ConfigDict(strict=True, allow_inf_nan=False))

    def accept(self, value: Any) -> Any:
        """Return the value converted for the dataclass, or raise a ValidationError of pydantic."""
        # Validated as JSON, which has no tuples, so that a list is accepted as a tuple.
        return self.adapter.validate_json(json.dumps(value))


@cache
def keys_of(section: type) -> dict[str, Key]:
    """Return the keys of a section by name, in order."""
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
    """Return the first paragraph of the docstring of a section, on one line."""
    return " ".join((getdoc(section) or "").split("\n\n")[0].split())
