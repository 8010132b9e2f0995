"""Run a configuration on a schedule, from this machine: `python flows/serve.py CONFIG --cron "0 2 * * *"`.

It runs until it is stopped. The Prefect server is that of PREFECT_API_URL, or one that is started.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shlex
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from anyio._backends._asyncio import WorkerThread

from streamdr.cli import console
from streamdr.cli.supervisor import set_stop_handlers
from streamdr.config.problems import printable
from streamdr.errors import ConfigError, EngineError
from streamdr.flows.command import configurations, parser
from streamdr.flows.fit_transform import fit_transform
from streamdr.flows.own_server import some_server
from streamdr.flows.parameters import Configuration
from streamdr.flows.prefect_setup import (
    ConcurrencyLimitConfig,
    ConcurrencyLimitStrategy,
    Cron,
    ObjectNotFound,
    Runner,
    Schedule,
    get_client,
)

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
"""A run that is due while another one runs is cancelled. The next run processes what is new."""


_PATIENCE_SECONDS = 60.0
"""How long a runner may take to end. Where a run was cancelled just before, it has gone on for ever."""


class StoppingRunner(Runner):
    """A runner that also stops the current run on SIGTERM. That of Prefect would wait for its end."""

    def handle_sigterm(self, *args: Any) -> None:
        """Stop the current run, then the runner. A runner that does not end is left after a while."""
        last = threading.Timer(_PATIENCE_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()
        for run in multiprocessing.active_children():
            run.terminate()
        super().handle_sigterm(*args)


def serve() -> None:
    """Serve `fit_transform` with one configuration."""
    console.open_missing_streams()
    arguments = parser(__doc__)
    arguments.add_argument("--cron", metavar="CRON", help="the schedule; by default only on demand")
    arguments.add_argument(
        "--timezone", metavar="ZONE", default="UTC", help="of the schedule, as in Europe/Berlin"
    )
    arguments.add_argument(
        "--name", metavar="NAME", help="of the deployment; by default the name of the file"
    )
    given = arguments.parse_args()
    try:
        (config,) = configurations(given.configs, given.sets, Configuration)
        if given.timezone not in available_timezones():
            raise ConfigError(f"--timezone: {given.timezone!r} is not a time zone such as Europe/Berlin")
        schedule = None if given.cron is None else _schedule(given.cron, given.timezone)
    except ConfigError as error:
        sys.exit(console.fail_with(error, as_json=False))
    # The runner installs its handler when it starts. Until then, a signal must stop the started server.
    set_stop_handlers(_leave)
    try:
        with some_server():
            name = given.name or Path(given.configs[0]).stem
            description = f"Runs {Path(given.configs[0]).resolve()}"
            _require_own(name, description)
            runner = StoppingRunner(name=name)
            runner.add_flow(
                fit_transform,
                name=name,
                description=description,
                schedule=schedule,
                parameters={"config": config.root, "storage_block": given.storage_block},
                concurrency_limit=ONE_AT_A_TIME,
            )
            command = f"prefect deployment run {shlex.quote(f'{fit_transform.name}/{name}')}"
            console.say(f"serving; to start a run besides the schedule: {command}")
            try:
                with suppress(KeyboardInterrupt):
                    asyncio.run(runner.start())
            finally:
                _end_waiting_threads()
    except (ConfigError, EngineError) as error:
        sys.exit(console.fail_with(error, as_json=False))
    except KeyboardInterrupt:  # before the runner took over
        sys.exit(128 + signal.SIGINT)


def _require_own(name: str, description: str) -> None:
    """Refuse the name of another deployment, which would be replaced without a warning."""
    with get_client(sync_client=True) as server:
        try:
            existing = server.read_deployment_by_name(f"{fit_transform.name}/{name}")
        except ObjectNotFound:
            return
    if existing.description != description:
        shown = printable(existing.description or "without a description")
        raise ConfigError(
            f"--name: the server has a deployment {name!r} already ({shown}), which this would replace; "
            "choose another --name, or delete that one with `prefect deployment delete`"
        )


def _end_waiting_threads() -> None:
    """End the threads of anyio that wait for work. Python would wait for them for ever.

    Their event loop ends them, but not always if a signal has ended it.
    """
    for thread in threading.enumerate():
        if isinstance(thread, WorkerThread):
            thread.stop()


def _leave(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGTERM:
        sys.exit(128 + number)
    signal.raise_signal(
        signal.SIGTERM
    )  # SIGHUP, a closed terminal: pass it on to the runner, if it has started


def _schedule(cron: str, timezone: str) -> Schedule:
    try:
        return Cron(cron, timezone=str(ZoneInfo(timezone)))
    except ValueError as error:
        raise ConfigError(f"--cron: {cron!r} is not a schedule such as '0 2 * * *' ({error})") from error


if __name__ == "__main__":
    serve()
