"""Parses YAML 1.2 to plain data, with the position of every key and value. It runs no code, within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml import MappingNode, MarkedYAMLError, Node, ScalarNode, SequenceNode
from yaml.composer import Composer, ComposerError
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from streamdr.config.problems import KeyPath, Problem, SourcePosition, printable, refusal
from streamdr.core.files import FileTooLargeError, read_piped
from streamdr.core.safe_text import keep_keys_secret
from streamdr.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
_PIPE_SECONDS = 10.0
MAX_VALUES = 10_000
"""The limit counts expanded aliases: a few lines of nested aliases can mean billions of values."""

Locate = Callable[[int, int], SourcePosition]
"""Gives the position for a line and a column, both counted from 1."""

_NOT_TEXT = Reader.NON_PRINTABLE
_TAG = "tag:yaml.org,2002:"
_TEXT = BaseResolver.DEFAULT_SCALAR_TAG
# The core schema of YAML 1.2: `no` and `on` are words, and 1e-3 is a number. Whole numbers that 64 bits
# cannot hold are floats. Infinity and NaN have no use in a configuration and stay words.
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    _TAG + "null": (re.compile(r"(~|null|Null|NULL|)\Z"), lambda text: None),
    _TAG + "bool": (re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    _TAG + "int": (
        re.compile(r"([-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15})\Z"),
        lambda text: int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)),
    ),
    _TAG + "float": (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z"), float),
}


@dataclass
class Parsed:
    """Mappings, lists and scalars, with the position of each key and each value."""

    start: SourcePosition
    data: Any = None
    keys: dict[KeyPath, SourcePosition] = field(default_factory=dict)
    values: dict[KeyPath, SourcePosition] = field(default_factory=dict)

    def place(self, path: KeyPath) -> SourcePosition:
        """Return the position of the value or, if it is missing, of the nearest section around it."""
        if path in self.values:
            return self.values[path]
        while path:
            place = self.keys.get(path) or self.values.get(path)  # an entry of a list has no key
            if place is not None:
                return place
            path = path[:-1]
        return self.start


def read_text(path: Path) -> str:
    """Return the text of a configuration file, or raise a ConfigError that says why it cannot be read."""
    name = printable(str(path))
    try:
        content = read_piped(path, MAX_BYTES, _PIPE_SECONDS)
    except FileTooLargeError as error:
        message = f"{name}: more than {MAX_BYTES // 1024} KiB is not a configuration; is it the data?"
        raise ConfigError(message) from error
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a name with a zero byte in it
        raise ConfigError(f"{name}: cannot be the name of a file") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{name}:{line}:{column}: not UTF-8 text; is it a configuration?") from error


def parse_yaml(text: str, locate: Locate) -> Parsed:
    """Parse one YAML document, or raise a ConfigError with all its problems."""
    root = _compose(text, locate)
    walk = _Converter(locate)
    if root is not None:
        walk.parsed.data = walk.value(root, ())
    if walk.problems:
        raise refusal(*walk.problems)
    return walk.parsed


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's loader without the half that constructs objects."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _tag, (_pattern, _) in _SCALARS.items():
    _Composer.add_implicit_resolver(_tag, _pattern, None)


def _compose(text: str, locate: Locate) -> Node | None:
    try:
        composer = _Composer(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        message = f"the character {chr(error.character)!a} is not text"
        raise refusal(Problem(locate(line, column), (), message)) from error
    try:
        return composer.get_single_node()
    except MarkedYAMLError as error:
        mark = error.problem_mark or composer.get_mark()
        message = ", ".join(filter(None, (error.context, error.problem)))
        # The error of PyYAML quotes the text, which may contain a secret.
        raise refusal(Problem(locate(mark.line + 1, mark.column + 1), (), message)) from None
    except (ValueError, OverflowError) as error:  # PyYAML takes "\UFFFFFFFF" for a character
        mark = composer.get_mark()
        message = "found an escape that is not a character"
        raise refusal(Problem(locate(mark.line + 1, mark.column + 1), (), message)) from error


class _Converter:
    """Converts nodes to data, counts the values, and collects what a configuration may not contain."""

    def __init__(self, locate: Locate) -> None:
        self.parsed = Parsed(locate(1, 1))
        self.problems: list[Problem] = []
        self._locate = locate

    def value(self, node: Node, path: KeyPath) -> Any:
        place = self._place(node)
        self.parsed.values[path] = place
        if len(path) > MAX_DEPTH:
            raise refusal(Problem(place, path[:3], f"nested more than {MAX_DEPTH} deep"))
        if len(self.parsed.values) > MAX_VALUES:
            raise refusal(Problem(place, path[:3], f"more than {MAX_VALUES:,} values, aliases expanded"))
        if isinstance(node, MappingNode) and node.tag == BaseResolver.DEFAULT_MAPPING_TAG:
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == BaseResolver.DEFAULT_SEQUENCE_TAG:
            return [self.value(child, (*path, str(index))) for index, child in enumerate(node.value)]
        if isinstance(node, ScalarNode) and (node.tag == _TEXT or node.tag in _SCALARS):
            return self._scalar(node, path)
        tag = printable(node.tag.replace(_TAG, "!!"))
        return self._problem(node, path, f"the tag {tag} has no meaning here; remove it")

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag != _TEXT:
                self._problem(key_node, path, "a key must be a word")
                continue
            below = (*path, self._scalar(key_node, path))
            if below in self.parsed.keys:
                first = self.parsed.keys[below]
                self._problem(key_node, below, f"written twice; the first is at {first}")
                continue
            self.parsed.keys[below] = self._place(key_node)
            mapping[key_node.value] = self.value(value_node, below)
        return mapping

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        if node.tag == _TEXT:
            if _NOT_TEXT.search(node.value):
                self._problem(node, path, "control characters are not text")
            keep_keys_secret(node.value)
            return node.value
        pattern, convert = _SCALARS[node.tag]
        if not pattern.match(node.value):
            kind = node.tag.removeprefix(_TAG)
            return self._problem(node, path, f"{printable(node.value, 60)!r} is not a YAML {kind}")
        return convert(node.value)

    def _problem(self, node: Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), path, message))

    def _place(self, node: Node) -> SourcePosition:
        return self._locate(node.start_mark.line + 1, node.start_mark.column + 1)
