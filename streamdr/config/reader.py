"""Builds typed sections from a document, or reports every problem with its line, column and key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError

from streamdr.config.comparisons import (
    AS,
    COMPARISON_SECTIONS,
    Comparison,
    ComparisonOutput,
    NamedMethod,
    require_unique,
)
from streamdr.config.keys import Key, keys_of
from streamdr.config.problems import KeyPath, Problem
from streamdr.config.sections import SECTIONS, ExecutionSection, Input, Output, Run
from streamdr.config.wording import did_you_mean, mismatch, nearest, show
from streamdr.config.yaml_source import Parsed
from streamdr.core.method import ConditionalOutputs, Method, Supervised
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.errors import ParameterError
from streamdr.methods import METHODS

T = TypeVar("T")


class Reader:
    """Builds sections, and collects all problems. A section with a problem is None."""

    def __init__(self, document: Parsed, source_file: str | None = None) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._source_file = source_file
        self._section_keys: dict[str, Collection[str]] = {}

    def run(self, *, fits: bool = True) -> Run | None:
        """Return the configuration of a run, or None if there is a problem. Labels are needed if it fits."""
        given = self._document.data
        self._section_keys = _section_keys("method", Output)
        meant = self._refuse_unknown(given, SECTIONS, ())
        found = {name: self._mapping(given.get(name), (name,)) for name in SECTIONS if name not in meant}
        input_ = self._section(Input, found.get("input"), ("input",))
        method = self._method(found.get("method"), ("method",))
        output = self._section(Output, found.get("output"), ("output",))
        execution = self._section(ExecutionSection, found.get("execution"), ("execution",))
        if method and output:
            self._refuse_unsupported(method, output)
        if method and input_ and fits:
            self._refuse_unlabelled(method, input_)
        if self.problems or not (input_ and method and output and execution):
            return None
        return Run(input_, method, output, execution, self._source_file, self._document)

    def comparison(self) -> Comparison | None:
        """Return the configuration of a comparison, or None if there is any problem."""
        given = self._document.data
        self._section_keys = _section_keys("methods", ComparisonOutput)
        meant = self._refuse_unknown(given, COMPARISON_SECTIONS, ())
        rest = (name for name in COMPARISON_SECTIONS if name not in ("methods", *meant))
        found = {name: self._mapping(given.get(name), (name,)) for name in rest}
        input_ = self._section(Input, found.get("input"), ("input",))
        entries = [] if "methods" in meant else self._entries(given.get("methods"))
        output = self._section(ComparisonOutput, found.get("output"), ("output",))
        execution = self._section(ExecutionSection, found.get("execution"), ("execution",))
        if input_:
            supervised = (entry.method for entry in entries if isinstance(entry.method, Supervised))
            for method in islice(supervised, 1):  # the others have the same problem
                self._refuse_unlabelled(method, input_)
        if self.problems or not (input_ and output and execution):
            return None
        return Comparison(input_, entries, output, execution, self._source_file, self._document)

    def _entries(self, given: Any) -> list[NamedMethod]:
        """Return the methods of a comparison that can be built."""
        if not isinstance(given, list) or not given:
            found = "nothing" if given is None else show(given)
            self._problem(("methods",), f"expected a list of methods, each with a name, not {found}")
            return []
        entries: dict[str, NamedMethod] = {}
        for number, keys in enumerate(given):
            path = ("methods", str(number))
            section = self._mapping(keys, path)
            method = self._method(section, path, besides=(AS,))
            if section is None or method is None:
                continue
            name = self._guarded(path, partial(require_unique, section.get(AS, method.name), entries))
            if name is not None:
                entries[name] = NamedMethod(name, method)
        return list(entries.values())

    def _method(
        self, given: dict[str, Any] | None, path: KeyPath, besides: tuple[str, ...] = ()
    ) -> Method | None:
        if given is None:
            return None
        name = given.get("name")
        kind = METHODS.get(name) if isinstance(name, str) else None
        if kind is not None:
            method = self._section(kind, given, path, tags=("name", *besides))
            if method is not None:
                self._guarded(path, method.check)
            return method
        meant = self._refuse_unknown(given, ["name", *besides, *_all_method_keys()], path)
        if "name" in given:
            self._problem((*path, "name"), mismatch({"enum": list(METHODS)}, name))
        elif "name" not in meant:
            self._problem((*path, "name"), f"required key is missing; choose {', '.join(METHODS)}")
        return None

    def _refuse_unsupported(self, method: Method, output: Output) -> None:
        """Report outputs that the method does not have."""
        for kind in ROW_OUTPUTS:
            if kind.name in output.rows and not kind.supported_by(method.model):
                able = [name for name, other in METHODS.items() if kind.supported_by(other.model)]
                advice = f"; use {_either(able)}" if able else "; leave it out"
                self._problem(("output", kind.name), f"{method.name} {kind.refusal}{advice}")
            elif kind.name in output.rows and isinstance(method, ConditionalOutputs):
                why = method.lacks(kind.method)
                if why is not None:
                    self._problem(("output", kind.name), why)

    def _refuse_unlabelled(self, method: Method, given: Input) -> None:
        """Report that a supervised method has no labels."""
        if isinstance(method, Supervised) and given.labels is None and given.label_column is None:
            message = f"{method.name} learns from labels, one per row: give the zarr array of labels, or "
            self._problem(("input", "labels"), f"{message}label_column for a column of the data")

    def _section(
        self, kind: type[T], given: dict[str, Any] | None, path: KeyPath, tags: tuple[str, ...] = ()
    ) -> T | None:
        """Return an instance of the dataclass; `tags` are further keys of the section, such as the name."""
        if given is None:
            return None
        already = len(self.problems)
        keys = keys_of(kind)  # type: ignore[arg-type]  # to mypy, type[T] cannot be hashed
        meant = self._refuse_unknown(given, [*tags, *keys], path)
        arguments = {}
        for name, key in keys.items():
            if name in given:
                arguments[name] = self._value(key, given[name], (*path, name))
            elif key.required and name not in meant:
                self._problem((*path, name), "required key is missing")
        if len(self.problems) > already:
            return None
        return self._guarded(path, lambda: kind(**arguments))

    def _value(self, key: Key, given: Any, path: KeyPath) -> Any:
        if key.section is not None and given is not None:
            return self._section(key.section, self._mapping(given, path), path)
        try:
            return key.accept(given)
        except ValidationError as error:
            stated = (problem.get("ctx", {}).get("error") for problem in error.errors())
            specific = next((each for each in stated if isinstance(each, ParameterError)), None)
            self._problem(path, self._mismatch(key, given) if specific is None else specific.message)
            return None

    def _mismatch(self, key: Key, given: Any) -> str:
        if key.name == "arguments":  # the value may be secret
            return "expected a section of keys, or null"
        return mismatch(key.adapter.json_schema(), given)

    def _mapping(self, given: Any, path: KeyPath) -> dict[str, Any] | None:
        if given is None or isinstance(given, dict):
            return given or {}
        self._problem(path, f"expected a section of keys, not {show(given)}")
        return None

    def _guarded(self, path: KeyPath, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except ParameterError as error:
            self._problem((*path, error.parameter), error.message)
            return None

    def _refuse_unknown(self, given: dict[str, Any], known: Collection[str], path: KeyPath) -> set[str]:
        """Report unknown keys, and return the keys that were probably meant."""
        meant = set()
        for key in given:
            if key in known:
                continue
            if found := [
                name for name, keys in self._section_keys.items() if key in keys and path[:1] != (name,)
            ]:
                advice = f"; it belongs in the section {' or '.join(found)}"
            elif near := nearest(key, known):
                advice = did_you_mean(near)
                meant.add(near)
            else:
                advice = f"; expected {', '.join(known)}"
            place = self._document.keys[(*path, key)]
            self.problems.append(Problem(place, (*path, key), f"unknown key{advice}"))
        return meant

    def _problem(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._document.place(path), path, message))


def _section_keys(methods: str, output: type) -> dict[str, Collection[str]]:
    """Return the keys of each section."""
    sections: dict[str, Collection[str]] = {"input": keys_of(Input), methods: _all_method_keys()}
    return sections | {"output": keys_of(output), "execution": keys_of(ExecutionSection)}


def _all_method_keys() -> dict[str, Key]:
    return {name: key for method in METHODS.values() for name, key in keys_of(method).items()}


def _either(names: Sequence[str]) -> str:
    """Return names to choose from, in words: "a", "a or b", "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
