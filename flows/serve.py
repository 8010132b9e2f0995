"""Run a configuration on a schedule, from this machine: `python flows/serve.py CONFIG --cron "0 2 * * *"`.

It runs until it is stopped. The Prefect server is the one that PREFECT_API_URL names, or one of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from command import configurations, parser
from fit_transform import fit_transform
from form import Configuration
from orchestra import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, Cron, Schedule
from own_server import some_server

from streamdr import console
from streamdr.errors import ConfigError, EngineError

ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
"""A run that comes due while another is under way is cancelled: the next one takes in what is new."""


def serve() -> None:
    """Serve `fit_transform` with one configuration."""
    words = parser(__doc__)
    words.add_argument("--cron", metavar="CRON", help="when to run, or only on demand")
    words.add_argument("--timezone", metavar="ZONE", default="UTC", help="whose clock, as in Europe/Berlin")
    words.add_argument("--name", metavar="NAME", help="what Prefect calls it; by default the file's name")
    given = words.parse_args()
    try:
        (config,) = configurations(given.configs, given.sets, Configuration)
        if given.timezone not in available_timezones():
            raise ConfigError(f"--timezone: {given.timezone!r} is not known; write it as in Europe/Berlin")
        schedule = None if given.cron is None else _schedule(given.cron, given.timezone)
    except ConfigError as error:
        sys.exit(console.fail_with(error, as_json=False))
    try:
        with some_server():
            fit_transform.serve(
                name=given.name or Path(given.configs[0]).stem,
                schedule=schedule,
                parameters={"config": config.root, "storage_block": given.storage_block},
                global_limit=ONE_AT_A_TIME,
            )
    except EngineError as error:
        sys.exit(console.fail_with(error, as_json=False))


def _schedule(cron: str, timezone: str) -> Schedule:
    try:
        return Cron(cron, timezone=str(ZoneInfo(timezone)))
    except ValueError as error:
        raise ConfigError(f"--cron: {cron!r} is not a schedule such as '0 2 * * *' ({error})") from error


if __name__ == "__main__":
    serve()
