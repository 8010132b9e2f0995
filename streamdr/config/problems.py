"""What is wrong with a configuration, and where it was written."""

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
    """One thing to mend."""

    place: SourcePosition
    path: KeyPath
    message: str

    def __str__(self) -> str:
        dotted = ".".join(map(printable, self.path))
        return ": ".join(filter(None, (str(self.place), dotted, self.message)))


def refusal(*problems: Problem) -> ConfigError:
    """All problems as one error, a line each, in the order in which the file shows them."""
    ordered = sorted(problems, key=lambda problem: (problem.place.line, problem.place.column))
    return ConfigError(*map(str, ordered))


def printable(text: str, limit: int = 200) -> str:
    """The text as it is where a terminal can show it on one line, else escaped; without secrets."""
    shown = redact_value(text)
    shown = shown if shown.isprintable() else ascii(shown)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
