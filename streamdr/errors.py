"""The errors, sorted by what has to be changed. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Callable

from streamdr.core.safe_text import lines, one_line

_PERMANENT = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EINVAL),
}
"""System errors that remain until the user changes something. All others may be temporary."""


class StreamdrError(Exception):
    """The base class of every error that streamdr raises on purpose. Its message contains no secrets.

    Examples
    --------
    >>> from streamdr.errors import StreamdrError
    >>> import streamdr
    >>> try:
    ...     streamdr.open_source("nowhere.zarr")
    ... except StreamdrError as error:
    ...     print(type(error).__name__)
    InputError
    """

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ConfigError(StreamdrError):
    """A configuration or a command line that is not valid: change it, not the data.

    Parameters
    ----------
    *problems : str
        What is wrong, one line per problem.

    Examples
    --------
    >>> from streamdr.errors import ConfigError
    >>> print(ConfigError("run.yaml:1: no input", "run.yaml:4: no method"))
    run.yaml:1: no input
    run.yaml:4: no method
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)

    def __str__(self) -> str:
        return lines("\n".join(map(one_line, self.args)))


class ParameterError(StreamdrError, ValueError):
    """A method's parameter with an impossible value, or one that this data cannot satisfy.

    Parameters
    ----------
    parameter : str
        The name of the parameter.
    message : str
        What is wrong with its value.
    located : bool
        Whether the message already names the file and the line.

    Examples
    --------
    >>> from streamdr.errors import ParameterError
    >>> str(ParameterError("tol", "-1 is not above 0"))
    'tol: -1 is not above 0'
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
    """Input that cannot be read or cannot be used: missing, corrupt, not finite, of the wrong shape.

    Examples
    --------
    >>> from streamdr.errors import DataError
    >>> str(DataError('x.zarr: chunk (3, 0) is damaged'))
    'x.zarr: chunk (3, 0) is damaged'
    """


class RowError(DataError):
    """A row that a model cannot map. Whoever knows where the rows come from adds the file and the row.

    Parameters
    ----------
    row : int
        The number of the row among those that were to be mapped.
    problem : str
        What is wrong with the row and what to do, without its number. `{column}` stands for the column.
    step : str
        The name of the model that cannot map it: in a chain, that of the step.
    column : int or None
        The number of the column with the problem, among those that were to be mapped.

    Examples
    --------
    >>> from streamdr.errors import RowError
    >>> print(RowError(3, "the value -2.0 in {column} is negative", "log1p", 5).located("x.zarr", 103))
    x.zarr: row 103: log1p: the value -2.0 in column 5 is negative
    """

    def __init__(self, row: int, problem: str, step: str = "", column: int | None = None) -> None:
        super().__init__(row, problem, step, column)
        self.row = row
        self.problem = problem
        self.step = step
        self.column = column

    def __str__(self) -> str:
        return one_line(f"row {self.row}: {self._described(self._numbered(self.column))}")

    def at_row(self, row: int) -> RowError:
        """Return the error for another number of the row."""
        return type(self)(row, self.problem, self.step, self.column)

    def in_chain(self, step: str, column: int | None) -> RowError:
        """Return the error of a step of a chain, with the number of the column among the chain's features.

        It is None where a feature is no column of the data.
        """
        problem = self.problem
        if column is None:
            problem = problem.replace("{column}", f"{self._numbered(self.column)} at this step")
        return type(self)(self.row, problem, step or self.step, column)

    def located(self, name: str, row: int, described: Callable[[int], str] | None = None) -> DataError:
        """Return the error for a row of the source `name`, by its number there.

        `described` returns the number of a column there, with its name.
        """
        column = (described or self._numbered)(self.column) if self.column is not None else ""
        return DataError(f"{name}: row {row}: {self._described(column)}")

    def _described(self, column: str) -> str:
        problem = self.problem.replace("{column}", column)
        return f"{self.step}: {problem}" if self.step else problem

    @staticmethod
    def _numbered(column: int | None) -> str:
        return f"column {column}"

    def __reduce__(self) -> tuple[type[RowError], tuple[int, str, str, int | None]]:
        return type(self), (self.row, self.problem, self.step, self.column)


class InputError(ParameterError, DataError):
    """A parameter that names something missing or unsuitable: a path, an array of a group, a column.

    Parameters
    ----------
    parameter : str
        The name of the parameter.
    message : str
        What is wrong with its value.
    located : bool
        Whether the message already names the file and the line.

    Examples
    --------
    >>> from streamdr.errors import InputError
    >>> str(InputError("path", "x.zarr does not exist"))
    'path: x.zarr does not exist'
    """


class MissingValuesError(DataError):
    """A missing value (NaN) in data that must be complete.

    Examples
    --------
    >>> from streamdr.errors import MissingValuesError
    >>> str(MissingValuesError('x.zarr: row 7, column 2 is NaN'))
    'x.zarr: row 7, column 2 is NaN'
    """


class StoreError(StreamdrError):
    """An output or a saved model that cannot be written, or cannot be read back unchanged.

    Examples
    --------
    >>> from streamdr.errors import StoreError
    >>> str(StoreError('model.zarr exists already'))
    'model.zarr exists already'
    """


class OverlapError(StoreError):
    """An output path that is an input or another output, or lies inside one: choose another path.

    Examples
    --------
    >>> from streamdr.errors import OverlapError
    >>> str(OverlapError('out.zarr lies in the input x.zarr'))
    'out.zarr lies in the input x.zarr'
    """


class BusyError(StoreError):
    """An output that another run is writing: wait for that run, or stop it.

    Examples
    --------
    >>> from streamdr.errors import BusyError
    >>> str(BusyError('another run is writing model.zarr'))
    'another run is writing model.zarr'
    """


class MemoryLimitError(StreamdrError, MemoryError):
    """A fit or a transform that needs more than the memory limit, refused before any data is read.

    Parameters
    ----------
    problem : str
        What does not fit.
    least : int
        The smallest sufficient limit, in MiB.
    otherwise : str
        What can be done instead.

    Examples
    --------
    >>> from streamdr.errors import MemoryLimitError
    >>> str(MemoryLimitError("it takes 90 MiB", 100))
    'it takes 90 MiB; raise memory_limit to 100 MiB'
    """

    def __init__(self, problem: str, least: int, otherwise: str = "") -> None:
        super().__init__(problem, least, otherwise)
        self.problem = problem
        self.least = least
        self.otherwise = otherwise

    def __str__(self) -> str:
        return one_line(f"{self.problem}; raise memory_limit to {self.least} MiB{self.otherwise}")


class EngineError(StreamdrError):
    """A cluster that cannot be reached or started, or that fails during the work.

    Examples
    --------
    >>> from streamdr.errors import EngineError
    >>> str(EngineError('the scheduler does not answer'))
    'the scheduler does not answer'
    """


class Interrupted(StreamdrError):  # noqa: N818  (an interruption is not an error, but is raised like one)
    """The run was asked to stop, and did so after a checkpoint.

    Examples
    --------
    >>> from streamdr.errors import Interrupted
    >>> str(Interrupted('stopped after a checkpoint'))
    'stopped after a checkpoint'
    """


def can_pass(error: BaseException | None) -> bool:
    """Return whether an error may be temporary, such as a lost disk or worker: trying again may help.

    Parameters
    ----------
    error : exception or None
        The error that was raised.

    Returns
    -------
    whether : bool
        Whether trying again may help.

    Examples
    --------
    >>> from streamdr.errors import EngineError, can_pass
    >>> can_pass(EngineError("the scheduler is gone")), can_pass(None)
    (True, False)
    """
    if isinstance(error, BusyError):
        return False
    caused_by_data = isinstance(error, DataError)  # rows that crash their workers will do so again
    while error is not None:
        if isinstance(error, EngineError):
            return not caused_by_data
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError):
            return error.errno not in _PERMANENT
        error = error.__cause__
    return False
