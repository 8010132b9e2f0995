"""The problems of a configuration, with their positions."""

from __future__ import annotations

from dataclasses import dataclass

from streamdr.core.safe_text import redact_value
from streamdr.errors import ConfigError

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class SourcePosition:
    """A line and column (from 1) of a file, or an argument of the command line (line 0)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        where = printable(self.source)
        return f"{where}:{self.line}:{self.column}" if self.line else where


@dataclass(frozen=True)
class Problem:
    """One problem: its position, its key and a message."""

    place: SourcePosition
    path: KeyPath
    message: str

    def __str__(self) -> str:
        dotted = ".".join(map(printable, self.path))
        return ": ".join(filter(None, (str(self.place), dotted, self.message)))


def refusal(*problems: Problem) -> ConfigError:
    """Return one error with all problems, one per line, in the order of the file."""
    ordered = sorted(problems, key=lambda problem: (problem.place.line, problem.place.column))
    return ConfigError(*map(str, ordered))


def printable(text: str, limit: int = 200) -> str:
    """Return the text without secrets, escaped if a terminal cannot show it on one line."""
    shown = redact_value(text)
    shown = shown if shown.isprintable() else ascii(shown)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
