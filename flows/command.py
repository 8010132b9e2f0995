"""A flow as a command: its arguments, its output and its exit code."""

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
"""Runs the flow on configurations, with a block of storage options, and with or without a fresh start."""


def parser(description: str | None, *, several: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the arguments that all flows have."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument(
        "configs", metavar="CONFIG", nargs="+" if several else 1, help="the configuration, a YAML file"
    )
    arguments.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a key, as in method.n_components=10; may be repeated",
    )
    arguments.add_argument(
        "--storage-block",
        metavar="TYPE/NAME",
        help="the Prefect block with the storage options of remote stores",
    )
    return arguments


def configurations(paths: Sequence[str], sets: list[str], kind: type[F]) -> list[F]:
    """Load the configurations, or raise the ConfigError that a command would show."""
    try:
        return [kind.load(path, sets) for path in paths]
    except ValidationError as error:
        said = [problem["msg"].removeprefix("Value error, ") for problem in error.errors()]
        raise ConfigError(*(line for message in said for line in message.split("\n"))) from None


def main(
    description: str | None,
    begin: Begin[F],
    render: Callable[[R], str],
    kind: type[F],
    *,
    several: bool = False,
) -> None:
    """Run a flow as a command, and exit as the commands of streamdr do."""
    console.open_missing_streams()
    arguments = parser(description, several=several)
    arguments.add_argument(
        "--fresh", action="store_true", help="ignore checkpoints and outputs of earlier runs"
    )
    arguments.add_argument(
        "--json", dest="as_json", action="store_true", help="print one JSON object to stdout"
    )
    given = arguments.parse_args()
    # Prefect sends the signal to itself again after it has recorded the end of the run.
    set_stop_handlers(_terminate)
    try:
        chosen = configurations(given.configs, given.sets, kind)
        state = begin(chosen, given.storage_block, given.fresh)
    except (KeyboardInterrupt, TerminationSignal) as signalled:
        number = signal.SIGINT if isinstance(signalled, KeyboardInterrupt) else signalled.signal
        line = ["python", *(word for word in sys.argv if word != "--fresh")]
        again = shlex.join(map(console.shown_word, line))
        said = f"stopped; finished work is kept. To resume, run: {again}"
        sys.exit(console.stopped(said, 128 + number, given.as_json))
    except Exception as error:
        if not isinstance(error.__cause__ or error, httpx.TransportError):
            sys.exit(console.fail_with(error, given.as_json))
        lost = f"the Prefect server cannot be reached ({error}); finished work is kept, run again when it can"
        sys.exit(console.fail("ServerError", lost, 1, given.as_json))
    outcome: Any = state.result(raise_on_failure=False)
    if isinstance(outcome, StageError):
        sys.exit(console.fail(outcome.kind, str(outcome), outcome.exit_code, given.as_json))
    if not state.is_completed():
        said = state.message or "ended without a message"
        sys.exit(console.fail(state.name or state.type, said, 1, given.as_json))
    report: R = outcome
    sys.exit(console.conclude(lambda: report, render, as_json=given.as_json))


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise TerminationSignal(number)
