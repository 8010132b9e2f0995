"""Loads configurations from files, text and plain data, with overrides, or reports every problem."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from streamdr.config.comparisons import COMPARISON_SECTIONS, Comparison
from streamdr.config.overrides import override
from streamdr.config.problems import Problem, SourcePosition, refusal
from streamdr.config.reader import Reader
from streamdr.config.run import Run
from streamdr.config.sections import SECTIONS
from streamdr.config.wording import show
from streamdr.config.yaml_source import Parsed, parse_yaml, read_text
from streamdr.errors import ConfigError

T = TypeVar("T")


def load(path: str | os.PathLike[str], overrides: Sequence[str] = (), *, fits: bool = True) -> Run:
    """Read a configuration file, with `section.key=value` overrides, into a run.

    Keys that only a fit needs, such as labels, are optional if the run does not fit.
    """
    return _run(_file(path), overrides, os.fspath(path), fits=fits)


def load_comparison(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Comparison:
    """Read the file of a comparison, with overrides such as `methods.0.n_components=3`."""
    return _comparison(_file(path), overrides, os.fspath(path))


def load_all(paths: Sequence[str], overrides: Sequence[str] = ()) -> list[Run]:
    """Read several configurations, each with the overrides. Those in a folder are read in order of name.

    A comparison gives one run for each of its methods.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        found = sorted(file for file in path.glob("*.y*ml")) if path.is_dir() else [path]
        if not found:
            raise ConfigError(f"{path}: contains no configuration: no file ends in .yaml or .yml")
        files += found
    return [run for file in files for run in _runs(file, overrides)]


def parse(text: str, overrides: Sequence[str] = (), name: str = "<text>") -> Run:
    """Read a configuration from its text; errors refer to it by the given name."""
    return _run(parse_yaml(text, partial(SourcePosition, name)), overrides)


def parse_comparison(text: str, overrides: Sequence[str] = (), name: str = "<text>") -> Comparison:
    """Read the configuration of a comparison from its text; errors refer to it by the given name."""
    return _comparison(parse_yaml(text, partial(SourcePosition, name)), overrides)


def read(sections: Mapping[str, Any], name: str = "configuration") -> Run:
    """Read a configuration from plain data, such as that of `Run.to_dict`; errors name keys, but no lines."""
    return _run(_plain(sections, name))


def read_comparison(sections: Mapping[str, Any], name: str = "configuration") -> Comparison:
    """Read the configuration of a comparison from plain data; errors name keys, but no lines."""
    return _comparison(_plain(sections, name))


def _file(path: str | os.PathLike[str]) -> Parsed:
    return parse_yaml(read_text(Path(path)), partial(SourcePosition, os.fspath(path)))


def _plain(sections: Mapping[str, Any], name: str) -> Parsed:
    return parse_yaml(json.dumps(sections, ensure_ascii=False), lambda line, column: SourcePosition(name))


def _runs(path: Path, overrides: Sequence[str]) -> list[Run]:
    document = _file(path)
    data = document.data
    if isinstance(data, dict) and "methods" in data and "method" not in data:
        return _comparison(document, overrides, os.fspath(path)).runs()
    return [_run(document, overrides, os.fspath(path))]


def _run(
    document: Parsed, overrides: Sequence[str] = (), source_file: str | None = None, *, fits: bool = True
) -> Run:
    _prepare(document, overrides, SECTIONS)
    _refuse_other_kind(document, "methods", "method", "`streamdr compare` runs several methods")
    reader = Reader(document, source_file)
    return _require_built(reader, reader.run(fits=fits))


def _comparison(
    document: Parsed, overrides: Sequence[str] = (), source_file: str | None = None
) -> Comparison:
    _prepare(document, overrides, COMPARISON_SECTIONS)
    _refuse_other_kind(document, "method", "methods", "`streamdr run` runs one method")
    reader = Reader(document, source_file)
    return _require_built(reader, reader.comparison())


def _prepare(document: Parsed, overrides: Sequence[str], sections: Sequence[str]) -> None:
    """Require a document of sections, and apply the overrides to it."""
    if not isinstance(document.data, dict):
        found = "nothing" if document.data is None else show(document.data)
        message = f"expected the sections {', '.join(sections)}, found {found}"
        raise refusal(Problem(document.start, (), message))
    for argument in overrides:
        override(document, argument)


def _refuse_other_kind(document: Parsed, found: str, expected: str, reason: str) -> None:
    """Refuse a configuration of the other kind with one message, because every key would be wrong."""
    if found in document.data and expected not in document.data:
        raise refusal(
            Problem(document.keys[found,], (found,), f"{reason}; this needs the section {expected} instead")
        )


def _require_built(reader: Reader, built: T | None) -> T:
    """Return what was built, or raise an error with all problems."""
    if built is None:
        raise refusal(*reader.problems)
    return built
