"""A flow from the command line: the words that it takes, what it prints, and the code that it ends with."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeVar

import httpx
from pydantic import ValidationError

from streamdr.cli import console
from streamdr.cli.supervisor import StageError, set_stop_handlers
from streamdr.errors import ConfigError
from streamdr.flows.parameters import Parameters
from streamdr.flows.prefect_setup import State, TerminationSignal
from streamdr.workflow.reports import Report

F = TypeVar("F", bound=Parameters)
R = TypeVar("R", bound=Report)
Begin = Callable[[list[F], str | None, bool], State[Any]]
"""Runs the flow on configurations, with a block of storage options, anew or not."""


def parser(description: str | None, *, several: bool = False) -> argparse.ArgumentParser:
    """The words that every flow takes."""
    words = argparse.ArgumentParser(description=description)
    words.add_argument(
        "configs", metavar="CONFIG", nargs="+" if several else 1, help="the configuration, a YAML file"
    )
    words.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a key, as in method.n_components=10; may be repeated",
    )
    words.add_argument(
        "--storage-block",
        metavar="TYPE/NAME",
        help="the Prefect block that holds what opens remote stores",
    )
    return words


def configurations(paths: Sequence[str], sets: list[str], form: type[F]) -> list[F]:
    """The configurations, or the ConfigError that a command would have shown."""
    try:
        return [form.load(path, sets) for path in paths]
    except ValidationError as error:
        said = [problem["msg"].removeprefix("Value error, ") for problem in error.errors()]
        raise ConfigError(*(line for message in said for line in message.split("\n"))) from None


def main(
    description: str | None,
    begin: Begin[F],
    render: Callable[[R], str],
    form: type[F],
    *,
    several: bool = False,
) -> None:
    """Run a flow as a command, and exit as the commands of streamdr do."""
    console.open_missing_streams()
    words = parser(description, several=several)
    words.add_argument("--fresh", action="store_true", help="forget what earlier runs remembered")
    words.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object to stdout")
    given = words.parse_args()
    # Prefect sends itself the signal once more when it has noted the run's end.
    set_stop_handlers(_terminate)
    try:
        chosen = configurations(given.configs, given.sets, form)
        state = begin(chosen, given.storage_block, given.fresh)
    except (KeyboardInterrupt, TerminationSignal) as signalled:
        number = signal.SIGINT if isinstance(signalled, KeyboardInterrupt) else signalled.signal
        line = ["python", *(word for word in sys.argv if word != "--fresh")]
        again = shlex.join(map(console.shown_word, line))
        said = f"stopped; what was done is kept. To resume, run: {again}"
        sys.exit(console.stopped(said, 128 + number, given.as_json))
    except Exception as error:
        if not isinstance(error.__cause__ or error, httpx.TransportError):
            sys.exit(console.fail_with(error, given.as_json))
        lost = f"the Prefect server cannot be reached ({error}); what was done is kept, run again when it can"
        sys.exit(console.fail("ServerError", lost, 1, given.as_json))
    outcome: Any = state.result(raise_on_failure=False)
    if isinstance(outcome, StageError):
        sys.exit(console.fail(outcome.kind, str(outcome), outcome.exit_code, given.as_json))
    if not state.is_completed():
        said = state.message or "ended without a word"
        sys.exit(console.fail(state.name or state.type, said, 1, given.as_json))
    report: R = outcome
    sys.exit(console.conclude(lambda: report, render, as_json=given.as_json))


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise TerminationSignal(number)
