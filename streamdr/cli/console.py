"""What every command does around its work: one result on standard output, or one error, and an exit code.

Whatever else there is to say goes to standard error. Exit codes: 0 done, 1 failed, 2 bad usage or
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

_UNSHOWN = re.compile(
    r"(?is)(?:-[\w-]*=|-s)?\s*(?:"
    r"execution\s*[=:]|"
    r"[\w.]*(?:cluster|tls|arguments|storage_options)\w*\s*[=:]|"
    r"[\w. ]*(?:cluster|tls|arguments|storage_options)\w*\s*\.[\w.\s]*[=:\s])"
)
"""The beginning of a word that sets what may hold secrets, well or badly written; the rest is not shown."""


def conclude(work: Callable[[], R], render: Callable[[R], str], *, as_json: bool) -> int:
    """Do short work, and say what came of it."""
    try:
        return _show(_shown(work(), render, as_json))
    except Exception as error:
        return fail_with(error, as_json)


def conduct(
    work: Callable[[Channel], R], render: Callable[[R], str], *, as_json: bool, after_stop: str
) -> int:
    """Do long work, which a signal stops, and say what came of it; `after_stop` is what to do then."""
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
    """Do work in a worker process, and send what came of it."""
    try:
        channel.send("report", work())
    except Exception as error:
        channel.send("error", _described(error))


def fail(kind: str, message: str, exit_code: int, as_json: bool) -> int:
    """Say what went wrong, to people and to programs, and return the exit code.

    Of the message, which may have several lines, each was made safe to be shown on its own.
    """
    message = lines(message)
    for line in message.split("\n"):
        say(f"error: {line}")
    return _end(kind, message, exit_code, as_json)


def say(text: str) -> None:
    """Write a line for people."""
    with suppress(OSError):  # the work outlives whoever was reading
        sys.stderr.write(f"{lines(text)}\n")
        sys.stderr.flush()


def resume_command() -> str:
    """The command line to run again: the same, but for what would forget what was done, and for secrets."""
    words = ["streamdr", *(word for word in sys.argv[1:] if word != "--fresh")]
    return one_line(shlex.join(map(shown_word, words)))


def without_secrets(message: str) -> str:
    """What is said of the words of this command line, without those that may not be shown."""
    for word in sys.argv[1:]:
        if (shown := shown_word(word)) != word:
            message = message.replace(word, shown).replace(repr(word)[1:-1], shown)
    return one_line(message)


def shown_word(word: str) -> str:
    """A word of a command line as it may be shown: a key keeps its name, and loses its value if need be."""
    if (kept := _UNSHOWN.match(word)) is not None:
        return f"{kept[0]}***"
    key, equals, value = word.partition("=")
    return redact(f"{key}={redact_value(value)}") if equals else redact_value(word)


def stopped(message: str, exit_code: int, as_json: bool) -> int:
    """Say that work was stopped and what to do now, and return the exit code."""
    say(message)
    return _end("Interrupted", message, exit_code, as_json)


def _end(kind: str, message: str, exit_code: int, as_json: bool) -> int:
    if as_json:
        _show(json.dumps({"error": {"kind": kind, "message": message, "exit_code": exit_code}}))
    return exit_code


def fail_with(error: Exception, as_json: bool) -> int:
    """Say what an exception says, and return the exit code that it stands for."""
    described = _described(error)
    return fail(described["kind"], described["message"], described["exit_code"], as_json)


def _described(error: Exception) -> dict[str, Any]:
    if os.environ.get(TRACEBACK):
        say("".join(traceback.format_exception(error)).rstrip())
    described = {"message": message_of(error), "exit_code": exit_code_of(error), "can_pass": can_pass(error)}
    return {"kind": type(error).__name__, **described}


def exit_code_of(error: Exception) -> int:
    """2 for what has to be mended in a command line or a configuration, 1 for everything else."""
    return 2 if isinstance(error, ConfigError | ParameterError | OverlapError) else 1


def message_of(error: Exception) -> str:
    """What an exception says to people."""
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
    """Plain data without secrets. What else is not fit for a terminal, JSON escapes."""
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
        # Python would try once more to write the text, at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 0  # the work is done, and whoever reads has read enough, as `head` does
        say(f"error: standard output: {error.strerror}")
        return 1
    return 0


def open_missing_streams() -> None:
    """Put nothing in the place of standard streams that this process was started without, as by `>&-`.

    The next file that is opened would get their number otherwise, and whatever is printed would go there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            if (opened := os.open(os.devnull, os.O_RDWR)) != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def silence_libraries() -> None:
    """Keep what libraries log off the screen: an error is printed once, in our own wording."""
    import logging

    logging.disable()
    # The processes of a cluster inherit these.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
