"""The JSON Schema of a configuration file, read off the same dataclasses that load it."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from streamdr.config.keys import Key, keys_of, summary
from streamdr.config.sections import Execution, Input, Output
from streamdr.methods import METHODS

Schema = dict[str, Any]


def schema() -> Schema:
    """The whole file as a JSON Schema of draft 2020-12."""
    execution = _section(Execution)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamdr configuration",
        "description": "What is read, what is computed, what is written, and how.",
        "type": "object",
        "properties": {
            "input": _section(Input),
            "method": {"oneOf": [_method(name, kind) for name, kind in METHODS.items()]},
            "output": _section(Output),
            "execution": execution | {"type": ["object", "null"]},
        },
        "required": ["input", "method", "output"],
        "additionalProperties": False,
    }


def _method(name: str, kind: type) -> Schema:
    section = _section(kind)
    tag = {"const": name, "description": "The method."}
    return section | {
        "title": name,
        "properties": {"name": tag} | section["properties"],
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
    else:
        accepted = key.adapter.json_schema()
    default = {} if key.default is MISSING else {"default": key.default}
    return accepted | {"description": key.description} | default
