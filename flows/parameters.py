"""The parameters of a flow: a configuration, with the checks and the schema of a configuration file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

from pydantic import GetJsonSchemaHandler, RootModel, model_validator
from pydantic_core import CoreSchema

from streamdr import config
from streamdr.core.safe_text import redact_value
from streamdr.errors import ConfigError

_WITHOUT_SECRETS = (
    "^(?![A-Za-z][A-Za-z0-9+.-]*:/{1,3}[^?#]*[?#])"  # a query or a fragment
    "(?!(?!abfss?:)[A-Za-z][A-Za-z0-9+.-]*:/{1,3}(?:[^/]*@|[^/@]*:(?![0-9]+/).*@))"  # a user
)
"""Matches text that is not an address, and addresses without secrets."""


class Parameters(RootModel[dict[str, Any]], ABC):
    """The sections of a configuration as plain data."""

    @classmethod
    def load(cls, path: str, sets: list[str]) -> Self:
        """Return the sections of a file, with overrides `section.key=value`; empty sections are left out."""
        sections = cls._sections(path, sets)
        return cls({name: keys for name, keys in sections.items() if keys is not None})

    @classmethod
    @abstractmethod
    def _sections(cls, path: str, sets: list[str]) -> dict[str, Any]:
        """Return the sections of a file."""

    @classmethod
    @abstractmethod
    def _check(cls, sections: dict[str, Any]) -> None:
        """Raise a ConfigError where a configuration file would be refused."""

    @model_validator(mode="after")
    def _require_valid(self) -> Self:
        """Refuse what a configuration file would be refused for, and secrets."""
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
    """The configuration of a run: the sections input, method, output and execution."""

    @classmethod
    def _sections(cls, path: str, sets: list[str]) -> dict[str, Any]:
        sections: dict[str, Any] = config.load(path, sets).document.data
        return sections

    @classmethod
    def _check(cls, sections: dict[str, Any]) -> None:
        config.read(sections, name="")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a configuration file. Prefect makes a form of it, and checks values by it."""
        schema = _for_prefect(config.schema())
        schema["properties"]["method"] = _any_of(schema["properties"]["method"])
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
        """Return the schema of the file of a comparison."""
        schema = _for_prefect(config.comparison_schema())
        schema["properties"]["methods"] = _any_of(schema["properties"]["methods"])
        return schema

    def runs(self) -> list[dict[str, Any]]:
        """Return the configuration of the run of each method, as plain data."""
        return [run.to_dict() for run in config.read_comparison(self.root).runs()]


def _for_prefect(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as the forms of Prefect support it: with `anyOf`, and with optional objects.

    The server checks parameters by the schema before it stores them, so the schema refuses addresses that
    contain secrets.
    """
    schema = _without_secrets(schema)
    execution = schema["properties"]["execution"] | {"type": "object"}
    supported = {key: value for key, value in schema.items() if key != "$schema"}
    return supported | {"properties": schema["properties"] | {"execution": execution}}


def _any_of(schema: Any) -> Any:
    """Return the schema with `anyOf` for every `oneOf`: the choices exclude each other."""
    if isinstance(schema, list):
        return [_any_of(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {"anyOf" if key == "oneOf" else key: _any_of(value) for key, value in schema.items()}


def _without_secrets(schema: Any) -> Any:
    """Return the schema with a pattern for every text that has no restriction yet."""
    if isinstance(schema, list):
        return [_without_secrets(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    free = schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "const"}
    walked = {name: _without_secrets(value) for name, value in schema.items()}
    return walked | {"pattern": _WITHOUT_SECRETS} if free else walked


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in plain data, with its dotted key."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, below in entries:
            yield from _texts(below, f"{name}.{key}" if name else str(key))
