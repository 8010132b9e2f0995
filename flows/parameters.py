"""The parameters of a flow: a configuration, checked as a file is, with the schema that a file has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from pydantic import GetJsonSchemaHandler, RootModel, model_validator
from pydantic_core import CoreSchema

from streamdr import config
from streamdr.core.safe_text import redact_value
from streamdr.errors import ConfigError

_NO_KEYS = (
    "^(?![A-Za-z][A-Za-z0-9+.-]*:/{1,3}[^?#]*[?#])"  # a query, or what stands in the place of one
    "(?!(?!abfss?:)[A-Za-z][A-Za-z0-9+.-]*:/{1,3}(?:[^/]*@|[^/@]*:(?![0-9]+/).*@))"  # a user
)
"""Text that is no address, or an address without keys."""


class Parameters(RootModel[dict[str, Any]]):
    """The sections of a configuration as plain data."""

    @classmethod
    def load(cls, path: str, sets: list[str]) -> Self:
        """The sections of a file, with `section.key=value` put in their places; empty ones are left out."""
        sections = cls._sections(path, sets)
        return cls({name: keys for name, keys in sections.items() if keys is not None})

    @classmethod
    def _sections(cls, path: str, sets: list[str]) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _check(cls, sections: dict[str, Any]) -> None:
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        try:
            self._check(self.root)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        for name, value in _texts(self.root):
            if redact_value(value) != value:
                raise ValueError(
                    f"{name}: holds a secret, which Prefect would store and show; leave it to "
                    "the environment, or put it into a block and name that in storage_block"
                )
        return self


class Configuration(Parameters):
    """A whole configuration: the sections input, method, output and execution."""

    @classmethod
    def _sections(cls, path: str, sets: list[str]) -> dict[str, Any]:
        sections: dict[str, Any] = config.load(path, sets).document.data
        return sections

    @classmethod
    def _check(cls, sections: dict[str, Any]) -> None:
        config.read(sections, name="")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of a configuration file. Prefect makes its form of it, and refuses what it refuses."""
        schema = _known_to_prefect(config.schema())
        methods = schema["properties"]["method"]["oneOf"]
        schema["properties"]["method"] = methods[0] if len(methods) == 1 else {"anyOf": methods}
        return schema


class Comparison(Parameters):
    """The configuration of a comparison: the sections input, methods, output and execution."""

    @classmethod
    def _sections(cls, path: str, sets: list[str]) -> dict[str, Any]:
        sections: dict[str, Any] = config.load_comparison(path, sets).document.data
        return sections

    @classmethod
    def _check(cls, sections: dict[str, Any]) -> None:
        config.read_comparison(sections, name="")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of the file of a comparison."""
        schema = _known_to_prefect(config.comparison_schema())
        methods = schema["properties"]["methods"]
        schema["properties"]["methods"] = methods | {"items": {"anyOf": methods["items"]["oneOf"]}}
        return schema

    def runs(self) -> list[dict[str, Any]]:
        """The configuration of each method's run, as plain data."""
        return [run.to_dict() for run in config.read_comparison(self.root).runs()]


def _known_to_prefect(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in the words of Prefect's form, which knows "any of", and an object that may be left out.

    The server checks parameters by it before it stores them: so it refuses addresses with keys in them.
    """
    schema = _without_keys(schema)
    execution = schema["properties"]["execution"] | {"type": "object"}
    known = {key: value for key, value in schema.items() if key != "$schema"}
    return known | {"properties": schema["properties"] | {"execution": execution}}


def _without_keys(schema: Any) -> Any:
    """The schema with a pattern for every text that is free so far."""
    if isinstance(schema, list):
        return [_without_keys(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    free = schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const"}
    walked = {name: _without_keys(value) for name, value in schema.items()}
    return walked | {"pattern": _NO_KEYS} if free else walked


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text in plain data, with the keys that lead to it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, below in entries:
            yield from _texts(below, f"{name}.{key}" if name else str(key))
