"""What can go wrong, by who can mend it. Every message says what was wrong, where, and what to do."""

from __future__ import annotations


class StreamdrError(Exception):
    """The base of every error that streamdr raises on purpose."""


class ConfigError(StreamdrError):
    """A configuration or a command line that cannot mean anything: mend the words, not the data."""


class ParameterError(StreamdrError, ValueError):
    """A method's parameter with an impossible value, or one that this data cannot satisfy."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[type[ParameterError], tuple[str, str]]:
        return type(self), (self.parameter, str(self))


class DataError(StreamdrError, ValueError):
    """Input that cannot be read or cannot be used: missing, corrupt, not finite, of the wrong shape."""


class MissingValuesError(DataError):
    """A value that is not there (NaN), met by what cannot do without it."""


class StoreError(StreamdrError):
    """An output or a saved model that cannot be written, or read back as it was written."""


class BusyError(StoreError):
    """An output that another run is writing: wait for that run, or stop it."""


class MemoryLimitError(StreamdrError, MemoryError):
    """Work that would not fit in the promised memory, refused before a byte was read."""


class EngineError(StreamdrError):
    """A cluster that cannot be reached or started, or that the work does not survive."""


class Interrupted(StreamdrError):  # noqa: N818  (an interruption is not an error, but travels like one)
    """The run was asked to stop, and did so after a checkpoint."""
