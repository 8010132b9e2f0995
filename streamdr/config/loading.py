"""From YAML and overrides to a typed run, or to every problem at once with its line, column and key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from streamdr.config.keys import Key, keys_of
from streamdr.config.overrides import override
from streamdr.config.problems import KeyPath, Place, Problem, refusal
from streamdr.config.sections import SECTIONS, Execution, Input, Output, Run
from streamdr.config.wording import did_you_mean, mismatch, nearest, show
from streamdr.config.yaml_source import Parsed, parse_yaml, read_text
from streamdr.errors import ConfigError, ParameterError
from streamdr.methods import METHODS, Method
from streamdr.methods.base import Choosy, Supervised
from streamdr.methods.rows import ROW_OUTPUTS

T = TypeVar("T")


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Run:
    """Read a configuration file, with `section.key=value` overrides, into a run."""
    name = os.fspath(path)
    return replace(parse(read_text(Path(path)), overrides, name), source_file=name)


def load_all(paths: Sequence[str], overrides: Sequence[str] = ()) -> list[Run]:
    """Read several configurations, those in folders in the order of their names, each with the overrides."""
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(file for file in path.glob("*.y*ml")) if path.is_dir() else [path]
        if not found:
            raise ConfigError(f"{path}: has no configuration in it: no file ends in .yaml or .yml")
        files += found
    return [load(file, overrides) for file in files]


def parse(text: str, overrides: Sequence[str] = (), name: str = "<text>") -> Run:
    """Read a configuration from its text; errors call it by the given name."""
    return _read(parse_yaml(text, partial(Place, name)), overrides)


def read(sections: Mapping[str, Any], name: str = "configuration") -> Run:
    """Read a configuration from plain data, such as `Run.to_dict` gives; errors name keys, but no lines."""
    return _read(parse_yaml(json.dumps(sections, ensure_ascii=False), lambda line, column: Place(name)))


def _read(document: Parsed, overrides: Sequence[str] = ()) -> Run:
    if not isinstance(document.data, dict):
        found = "nothing" if document.data is None else show(document.data)
        message = f"expected the sections {', '.join(SECTIONS)}, found {found}"
        raise refusal(Problem(document.start, (), message))
    for argument in overrides:
        override(document, argument)
    reader = _Reader(document)
    run = reader.run()
    if run is None:
        raise refusal(*reader.problems)
    return run


class _Reader:
    """Builds what it can and notes every problem on the way; what has a problem is built as None."""

    def __init__(self, document: Parsed) -> None:
        self.problems: list[Problem] = []
        self._document = document

    def run(self) -> Run | None:
        """The whole configuration, unless there is any problem."""
        given = self._document.data
        meant = self._refuse_unknown(given, SECTIONS, ())
        found = {name: self._mapping(given.get(name), (name,)) for name in SECTIONS if name not in meant}
        input_ = self._section(Input, found.get("input"), ("input",))
        method = self._method(found.get("method"), ("method",))
        output = self._section(Output, found.get("output"), ("output",))
        execution = self._section(Execution, found.get("execution"), ("execution",))
        if method and output:
            self._refuse_unable(method, output)
        if method and input_:
            self._refuse_unlabelled(method, input_)
        if self.problems or not (input_ and method and output and execution):
            return None
        return Run(input_, method, output, execution, document=self._document)

    def _method(self, given: dict[str, Any] | None, path: KeyPath) -> Method | None:
        if given is None:
            return None
        name = given.get("name")
        kind = METHODS.get(name) if isinstance(name, str) else None
        if kind is not None:
            method = self._section(kind, given, path, tag="name")
            if method is not None:
                self._guarded(path, method.check)
            return method
        meant = self._refuse_unknown(given, ["name", *_all_method_keys()], path)
        if "name" in given:
            self._problem((*path, "name"), mismatch({"enum": list(METHODS)}, name))
        elif "name" not in meant:
            self._problem((*path, "name"), f"required key is missing; choose {', '.join(METHODS)}")
        return None

    def _refuse_unable(self, method: Method, output: Output) -> None:
        """Note outputs that the method cannot make."""
        for kind in ROW_OUTPUTS:
            if kind.name in output.rows and not kind.made_by(method.model):
                able = [name for name, other in METHODS.items() if kind.made_by(other.model)]
                advice = f"; use {' or '.join(able)}" if able else "; leave it out"
                self._problem(("output", kind.name), f"{method.name} {kind.lacking}{advice}")
            elif kind.name in output.rows and isinstance(method, Choosy):
                why = method.lacks(kind.method)
                if why is not None:
                    self._problem(("output", kind.name), why)

    def _refuse_unlabelled(self, method: Method, given: Input) -> None:
        """Note that a method has no labels to learn from."""
        if isinstance(method, Supervised) and given.labels is None and given.label_column is None:
            told = f"{method.name} learns from labels, one a row: give the zarr array that holds them, or "
            self._problem(("input", "labels"), f"{told}label_column for a column of the data that does")

    def _section(
        self, kind: type[T], given: dict[str, Any] | None, path: KeyPath, tag: str | None = None
    ) -> T | None:
        """An instance of the dataclass; `tag` is the key by which the dataclass was chosen, if any."""
        if given is None:
            return None
        already = len(self.problems)
        keys = keys_of(kind)  # type: ignore[arg-type]  # to mypy, type[T] cannot be hashed
        meant = self._refuse_unknown(given, [*filter(None, [tag]), *keys], path)
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
            stated = error.errors()[0].get("ctx", {}).get("error")
            own_words = isinstance(stated, ParameterError)
            self._problem(path, str(stated) if own_words else mismatch(key.adapter.json_schema(), given))
            return None

    def _mapping(self, given: Any, path: KeyPath) -> dict[str, Any] | None:
        if given is None or isinstance(given, dict):
            return given or {}
        self._problem(path, f"expected a section of keys, not {show(given)}")
        return None

    def _guarded(self, path: KeyPath, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except ParameterError as error:
            self._problem((*path, error.parameter), str(error))
            return None

    def _refuse_unknown(self, given: dict[str, Any], known: Collection[str], path: KeyPath) -> set[str]:
        """Note keys that mean nothing, and return those that were probably meant instead."""
        meant = set()
        for key in given:
            if key in known:
                continue
            if homes := _homes(key, besides=path):
                advice = f"; it belongs in the section {' or '.join(homes)}"
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


def _homes(key: str, besides: KeyPath) -> list[str]:
    """The other sections that have such a key."""
    sections = {"input": keys_of(Input), "method": _all_method_keys()}
    sections |= {"output": keys_of(Output), "execution": keys_of(Execution)}
    return [name for name, keys in sections.items() if key in keys and besides != (name,)]


def _all_method_keys() -> dict[str, Key]:
    return {name: key for method in METHODS.values() for name, key in keys_of(method).items()}
