"""The JSON Schema of a configuration file, from the same dataclasses that load it."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from streamdr.config.comparisons import AS, STEPS, ComparisonOutput
from streamdr.config.keys import Key, keys_of, summary
from streamdr.config.row_selection import RowSelection
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.core.cluster_arguments import argument_schema
from streamdr.methods import METHODS

Schema = dict[str, Any]


def schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the file of a run."""
    return _file("streamdr configuration", {"method": {"oneOf": [*_methods(), _chain(selects=True)]}}, Output)


def comparison_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the file of a comparison."""
    description = "The name of the row in the table and of the files; by default the name of the method."
    tag = {AS: {"type": "string", "description": description}}
    chain = {
        "title": "chain",
        "description": "Methods one after another.",
        "type": "object",
        "properties": {**tag, STEPS: _chain(selects=False)},
        "required": [STEPS],
        "additionalProperties": False,
    }
    methods = {"type": "array", "minItems": 1, "description": "The methods, in the order of the table."}
    methods["items"] = {"oneOf": [*_methods(tag), chain]}
    return _file("streamdr comparison", {"methods": methods}, ComparisonOutput)


def _file(title: str, methods: Schema, output: type) -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": "What is read, what is computed, what is written, and how.",
        "type": "object",
        "properties": {
            "input": _section(Input),
            **methods,
            "output": _section(output),
            "execution": _section(ExecutionSection) | {"type": ["object", "null"]},
        },
        "required": ["input", *methods, "output"],
        "additionalProperties": False,
    }


def _methods(besides: Schema | None = None) -> list[Schema]:
    return [_method(name, kind, besides) for name, kind in METHODS.items()]


def _chain(*, selects: bool) -> Schema:
    """Return the schema of a list of methods, of which the first may select rows."""
    description = "The name of the step; by default that of the method, with a number if it is repeated."
    tag = {AS: {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "description": description}}
    selection = [_method(RowSelection.name, RowSelection)] if selects else []
    return {
        "title": "chain",
        "description": "Methods one after another: each sees the rows as those before it leave them.",
        "type": "array",
        "minItems": 1,
        "items": {"oneOf": [*selection, *_methods(tag)]},
    }


def _method(name: str, kind: type, besides: Schema | None = None) -> Schema:
    section = _section(kind)
    tag = {"const": name, "description": "The method."}
    return section | {
        "title": name,
        "properties": {"name": tag} | (besides or {}) | section["properties"],
        "required": ["name", *section["required"]],
    }


def _section(kind: type) -> Schema:
    keys = keys_of(kind)
    return {
        "description": summary(kind),
        "type": "object",
        "properties": {name: _key(key) for name, key in keys.items()},
        "required": [name for name, key in keys.items() if key.required],
        "additionalProperties": False,
    }


def _key(key: Key) -> Schema:
    if key.section is not None:
        accepted: Schema = {"anyOf": [_section(key.section), {"type": "null"}]}
    elif key.name == "arguments":
        accepted = {"anyOf": [argument_schema(), {"type": "null"}]}
    else:
        accepted = key.adapter.json_schema()
    default = {} if key.default is MISSING else {"default": key.default}
    return accepted | {"description": key.description} | default
