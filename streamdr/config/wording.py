"""The messages about wrong values: types, choices and limits in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from streamdr.config.problems import printable
from streamdr.core.safe_text import redact_value

Schema = Mapping[str, Any]

_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "null": "null",
    "array": "a list",
    "object": "a section of keys",
}
_LIMITS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "minLength": "that is not empty",
}


def mismatch(accepted: Schema, value: Any) -> str:
    """Return why the JSON Schema does not accept the value, with the choice that was probably meant."""
    options = _options(accepted)
    choices = [choice for option in options for choice in _choices(option)]
    question = did_you_mean(nearest(value, [choice for choice in choices if isinstance(choice, str)]))
    phrases = [phrase for option in options for phrase in _phrases(option, options)]
    if choices and all(_choices(option) or option == {"type": "null"} for option in options):
        return f"{show(value)} is not one of {', '.join(phrases)}{question}"
    return f"expected {_either(phrases)}, not {show(value)}{question}"


def nearest(value: Any, choices: Iterable[str]) -> str | None:
    """Return the choice that was probably meant, if any is similar."""
    matches = get_close_matches(value, list(choices), n=1) if isinstance(value, str) else []
    return matches[0] if matches else None


def did_you_mean(near: str | None) -> str:
    """Return the question at the end of a message, if there is a similar choice."""
    return "" if near is None else f"; did you mean {near!r}?"


def show(value: Any) -> str:
    """Return a value as YAML writes it, on one line and shortened. The content of sections is not shown."""
    if isinstance(value, dict):
        return _NAMES["object"]
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        return _NAMES["array"]
    text = repr(redact_value(value)) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text, 60)


def _options(schema: Schema) -> list[Schema]:
    return [nested for option in schema.get("anyOf", ()) for nested in _options(option)] or [schema]


def _choices(option: Schema) -> list[Any]:
    return [option["const"]] if "const" in option else option.get("enum", [])


def _phrases(option: Schema, beside: list[Schema]) -> list[str]:
    kind = option.get("type")
    if _choices(option):
        return [show(choice) for choice in _choices(option)]
    if kind == "number" and any(other.get("type") == "integer" for other in beside):
        return ["a fraction"]
    if kind == "array" and "items" in option:
        items = _options(option["items"])
        return [f"a list (each {_either([phrase for item in items for phrase in _phrases(item, items)])})"]
    limits = [said.format(option[limit]) for limit, said in _LIMITS.items() if limit in option]
    return [" ".join(filter(None, [_NAMES.get(str(kind), "something else"), " and ".join(limits)]))]


def _either(phrases: list[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} or {last}" if most else last
