"""The configuration of a run: what is read, what is computed, what is written, and how."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from streamdr.config.problems import KeyPath, Problem, SourcePosition
from streamdr.config.row_selection import RowSelection
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.config.yaml_source import Parsed
from streamdr.core.method import Method
from streamdr.errors import ParameterError
from streamdr.methods.chain import Chain, parameters_of

_OF_SELECTION = {"where": "where", "row_mask": "mask"}
"""The keys of a selection of rows, by the arguments of `open_source`."""


@dataclass(frozen=True)
class Run:
    """The configuration of a run: input, method, output and execution."""

    input: Input
    method: Method
    output: Output
    execution: ExecutionSection = dataclasses.field(default_factory=ExecutionSection)
    source_file: str | None = None
    document: Parsed = dataclasses.field(
        default_factory=lambda: Parsed(SourcePosition("configuration")), repr=False, compare=False
    )
    """The parsed file, with the position of each key."""
    method_at: KeyPath = dataclasses.field(default=("method",), repr=False, compare=False)
    """The path of the section of the method, or of the list of a chain."""
    row_selection: RowSelection | None = None
    """Which rows are read; None for all."""

    def problem(self, error: ParameterError) -> Problem:
        """Return an error that depends on the data as a problem with the position of its key."""
        path = self._path(error.parameter)
        return Problem(self.document.place(path), path, error.message if path else str(error))

    def _path(self, parameter: str) -> KeyPath:
        """Return the path of a parameter in the file; an empty one if it has none."""
        name, *below = parameter.split(".")
        if self.row_selection is not None and parameter in _OF_SELECTION:
            return (*self.method_at, "0", _OF_SELECTION[parameter])
        if isinstance(self.method, Chain):
            if below and name in self.method.names:
                number = self.method.names.index(name)
                if below[0] in _keys(self.method.steps[number]):
                    return (*self.method_at, str(number + (self.row_selection is not None)), *below)
                name, *below = below  # a key of another section, such as labels
            elif parameter == "steps":
                return self.method_at
        keys = {
            "method": [] if isinstance(self.method, Chain) else _keys(self.method),
            "input": _keys(self.input),
            "output": _keys(self.output),
            "execution": _keys(self.execution),
        }
        found = [section for section in keys if name in keys[section]]
        if not found:
            return ()
        return (*(self.method_at if found[0] == "method" else found[:1]), name, *below)

    def to_dict(self) -> dict[str, Any]:
        """Return the four sections as plain data. Read as a configuration, it gives this run again.

        Secrets are left out: the arguments of a cluster, and keys in addresses.
        """
        execution = _without_secrets(self.execution)
        if execution["cluster"] is not None:
            execution["cluster"]["arguments"] = None
        return {
            "input": _without_secrets(self.input),
            "method": self._method_to_dict(),
            "output": _without_secrets(self.output),
            "execution": execution,
        }

    def _method_to_dict(self) -> Any:
        parameters = parameters_of(self.method)
        if not isinstance(self.method, Chain):
            return {"name": self.method.name, **parameters}
        if self.row_selection is None:
            return parameters["steps"]
        return [{"name": RowSelection.name, **_without_secrets(self.row_selection)}, *parameters["steps"]]


def _keys(section: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(section)]


def _without_secrets(section: Any) -> dict[str, Any]:
    """Return a section as plain data that may be shown."""
    return {key: _plain(value) for key, value in dataclasses.asdict(section).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return str(value) if isinstance(value, str) else value
