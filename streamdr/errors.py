"""What can go wrong, by who can mend it. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from streamdr.safe_text import lines, one_line


class StreamdrError(Exception):
    """The base of every error that streamdr raises on purpose. What it says may be shown anywhere."""

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ConfigError(StreamdrError):
    """A configuration or a command line that cannot mean anything: mend the words, not the data.

    Parameters
    ----------
    *problems : str
        What is wrong, a line each.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)

    def __str__(self) -> str:
        return lines("\n".join(map(one_line, self.args)))


class ParameterError(StreamdrError, ValueError):
    """A method's parameter with an impossible value, or one that this data cannot satisfy.

    As text it begins with the parameter's name, unless the message says already where the parameter stands
    in a file (`located`).
    """

    def __init__(self, parameter: str, message: str, located: bool = False) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.message = message
        self.located = located

    def __str__(self) -> str:
        return one_line(self.message if self.located else f"{self.parameter}: {self.message}")

    def __reduce__(self) -> tuple[type[ParameterError], tuple[str, str, bool]]:
        return type(self), (self.parameter, self.message, self.located)


class DataError(StreamdrError, ValueError):
    """Input that cannot be read or cannot be used: missing, corrupt, not finite, of the wrong shape."""


class InputError(ParameterError, DataError):
    """A parameter that names what is not there, or does not fit: a path, an array of a group, a column."""


class MissingValuesError(DataError):
    """A value that is not there (NaN), met by what cannot do without it."""


class StoreError(StreamdrError):
    """An output or a saved model that cannot be written, or read back as it was written."""


class OverlapError(StoreError):
    """The place of an output that is an input, or another output, or lies in one: choose another place."""


class BusyError(StoreError):
    """An output that another run is writing: wait for that run, or stop it."""


class MemoryLimitError(StreamdrError, MemoryError):
    """Work that would not fit in the promised memory, refused before a byte was read.

    `least` is the limit, in MiB, that would do; `otherwise` is what may be done instead.
    """

    def __init__(self, problem: str, least: int, otherwise: str = "") -> None:
        super().__init__(problem, least, otherwise)
        self.problem = problem
        self.least = least
        self.otherwise = otherwise

    def __str__(self) -> str:
        return one_line(f"{self.problem}; raise memory_limit to {self.least} MiB{self.otherwise}")


class EngineError(StreamdrError):
    """A cluster that cannot be reached or started, or that the work does not survive."""


class Interrupted(StreamdrError):  # noqa: N818  (an interruption is not an error, but travels like one)
    """The run was asked to stop, and did so after a checkpoint."""
