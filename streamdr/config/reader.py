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
    STEPS,
    Comparison,
    ComparisonOutput,
    NamedMethod,
    require_unique,
)
from streamdr.config.keys import Key, keys_of
from streamdr.config.problems import KeyPath, Problem
from streamdr.config.row_selection import RowSelection
from streamdr.config.run import Run
from streamdr.config.sections import SECTIONS, ExecutionSection, Input, Output
from streamdr.config.wording import did_you_mean, mismatch, nearest, show
from streamdr.config.yaml_source import Parsed
from streamdr.core.axes import is_array_name
from streamdr.core.method import ConditionalOutputs, Method, Supervised
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.errors import ParameterError
from streamdr.methods import METHODS
from streamdr.methods.chain import Chain, member_names, require_end

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
        rest = (name for name in SECTIONS if name not in ("method", *meant))
        found = {name: self._mapping(given.get(name), (name,)) for name in rest}
        input_ = self._section(Input, found.get("input"), ("input",))
        method, selection = (
            (None, None) if "method" in meant else self._methods(given.get("method"), ("method",))
        )
        output = self._section(Output, found.get("output"), ("output",))
        execution = self._section(ExecutionSection, found.get("execution"), ("execution",))
        if method and output:
            self._refuse_unsupported(method, output)
        if method and input_ and fits:
            self._refuse_unlabelled(method, input_)
        if self.problems or not (input_ and method and output and execution):
            return None
        return Run(
            input_,
            method,
            output,
            execution,
            self._source_file,
            self._document,
            row_selection=selection,
        )

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
            method = self._compared(section, path)
            if section is None or method is None:
                continue
            name = self._guarded(path, partial(require_unique, section.get(AS, method.name), entries))
            if name is not None:
                entries[name] = NamedMethod(name, method)
        return list(entries.values())

    def _compared(self, section: dict[str, Any] | None, path: KeyPath) -> Method | None:
        """Return the method of an entry of a comparison, or its chain: the list under `steps`."""
        if section is None or STEPS not in section:
            return self._method(section, path, besides=(AS,))
        self._refuse_unknown(section, (AS, STEPS), path)
        method, selection = self._methods(section[STEPS], (*path, STEPS))
        if selection is not None:
            message = "all methods of a comparison see the same rows: leave select_rows out"
            self._problem((*path, STEPS, "0", "name"), message)
        return method

    def _methods(self, given: Any, path: KeyPath) -> tuple[Method | None, RowSelection | None]:
        """Return the method of a section, or the chain of a list of methods, and which rows it sees."""
        if not isinstance(given, list):
            return self._method(self._mapping(given, path), path), None
        already = len(self.problems)
        selection: RowSelection | None = None
        steps: list[Method] = []
        names: list[str | None] = []
        places: list[KeyPath] = []
        for number, keys in enumerate(given):
            below = (*path, str(number))
            section = self._mapping(keys, below)
            if section is not None and section.get("name") == RowSelection.name:
                if number:
                    message = f"{RowSelection.name} can only be the first: move it to the top of the list"
                    self._problem((*below, "name"), message)
                selection = self._section(RowSelection, section, below, tags=("name",))
                continue
            step = self._method(section, below, besides=(AS,), first=number == 0)
            if step is not None and section is not None:
                steps.append(step)
                names.append(self._name_in_chain(section.get(AS), below))
                places.append(below)
        if len(self.problems) > already:
            return None, selection
        if not steps:
            self._problem(path, "expected a list of methods, each with a name, and there is none")
            return None, selection
        return self._chain(steps, names, places), selection

    def _name_in_chain(self, given: Any, path: KeyPath) -> str | None:
        """Return the name that a step was given, which must be one for a group of a zarr store."""
        if given is None:
            return None
        if not isinstance(given, str) or not is_array_name(given):
            message = f"{show(given)} cannot be a name; use letters, digits and _, a letter first"
            self._problem((*path, AS), message)
            return None
        return given

    def _chain(self, steps: list[Method], given: list[str | None], places: list[KeyPath]) -> Chain | None:
        """Return the chain of methods with different names, of which the last is no step."""
        names = member_names(steps, given)
        already = len(self.problems)
        for number, name in enumerate(names):
            if name in names[:number]:
                message = f"{name!r} is the name of an earlier step; give this one another name"
                self._problem((*places[number], AS), message)
        try:
            require_end(names[-1], steps[-1])
        except ParameterError as error:
            self._problem(places[-1], error.message)
        return Chain(tuple(steps), names) if len(self.problems) == already else None

    def _method(
        self,
        given: dict[str, Any] | None,
        path: KeyPath,
        besides: tuple[str, ...] = (),
        *,
        first: bool = False,
    ) -> Method | None:
        """Return the method of a section. The first of a chain might have been meant to select rows."""
        if given is None:
            return None
        name = given.get("name")
        kind = METHODS.get(name) if isinstance(name, str) else None
        if kind is not None:
            method = self._section(kind, given, path, tags=("name", *besides))
            if method is not None:
                self._guarded(path, method.check)
            return method
        if name == RowSelection.name:
            message = f"{name} can only be the first of a list of methods: write the method as such a list"
            self._problem((*path, "name"), message)
            return None
        meant = self._refuse_unknown(given, ["name", *besides, *_all_method_keys()], path)
        choices = [*([RowSelection.name] if first else []), *METHODS]
        if "name" in given:
            self._problem((*path, "name"), mismatch({"enum": choices}, name))
        elif "name" not in meant:
            self._problem((*path, "name"), f"required key is missing; choose {', '.join(choices)}")
        return None

    def _refuse_unsupported(self, method: Method, output: Output) -> None:
        """Report outputs that the method does not have."""
        self._refuse_unknown_steps(method, output)
        last = method.steps[-1] if isinstance(method, Chain) else method
        for kind in ROW_OUTPUTS:
            if kind.name in output.rows and not kind.supported_by(last.model):
                able = [name for name, other in METHODS.items() if kind.supported_by(other.model)]
                advice = f"; use {_either(able)}" if able else "; leave it out"
                self._problem(("output", kind.name), f"{last.name} {kind.refusal}{advice}")
            elif kind.name in output.rows and not kind.supported_by(method.model):
                message = "needs the features of the input, and the steps cannot be undone; leave it out"
                if hasattr(method.model, "impute"):
                    message = "variances cannot be mapped back through the steps; leave it out"
                self._problem(("output", kind.name), message)
            elif kind.name in output.rows and isinstance(method, ConditionalOutputs):
                why = method.lacks(kind.method)
                if why is not None:
                    self._problem(("output", kind.name), why)

    def _refuse_unknown_steps(self, method: Method, output: Output) -> None:
        """Report outputs of steps that the chain does not have."""
        for name in output.steps or {}:
            if not isinstance(method, Chain):
                message = f"{method.name} is one method, not a list of steps: its rows are output.embedding"
                self._problem(("output", "steps", name), message)
            elif name not in method.names:
                near = did_you_mean(nearest(name, method.names))
                message = f"no step has this name; the steps are {', '.join(method.names)}{near}"
                self._problem(("output", "steps", name), message)

    def _refuse_unlabelled(self, method: Method, given: Input) -> None:
        """Report that a supervised method has no labels."""
        if isinstance(method, Supervised) and given.labels is None and given.label_column is None:
            members = method.steps if isinstance(method, Chain) else (method,)
            name = next(member.name for member in members if isinstance(member, Supervised))
            message = f"{name} learns from labels, one per row: give the zarr array of labels, or "
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
            self._problem((*path, *error.parameter.split(".")), error.message)
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
