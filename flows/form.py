"""The parameters of a flow: a configuration, checked as a file is, with the schema that a file has."""

from __future__ import annotations

from typing import Any, Self

from pydantic import GetJsonSchemaHandler, RootModel, model_validator
from pydantic_core import CoreSchema

from streamdr import config
from streamdr.addresses import redact
from streamdr.errors import ConfigError


class Configuration(RootModel[dict[str, Any]]):
    """A whole configuration: the sections input, method, output and execution."""

    @classmethod
    def load(cls, path: str, sets: list[str]) -> Self:
        """The sections of a file, with `section.key=value` put in their places; empty ones are left out."""
        sections: dict[str, Any] = config.load(path, sets).document.data
        return cls({name: keys for name, keys in sections.items() if keys is not None})

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        try:
            config.read(self.root, name="")
        except ConfigError as error:
            raise ValueError(str(error)) from error
        for section, keys in self.root.items():
            for key, value in (keys or {}).items():
                if isinstance(value, str) and redact(value) != value:
                    raise ValueError(
                        f"{section}.{key}: holds a secret, which Prefect would store and show; leave it to "
                        "the environment, or put it into a block and name that in storage_block"
                    )
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema of a configuration file. Prefect makes its form of it, and refuses what it refuses."""
        schema = {key: value for key, value in config.schema().items() if key != "$schema"}
        methods = schema["properties"]["method"]["oneOf"]
        # Prefect's form knows "any of", and an object that may be left out.
        schema["properties"] |= {
            "method": methods[0] if len(methods) == 1 else {"anyOf": methods},
            "execution": schema["properties"]["execution"] | {"type": "object"},
        }
        return schema
