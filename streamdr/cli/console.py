"""The frame of every command: one result on standard output, or one error, and an exit code.

Everything else goes to standard error. Exit codes: 0 done, 1 failed, 2 bad usage or
configuration, 128 + the signal when stopped by one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from streamdr.core.safe_text import lines, one_line, redact, redact_value
from streamdr.errors import ConfigError, OverlapError, ParameterError, StreamdrError, can_pass

if TYPE_CHECKING:
    from streamdr.cli.supervisor import Channel
    from streamdr.workflow.reports import Report

R = TypeVar("R", bound="Report")

TRACEBACK = "STREAMDR_TRACEBACK"
"""The environment variable that shows where an error was raised."""

_SECRET_WORD = re.compile(
    r"(?is)(?:-[\w-]*=|-s)?\s*(?:"
    r"execution\s*[=:]|"
    r"[\w.]*(?:cluster|tls|arguments|storage_options)\w*\s*[=:]|"
    r"[\w. ]*(?:cluster|tls|arguments|storage_options)\w*\s*\.[\w.\s]*[=:\s])"
)
"""The start of a word that sets a key with secrets, even if badly written. The rest is not shown."""


def conclude(work: Callable[[], R], render: Callable[[R], str], *, as_json: bool) -> int:
    """Do short work, and print its result or its error."""
    try:
        return _show(_shown(work(), render, as_json))
    except Exception as error:
        return fail_with(error, as_json)


def conduct(
    work: Callable[[Channel], R], render: Callable[[R], str], *, as_json: bool, after_stop: str
) -> int:
    """Do long work, which signals can stop, and print its result; `after_stop` is the advice after a stop."""
    from streamdr.cli import supervisor
    from streamdr.core.progress import for_stream

    def attempt(channel: Channel) -> None:
        silence_libraries()
        answer(channel, lambda: {"shown": _shown(work(channel), render, as_json)})

    try:
        report = supervisor.supervise(attempt, for_stream(sys.stderr))
    except supervisor.WorkerLost as lost:
        return stopped(f"{lost.how}; {after_stop}", lost.shell_code, as_json)
    except supervisor.StageError as error:
        return fail(error.kind, str(error), error.exit_code, as_json)
    return _show(report["shown"])


def answer(channel: Channel, work: Callable[[], dict[str, Any]]) -> None:
    """Do work in a worker process, and send its report or its error."""
    try:
        channel.send("report", work())
    except Exception as error:
        channel.send("error", _described(error))


def fail(kind: str, message: str, exit_code: int, as_json: bool) -> int:
    """Print an error for people, and for programs with `as_json`, and return the exit code.

    The message may have several lines. Each of them was made safe to be shown.
    """
    message = lines(message)
    for line in message.split("\n"):
        say(f"error: {line}")
    return _end(kind, message, exit_code, as_json)


def say(text: str) -> None:
    """Write a line for people to standard error."""
    with suppress(OSError):  # the work continues without a reader
        sys.stderr.write(f"{lines(text)}\n")
        sys.stderr.flush()


def resume_command() -> str:
    """Return the command line that resumes this one: without `--fresh` and without secrets."""
    words = ["streamdr", *(word for word in sys.argv[1:] if word != "--fresh")]
    return one_line(shlex.join(map(shown_word, words)))


def without_secrets(message: str) -> str:
    """Return a message about this command line without the words that may not be shown."""
    for word in sys.argv[1:]:
        if (shown := shown_word(word)) != word:
            message = message.replace(word, shown).replace(repr(word)[1:-1], shown)
    return one_line(message)


def shown_word(word: str) -> str:
    """Return a word of a command line as it may be shown. A secret value is replaced, its key stays."""
    if (kept := _SECRET_WORD.match(word)) is not None:
        return f"{kept[0]}***"
    key, equals, value = word.partition("=")
    return redact(f"{key}={redact_value(value)}") if equals else redact_value(word)


def stopped(message: str, exit_code: int, as_json: bool) -> int:
    """Print that work was stopped and what to do now, and return the exit code."""
    say(message)
    return _end("Interrupted", message, exit_code, as_json)


def _end(kind: str, message: str, exit_code: int, as_json: bool) -> int:
    if as_json:
        _show(json.dumps({"error": {"kind": kind, "message": message, "exit_code": exit_code}}))
    return exit_code


def fail_with(error: Exception, as_json: bool) -> int:
    """Print an exception as an error, and return its exit code."""
    described = _described(error)
    return fail(described["kind"], described["message"], described["exit_code"], as_json)


def _described(error: Exception) -> dict[str, Any]:
    if os.environ.get(TRACEBACK):
        say("".join(traceback.format_exception(error)).rstrip())
    described = {"message": message_of(error), "exit_code": exit_code_of(error), "can_pass": can_pass(error)}
    return {"kind": type(error).__name__, **described}


def exit_code_of(error: Exception) -> int:
    """Return 2 for errors of a command line or a configuration, 1 for everything else."""
    return 2 if isinstance(error, ConfigError | ParameterError | OverlapError) else 1


def message_of(error: Exception) -> str:
    """Return the message of an exception, for people."""
    if isinstance(error, StreamdrError):
        return str(error)
    if isinstance(error, OSError):
        said = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    elif isinstance(error, MemoryError):
        said = f"out of memory ({error}); free some, or lower execution.memory_limit if there is one"
    else:
        what = f"{type(error).__name__}: {error}"
        said = f"unexpected {what}; run with {TRACEBACK}=1 to see where it came from"
    return one_line(said)


def _shown(report: R, render: Callable[[R], str], as_json: bool) -> str:
    if as_json:
        return json.dumps(_redacted(report.to_json()), allow_nan=False)
    return lines(render(report))


def _redacted(value: Any) -> Any:
    """Return plain data without secrets. JSON escapes what else a terminal must not receive."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redacted(each) for key, each in value.items()}
    return [_redacted(each) for each in value] if isinstance(value, list | tuple) else value


def _show(text: str) -> int:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python would try to write the text again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the work is done, and the reader closed the pipe, as `head` does
        say(f"error: standard output: {error.strerror}")
        return 1
    return 0


def open_missing_streams() -> None:
    """Open the null device for standard streams that this process was started without, as by `>&-`.

    Otherwise the next file that is opened would get their number, and printed text would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            if (opened := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def silence_libraries() -> None:
    """Silence the logs of libraries: an error is printed once, by streamdr."""
    import logging

    logging.disable()
    # The processes of a cluster inherit these.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
